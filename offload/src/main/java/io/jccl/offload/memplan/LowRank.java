package io.jccl.offload.memplan;

import java.util.List;

/**
 * Low-rank adaptation (LoRA, arXiv 2106.09685): the model's parameters are frozen, and each adapted
 * matrix of <i>in</i> by <i>out</i> gets two more, of <i>in</i> by rank and rank by <i>out</i>,
 * which are trained. Embeddings, routers, norms and the output matrix are not adapted.
 *
 * @param rank of the matrices; 0 if all of the model is trained
 * @param matrices which are adapted
 */
public record LowRank(int rank, Matrices matrices) {
    /** All of the model is trained. */
    public static final LowRank NONE = new LowRank(0, Matrices.ALL);

    /** Which matrices of a layer are adapted. */
    public enum Matrices {
        /** All of attention, MLP and experts (arXiv 2305.14314, section 4). */
        ALL("all"),
        /** Those of queries and values (arXiv 2106.09685, section 7.1). */
        QUERIES_AND_VALUES("qv");

        private final String label;

        Matrices(String label) {
            this.label = label;
        }

        /**
         * The name on a command line.
         *
         * @return such as {@code qv}
         */
        public String label() {
            return label;
        }

        /**
         * Finds them by name.
         *
         * @param label as {@link #label}
         * @return the matrices
         * @throws IllegalArgumentException if the name is unknown; the message lists them
         */
        public static Matrices of(String label) {
            return Checks.named(
                    "matrices '" + label + "' are", label, List.of(values()), Matrices::label);
        }
    }

    /** Checks the arguments. */
    public LowRank {
        Checks.range(
                "the rank of the adapters", rank, 0, 1_000_000, "0 is none, 8 to 64 are usual");
    }

    /**
     * Whether the model's own parameters are frozen.
     *
     * @return false if all of the model is trained
     */
    public boolean adapts() {
        return rank > 0;
    }

    /**
     * Parameters that are trained.
     *
     * @param model the model
     * @return those of the adapters, or all of the model's
     */
    public double trained(Model model) {
        return adapts() ? common(model) + routed(model) : model.parameters();
    }

    /** Parameters of the adapters of all layers, except for those in routed experts. */
    double common(Model model) {
        Attention a = model.attention();
        double h = model.hidden();
        if (matrices == Matrices.QUERIES_AND_VALUES) {
            if (!(a instanceof Attention.Grouped grouped)) {
                throw new IllegalArgumentException(
                        "adapters of queries and values alone were asked for, and the model"
                                + " computes these from compressed ones; adapt all matrices");
            }
            double values = grouped.keysAndValues() / 2;
            return (double) rank * model.layers() * (2 * h + a.queries() + values);
        }
        Experts experts = model.experts();
        double shared = experts == null ? 0 : experts.shared();
        double inShared = shared == 0 ? 0 : matrices(model.mlp()) * (h + shared);
        return rank
                * (model.layers() * a.widths(h)
                        + (model.layers() - model.sparse()) * widths(model.mlp(), h)
                        + model.sparse() * inShared);
    }

    /** Parameters of the adapters in all routed experts. */
    double routed(Model model) {
        Experts e = model.experts();
        return e == null || matrices != Matrices.ALL
                ? 0
                : (double) rank * model.sparse() * e.count() * widths(e.expert(), model.hidden());
    }

    /** Parameters of the adapters that take part in computing one token. */
    double active(Model model) {
        Experts e = model.experts();
        return adapts()
                ? common(model) + (e == null ? 0 : routed(model) * e.active() / e.count())
                : 0;
    }

    /**
     * Elements of a token that a layer keeps for the backward pass: between the two matrices of
     * each adapter.
     */
    double kept(Model model) {
        if (matrices == Matrices.QUERIES_AND_VALUES) {
            return 2.0 * rank;
        }
        Experts e = model.experts();
        double inMlp = matrices(model.mlp());
        double inExperts =
                e == null ? 0 : e.active() * matrices(e.expert()) + (e.shared() > 0 ? inMlp : 0);
        double sparse = (double) model.sparse() / model.layers();
        return rank * (model.attention().count() + (1 - sparse) * inMlp + sparse * inExperts);
    }

    private static double matrices(FeedForward mlp) {
        return mlp.gated() ? 3 : 2;
    }

    private static double widths(FeedForward mlp, double hidden) {
        return matrices(mlp) * (hidden + mlp.width());
    }

    @Override
    public String toString() {
        return adapts() ? "rank " + rank + ", " + matrices.label : "none";
    }
}
