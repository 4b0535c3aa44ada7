package io.jccl.offload.memplan;

/**
 * The attention of a layer: its heads, and the widths of what its matrices compute for each token.
 *
 * <p><b>Threads:</b> immutable.
 */
public sealed interface Attention {
    /**
     * Query heads.
     *
     * @return their number, a
     */
    int heads();

    /**
     * Elements of all queries of a token.
     *
     * @return heads times the size of a query
     */
    double queries();

    /**
     * Elements of all keys and values of a token, as they are kept for the backward pass.
     *
     * @return keys and values together
     */
    double keysAndValues();

    /**
     * Elements of the attention's result for a token, the input of the output matrix.
     *
     * @return heads times the size of a value
     */
    double output();

    /**
     * Further elements that are kept for a token: compressed queries, keys and values.
     *
     * @return 0 without compression
     */
    double compressed();

    /**
     * Elements that multiply: all matrices, without biases and norms.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    double matrices(double hidden);

    /**
     * Matrices.
     *
     * @return their number
     */
    int count();

    /**
     * Rows and columns of all matrices, which is what an adapter of rank 1 has for each.
     *
     * @param hidden the model's hidden size
     * @return their sum
     */
    double widths(double hidden);

    /**
     * All parameters.
     *
     * @param hidden the model's hidden size
     * @return their number
     */
    double parameters(double hidden);

    /**
     * The same proportions for another hidden size, in whole heads of a whole size.
     *
     * @param from the hidden size of this one
     * @param to the other
     * @return the attention
     */
    Attention scaled(double from, double to);

    /**
     * Every head has its own keys and values, or groups of heads share them (grouped-query
     * attention, arXiv 2305.13245; multi-query attention with one group, arXiv 1911.02150).
     *
     * @param heads query heads
     * @param groups key and value heads; as many as heads in GPT, 1 in multi-query attention
     * @param headSize elements of a head
     * @param inputBias whether the matrices of queries, keys and values have biases
     * @param outputBias whether the output matrix has a bias
     * @param norms whether queries and keys are normalized, with a weight per element of a head
     */
    record Grouped(
            int heads,
            int groups,
            double headSize,
            boolean inputBias,
            boolean outputBias,
            boolean norms)
            implements Attention {
        /** Checks the arguments. */
        public Grouped {
            Checks.range("the number of heads", heads, 1, 10_000_000, "give the model's heads");
            Checks.range(
                    "the number of key and value heads",
                    groups,
                    1,
                    heads,
                    "give no more than the " + heads + " query heads");
            Checks.range("the size of a head", headSize, 1e-6, 1e7, "GPT-3 has 128");
            if (heads % groups != 0) {
                throw new IllegalArgumentException(
                        ("there are %s key and value heads for %s query heads, expected a divisor;"
                                        + " give one")
                                .formatted(groups, heads));
            }
        }

        /**
         * GPT's: a head for each query, biases, and heads that make up the hidden size.
         *
         * @param heads heads
         * @param hidden the model's hidden size
         * @return the attention
         */
        public static Grouped gpt(int heads, int hidden) {
            Checks.range("the number of heads", heads, 1, hidden, "give no more heads than hidden");
            return new Grouped(heads, heads, (double) hidden / heads, true, true, false);
        }

        @Override
        public double queries() {
            return heads * headSize;
        }

        @Override
        public double keysAndValues() {
            return 2 * groups * headSize;
        }

        @Override
        public double output() {
            return queries();
        }

        @Override
        public double compressed() {
            return 0;
        }

        @Override
        public double matrices(double hidden) {
            return hidden * (queries() + keysAndValues() + output());
        }

        @Override
        public int count() {
            return 4;
        }

        @Override
        public double widths(double hidden) {
            return 4 * hidden + queries() + keysAndValues() + output();
        }

        @Override
        public double parameters(double hidden) {
            return matrices(hidden)
                    + (inputBias ? queries() + keysAndValues() : 0)
                    + (outputBias ? hidden : 0)
                    + (norms ? 2 * headSize : 0);
        }

        @Override
        public Attention scaled(double from, double to) {
            // Whole groups, so that each keeps its number of query heads.
            int ratio = heads / groups;
            long shared = (long) to / ratio;
            long size = Math.max(1, Math.round(headSize));
            int newGroups =
                    Math.clamp(Math.round(groups * to / from), 1, (int) Math.max(1, shared));
            if (Math.abs(queries() - from) < 0.5 && shared * ratio == (long) to) {
                // The heads make up the hidden size: of its divisors the nearest is their size.
                size = divisor(shared, size);
                newGroups = (int) (shared / size);
            }
            return new Grouped(
                    ratio * newGroups, newGroups, (double) size, inputBias, outputBias, norms);
        }

        /** The divisor nearest to a number, by their ratio. */
        private static long divisor(long of, long near) {
            long up = Math.min(near, of);
            while (of % up != 0) {
                up++;
            }
            long down = up;
            while (down > near || of % down != 0) {
                down--;
            }
            return up * down <= near * near ? up : down;
        }
    }

    /**
     * Multi-head latent attention: keys and values are computed from a compressed vector, queries
     * from another one or directly (arXiv 2405.04434, section 2.1).
     *
     * @param heads heads
     * @param queryRank elements of compressed queries; 0 if queries are computed directly
     * @param rank elements of compressed keys and values
     * @param plain elements of a query and key without rotary position
     * @param rotary elements of a query, and of the one key of all heads, with rotary position
     * @param value elements of a value
     */
    record Latent(int heads, int queryRank, int rank, int plain, int rotary, int value)
            implements Attention {
        /** Checks the arguments. */
        public Latent {
            Checks.range("the number of heads", heads, 1, 10_000_000, "give the model's heads");
            Checks.range(
                    "the rank of queries", queryRank, 0, 10_000_000, "0 computes them directly");
            Checks.range("the rank of keys and values", rank, 1, 10_000_000, "DeepSeek has 512");
            Checks.range("the plain part of a head", plain, 0, 1_000_000, "DeepSeek has 128");
            Checks.range("the rotary part of a head", rotary, 0, 1_000_000, "DeepSeek has 64");
            Checks.range("the size of a value", value, 1, 1_000_000, "DeepSeek has 128");
        }

        @Override
        public double queries() {
            return (double) heads * (plain + rotary);
        }

        @Override
        public double keysAndValues() {
            return (double) heads * (plain + rotary + value);
        }

        @Override
        public double output() {
            return (double) heads * value;
        }

        @Override
        public double compressed() {
            return queryRank + rank + rotary;
        }

        @Override
        public double matrices(double hidden) {
            double forQueries =
                    queryRank == 0 ? hidden * queries() : queryRank * (hidden + queries());
            double forKeys =
                    hidden * (rank + rotary) + (double) rank * heads * (plain + (double) value);
            return forQueries + forKeys + output() * hidden;
        }

        @Override
        public int count() {
            return queryRank == 0 ? 4 : 5;
        }

        @Override
        public double widths(double hidden) {
            double forQueries = hidden + queries() + 2.0 * queryRank;
            double forKeys =
                    hidden + rank + rotary + rank + (double) heads * (plain + (double) value);
            return forQueries + forKeys + output() + hidden;
        }

        @Override
        public double parameters(double hidden) {
            return matrices(hidden) + queryRank + rank;
        }

        @Override
        public Attention scaled(double from, double to) {
            int newHeads = (int) Math.max(1, Math.round(heads * to / from));
            return new Latent(newHeads, queryRank, rank, plain, rotary, value);
        }
    }
}
