package io.jccl.train;

import java.util.StringJoiner;

/**
 * Settings of a mixture of experts beyond its {@link Routing}: noise and dropout in training, the
 * initial values of Switch, residual experts, a minimum capacity. The names in errors are those of
 * the command line.
 *
 * @param jitter largest relative change of a router's input, 0 to less than 1 (arXiv 2101.03961,
 *     appendix C)
 * @param routerDropout probability that a router's input is dropped, 0 to less than 1 (there)
 * @param noise standard deviation of noise added to logits, 0 or more (arXiv 2106.05974, section 2)
 * @param expertDropout probability that an activation between the two matrices of an expert is
 *     dropped, 0 to less than 1 (arXiv 2101.03961, section 2.4)
 * @param initScale scale s of the initial values of all matrices but embeddings: normal with
 *     standard deviation sqrt(s / inputs), with those beyond two deviations redrawn (there); 0 for
 *     the model's own
 * @param residual whether a token also passes the two matrices, and both outputs have learned
 *     weights (Residual-MoE with coefficients, as in DeepSpeed: arXiv 2201.05596, section 4.1)
 * @param sample whether the last expert of a token is sampled in training, in proportion to the
 *     gates ({@code RSample} of DeepSpeed: see {@link
 *     io.jccl.parallel.RouterOptions.TokenChoice#sample})
 * @param minCapacity minimum capacity of an expert, 1 or more
 */
public record MixtureSettings(
        double jitter,
        double routerDropout,
        double noise,
        double expertDropout,
        double initScale,
        boolean residual,
        boolean sample,
        int minCapacity) {
    /** None of these. */
    public static final MixtureSettings NONE = new MixtureSettings(0, 0, 0, 0, 0, false);

    private static final double LARGEST_SCALE = 100;

    /**
     * Without sampling, and with a capacity of 1 or more.
     *
     * @param jitter largest relative change of a router's input
     * @param routerDropout probability that a router's input is dropped
     * @param noise standard deviation of noise added to logits
     * @param expertDropout probability that an activation in an expert is dropped
     * @param initScale scale of the initial values of matrices; 0 for the model's own
     * @param residual whether a token also passes the two matrices
     */
    public MixtureSettings(
            double jitter,
            double routerDropout,
            double noise,
            double expertDropout,
            double initScale,
            boolean residual) {
        this(jitter, routerDropout, noise, expertDropout, initScale, residual, false, 1);
    }

    /**
     * These settings with or without sampling.
     *
     * @param value whether the last expert of a token is sampled in training
     * @return new settings
     */
    public MixtureSettings withSample(boolean value) {
        return new MixtureSettings(
                jitter,
                routerDropout,
                noise,
                expertDropout,
                initScale,
                residual,
                value,
                minCapacity);
    }

    /**
     * These settings with another minimum capacity.
     *
     * @param slots of an expert, 1 or more
     * @return new settings
     */
    public MixtureSettings withMinCapacity(int slots) {
        return new MixtureSettings(
                jitter, routerDropout, noise, expertDropout, initScale, residual, sample, slots);
    }

    /** Checks the numbers. */
    public MixtureSettings {
        share("--router-jitter", jitter);
        share("--router-dropout", routerDropout);
        share("--expert-dropout", expertDropout);
        require(
                noise >= 0 && !Double.isInfinite(noise),
                "--router-noise is " + noise + ", expected 0 or more, such as 1 / --experts");
        require(
                initScale >= 0 && initScale <= LARGEST_SCALE,
                "--init-scale is %s, expected more than 0 and at most %s, such as 0.1"
                        .formatted(initScale, LARGEST_SCALE));
        require(
                minCapacity >= 1,
                "--min-capacity is " + minCapacity + ", expected 1 or more, such as 4");
    }

    private static void share(String name, double value) {
        require(value >= 0 && value < 1, name + " is " + value + ", expected 0 to less than 1");
    }

    private static void require(boolean holds, String message) {
        if (!holds) {
            throw new IllegalArgumentException(message);
        }
    }

    /**
     * Whether any of these settings requires experts.
     *
     * @return false if a model without experts can have these settings
     */
    public boolean ofExperts() {
        return !expertFlags().isEmpty();
    }

    /** Flags of the settings that require experts, such as {@code --router-jitter=0.01}. */
    String expertFlags() {
        return listed(true);
    }

    /**
     * The settings that are not those of {@link #NONE}.
     *
     * @return such as {@code jitter=0.01 init-scale=0.1}; empty for none
     */
    public String text() {
        return listed(false);
    }

    /** By their flags only those that require experts, or all by their names. */
    private String listed(boolean flags) {
        StringJoiner s = new StringJoiner(" ");
        add(s, flags ? "--router-jitter" : "jitter", jitter);
        add(s, flags ? "--router-dropout" : "router-dropout", routerDropout);
        add(s, flags ? "--router-noise" : "noise", noise);
        add(s, flags ? "--expert-dropout" : "expert-dropout", expertDropout);
        if (!flags) {
            add(s, "init-scale", initScale);
        }
        if (residual) {
            s.add(flags ? "--residual-expert" : "residual");
        }
        if (sample) {
            s.add(flags ? "--router-sample" : "sample");
        }
        if (minCapacity > 1) {
            s.add((flags ? "--" : "") + "min-capacity=" + minCapacity);
        }
        return s.toString();
    }

    private static void add(StringJoiner s, String name, double value) {
        if (value > 0) {
            s.add(name + "=" + value);
        }
    }
}
