package io.jccl.offload.optim;

/**
 * The loss scale, which keeps small gradients in float16's range (arXiv 1710.03740, section 3.2):
 * it shrinks when gradients overflow, and grows again after enough steps without overflow.
 *
 * {@snippet class="snippets.Offload" region="optimizer"}
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class LossScale {
    private static final double SMALLEST = Float.MIN_NORMAL;
    private static final double LARGEST = 0x1p126;

    private final double growth;
    private final double backoff;
    private final int interval;
    private double value;
    private int good;

    /**
     * Creates an adaptive scale.
     *
     * @param initial its first value
     * @param growth growth factor, 1 or more
     * @param backoff factor after an overflow, above 0 and at most 1
     * @param interval steps without overflow until it grows, 1 or more
     * @throws IllegalArgumentException if a value is out of range
     */
    public LossScale(double initial, double growth, double backoff, int interval) {
        if (!(initial >= SMALLEST && initial <= LARGEST)) {
            throw new IllegalArgumentException(
                    "the loss scale is %s, expected %s to %s; 65536 is the usual start"
                            .formatted(initial, SMALLEST, LARGEST));
        }
        if (!(growth >= 1 && growth <= LARGEST)) {
            throw new IllegalArgumentException(
                    "growth is " + growth + ", expected 1 or more; 2 is usual");
        }
        if (!(backoff > 0 && backoff <= 1)) {
            throw new IllegalArgumentException(
                    "backoff is " + backoff + ", expected more than 0 and at most 1; 0.5 is usual");
        }
        if (interval < 1) {
            throw new IllegalArgumentException(
                    "the interval is " + interval + " steps, expected 1 or more; 2000 is usual");
        }
        this.value = initial;
        this.growth = growth;
        this.backoff = backoff;
        this.interval = interval;
    }

    /**
     * The defaults of {@code torch.amp.GradScaler}: 65536, doubled after 2000 good steps, halved
     * after a bad one.
     *
     * @return a scale
     */
    public static LossScale dynamic() {
        return new LossScale(65536, 2, 0.5, 2000);
    }

    /**
     * Creates a constant scale.
     *
     * @param value the factor; 1 for none
     * @return a scale
     * @throws IllegalArgumentException if it is out of range
     */
    public static LossScale fixed(double value) {
        return new LossScale(value, 1, 1, 1);
    }

    /**
     * The current factor for the loss.
     *
     * @return the factor
     */
    public double value() {
        return value;
    }

    /**
     * Adapts the scale after a step.
     *
     * @param taken whether the step was taken, as {@link CheckedStep#run} returns it
     */
    public void update(boolean taken) {
        if (!taken) {
            value = Math.max(value * backoff, SMALLEST);
            good = 0;
        } else if (++good >= interval) {
            value = Math.min(value * growth, LARGEST);
            good = 0;
        }
    }

    /**
     * Steps without overflow since the scale changed. Together with {@link #value} this is the
     * state to save.
     *
     * @return 0 or more
     */
    public int goodSteps() {
        return good;
    }

    /**
     * Restores a saved state.
     *
     * @param newValue the factor, from {@link #value}
     * @param newGoodSteps from {@link #goodSteps}
     * @throws IllegalArgumentException if a value is out of range
     */
    public void restore(double newValue, int newGoodSteps) {
        if (!(newValue >= SMALLEST && newValue <= LARGEST) || newGoodSteps < 0) {
            throw new IllegalArgumentException(
                    "the loss scale is %s after %s good steps, expected %s to %s and 0 or more"
                            .formatted(newValue, newGoodSteps, SMALLEST, LARGEST));
        }
        value = newValue;
        good = newGoodSteps;
    }
}
