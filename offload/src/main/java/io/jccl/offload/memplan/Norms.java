package io.jccl.offload.memplan;

/**
 * The norms of a model.
 *
 * @param perLayer norms of a layer over the hidden size: 2 in GPT and Llama, 4 in Gemma 2
 * @param bias whether they have a bias in addition to the weight, as in LayerNorm but not RMSNorm
 * @param outside norms outside the layers: 1 after the last in GPT, and one more in BLOOM
 */
public record Norms(int perLayer, boolean bias, int outside) {
    /** GPT's: LayerNorm before attention and MLP and after the last layer. */
    public static final Norms GPT = new Norms(2, true, 1);

    /** Llama's: RMSNorm at the same places. */
    public static final Norms LLAMA = new Norms(2, false, 1);

    /** Gemma's from version 2 on: RMSNorm before and after attention and MLP. */
    public static final Norms GEMMA = new Norms(4, false, 1);

    /** Checks the arguments. */
    public Norms {
        Checks.range("norms of a layer", perLayer, 0, 16, "GPT has 2");
        Checks.range("norms outside the layers", outside, 0, 16, "GPT has 1");
    }

    /**
     * Parameters of a layer's norms.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double ofLayer(double hidden) {
        return perLayer * one(hidden);
    }

    /**
     * Parameters of the norms outside the layers.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    public double ofEnds(double hidden) {
        return outside * one(hidden);
    }

    private double one(double hidden) {
        return (bias ? 2 : 1) * hidden;
    }
}
