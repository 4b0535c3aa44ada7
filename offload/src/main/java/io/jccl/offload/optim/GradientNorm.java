package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.kernel.NormWork;
import java.util.Arrays;
import java.util.Objects;

/**
 * The Euclidean norm of all gradients, accumulated part by part as they arrive. It also shows
 * whether all gradients are finite: the norm is infinite or NaN exactly if a gradient is, since
 * squares are summed in float64.
 *
 * <p>The result depends only on the values and on how they are divided into parts, not on the order
 * in which parts arrive, the number of threads or the width of vectors: within a part, chunks of
 * 65536 elements are added in order; parts are added by their number.
 *
 * <p><b>Threads:</b> any thread may call; different parts may be added at once.
 */
public final class GradientNorm {
    /** Added to the norm before dividing, as in {@code torch.nn.utils.clip_grad_norm_}. */
    private static final double CLIP_EPSILON = 1e-6;

    private final double[] sums;

    /**
     * Creates a norm.
     *
     * @param parts number of parts of the gradients, 1 or more, such as one per layer
     * @throws IllegalArgumentException if it is less than 1
     */
    public GradientNorm(int parts) {
        if (parts < 1) {
            throw new IllegalArgumentException("parts is " + parts + ", expected 1 or more");
        }
        sums = new double[parts];
        reset();
    }

    /** Clears all parts for the next step. */
    public void reset() {
        synchronized (sums) {
            Arrays.fill(sums, -1);
        }
    }

    /**
     * Adds one part, on the calling thread.
     *
     * @param part its number, 0 or more; adding it again replaces it
     * @param gradients float32, bfloat16 or float16
     * @throws IndexOutOfBoundsException if there is no such part
     * @throws IllegalArgumentException if the type is not supported
     */
    public void add(int part, Buffer gradients) {
        Objects.checkIndex(part, sums.length);
        NormWork work = NormWork.ofThread();
        try {
            work.prepare(Checks.gradients(gradients), gradients.dataType(), gradients.count());
            work.run(0, 0, gradients.count());
            put(part, work.total());
        } finally {
            work.clear();
        }
    }

    /**
     * Adds one part, on several threads; the result is bit-identical to that on one thread.
     *
     * @param workers the threads
     * @param part its number, 0 or more; adding it again replaces it
     * @param gradients float32, bfloat16 or float16
     * @throws IndexOutOfBoundsException if there is no such part
     * @throws IllegalArgumentException if the type is not supported
     * @throws IllegalStateException if the workers are closed
     */
    public void add(Workers workers, int part, Buffer gradients) {
        Objects.checkIndex(part, sums.length);
        put(part, workers.sumOfSquares(gradients));
    }

    private void put(int part, double sum) {
        synchronized (sums) {
            sums[part] = sum;
        }
    }

    /**
     * The sum of all squares. If gradients are sharded over ranks, sum it over the ranks and take
     * the square root.
     *
     * @return 0 or more, infinite or NaN if a gradient is
     * @throws IllegalStateException if a part is missing
     */
    public double sumOfSquares() {
        synchronized (sums) {
            double sum = 0;
            for (int i = 0; i < sums.length; i++) {
                if (sums[i] < 0) {
                    throw new IllegalStateException(
                            "part %s of %s has not been added since the last reset"
                                    .formatted(i, sums.length));
                }
                sum += sums[i];
            }
            return sum;
        }
    }

    /**
     * The norm of the gradients as given; divide it by the loss scale.
     *
     * @return 0 or more, infinite or NaN if a gradient is
     * @throws IllegalStateException if a part is missing
     */
    public double norm() {
        return Math.sqrt(sumOfSquares());
    }

    /**
     * The factor that unscales gradients and, if their norm is then too large, clips them: {@code
     * min(1, maxNorm / (norm + 1e-6)) / lossScale}, as {@code torch.nn.utils.clip_grad_norm_} does.
     *
     * @param norm of the gradients as given, including the loss scale
     * @param lossScale the factor that the loss was multiplied by; 1 for none
     * @param maxNorm largest norm; infinity for no clipping
     * @return the factor for {@link Optimizer#step}; NaN if the norm is not finite: skip the step
     * @throws IllegalArgumentException if lossScale or maxNorm is not positive
     */
    public static double factor(double norm, double lossScale, double maxNorm) {
        if (!(lossScale > 0 && lossScale <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException(
                    "the loss scale is " + lossScale + ", expected a finite number above 0");
        }
        if (!(maxNorm > 0)) {
            throw new IllegalArgumentException(
                    "the largest norm is "
                            + maxNorm
                            + ", expected more than 0; infinity means no clipping");
        }
        double unscaled = norm / lossScale;
        // Unscaling by less than 1 may overflow what is finite before.
        if (!(unscaled <= Float.MAX_VALUE)) {
            return Double.NaN;
        }
        return Math.min(1, maxNorm / (unscaled + CLIP_EPSILON)) / lossScale;
    }
}
