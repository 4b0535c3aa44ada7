package io.jccl.train;

import java.util.ArrayList;
import java.util.List;

/**
 * Size of a GPT: token and position embeddings, blocks of causal self-attention and a feed-forward
 * part, each with pre-norm and a residual connection (GPT-2's order), a final norm, and a softmax.
 *
 * @param layers number of blocks
 * @param hidden width
 * @param heads attention heads, a divisor of the width
 * @param context maximum number of tokens that a prediction depends on
 * @param vocabulary number of different tokens
 * @param experts experts in each block instead of the two matrices; 0 for none
 * @param routing how tokens are routed to experts
 * @param capacityFactor slots of an expert relative to a balanced load
 * @param sharedExpert whether all tokens also pass the two matrices, whose output is added to the
 *     experts' (a shared expert as in DeepSeekMoE, arXiv 2401.06066, or Residual-MoE without
 *     coefficients, arXiv 2201.05596)
 * @param architecture the components of the blocks
 * @param mixture noise, dropout and residual experts
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
        boolean sharedExpert,
        Architecture architecture,
        MixtureSettings mixture) {
    /** Width of the feed-forward part as a multiple of the hidden size, except for SwiGLU. */
    static final int WIDTH = 4;

    /** Standard deviations of the embeddings of GPT-2; Llama's token embedding has the same. */
    private static final double TOKEN = 0.02;

    private static final double POSITION = 0.01;

    /**
     * A model of {@link Architecture.Kind#JCCL}.
     *
     * @param layers number of blocks
     * @param hidden width
     * @param heads attention heads
     * @param context tokens of a sequence
     * @param vocabulary number of different tokens
     * @param experts experts in each block; 0 for none
     * @param routing how tokens are routed to experts
     * @param capacityFactor slots of an expert relative to a balanced load
     * @param sharedExpert whether all tokens also pass the two matrices
     */
    public GptShape(
            int layers,
            int hidden,
            int heads,
            int context,
            int vocabulary,
            int experts,
            Routing routing,
            double capacityFactor,
            boolean sharedExpert) {
        this(
                layers,
                hidden,
                heads,
                context,
                vocabulary,
                experts,
                routing,
                capacityFactor,
                sharedExpert,
                Architecture.of(Architecture.Kind.JCCL, hidden, heads),
                MixtureSettings.NONE);
    }

    /**
     * A model without experts.
     *
     * @param layers number of blocks
     * @param hidden width
     * @param heads attention heads
     * @param context tokens of a sequence
     * @param vocabulary number of different tokens
     * @param architecture the components of the blocks
     */
    public GptShape(
            int layers,
            int hidden,
            int heads,
            int context,
            int vocabulary,
            Architecture architecture) {
        this(
                layers,
                hidden,
                heads,
                context,
                vocabulary,
                0,
                Routing.SWITCH,
                1,
                false,
                architecture,
                MixtureSettings.NONE);
    }

    /**
     * This model with other settings of its experts.
     *
     * @param settings noise, dropout, initial values and residual experts
     * @return a new model
     */
    public GptShape with(MixtureSettings settings) {
        return new GptShape(
                layers,
                hidden,
                heads,
                context,
                vocabulary,
                experts,
                routing,
                capacityFactor,
                sharedExpert,
                architecture,
                settings);
    }

    /** Whether blocks have the two matrices. */
    boolean dense() {
        return experts == 0 || sharedExpert || mixture.residual();
    }

    /** Elements of an attention head. */
    int headSize() {
        return hidden / heads;
    }

    /** The longest context. */
    int positions() {
        return architecture.positions() == 0 ? context : architecture.positions();
    }

    /** The share of a matrix that a rank holds under tensor parallelism. */
    enum Split {
        /** The whole matrix. */
        NONE,
        /** A share of the columns of each group, such as queries, keys and values. */
        COLUMNS,
        /** A share of the rows. */
        ROWS
    }

    /**
     * A weight matrix, or a vector as a row.
     *
     * @param name unique in its layer
     * @param rows of the whole matrix
     * @param groups columns of each group of the whole matrix; those before the last are multiples
     *     of it
     * @param center middle of its initial values
     * @param bound their maximum distance from it
     * @param split how tensor parallelism splits it
     */
    record Weight(
            String name, int rows, List<Integer> groups, double center, double bound, Split split) {
        Weight(String name, int rows, int columns, double bound, Split split) {
            this(name, rows, List.of(columns), 0, bound, split);
        }

        /** A row that is not split. */
        static Weight row(String name, int columns, double value) {
            return new Weight(name, 1, List.of(columns), value, 0, Split.NONE);
        }

        /** Columns of the whole matrix. */
        int columns() {
            int sum = 0;
            // Called for each element that is set at the beginning.
            for (int i = 0; i < groups.size(); i++) {
                sum += groups.get(i);
            }
            return sum;
        }

        /** The bias of a product with this matrix: a rank has that of its columns. */
        Weight bias() {
            Split own = split == Split.COLUMNS ? split : Split.NONE;
            return new Weight(name + ".bias", 1, groups, 0, 0, own);
        }

        /** Elements that one of {@code parts} ranks holds. */
        long count(int parts) {
            return (long) rows * columns() / (split == Split.NONE ? 1 : parts);
        }

        /** Elements of a rank that follow each other in the whole matrix too. */
        long run(int parts) {
            return split == Split.COLUMNS ? groups.getLast() / parts : count(parts);
        }

        /** Index in the whole matrix of a rank's element. */
        long index(long local, int part, int parts) {
            switch (split) {
                case ROWS -> {
                    return local + part * count(parts);
                }
                case COLUMNS -> {
                    int columns = columns();
                    int width = columns / parts;
                    long column = local % width;
                    long first = local / width * columns;
                    int group = 0;
                    while (column >= groups.get(group) / parts) {
                        column -= groups.get(group) / parts;
                        first += groups.get(group);
                        group++;
                    }
                    return first + (long) part * (groups.get(group) / parts) + column;
                }
                default -> {
                    return local;
                }
            }
        }
    }

    List<Weight> embedding() {
        boolean own = !architecture.gains();
        double token = own ? 0.5 : Math.sqrt(3) * TOKEN;
        double position = own ? 0.25 : Math.sqrt(3) * POSITION;
        List<Weight> all = new ArrayList<>();
        all.add(new Weight("token", vocabulary, hidden, token, Split.NONE));
        if (!architecture.rotary()) {
            all.add(new Weight("position", positions(), hidden, position, Split.NONE));
        }
        return all;
    }

    /** The weights of a norm, if it has any. */
    private void norm(String name, List<Weight> to) {
        if (architecture.gains()) {
            to.add(Weight.row(name, hidden, 1));
        }
        if (architecture.biases()) {
            to.add(Weight.row(name + ".bias", hidden, 0));
        }
    }

    private void product(Weight matrix, List<Weight> to) {
        to.add(matrix);
        if (architecture.biases()) {
            to.add(matrix.bias());
        }
    }

    /** The weights of a block without its experts. */
    List<Weight> block() {
        double in = Math.sqrt(3.0 / hidden);
        // Blocks start small, so that depth does not matter initially.
        double out = in / Math.sqrt(2.0 * layers);
        int keys = architecture.keyHeads() * headSize();
        int wide = architecture.wide();
        List<Weight> all = new ArrayList<>();
        norm("norm1", all);
        List<Integer> qkv = List.of(hidden, keys, keys);
        product(new Weight("qkv", hidden, qkv, 0, in, Split.COLUMNS), all);
        product(new Weight("out", hidden, hidden, out, Split.ROWS), all);
        norm("norm2", all);
        if (dense()) {
            List<Integer> up = architecture.gated() ? List.of(wide, wide) : List.of(wide);
            product(new Weight("w1", hidden, up, 0, in, Split.COLUMNS), all);
            double down = out / Math.sqrt((double) wide / hidden);
            product(new Weight("w2", wide, hidden, down, Split.ROWS), all);
        }
        if (experts > 0) {
            all.add(new Weight("router", hidden, experts, in, Split.NONE));
        }
        if (mixture.residual()) {
            all.add(new Weight("coefficient", hidden, 2, in, Split.NONE));
            all.add(Weight.row("coefficient.bias", 2, 0));
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
        double bound = 0.3 * Math.sqrt(3.0 / hidden);
        List<Weight> all = new ArrayList<>();
        norm("norm", all);
        if (!architecture.tied()) {
            all.add(new Weight("logits", hidden, vocabulary, bound, Split.NONE));
        }
        return all;
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
