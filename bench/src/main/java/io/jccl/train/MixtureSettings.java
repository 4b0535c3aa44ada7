package io.jccl.train;

import java.util.StringJoiner;

/**
 * What a mixture of experts may have beyond its {@link Routing}: noise and dropout in training, the
 * initial values of Switch, residual experts. The names in errors are those of the command line.
 *
 * @param jitter largest relative change of a router's input, 0 to less than 1 (arXiv 2101.03961,
 *     appendix C)
 * @param routerDropout probability that a router's input is dropped, 0 to less than 1 (there)
 * @param noise standard deviation of what is added to logits, 0 or more (arXiv 2106.05974, section
 *     2)
 * @param expertDropout probability that an activation between the two matrices of an expert is
 *     dropped, 0 to less than 1 (arXiv 2101.03961, section 2.4)
 * @param initScale scale s of the initial values of all matrices but embeddings: normal with
 *     standard deviation sqrt(s / inputs), those beyond two deviations drawn again (there); 0 for
 *     the model's own
 * @param residual whether a token also passes the two matrices, and both outputs have weights that
 *     are learned (Residual-MoE with coefficients, as in DeepSpeed: arXiv 2201.05596, section 4.1)
 */
public record MixtureSettings(
        double jitter,
        double routerDropout,
        double noise,
        double expertDropout,
        double initScale,
        boolean residual) {
    /** None of it. */
    public static final MixtureSettings NONE = new MixtureSettings(0, 0, 0, 0, 0, false);

    private static final double LARGEST_SCALE = 100;

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
                "--init-scale is "
                        + initScale
                        + ", expected more than 0 and at most "
                        + LARGEST_SCALE
                        + ", such as 0.1");
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
     * Whether anything of it is about experts.
     *
     * @return whether a model without experts can do without
     */
    public boolean ofExperts() {
        return residual || jitter > 0 || routerDropout > 0 || noise > 0 || expertDropout > 0;
    }

    /**
     * The settings that are not those of {@link #NONE}.
     *
     * @return such as {@code jitter=0.01 init-scale=0.1}; empty for none
     */
    public String text() {
        StringJoiner s = new StringJoiner(" ");
        add(s, "jitter", jitter);
        add(s, "router-dropout", routerDropout);
        add(s, "noise", noise);
        add(s, "expert-dropout", expertDropout);
        add(s, "init-scale", initScale);
        if (residual) {
            s.add("residual");
        }
        return s.toString();
    }

    private static void add(StringJoiner s, String name, double value) {
        if (value > 0) {
            s.add(name + "=" + value);
        }
    }
}
