package io.jccl.train;

import java.util.Locale;

/**
 * The learning rate over the steps of a run, as a factor of the highest: a linear warm-up, then a
 * shape. It depends only on the number of the step.
 *
 * @param shape after the warm-up
 * @param warmup steps in which the rate rises to the highest, 0 or more
 * @param minimum the rate at the end, as a share of the highest, 0 to 1; ignored for a constant
 *     rate
 * @param decay share of all steps, at the end, in which {@link Shape#WSD} falls; 0 to 1
 */
public record RateSchedule(Shape shape, int warmup, double minimum, double decay) {
    /** Shapes. */
    public enum Shape {
        /** The highest rate to the end. */
        CONSTANT,
        /** A straight line to the minimum. */
        LINEAR,
        /** Half a period of a cosine to the minimum (arXiv 1608.03983, without restarts). */
        COSINE,
        /** Warm-up, stable, decay (arXiv 2404.06395): the highest, then a line to the minimum. */
        WSD;

        /**
         * The name on the command line.
         *
         * @return such as {@code cosine}
         */
        public String label() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** The highest rate in all steps. */
    public static final RateSchedule CONSTANT = new RateSchedule(Shape.CONSTANT, 0, 0, 0.1);

    /**
     * Checks the numbers.
     *
     * @throws IllegalArgumentException if one is out of range
     */
    public RateSchedule {
        if (warmup < 0) {
            throw new IllegalArgumentException(
                    "--lr-warmup is " + warmup + ", expected 0 steps or more");
        }
        if (!(minimum >= 0 && minimum <= 1)) {
            throw new IllegalArgumentException(
                    "--lr-min is " + minimum + ", expected 0 to 1: a share of --lr");
        }
        if (!(decay > 0 && decay <= 1)) {
            throw new IllegalArgumentException(
                    "--lr-decay is %s, expected more than 0 and at most 1: a share of --steps"
                            .formatted(decay));
        }
    }

    /**
     * The factor of the learning rate.
     *
     * @param step index of the step, from 0
     * @param steps steps of the whole run
     * @return more than 0 in the warm-up; then 1 down to the minimum, which is that of step {@code
     *     steps}, the one after the last
     */
    public double factor(int step, int steps) {
        if (step < warmup) {
            return (step + 1.0) / warmup;
        }
        int from =
                shape == Shape.WSD
                        ? Math.max(warmup, steps - (int) Math.ceil(decay * steps))
                        : warmup;
        if (shape == Shape.CONSTANT || step < from) {
            return 1;
        }
        double t = Math.min(1, (step - from) / (double) Math.max(1, steps - from));
        double left = shape == Shape.COSINE ? (1 + StrictMath.cos(Math.PI * t)) / 2 : 1 - t;
        return minimum + (1 - minimum) * left;
    }

    /**
     * The settings that determine the rates of a run, for checkpoints, with the number of steps if
     * it matters.
     *
     * @param steps steps of the whole run
     * @return such as {@code cosine warmup=100 min=0.1 steps=1000}
     */
    String text(int steps) {
        return shape.label()
                + " warmup="
                + warmup
                + (shape == Shape.CONSTANT ? "" : " min=" + minimum + " steps=" + steps)
                + (shape == Shape.WSD ? " decay=" + decay : "");
    }
}
