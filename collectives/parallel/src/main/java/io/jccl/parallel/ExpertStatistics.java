package io.jccl.parallel;

import java.util.Locale;

/**
 * How evenly the experts were used in the last step, over all ranks. One object for all steps:
 * {@link ExpertDispatch#route} writes it anew.
 *
 * <p><b>Threads:</b> that of the {@link ExpertDispatch}.
 */
public final class ExpertStatistics {
    private final int choices;
    private final long[] taken;
    private final long[] firstChoices;
    private long tokens;
    private long untaken;
    private long skipped;
    private long assignments;

    ExpertStatistics(RouterOptions options) {
        choices = options.choice() instanceof RouterOptions.TokenChoice t ? t.count() : 0;
        taken = new long[options.experts()];
        firstChoices = new long[options.experts()];
    }

    void begin() {
        tokens = 0;
        untaken = 0;
        skipped = 0;
        assignments = 0;
        java.util.Arrays.fill(taken, 0);
        java.util.Arrays.fill(firstChoices, 0);
    }

    void addExpert(int expert, int taken, int firstChoices) {
        this.taken[expert] += taken;
        this.firstChoices[expert] += firstChoices;
        assignments += taken;
    }

    void addRank(int tokens, int untaken, int skipped) {
        this.tokens += tokens;
        this.untaken += untaken;
        this.skipped += skipped;
    }

    /**
     * Tokens of all ranks.
     *
     * @return how many
     */
    public long tokens() {
        return tokens;
    }

    /**
     * Tokens that an expert took.
     *
     * @param expert which, of all experts
     * @return how many
     */
    public long taken(int expert) {
        return taken[expert];
    }

    /**
     * Tokens whose largest gate is an expert's.
     *
     * @param expert which, of all experts
     * @return how many
     */
    public long firstChoices(int expert) {
        return firstChoices[expert];
    }

    /**
     * Tokens taken by all experts together; one that two experts took counts twice.
     *
     * @return how many
     */
    public long assignments() {
        return assignments;
    }

    /**
     * The share of the tokens' choices that no expert took for lack of room; those that chance left
     * out do not count.
     *
     * @return 0 to 1; 0 without tokens, and if experts choose
     */
    public double droppedShare() {
        return tokens == 0 || choices == 0
                ? 0
                : 1 - (double) assignments / ((double) tokens * choices - skipped);
    }

    /**
     * Second choices that chance left out.
     *
     * @return how many; 0 without {@link RouterOptions.TokenChoice#chance}
     */
    public long skipped() {
        return skipped;
    }

    /**
     * The share of the tokens that no expert took at all.
     *
     * @return 0 to 1; 0 without tokens
     */
    public double untakenShare() {
        return tokens == 0 ? 0 : (double) untaken / tokens;
    }

    /**
     * What the busiest expert took, relative to the mean.
     *
     * @return 1 if even, at most the number of experts; 1 if nothing was taken
     */
    public double maxOverMean() {
        long most = 0;
        for (long n : taken) {
            most = Math.max(most, n);
        }
        return assignments == 0 ? 1 : (double) most * taken.length / assignments;
    }

    /**
     * Standard deviation of what the experts took, relative to the mean.
     *
     * @return 0 if even, or if nothing was taken
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
     * Entropy of what the experts took, relative to that of an even spread, {@code log E}.
     *
     * @return 1 if even, 0 if one expert took all; 1 with one expert, or if nothing was taken
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
                "%d tokens, %d assignments to %d experts, dropped %.1f%%, untaken %.1f%%, max/mean"
                        + " %.2f, variation %.2f, entropy %.3f",
                tokens,
                assignments,
                taken.length,
                100 * droppedShare(),
                100 * untakenShare(),
                maxOverMean(),
                coefficientOfVariation(),
                entropy());
    }
}
