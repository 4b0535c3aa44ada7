package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;

/** The first layer: the sum of a token and a position embedding. */
final class Embedding {
    private final Workspace work;
    private final Buffer token;
    private final Buffer position;
    private final Buffer tokenGradient;
    private final Buffer positionGradient;

    /** The position of each row in its sequence. */
    private final Buffer positions;

    Embedding(ParameterStore store, GptShape shape, Workspace work, Device device, Owned owned) {
        this.work = work;
        token = store.weight(0, 0);
        position = store.weight(0, 1);
        tokenGradient = store.gradient(0, 0);
        positionGradient = store.gradient(0, 1);
        int[] of = new int[work.rows];
        for (int r = 0; r < of.length; r++) {
            of[r] = r % shape.context();
        }
        positions = owned.add(device.allocate(DataType.INT32, of.length));
        positions.copyFrom(MemorySegment.ofArray(of));
    }

    /** This rank's rows of a micro-batch. */
    void forward(Buffer tokens, int firstRow, Buffer x) {
        int rows = work.shareRows;
        work.operations.lookUp(
                token,
                tokens.slice(firstRow, rows),
                position,
                positions.slice(firstRow, rows),
                work.hidden,
                x,
                work.branch);
    }

    /** The gradients of all rows of a micro-batch. */
    void backward(Buffer tokens, Buffer gradient) {
        work.operations.scatterAdd(gradient, work.hidden, tokens, tokenGradient);
        work.operations.scatterAdd(gradient, work.hidden, positions, positionGradient);
    }
}
