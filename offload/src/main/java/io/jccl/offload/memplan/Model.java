package io.jccl.offload.memplan;

import org.jspecify.annotations.Nullable;

/**
 * A decoder-only transformer.
 *
 * <p>Its parameters are counted part by part: every layer has an {@link Attention}, an MLP or
 * {@link Experts}, and {@link Norms}; outside are the embedding, a table of learned positions if
 * there is one, the last norm, and the output matrix unless it is the embedding. For GPT, with
 * <i>l</i> layers, hidden size <i>h</i>, vocabulary <i>V</i> and sequence <i>s</i>, that is {@code
 * 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)) + 2 h}: equation 2 of arXiv 2104.04473 and the last
 * norm.
 *
 * <p>A checkpoint's {@code config.json} gives the exact shape: {@code jccl plan --config}.
 *
 * @param layers transformer layers, l
 * @param hidden hidden size, h
 * @param vocabulary rows of the embedding, V
 * @param sequence tokens per sample, s
 * @param attention attention of a layer
 * @param mlp MLP of a layer, or of the layers that have no experts
 * @param experts in place of the MLP; null if the model is dense
 * @param norms norms
 * @param learnedPositions whether there is a table of positions, a row for each token of a sample
 * @param tied whether the output matrix is the embedding
 * @param dropout whether it is trained with dropout, whose masks are kept for the backward pass
 * @param parameters their number; the difference from the shape's is spread over the layers
 */
