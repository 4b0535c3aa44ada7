package io.jccl.offload.memplan;

/**
 * A decoder-only transformer.
 *
 * <p>Its parameters, with <i>l</i> layers, hidden size <i>h</i>, vocabulary <i>V</i>, sequence
 * <i>s</i> and an MLP <i>f</i> times as wide as <i>h</i>: {@code l ((4 + 2f) h^2 + (9 + f) h) + (V
 * + s) h}. For f = 4 that is {@code 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))}, equation 2 of
 * arXiv 2104.04473. An output matrix of its own (embeddings not tied) adds {@code V h}.
 *
 * <p>An MLP of three matrices (SwiGLU, width w) is given as f = 1.5 w / h: parameters and FLOPs are
 * then exact; its activations are not modelled separately.
 *
 * @param layers transformer layers, l
 * @param hidden hidden size, h
 * @param heads attention heads, a
 * @param vocabulary rows of the embedding, V
 * @param sequence tokens per sample, s
 * @param ffn width of the MLP by hidden size, f; 4 in GPT
 * @param tied whether the output matrix is the embedding
 * @param parameters their number; the difference from the formula is spread over the layers
 */
public record Model(
        int layers,
        int hidden,
        int heads,
        int vocabulary,
        int sequence,
        double ffn,
        boolean tied,
        long parameters) {
    /** Most parameters of a plan: beyond this, byte counts could overflow 64 bits. */
    public static final long MAX_PARAMETERS = 1_000_000_000_000_000L;

    /** Width of the MLP by hidden size in GPT. */
    public static final double GPT_FFN = 4;

    /** The vocabulary of GPT-2 (50,257), rounded up as Megatron-LM does (arXiv 2104.04473). */
    public static final int GPT_VOCABULARY = 51_200;

    /** The sequence of GPT-3 (arXiv 2005.14165). */
    public static final int GPT_SEQUENCE = 2048;

    /** Checks the arguments. */
    public Model {
        Checks.range("the number of layers", layers, 1, 1_000_000, "give the model's layers");
        Checks.range("the hidden size", hidden, 1, 10_000_000, "give the model's width");
        Checks.range("the number of heads", heads, 1, hidden, "give no more heads than hidden");
        Checks.range(
                "the vocabulary", vocabulary, 1, 100_000_000, "give the number of tokens in it");
        Checks.range("the sequence", sequence, 1, 100_000_000, "give the tokens of a sample");
        Checks.range("the MLP's width by hidden size", ffn, 0.1, 100, "GPT has 4");
        Checks.range(
                "the number of parameters",
                parameters,
                1,
                MAX_PARAMETERS,
                "give a smaller model, or its correct size");
        double embeddings = embeddings(hidden, vocabulary, sequence, tied);
        if (parameters <= embeddings) {
            throw new IllegalArgumentException(
                    "the number of parameters is "
                            + parameters
                            + ", and the embeddings alone have "
                            + (long) embeddings
                            + " (vocabulary "
                            + vocabulary
                            + ", sequence "
                            + sequence
                            + ", hidden "
                            + hidden
                            + "); give more parameters, or a smaller vocabulary or hidden size");
        }
    }

    /**
     * A model whose number of parameters follows from the formula.
     *
     * @param layers transformer layers
     * @param hidden hidden size
     * @param heads attention heads
     * @param vocabulary rows of the embedding
     * @param sequence tokens per sample
     * @param ffn width of the MLP by hidden size
     * @param tied whether the output matrix is the embedding
     * @return the model
     */
    public static Model of(
            int layers,
            int hidden,
            int heads,
            int vocabulary,
            int sequence,
            double ffn,
            boolean tied) {
        double counted = count(layers, hidden, vocabulary, sequence, ffn, tied);
        return new Model(
                layers,
                hidden,
                heads,
                vocabulary,
                sequence,
                ffn,
                tied,
                counted > MAX_PARAMETERS ? Long.MAX_VALUE : Math.round(counted));
    }

    /**
     * A GPT: MLP of four times the hidden size, tied embeddings.
     *
     * @param layers transformer layers
     * @param hidden hidden size
     * @param heads attention heads
     * @param vocabulary rows of the embedding
     * @param sequence tokens per sample
     * @return the model
     */
    public static Model gpt(int layers, int hidden, int heads, int vocabulary, int sequence) {
        return of(layers, hidden, heads, vocabulary, sequence, GPT_FFN, true);
    }

    /**
     * A GPT of a number of parameters, its shape by {@link ScalingRule#GPT}.
     *
     * @param parameters the exact number of parameters
     * @return the model
     */
    public static Model ofParameters(long parameters) {
        return ScalingRule.GPT.model(parameters);
    }

    /**
     * The same shape with another number of parameters.
     *
     * @param newParameters the number
     * @return the model
     */
    public Model withParameters(long newParameters) {
        return new Model(layers, hidden, heads, vocabulary, sequence, ffn, tied, newParameters);
    }

    /**
     * Parameters of the embeddings: tokens, positions, and the output matrix if it is another one.
     *
     * @return how many
     */
    public double embeddings() {
        return embeddings(hidden, vocabulary, sequence, tied);
    }

    /**
     * Parameters of one layer.
     *
     * @return how many
     */
    public double layerParameters() {
        return (parameters - embeddings()) / layers;
    }

    static double count(
            int layers, int hidden, int vocabulary, int sequence, double ffn, boolean tied) {
        double h = hidden;
        return layers * ((4 + 2 * ffn) * h * h + (9 + ffn) * h)
                + embeddings(hidden, vocabulary, sequence, tied);
    }

    private static double embeddings(int hidden, int vocabulary, int sequence, boolean tied) {
        return ((tied ? 1.0 : 2.0) * vocabulary + sequence) * hidden;
    }
}
