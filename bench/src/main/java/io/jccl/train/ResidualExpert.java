package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Experts and, beside them, two matrices that all tokens pass, with weights that are learned
 * (DeepSpeed-MoE's Residual-MoE, arXiv 2201.05596, with the coefficients of its implementation).
 * For a token x with outputs m of the experts and d of the matrices
 *
 * <pre>{@code
 * (a, b) = softmax(x C + c)      C: hidden x 2
 * y = a m + b d = d + a (m - d)
 * }</pre>
 *
 * <p>Backward, with g the gradient of y: {@code dm = a g}, {@code dd = b g}, and of the two logits
 * {@code a b g (m - d)} and its negative. Computed on the host.
 */
final class ResidualExpert implements FeedForward {
    private final Workspace work;
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
     * @param device the host
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
    }

    @Override
    public void forward(int slot) {
        experts.forward(slot);
        work.operations.convert(work.branch, work.beside);
        dense.forward(slot);
        MemorySegment x = tokens[slot].asSegment();
        MemorySegment m = work.beside.asSegment();
        MemorySegment d = work.branch.asSegment();
        MemorySegment difference = differences[slot].asSegment();
        MemorySegment c = coefficient.values().asSegment();
        MemorySegment b = bias.values().asSegment();
        double offset = b.getAtIndex(JAVA_FLOAT, 0) - (double) b.getAtIndex(JAVA_FLOAT, 1);
        for (int r = 0; r < work.shareRows; r++) {
            long from = (long) r * width;
            double z = offset;
            for (int f = 0; f < width; f++) {
                z += (double) x.getAtIndex(JAVA_FLOAT, from + f) * slope(c, f);
            }
            float a = (float) (1 / (1 + Math.exp(-z)));
            shares[slot].asSegment().setAtIndex(JAVA_FLOAT, r, a);
            for (long i = from; i < from + width; i++) {
                float of = d.getAtIndex(JAVA_FLOAT, i);
                float more = m.getAtIndex(JAVA_FLOAT, i) - of;
                difference.setAtIndex(JAVA_FLOAT, i, more);
                d.setAtIndex(JAVA_FLOAT, i, of + a * more);
            }
        }
    }

    /** The difference of the two columns in a row of C. */
    private static double slope(MemorySegment c, int row) {
        return c.getAtIndex(JAVA_FLOAT, 2L * row) - (double) c.getAtIndex(JAVA_FLOAT, 2L * row + 1);
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
        MemorySegment g = work.saved.asSegment();
        MemorySegment to = work.gradient.asSegment();
        MemorySegment share = shares[slot].asSegment();
        for (int r = 0; r < work.shareRows; r++) {
            float a = share.getAtIndex(JAVA_FLOAT, r);
            float by = rest ? 1 - a : a;
            for (long i = (long) r * width; i < (r + 1L) * width; i++) {
                to.setAtIndex(JAVA_FLOAT, i, by * g.getAtIndex(JAVA_FLOAT, i));
            }
        }
    }

    private void coefficientBackward(int slot) {
        MemorySegment x = tokens[slot].asSegment();
        MemorySegment g = work.gradient.asSegment();
        MemorySegment difference = differences[slot].asSegment();
        MemorySegment ofTokens = work.normedGradient.asSegment();
        MemorySegment c = coefficient.values().asSegment();
        MemorySegment sum = sums.asSegment();
        sums.zero();
        for (int r = 0; r < work.shareRows; r++) {
            long from = (long) r * width;
            double dot = 0;
            for (long i = from; i < from + width; i++) {
                dot += (double) g.getAtIndex(JAVA_FLOAT, i) * difference.getAtIndex(JAVA_FLOAT, i);
            }
            double a = shares[slot].asSegment().getAtIndex(JAVA_FLOAT, r);
            double logit = a * (1 - a) * dot;
            add(sum, width, logit);
            for (int f = 0; f < width; f++) {
                long i = from + f;
                add(sum, f, logit * x.getAtIndex(JAVA_FLOAT, i));
                float to = ofTokens.getAtIndex(JAVA_FLOAT, i);
                ofTokens.setAtIndex(JAVA_FLOAT, i, (float) (to + logit * slope(c, f)));
            }
        }
        if (tensor != null) {
            tensor.allReduce(sums, ReduceOp.SUM, work.stream);
        }
        for (int f = 0; f <= width; f++) {
            MemorySegment to = (f < width ? coefficient : bias).gradient().asSegment();
            long row = f < width ? 2L * f : 0;
            double of = sum.getAtIndex(JAVA_DOUBLE, f);
            to.setAtIndex(JAVA_FLOAT, row, (float) (to.getAtIndex(JAVA_FLOAT, row) + of));
            to.setAtIndex(JAVA_FLOAT, row + 1, (float) (to.getAtIndex(JAVA_FLOAT, row + 1) - of));
        }
    }

    private static void add(MemorySegment sum, int index, double value) {
        sum.setAtIndex(JAVA_DOUBLE, index, sum.getAtIndex(JAVA_DOUBLE, index) + value);
    }
}
