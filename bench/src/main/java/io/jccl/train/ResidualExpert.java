package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Mixture;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import org.jspecify.annotations.Nullable;

/**
 * Experts and, in addition, two matrices that all tokens pass through, with learned weights
 * (DeepSpeed-MoE's Residual-MoE, arXiv 2201.05596, with the coefficients of its implementation).
 * For a token x with outputs m of the experts and d of the matrices
 *
 * <pre>{@code
 * (a, b) = softmax(x C + c)      C: hidden x 2
 * y = a m + b d = d + a (m - d)
 * }</pre>
 *
 * <p>Backward, with g the gradient of y: {@code dm = a g}, {@code dd = b g}, and of the two logits
 * {@code a b g (m - d)} and its negative.
 */
final class ResidualExpert implements FeedForward {
    private final Workspace work;
    private final Mixture mixture;
    private final FeedForward experts;
    private final FeedForward dense;
    private final Buffer[] tokens;
    private final Parameter coefficient;
    private final Parameter bias;

    /** Tensor ranks with other rows, whose gradients are added up; null if all have all rows. */
    private final @Nullable Communicator tensor;

    /** For each slot m - d, and a of each row; slots with the same tokens share them. */
    private final Buffer[] differences;

    private final Buffer[] shares;

    /** Sums over rows of the gradients of C's first column, then that of c's first element. */
    private final Buffer sums;

    /** What the kernels add up for {@link #sums}: an element for each row. */
    private final Buffer scratch;

    private final int width;

    /**
     * Creates the part.
     *
     * @param work shared memory
     * @param experts write to {@link Workspace#branch}, as the matrices do
     * @param dense the two matrices
     * @param tokens the normalized rows, one buffer per slot
     * @param coefficient hidden x 2
     * @param bias 2 elements
     * @param tensor ranks that split the rows; null if all have all rows
     * @param device the ranks'
     * @param owned owner of the memory
     */
    ResidualExpert(
            Workspace work,
            FeedForward experts,
            FeedForward dense,
            Buffer[] tokens,
            Parameter coefficient,
            Parameter bias,
            @Nullable Communicator tensor,
            Device device,
            Owned owned) {
        this.work = work;
        mixture = work.operations.compute().mixture();
        this.experts = experts;
        this.dense = dense;
        this.tokens = tokens;
        this.coefficient = coefficient;
        this.bias = bias;
        this.tensor = tensor;
        width = work.hidden;
        differences = new Buffer[tokens.length];
        shares = new Buffer[tokens.length];
        for (int s = 0; s < tokens.length; s++) {
            boolean same = s > 0 && tokens[s] == tokens[0];
            differences[s] = same ? differences[0] : owned.floats(device, tokens[s].count());
            shares[s] = same ? shares[0] : owned.floats(device, work.shareRows);
        }
        sums = owned.add(device.allocate(DataType.FLOAT64, width + 1L));
        scratch = owned.add(device.allocate(DataType.FLOAT64, work.shareRows));
    }

    @Override
    public void forward(int slot) {
        experts.forward(slot);
        work.operations.convert(work.branch, work.beside);
        dense.forward(slot);
        mixture.mix(
                tokens[slot],
                width,
                coefficient.values(),
                bias.values(),
                work.beside,
                work.branch,
                differences[slot],
                shares[slot],
                work.stream);
    }

    /** Recomputes everything: gradients of the coefficients need both outputs. */
    @Override
    public void recompute(int slot) {
        forward(slot);
    }

    @Override
    public void backward(int slot) {
        work.operations.convert(work.gradient, work.saved);
        scale(slot, false);
        experts.backward(slot);
        work.operations.convert(work.normedGradient, work.beside);
        scale(slot, true);
        dense.backward(slot);
        work.operations.add(work.normedGradient, work.beside, work.normedGradient);
        work.operations.convert(work.saved, work.gradient);
        coefficientBackward(slot);
    }

    /** Sets the gradient of one output: that of the sum times a, or 1 - a. */
    private void scale(int slot, boolean rest) {
        mixture.scaleByShare(work.saved, width, shares[slot], rest, work.gradient, work.stream);
    }

    private void coefficientBackward(int slot) {
        mixture.mixBackward(
                tokens[slot],
                width,
                coefficient.values(),
                work.gradient,
                differences[slot],
                shares[slot],
                work.normedGradient,
                sums,
                scratch,
                work.stream);
        if (tensor != null) {
            tensor.allReduce(sums, ReduceOp.SUM, work.stream);
        }
        mixture.addSums(sums, coefficient.gradient(), bias.gradient(), work.stream);
    }
}
