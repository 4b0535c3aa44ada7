package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Norm;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import org.jspecify.annotations.Nullable;

/** A norm of rows with its learned weights, if its architecture has any. */
final class RowNorm {
    private final Operations operations;
    private final Norm norm;
    private final Stream stream;
    private final @Nullable Parameter gain;
    private final @Nullable Parameter bias;

    /** Tensor ranks that have different rows, whose gradients are added up; else null. */
    private final @Nullable Communicator tensor;

    private final @Nullable Buffer gainSum;
    private final @Nullable Buffer biasSum;

    RowNorm(
            Workspace work,
            @Nullable Parameter gain,
            @Nullable Parameter bias,
            @Nullable Communicator tensor) {
        this.operations = work.operations;
        this.norm = work.norm;
        this.stream = work.stream;
        this.gain = gain;
        this.bias = bias;
        this.tensor = tensor;
        boolean sums = tensor != null;
        gainSum = sums && gain != null ? work.normSums.slice(0, work.hidden) : null;
        biasSum = sums && bias != null ? work.normSums.slice(work.hidden, work.hidden) : null;
    }

    /** From rows to normalized rows; what is kept is for {@link #backward}. */
    void forward(Buffer x, Buffer normed, Buffer kept) {
        operations.layers().norm(norm, x, values(gain), values(bias), normed, kept, stream);
    }

    /** Adds to the gradients of the input and of the learned weights. */
    void backward(Buffer x, Buffer kept, Buffer normedGradient, Buffer gradient) {
        zero(gainSum);
        zero(biasSum);
        operations
                .layers()
                .normBackward(
                        norm,
                        x,
                        values(gain),
                        kept,
                        normedGradient,
                        gradient,
                        gainSum == null ? gradient(gain) : gainSum,
                        biasSum == null ? gradient(bias) : biasSum,
                        stream);
        addUp(gainSum, gain);
        addUp(biasSum, bias);
    }

    private static @Nullable Buffer values(@Nullable Parameter p) {
        return p == null ? null : p.values();
    }

    private static @Nullable Buffer gradient(@Nullable Parameter p) {
        return p == null ? null : p.gradient();
    }

    private void zero(@Nullable Buffer sum) {
        if (sum != null) {
            operations.zero(sum);
        }
    }

    private void addUp(@Nullable Buffer sum, @Nullable Parameter to) {
        if (sum != null && to != null && tensor != null) {
            tensor.allReduce(sum, ReduceOp.SUM, stream);
            operations.add(to.gradient(), sum, to.gradient());
        }
    }
}
