package io.jccl.train;

import java.util.ArrayList;
import java.util.List;

/**
 * Size of a character-level GPT: token and position embeddings, blocks of causal self-attention and
 * a layer of two matrices four times as wide inside, each behind a norm and beside a residual path
 * (GPT-2's order), a norm, and a softmax. There are no biases and gains.
 *
 * @param layers number of blocks
 * @param hidden width
 * @param heads attention heads, a divisor of the width
 * @param context characters that a prediction sees at most
 * @param vocabulary number of different characters
 * @param experts experts in each block instead of the two matrices; 0 for none
 * @param topK experts that a token goes to
 * @param capacityFactor slots of an expert, as a multiple of its share if tokens were spread evenly
 */
public record GptShape(
        int layers,
        int hidden,
        int heads,
        int context,
        int vocabulary,
        int experts,
        int topK,
        double capacityFactor) {
    /** How much wider a block is inside. */
    public static final int WIDTH = 4;

    /** What a rank holds of a matrix that tensor parallelism splits. */
    enum Split {
        /** All of it. */
        NONE,
        /** Its share of the columns. */
        COLUMNS,
        /** Its share of the columns in each third: queries, keys and values. */
        THIRDS,
        /** Its share of the rows. */
        ROWS
    }

    /**
     * A weight matrix.
     *
     * @param name unique in its layer
     * @param rows of the whole matrix
     * @param columns of the whole matrix
     * @param bound of its initial values
     * @param split what tensor parallelism does with it
     */
    record Weight(String name, int rows, int columns, double bound, Split split) {
        /** Elements that one of {@code parts} ranks holds. */
        long count(int parts) {
            return (long) rows * columns / (split == Split.NONE ? 1 : parts);
        }

        /** Where in the whole matrix a rank's element lies. */
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

    /** A block without its experts. */
    List<Weight> block() {
        double in = Math.sqrt(3.0 / hidden);
        // Blocks begin small, so that depth does not matter at first.
        double out = in / Math.sqrt(2.0 * layers);
        List<Weight> all = new ArrayList<>();
        all.add(new Weight("qkv", hidden, 3 * hidden, in, Split.THIRDS));
        all.add(new Weight("out", hidden, hidden, out, Split.ROWS));
        if (experts == 0) {
            all.add(new Weight("w1", hidden, WIDTH * hidden, in, Split.COLUMNS));
            all.add(new Weight("w2", WIDTH * hidden, hidden, out / Math.sqrt(WIDTH), Split.ROWS));
        } else {
            all.add(new Weight("router", hidden, experts, in, Split.NONE));
        }
        return all;
    }

    /** Some of a block's experts. */
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
     * @return all of them, those of all experts included
     */
    public long parameters() {
        long block = count(block()) + count(experts(0, experts));
        return count(embedding()) + layers * block + count(head());
    }

    private static long count(List<Weight> weights) {
        return weights.stream().mapToLong(w -> w.count(1)).sum();
    }
}
