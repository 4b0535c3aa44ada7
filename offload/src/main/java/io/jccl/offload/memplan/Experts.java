package io.jccl.offload.memplan;

/**
 * Experts in place of the MLP (arXiv 1701.06538): a router sends each token to some of them.
 *
 * @param count experts of a layer that the router chooses among
 * @param active experts that a token goes to
 * @param expert one of them
 * @param shared width of the additional MLP that all tokens go through; 0 if there is none
 *     (DeepSeekMoE, arXiv 2401.06066)
 * @param dense number of first layers that have a plain MLP
 * @param routerBias whether the router has a bias for each expert (arXiv 2408.15664)
 */
public record Experts(
        int count, int active, FeedForward expert, double shared, int dense, boolean routerBias) {
    /** Checks the arguments. */
    public Experts {
        Checks.range("the number of experts", count, 1, 1_000_000, "Mixtral has 8");
        Checks.range(
                "the number of experts of a token",
                active,
                1,
                count,
                "give no more than the " + count + " experts");
        Checks.range("the width of shared experts", shared, 0, 1e9, "0 is none");
        Checks.range("the number of layers without experts", dense, 0, 1_000_000, "0 is none");
    }

    private double sharedMatrices(double hidden) {
        return (expert.gated() ? 3 : 2) * hidden * shared;
    }

    /**
     * Parameters of the routed experts of a layer.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double routed(double hidden) {
        return count * expert.parameters(hidden);
    }

    /**
     * Parameters of a layer's router and shared experts.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double common(double hidden) {
        return count * (hidden + (routerBias ? 1 : 0)) + sharedMatrices(hidden);
    }

    /**
     * Elements that multiply one token.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double matrices(double hidden) {
        return active * expert.matrices(hidden) + count * hidden + sharedMatrices(hidden);
    }

    /**
     * Elements of a token that are kept for the backward pass, except for the layer's input: the
     * copies sent to experts, what is kept within these, and their outputs, which are weighted and
     * summed.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double kept(double hidden) {
        return active * (2 * hidden + expert.kept()) + (expert.gated() ? 3 : 2) * shared + count;
    }

    /** Those of them that are inputs of the experts' matrices. */
    double inputs(double hidden) {
        return active * (hidden + expert.width()) + shared;
    }

    /**
     * The same with wider experts.
     *
     * @param factor times as wide
     * @param layers layers of the model, of which at most all but one are dense
     * @return the experts
     */
    public Experts scaled(double factor, int layers) {
        return new Experts(
                count,
                active,
                expert.scaled(factor),
                shared * factor,
                Math.min(dense, layers - 1),
                routerBias);
    }
}
