package io.jccl.offload.zero;

/**
 * The result of the last step of a {@link ZeroOptimizer}; the same on all ranks. Each optimizer has
 * one, so that a step creates no objects: the next step replaces its values.
 *
 * <p><b>Threads:</b> that of the optimizer.
 */
public final class StepResult {
    private boolean taken;
    private double gradientNorm;
    private double lossScale;

    StepResult() {}

    StepResult set(boolean newTaken, double newNorm, double newScale) {
        taken = newTaken;
        gradientNorm = newNorm;
        lossScale = newScale;
        return this;
    }

    /**
     * Whether parameters were updated.
     *
     * @return false if a gradient was infinite or not a number
     */
    public boolean taken() {
        return taken;
    }

    /**
     * Euclidean norm of all gradients, averaged over ranks and micro-steps, without loss scale and
     * before clipping.
     *
     * @return 0 or more; infinite or NaN if a gradient was infinite or NaN
     */
    public double gradientNorm() {
        return gradientNorm;
    }

    /**
     * Factor for the loss in the next step.
     *
     * @return the loss scale
     */
    public double lossScale() {
        return lossScale;
    }

    @Override
    public String toString() {
        return "%s with gradient norm %s, loss scale %s from now on"
                .formatted(taken ? "taken" : "skipped", gradientNorm, lossScale);
    }
}
