package io.jccl.train;

import java.util.ArrayList;
import java.util.List;

/**
 * Size of a GPT: token and position embeddings, blocks of causal self-attention and a feed-forward
 * part of four times the width, each with pre-norm and a residual connection (GPT-2's order), a
 * final norm, and a softmax. There are no biases and gains.
 *
 * @param layers number of blocks
 * @param hidden width
 * @param heads attention heads, a divisor of the width
 * @param context maximum number of tokens that a prediction depends on
 * @param vocabulary number of different tokens
 * @param experts experts in each block instead of the two matrices; 0 for none
 * @param routing how tokens get to experts
 * @param capacityFactor slots of an expert relative to a balanced load
 * @param sharedExpert whether all tokens also pass the two matrices, whose output is added to the
 *     experts' (a shared expert as in DeepSeekMoE, arXiv 2401.06066, or Residual-MoE without
 *     coefficients, arXiv 2201.05596)
 */
public record GptShape(
        int layers,
        int hidden,
        int heads,
        int context,
        int vocabulary,
        int experts,
        Routing routing,
        double capacityFactor,
        boolean sharedExpert) {
    /** Width of the feed-forward part as a multiple of the hidden size. */
    public static final int WIDTH = 4;

    /** Whether blocks have the two matrices. */
    boolean dense() {
        return experts == 0 || sharedExpert;
    }

    /** The share of a matrix that a rank holds under tensor parallelism. */
    enum Split {
        /** The whole matrix. */
        NONE,
        /** A share of the columns. */
        COLUMNS,
        /** A share of the columns in each third: queries, keys and values. */
        THIRDS,
        /** A share of the rows. */
        ROWS
    }

    /**
     * A weight matrix.
     *
     * @param name unique in its layer
     * @param rows of the whole matrix
     * @param columns of the whole matrix
     * @param bound bound of its initial values
     * @param split how tensor parallelism splits it
     */
    record Weight(String name, int rows, int columns, double bound, Split split) {
        /** Elements that one of {@code parts} ranks holds. */
        long count(int parts) {
            return (long) rows * columns / (split == Split.NONE ? 1 : parts);
        }

        /** Elements of a rank that follow each other in the whole matrix too. */
        long run(int parts) {
            return switch (split) {
                case COLUMNS -> columns / parts;
                case THIRDS -> columns / parts / 3;
                default -> count(parts);
            };
        }

        /** Index in the whole matrix of a rank's element. */
        long index(long local, int part, int parts) {
            switch (split) {
                case ROWS -> {
                    return local + part * count(parts);
                }
                case COLUMNS -> {
                    int width = columns / parts;
                    return local / width * columns + (long) part * width + local % width;
                }
                case THIRDS -> {
                    int width = columns / parts;
                    int third = width / 3;
                    long column = local % width;
                    return local / width * columns
                            + column / third * (columns / 3)
                            + (long) part * third
                            + column % third;
                }
                default -> {
                    return local;
                }
            }
        }
    }

    List<Weight> embedding() {
        return List.of(
                new Weight("token", vocabulary, hidden, 0.5, Split.NONE),
                new Weight("position", context, hidden, 0.25, Split.NONE));
    }

    /** The weights of a block without its experts. */
    List<Weight> block() {
        double in = Math.sqrt(3.0 / hidden);
        // Blocks start small, so that depth does not matter initially.
        double out = in / Math.sqrt(2.0 * layers);
        List<Weight> all = new ArrayList<>();
        all.add(new Weight("qkv", hidden, 3 * hidden, in, Split.THIRDS));
        all.add(new Weight("out", hidden, hidden, out, Split.ROWS));
        if (dense()) {
            all.add(new Weight("w1", hidden, WIDTH * hidden, in, Split.COLUMNS));
            all.add(new Weight("w2", WIDTH * hidden, hidden, out / Math.sqrt(WIDTH), Split.ROWS));
        }
        if (experts > 0) {
            all.add(new Weight("router", hidden, experts, in, Split.NONE));
        }
        return all;
    }

    /** The weights of some of a block's experts. */
    List<Weight> experts(int from, int count) {
        double in = Math.sqrt(3.0 / hidden);
        double out = in / Math.sqrt(2.0 * layers * WIDTH);
        List<Weight> all = new ArrayList<>();
        for (int e = from; e < from + count; e++) {
            all.add(new Weight("expert" + e + ".w1", hidden, WIDTH * hidden, in, Split.COLUMNS));
            all.add(new Weight("expert" + e + ".w2", WIDTH * hidden, hidden, out, Split.ROWS));
        }
        return all;
    }

    List<Weight> head() {
        return List.of(
                new Weight(
                        "logits", hidden, vocabulary, 0.3 * Math.sqrt(3.0 / hidden), Split.NONE));
    }

    /**
     * Number of parameters.
     *
     * @return number of all parameters, including those of all experts
     */
    public long parameters() {
        long block = count(block()) + count(experts(0, experts));
        return count(embedding()) + layers * block + count(head());
    }

    private static long count(List<Weight> weights) {
        return weights.stream().mapToLong(w -> w.count(1)).sum();
    }
}
