package io.jccl.parallel;

import java.util.Locale;

/**
 * Load statistics of the experts in the last step, over all ranks. The same object is used for all
 * steps; {@link ExpertDispatch#route} overwrites it.
 *
 * <p><b>Threads:</b> the thread of the {@link ExpertDispatch}.
 */
public final class ExpertStatistics {
    private final int choices;
    private final long[] taken;
    private long tokens;
    private long droppedTokens;
    private long unsampled;
    private long assignments;
    private double usedCapacityFactor;

    ExpertStatistics(RouterOptions options) {
        choices = options.choice() instanceof RouterOptions.TokenChoice t ? t.count() : 0;
        taken = new long[options.experts()];
    }

    /** Adds up the numbers of all ranks. */
    void fill(DispatchPlan plan) {
        tokens = 0;
        droppedTokens = 0;
        unsampled = 0;
        assignments = 0;
        usedCapacityFactor = 0;
        java.util.Arrays.fill(taken, 0);
        for (int r = 0; r < plan.ranks; r++) {
            double even = (double) Math.max(1, choices) * plan.tokens(r) / taken.length;
            for (int e = 0; e < taken.length; e++) {
                int count = plan.count(r, e);
                taken[e] += count;
                assignments += count;
                usedCapacityFactor =
                        count == 0
                                ? usedCapacityFactor
                                : Math.max(usedCapacityFactor, count / even);
            }
            tokens += plan.tokens(r);
            droppedTokens += plan.droppedTokens(r);
            unsampled += plan.unsampled(r);
        }
    }

    /**
     * Number of tokens of all ranks.
     *
     * @return number of tokens
     */
    public long tokens() {
        return tokens;
    }

    /**
     * Number of tokens that an expert accepted.
     *
     * @param expert index among all experts
     * @return number of tokens
     */
    public long taken(int expert) {
        return taken[expert];
    }

    /**
     * Number of assignments; a token accepted by two experts counts twice.
     *
     * @return number of assignments
     */
    public long assignments() {
        return assignments;
    }

    /**
     * Fraction of the tokens' choices that were dropped for lack of capacity; unsampled choices do
     * not count.
     *
     * @return 0 to 1; 0 without tokens, and if experts choose
     */
    public double droppedShare() {
        return tokens == 0 || choices == 0
                ? 0
                : 1 - (double) assignments / ((double) tokens * choices - unsampled);
    }

    /**
     * Number of choices that were not sampled or not made: see {@link ExpertRouter#unsampled}.
     *
     * @return number of choices
     */
    public long unsampled() {
        return unsampled;
    }

    /**
     * Fraction of the tokens that were dropped by all experts.
     *
     * @return 0 to 1; 0 without tokens
     */
    public double droppedTokenShare() {
        return tokens == 0 ? 0 : (double) droppedTokens / tokens;
    }

    /**
     * Load of the busiest expert relative to the mean.
     *
     * @return 1 if balanced, at most the number of experts; 1 without assignments
     */
    public double maxOverMean() {
        long most = 0;
        for (long n : taken) {
            most = Math.max(most, n);
        }
        return assignments == 0 ? 1 : (double) most * taken.length / assignments;
    }

    /**
     * The capacity factor that has just enough room for what experts accepted: if nothing was
     * dropped, the one that drops nothing.
     *
     * @return the tokens that an expert accepted from one rank relative to a balanced load, the
     *     largest over experts and ranks; 0 without tokens
     */
    public double usedCapacityFactor() {
        return usedCapacityFactor;
    }

    /**
     * Standard deviation of the experts' load relative to the mean.
     *
     * @return 0 if balanced or without assignments
     */
    public double coefficientOfVariation() {
        if (assignments == 0) {
            return 0;
        }
        double mean = (double) assignments / taken.length;
        double squares = 0;
        for (long n : taken) {
            squares += (n - mean) * (n - mean);
        }
        return Math.sqrt(squares / taken.length) / mean;
    }

    /**
     * Entropy of the experts' load relative to that of a balanced one, {@code log E}.
     *
     * @return 1 if balanced, 0 if one expert has all assignments; 1 with a single expert or without
     *     assignments
     */
    public double entropy() {
        if (assignments == 0 || taken.length == 1) {
            return 1;
        }
        double sum = 0;
        for (long n : taken) {
            if (n > 0) {
                double share = (double) n / assignments;
                sum -= share * Math.log(share);
            }
        }
        return sum / Math.log(taken.length);
    }

    @Override
    public String toString() {
        return String.format(
                Locale.ROOT,
                "%d tokens, %d assignments to %d experts, dropped %.1f%% of choices"
                        + " and %.1f%% of tokens, max/mean %.2f, variation %.2f, entropy %.3f",
                tokens,
                assignments,
                taken.length,
                100 * droppedShare(),
                100 * droppedTokenShare(),
                maxOverMean(),
                coefficientOfVariation(),
                entropy());
    }
}
