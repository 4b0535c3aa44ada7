package io.jccl.offload.memplan;

/**
 * A layer's MLP.
 *
 * @param width elements between its matrices; a fraction only in a scaled model
 * @param gated whether it has three matrices, as SwiGLU and GeGLU (arXiv 2002.05202), not two
 * @param bias whether its matrices have biases
 */
public record FeedForward(double width, boolean gated, boolean bias) {
    /** Checks the arguments. */
    public FeedForward {
        Checks.range(
                "the width of the MLP", width, 1e-3, 1e9, "GPT has four times the hidden size");
    }

    /**
     * Elements that multiply.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double matrices(double hidden) {
        return (gated ? 3 : 2) * hidden * width;
    }

    /**
     * All parameters.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double parameters(double hidden) {
        return matrices(hidden) + (bias ? (gated ? 2 : 1) * width + hidden : 0);
    }

    /**
     * Elements of a token that are kept for the backward pass, except for the input: the
     * activation's input and output, and with a gate the gate's input too.
     *
     * @return their number
     */
    public double kept() {
        return (gated ? 3 : 2) * width;
    }

    /**
     * The same with another width.
     *
     * @param factor times as wide
     * @return the MLP
     */
    public FeedForward scaled(double factor) {
        return new FeedForward(width * factor, gated, bias);
    }
}
