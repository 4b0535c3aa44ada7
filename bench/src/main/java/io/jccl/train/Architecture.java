package io.jccl.train;

import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/**
 * The components of a model's blocks.
 *
 * @param kind norms, activation, positions and biases
 * @param keyHeads heads of keys and of values, a divisor of the heads; fewer are shared (arXiv
 *     2305.13245)
 * @param wide width of the feed-forward part
 * @param epsilon value added to the mean square of a row in a norm
 * @param rotaryBase base of the angles by which {@link Kind#LLAMA} rotates queries and keys
 * @param tied whether the logits are products with the rows of the token embedding
 * @param positions the longest context, for which a learned table has rows; 0 for that of the shape
 */
public record Architecture(
        Kind kind,
        int keyHeads,
        int wide,
        double epsilon,
        double rotaryBase,
        boolean tied,
        int positions) {
    /** Families of models. */
    public enum Kind {
        /** RMSNorm without gain, squared ReLU, learned positions, no biases. */
        JCCL,
        /** LayerNorm, GELU by tanh, learned positions, biases; tied. */
        GPT2,
        /** RMSNorm, SwiGLU (arXiv 2002.05202), rotary positions (arXiv 2104.09864), no biases. */
        LLAMA;

        /**
         * Returns the kind with the given name.
         *
         * @param label such as {@code gpt2}
         * @return the kind
         * @throws IllegalArgumentException if the name is unknown; the message lists the known ones
         */
        public static Kind of(String label) {
            for (Kind k : values()) {
                if (k.label().equals(label)) {
                    return k;
                }
            }
            throw new IllegalArgumentException(
                    "--model is '"
                            + label
                            + "', expected one of "
                            + Arrays.stream(values())
                                    .map(Kind::label)
                                    .collect(Collectors.joining(", ")));
        }

        /**
         * Its name on the command line.
         *
         * @return such as {@code gpt2}
         */
        public String label() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    /** Epsilon of GPT-2 and of Llama 2 and 3, as in their configurations. */
    private static final double EPSILON = 1e-5;

    /** Epsilon of models of kind {@link Kind#JCCL}. */
    private static final double OWN_EPSILON = 1e-6f;

    /** Base of the angles in arXiv 2104.09864 and in Llama 2. */
    private static final double BASE = 10_000;

    /** SwiGLU has three matrices, of two thirds of the width of two. */
    private static final int GATED = 3;

    /** A SwiGLU's width is a multiple of this, so that tensor ranks can share it. */
    private static final int UNIT = 16;

    /**
     * A new model's architecture.
     *
     * @param kind its family
     * @param hidden width
     * @param heads attention heads
     * @return the family's usual numbers
     */
    public static Architecture of(Kind kind, int hidden, int heads) {
        int wide = GptShape.WIDTH * hidden;
        return switch (kind) {
            case JCCL -> new Architecture(kind, heads, wide, OWN_EPSILON, BASE, false, 0);
            case GPT2 -> new Architecture(kind, heads, wide, EPSILON, BASE, true, 0);
            case LLAMA -> {
                int gated = (2 * wide / GATED + UNIT - 1) / UNIT * UNIT;
                yield new Architecture(kind, heads, gated, EPSILON, BASE, false, 0);
            }
        };
    }

    /**
     * This architecture with another number of heads of keys and values.
     *
     * @param value a divisor of the heads
     * @return new settings
     */
    public Architecture withKeyHeads(int value) {
        return new Architecture(kind, value, wide, epsilon, rotaryBase, tied, positions);
    }

    /** Whether norms have a gain, and layers their own norm weights. */
    boolean gains() {
        return kind != Kind.JCCL;
    }

    /** Whether norms and products have biases. */
    boolean biases() {
        return kind == Kind.GPT2;
    }

    /** Whether positions rotate queries and keys instead of being added to the tokens. */
    boolean rotary() {
        return kind == Kind.LLAMA;
    }

    /** Whether the first product of the feed-forward part has gates in addition to values. */
    boolean gated() {
        return kind == Kind.LLAMA;
    }

    /** The settings that determine the result, for checkpoints. */
    String text() {
        return kind == Kind.JCCL
                ? kind.label()
                : kind.label()
                        + " key-heads="
                        + keyHeads
                        + " wide="
                        + wide
                        + " epsilon="
                        + epsilon
                        + " base="
                        + rotaryBase
                        + " tied="
                        + tied
                        + " positions="
                        + positions;
    }
}