public record Model(
        int layers,
        int hidden,
        int vocabulary,
        int sequence,
        Attention attention,
        FeedForward mlp,
        @Nullable Experts experts,
        Norms norms,
        boolean learnedPositions,
        boolean tied,
        boolean dropout,
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
        Checks.range(
                "the vocabulary", vocabulary, 1, 100_000_000, "give the number of tokens in it");
        Checks.range("the sequence", sequence, 1, 100_000_000, "give the tokens of a sample");
        if (experts != null && experts.dense() >= layers) {
            throw new IllegalArgumentException(
                    ("the first %s of %s layers have no experts, which leaves none that has; leave"
                                    + " out the experts, or give more layers")
                            .formatted(experts.dense(), layers));
        }
        Checks.range(
                "the number of parameters",
                parameters,
                1,
                MAX_PARAMETERS,
                "give a smaller model, or its correct size");
        double outside = ends(hidden, vocabulary, sequence, norms, learnedPositions, tied);
        if (parameters <= outside) {
            throw new IllegalArgumentException(
                    ("the number of parameters is %s, and the embeddings alone have"
                                    + " %s (vocabulary %s, sequence %s, hidden %s); give more"
                                    + " parameters, or a smaller vocabulary or hidden size")
                            .formatted(parameters, (long) outside, vocabulary, sequence, hidden));
        }
    }

    /**
     * A model whose number of parameters follows from its shape.
     *
     * @param layers transformer layers
     * @param hidden hidden size
     * @param vocabulary rows of the embedding
     * @param sequence tokens per sample
     * @param attention attention of a layer
     * @param mlp MLP of a layer, or of the layers that have no experts
     * @param experts in place of the MLP; null if the model is dense
     * @param norms norms
     * @param learnedPositions whether there is a table of positions
     * @param tied whether the output matrix is the embedding
     * @param dropout whether it is trained with dropout
     * @return the model
     */
    public static Model of(
            int layers,
            int hidden,
            int vocabulary,
            int sequence,
            Attention attention,
            FeedForward mlp,
            @Nullable Experts experts,
            Norms norms,
            boolean learnedPositions,
            boolean tied,
            boolean dropout) {
        double h = hidden;
        double all =
                layers * (attention.parameters(h) + norms.ofLayer(h))
                        + ends(hidden, vocabulary, sequence, norms, learnedPositions, tied);
        if (experts == null) {
            all += layers * mlp.parameters(h);
        } else {
            all +=
                    experts.dense() * mlp.parameters(h)
                            + (layers - experts.dense()) * (experts.routed(h) + experts.common(h));
        }
        return new Model(
                layers,
                hidden,
                vocabulary,
                sequence,
                attention,
                mlp,
                experts,
                norms,
                learnedPositions,
                tied,
                dropout,
                all > MAX_PARAMETERS ? Long.MAX_VALUE : Math.round(all));
    }

    /**
     * A model like GPT, whose number of parameters follows from its shape.
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
        Checks.range("the hidden size", hidden, 1, 10_000_000, "give the model's width");
        Checks.range("the MLP's width by hidden size", ffn, 0.1, 100, "GPT has 4");
        return of(
                layers,
                hidden,
                vocabulary,
                sequence,
                Attention.Grouped.gpt(heads, hidden),
                new FeedForward(ffn * hidden, false, true),
                null,
                Norms.GPT,
                true,
                tied,
                true);
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
     * A model like Llama: grouped heads and rotary positions, a gated MLP, RMSNorm, no biases, no
     * dropout, a separate output matrix.
     *
     * @param layers transformer layers
     * @param hidden hidden size
     * @param heads query heads
     * @param groups key and value heads
     * @param width width of the MLP
     * @param vocabulary rows of the embedding
     * @param sequence tokens per sample
     * @return the model
     */
    public static Model llama(
            int layers,
            int hidden,
            int heads,
            int groups,
            int width,
            int vocabulary,
            int sequence) {
        return of(
                layers,
                hidden,
                vocabulary,
                sequence,
                new Attention.Grouped(heads, groups, (double) hidden / heads, false, false, false),
                new FeedForward(width, true, false),
                null,
                Norms.LLAMA,
                false,
                false,
                false);
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
        return new Model(
                layers,
                hidden,
                vocabulary,
                sequence,
                attention,
                mlp,
                experts,
                norms,
                learnedPositions,
                tied,
                dropout,
                newParameters);
    }

    /**
     * The same shape with other texts, and the number of parameters that follows.
     *
     * @param newVocabulary rows of the embedding
     * @param newSequence tokens per sample
     * @return the model
     */
    public Model with(int newVocabulary, int newSequence) {
        return of(
                layers,
                hidden,
                newVocabulary,
                newSequence,
                attention,
                mlp,
                experts,
                norms,
                learnedPositions,
                tied,
                dropout);
    }

    /** The same with another attention. */
    Model with(Attention other) {
        return of(
                layers,
                hidden,
                vocabulary,
                sequence,
                other,
                mlp,
                experts,
                norms,
                learnedPositions,
                tied,
                dropout);
    }

    /** The same proportions with another depth and width. */
    Model scaled(int newLayers, int newHidden) {
        double factor = (double) newHidden / hidden;
        return of(
                newLayers,
                newHidden,
                vocabulary,
                sequence,
                attention.scaled(hidden, newHidden),
                mlp.scaled(factor),
                experts == null ? null : experts.scaled(factor, newLayers),
                norms,
                learnedPositions,
                tied,
                dropout);
    }

    /**
     * Query heads.
     *
     * @return their number, a
     */
    public int heads() {
        return attention.heads();
    }

    /**
     * Width of the MLP by hidden size.
     *
     * @return such as 4 in GPT
     */
    public double ffn() {
        return mlp.width() / hidden;
    }

    /**
     * Parameters outside the layers: tokens, positions, the last norm, and the output matrix if it
     * is not the embedding.
     *
     * @return their number
     */
    public double embeddings() {
        return ends(hidden, vocabulary, sequence, norms, learnedPositions, tied);
    }

    /** Those of the first stage of a pipeline, outside its layers. */
    double first() {
        return ((double) vocabulary + (learnedPositions ? sequence : 0)) * hidden;
    }

    /**
     * Parameters of one layer; the mean if some have experts.
     *
     * @return their number
     */
    public double layerParameters() {
        return (parameters - embeddings()) / layers;
    }

    /** Layers with experts. */
    int sparse() {
        return experts == null ? 0 : layers - experts.dense();
    }

    /** Parameters of all routed experts, of which each expert-parallel rank has a part. */
    double routed() {
        return experts == null ? 0 : sparse() * experts.routed(hidden);
    }

    /** Parameters of the largest layer, of whose routed experts a rank has a part. */
    double largestLayer(int expertParallel) {
        double mean = layerParameters();
        if (experts == null) {
            return mean;
        }
        double rest = attention.parameters(hidden) + norms.ofLayer(hidden);
        return rest + experts.common(hidden) + experts.routed(hidden) / expertParallel;
    }

    /**
     * Parameters that take part in computing one token.
     *
     * @return their number; all of them if the model is dense
     */
    public double activeParameters() {
        Experts e = experts;
        return e == null
                ? parameters
                : parameters - sparse() * (e.count() - e.active()) * e.expert().parameters(hidden);
    }

    private static double ends(
            int hidden,
            int vocabulary,
            int sequence,
            Norms norms,
            boolean learnedPositions,
            boolean tied) {
        return ((tied ? 1.0 : 2.0) * vocabulary + (learnedPositions ? sequence : 0)) * hidden
                + norms.ofEnds(hidden);
    }
}
