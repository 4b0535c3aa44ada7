package io.jccl.train;

import io.jccl.compute.AttentionShape;
import io.jccl.compute.Norm;
import io.jccl.compute.Rotary;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

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

    /** The device's default stream, on which everything is computed. */
    final Stream stream;

    final Operations.Attention attention;

    /** The gradient on the residual path. */
    final Buffer gradient;

    /** Gradient of a norm's output. */
    final Buffer normedGradient;

    /** The output of a branch, to be added to the residual. */
    final Buffer branch;

    final Buffer attendedGradient;
    final Buffer qkvGradient;

    /** Activations between the two matrices, and their gradient; empty without them. */
    final Buffer activated;

    final Buffer wideGradient;

    /** Gradient of the first product's output; that of the activations unless they are gated. */
    final Buffer raisedGradient;

    /** Columns of activations, and of the first product's output, on this rank. */
    final int wide;

    final int raised;

    /** Columns of queries, keys and values on this rank. */
    final int queries;

    /** The norm of rows, and the elements that are kept of each row. */
    final Norm norm;

    final int kept;

    /** Sums over this rank's rows of the gradients of a norm's gain and bias. */
    final Buffer normSums;

    final Architecture architecture;

    /** Rotates queries and keys by their positions; null if positions are added to tokens. */
    final @Nullable Rotary rotary;

    /** The table of the angles. */
    final Buffer angles;

    /** Output or gradient of the experts while the two matrices compute as well. */
    final Buffer beside;

    /** The gradient on the residual path while parts of it are in its place. */
    final Buffer saved;

    Workspace(
            GptShape shape,
            int sequences,
            int tensorRanks,
            boolean shared,
            Operations operations,
            Device device,
            Owned owned) {
        this.operations = operations;
        stream = device.defaultStream();
        rows = sequences * shape.context();
        shareRows = shared ? rows / tensorRanks : rows;
        hidden = shape.hidden();
        attended = hidden / tensorRanks;
        architecture = shape.architecture();
        int heads = shape.heads() / tensorRanks;
        int keyHeads = architecture.keyHeads() / tensorRanks;
        int size = shape.headSize();
        queries = (heads + 2 * keyHeads) * size;
        Norm.Kind kind = architecture.biases() ? Norm.Kind.LAYER : Norm.Kind.RMS;
        norm = new Norm(kind, hidden, (float) architecture.epsilon());
        kept = norm.statistics();
        normSums = owned.floats(device, shared && architecture.gains() ? 2L * hidden : 0);
        rotary =
                architecture.rotary()
                        ? new Rotary(heads + keyHeads, size, shape.context(), queries)
                        : null;
        float[] table = rotary == null ? new float[0] : rotary.angles(architecture.rotaryBase());
        angles = owned.floats(device, table.length);
        angles.copyFrom(table);
        long share = (long) shareRows * hidden;
        gradient = owned.floats(device, share);
        normedGradient = owned.floats(device, share);
        branch = owned.floats(device, share);
        AttentionShape attentionShape =
                new AttentionShape(sequences, shape.context(), heads, keyHeads, size);
        // The backward pass has no outputs of branches when it reaches attention.
        Buffer scratch = branch.slice(0, attentionShape.rows() * heads);
        attention = operations.attention(attentionShape, scratch, owned);
        attendedGradient = owned.floats(device, (long) rows * attended);
        qkvGradient = owned.floats(device, (long) rows * queries);
        wide = shape.dense() ? architecture.wide() / tensorRanks : 0;
        raised = architecture.gated() ? 2 * wide : wide;
        activated = owned.floats(device, (long) rows * wide);
        wideGradient = owned.floats(device, (long) rows * wide);
        raisedGradient =
                architecture.gated() ? owned.floats(device, (long) rows * raised) : wideGradient;
        beside = owned.floats(device, shape.experts() > 0 && shape.dense() ? share : 0);
        saved = owned.floats(device, shape.mixture().residual() ? share : 0);
    }

    /** Tensors that a block keeps of one micro-batch for the backward pass. */
    static final class Kept {
        final Buffer normed;
        final Buffer qkv;
        final Buffer attended;
        final Buffer logSums;
        final Buffer middle;
        final Buffer middleNormed;

        /** What is kept of the two norms. */
        final Buffer ofNorm;

        final Buffer ofMiddleNorm;

        /** The first product's output; empty without the two matrices. */
        final Buffer raised;

        Kept(Workspace w, int heads, Device device, Owned owned) {
            long share = (long) w.shareRows * w.hidden;
            normed = owned.floats(device, share);
            qkv = owned.floats(device, (long) w.rows * w.queries);
            attended = owned.floats(device, (long) w.rows * w.attended);
            logSums = owned.floats(device, (long) w.rows * heads);
            middle = owned.floats(device, share);
            middleNormed = owned.floats(device, share);
            long ofNorms = (long) w.shareRows * w.kept;
            ofNorm = owned.floats(device, ofNorms);
            ofMiddleNorm = owned.floats(device, ofNorms);
            raised = owned.floats(device, (long) w.rows * w.raised);
        }
    }
}
