package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.Device;

/**
 * Scratch memory that the blocks of a rank share, since they compute one after the other.
 *
 * <p>Rows are those of a micro-batch; on the residual path with sequence parallelism only this
 * rank's share of them.
 */
final class Workspace {
    /** Rows of the residual path. */
    final int shareRows;

    /** Rows elsewhere. */
    final int rows;

    final int hidden;

    /** Columns of attention's outputs on this rank. */
    final int attended;

    final Operations operations;

    final Operations.Attention attention;

    /** The gradient on the residual path. */
    final Buffer gradient;

    /** Gradient of a norm's output. */
    final Buffer normedGradient;

    /** The output of a branch, to be added to the residual. */
    final Buffer branch;

    final Buffer attendedGradient;
    final Buffer qkvGradient;

    /** Activations between the two matrices; empty without them. */
    final Buffer squared;

    final Buffer wideGradient;

    /** Output or gradient of the experts while the two matrices beside them compute. */
    final Buffer beside;

    Workspace(
            GptShape shape,
            int sequences,
            int tensorRanks,
            boolean shared,
            Operations operations,
            Device device,
            Owned owned) {
        this.operations = operations;
        rows = sequences * shape.context();
        shareRows = shared ? rows / tensorRanks : rows;
        hidden = shape.hidden();
        attended = hidden / tensorRanks;
        int heads = shape.heads() / tensorRanks;
        attention =
                operations.attention(
                        sequences, shape.context(), heads, hidden / shape.heads(), owned);
        long share = (long) shareRows * hidden;
        gradient = owned.floats(device, share);
        normedGradient = owned.floats(device, share);
        branch = owned.floats(device, share);
        attendedGradient = owned.floats(device, (long) rows * attended);
        qkvGradient = owned.floats(device, 3L * rows * attended);
        long wide = shape.dense() ? (long) rows * GptShape.WIDTH * attended : 0;
        squared = owned.floats(device, wide);
        wideGradient = owned.floats(device, wide);
        beside = owned.floats(device, shape.experts() > 0 && shape.dense() ? share : 0);
    }

    /** Tensors that a block keeps of one micro-batch for the backward pass. */
    static final class Kept {
        final Buffer normed;
        final Buffer qkv;
        final Buffer attended;
        final Buffer logSums;
        final Buffer middle;
        final Buffer middleNormed;

        /** What the operations keep of the two norms. */
        final Buffer ofNorm;

        final Buffer ofMiddleNorm;

        /** Activations between the two matrices; empty without them. */
        final Buffer raised;

        Kept(Workspace w, int heads, Device device, Owned owned) {
            long share = (long) w.shareRows * w.hidden;
            normed = owned.floats(device, share);
            qkv = owned.floats(device, 3L * w.rows * w.attended);
            attended = owned.floats(device, (long) w.rows * w.attended);
            logSums = owned.floats(device, (long) w.rows * heads);
            middle = owned.floats(device, share);
            middleNormed = owned.floats(device, share);
            long ofNorms = (long) w.shareRows * w.operations.kept();
            ofNorm = owned.floats(device, ofNorms);
            ofMiddleNorm = owned.floats(device, ofNorms);
            raised = owned.floats(device, w.squared.count());
        }
    }
}
