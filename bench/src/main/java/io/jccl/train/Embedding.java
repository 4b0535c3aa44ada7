package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** The first layer: a token embedding, to which most models add a position embedding. */
final class Embedding {
    private final Workspace work;
    private final Parameter token;
    private final @Nullable Parameter position;

    /** The position of each row in its sequence. */
    private final Buffer positions;

    Embedding(ParameterStore store, Part part, Workspace work, Device device, Owned owned) {
        this.work = work;
        token = store.get(part, 0, "token");
        position = store.find(part, 0, "position");
        int[] of = new int[work.rows];
        for (int r = 0; r < of.length; r++) {
            of[r] = r % part.shape().context();
        }
        positions = owned.allocate(device, DataType.INT32, of.length);
        positions.copyFrom(MemorySegment.ofArray(of));
    }

    /** This rank's rows of a micro-batch. */
    void forward(Buffer tokens, int firstRow, Buffer x) {
        int rows = work.shareRows;
        Operations o = work.operations;
        o.lookUp(token.values(), work.hidden, tokens.slice(firstRow, rows), x);
        if (position != null) {
            Buffer index = positions.slice(firstRow, rows);
            o.lookUp(position.values(), work.hidden, index, work.branch);
            o.add(x, work.branch, x);
        }
    }

    /** The gradients of all rows of a micro-batch. */
    void backward(Buffer tokens, Buffer gradient) {
        work.operations.scatterAdd(gradient, work.hidden, tokens, token.gradient());
        if (position != null) {
            work.operations.scatterAdd(gradient, work.hidden, positions, position.gradient());
        }
    }
}
