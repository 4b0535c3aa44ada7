package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Whole steps of one state, skipped when a gradient is infinite or NaN: the norm of all gradients
 * is computed before anything is written.
 *
 * <p>Rules with sums over a whole tensor, {@link Lamb} and {@link Adafactor}, take the tensors that
 * the state knows by their {@linkplain OptimizerState#shapes shapes} one by one; without shapes all
 * parameters are one tensor.
 *
 * {@snippet class="snippets.Offload" region="optimizer"}
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class CheckedStep {
    private final Optimizer optimizer;
    private final OptimizerState state;
    private final Workers workers;
    private final GradientNorm norm = new GradientNorm(1);
    private final Views gradientViews = new Views();
    private final Views targetViews = new Views();
    private double lastNorm;

    /** What belongs to each tensor of a buffer, kept since the next step often has the same. */
    private static final class Views {
        private final List<Buffer> views = new ArrayList<>();
        private @Nullable Buffer all;

        Buffer of(Buffer buffer, List<TensorShape> shapes, int tensor) {
            if (all != buffer) {
                views.clear();
                long at = 0;
                for (TensorShape s : shapes) {
                    views.add(buffer.slice(at, s.count()));
                    at += s.count();
                }
                all = buffer;
            }
            return views.get(tensor);
        }
    }

    /**
     * Combines an optimizer, its state and threads; none of them is closed by this class.
     *
     * @param optimizer the rule
     * @param state parameters and moments
     * @param workers the threads
     */
    public CheckedStep(Optimizer optimizer, OptimizerState state, Workers workers) {
        this.optimizer = optimizer;
        this.state = state;
        this.workers = workers;
    }

    /**
     * Checks, unscales, clips and steps.
     *
     * @param gradients of all parameters: float32, bfloat16 or float16
     * @param target a second target for the new parameters, or null
     * @param step the number of this step, 1 or more; a skipped step does not count
     * @param learningRate 0 or more
     * @param lossScale the factor that the loss was multiplied by; 1 for none
     * @param maxNorm largest norm of the unscaled gradients, to which they are clipped; infinity
     *     for no clipping
     * @return whether the step was taken; if not, a gradient is infinite or NaN (or became so by
     *     unscaling), and nothing was written
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IllegalStateException if a buffer or the workers are closed
     */
    public boolean run(
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double lossScale,
            double maxNorm) {
        if (gradients.count() != state.count()) {
            throw new IllegalArgumentException(
                    ("there are %s gradients for a state of %s parameters; both need the same. Step"
                                    + " pieces with Optimizer.step")
                            .formatted(gradients.count(), state.count()));
        }
        if (target != null) {
            StepWork.checkTarget(target, gradients.count());
        }
        StepWork.check(step, learningRate);
        norm.add(workers, 0, gradients);
        double n = norm.norm();
        double factor = GradientNorm.factor(n, lossScale, maxNorm);
        lastNorm = n / lossScale;
        if (Double.isNaN(factor)) {
            return false;
        }
        if (optimizer.passes() == 1 || !state.hasWholeTensors()) {
            optimizer.step(workers, state, 0, gradients, target, step, learningRate, factor);
            return true;
        }
        List<TensorShape> shapes = state.shapes();
        long from = 0;
        for (int t = 0; t < shapes.size(); t++) {
            Buffer g = gradientViews.of(gradients, shapes, t);
            Buffer to = target == null ? null : targetViews.of(target, shapes, t);
            optimizer.step(workers, state, from, g, to, step, learningRate, factor);
            from += g.count();
        }
        return true;
    }

    /**
     * The norm of the unscaled gradients of the last step, before clipping.
     *
     * @return 0 or more, infinite or NaN if a gradient was infinite or NaN; 0 before the first step
     */
    public double lastNorm() {
        return lastNorm;
    }
}
