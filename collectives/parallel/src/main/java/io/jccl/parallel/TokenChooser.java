package io.jccl.parallel;

import io.jccl.internal.SplitMix;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;

/** Top-k choice of experts by tokens: sampling, slots, rerouting and weights. */
final class TokenChooser {
    /** Makes samples independent of other noise with the same seed. */
    private static final long SAMPLE = SplitMix.mix(4);

    private final RouterOptions options;
    private final int experts;
    private final int choices;
    private final boolean normalised;

    /** Whether second choices are used by chance, whether last ones are sampled, and the seed. */
    private final boolean byChance;

    private final boolean samples;

    private final long seed;

    private final float[] gates;
    private final int[] firstChoices;
    private final Assignments assignments;
    private final DescendingOrder order;

    /** The experts chosen by each token, after rerouting, and the assignment of each or -1. */
    private final int[] chosen;

    private final int[] assigned;

    /** The divisor of each token's gates. */
    private final float[] divisor;

    private int capacity;
    private int unsampled;

    /**
     * @param gates tokens x experts, filled by the router
     * @param firstChoices tokens with the largest gate of each expert, likewise; sampled first
     *     choices replace them
     * @param assignments where choices are written
     */
    TokenChooser(
            RouterOptions options,
            TokenChoice choice,
            float[] gates,
            int[] firstChoices,
            Assignments assignments,
            DescendingOrder order) {
        this.options = options;
        this.gates = gates;
        this.firstChoices = firstChoices;
        this.assignments = assignments;
        this.order = order;
        experts = options.experts();
        choices = choice.count();
        normalised = choice.normalised();
        byChance = choice.chance().isPresent();
        samples = choice.sample().isPresent();
        seed = samples ? choice.sample().getAsLong() + SAMPLE : choice.chance().orElse(0);
        int all = Math.multiplyExact(options.maxTokens(), choices);
        chosen = new int[all];
        assigned = new int[all];
        divisor = new float[options.maxTokens()];
    }

    /**
     * Chooses the experts of a step's tokens.
     *
     * @param place of the first token among all, or {@link ExpertRouter#NO_PLACE}
     */
    void choose(int tokens, int capacity, long place) {
        this.capacity = capacity;
        unsampled = 0;
        for (int t = 0; t < tokens; t++) {
            int at = t * choices;
            for (int j = 0; j < choices; j++) {
                chosen[at + j] = best(t, j, false);
                assigned[at + j] = 0;
            }
            if (samples && place != ExpertRouter.NO_PLACE) {
                sampleLast(t, place + t);
            }
            for (int j = 1; j < choices; j++) {
                // Experts with a gate of 0 are excluded, and take no slot.
                if (gates[t * experts + chosen[at + j]] == 0
                        || (byChance && !isSampled(t, place))) {
                    assigned[at + j] = -1;
                    unsampled++;
                }
            }
        }
        boolean sorted = options.batchPriority();
        if (sorted) {
            order.begin();
            for (int t = 0; t < tokens; t++) {
                order.add(gates[t * experts + chosen[t * choices]]);
            }
            order.sort();
        }
        for (int j = 0; j < choices; j++) {
            for (int i = 0; i < tokens; i++) {
                place(sorted ? order.get(i) : i, j);
            }
        }
        assignments.setStarts();
        for (int t = 0; t < tokens; t++) {
            weigh(t);
        }
    }

    /** Choices of the last step that were not sampled, or left only excluded experts. */
    int unsampled() {
        return unsampled;
    }

    /**
     * Replaces the last choice of a token by one drawn from all but the first. A logit x with
     * Gumbel noise is x - log(y), with y exponentially distributed, so the largest is at the
     * smallest y / exp(x), with the gate as exp(x). Expert e is drawn with probability p_e over the
     * sum of those left: Maddison, Tarlow and Minka, "A* Sampling", arXiv 1411.0030.
     */
    private void sampleLast(int t, long place) {
        int last = t * choices + choices - 1;
        int largest = chosen[last];
        double least = Double.POSITIVE_INFINITY;
        for (int e = 0; e < experts; e++) {
            double gate = gates[t * experts + e];
            if (gate > 0 && !has(t, choices - 1, e)) {
                double drawn = SplitMix.exponential(seed, place * experts + e) / gate;
                if (drawn < least) {
                    least = drawn;
                    chosen[last] = e;
                }
            }
        }
        if (choices == 1) {
            firstChoices[largest]--;
            firstChoices[chosen[last]]++;
        }
    }

    /** GShard's sampling: in proportion to the second gate, always if the two are equal. */
    private boolean isSampled(int t, long place) {
        float first = gates[t * experts + chosen[t * choices]];
        float second = gates[t * experts + chosen[t * choices + 1]];
        long bits = (long) Float.floatToRawIntBits(first) << 32 | Float.floatToRawIntBits(second);
        double drawn = SplitMix.uniform(seed, place == ExpertRouter.NO_PLACE ? bits : place + t);
        return 2.0 * second > drawn * ((double) first + second);
    }

    /**
     * The expert with the largest gate that is not among the token's first n; only those with room
     * if requested.
     */
    private int best(int t, int n, boolean withRoom) {
        int best = -1;
        for (int e = 0; e < experts; e++) {
            boolean better = best < 0 || gates[t * experts + e] > gates[t * experts + best];
            if (better && !(withRoom && assignments.count[e] >= capacity) && !has(t, n, e)) {
                best = e;
            }
        }
        return best;
    }

    private boolean has(int t, int n, int e) {
        for (int j = t * choices; j < t * choices + n; j++) {
            if (chosen[j] == e) {
                return true;
            }
        }
        return false;
    }

    /**
     * Assigns a slot to a token's choice: its number within the expert, until all counts are known.
     */
    private void place(int t, int j) {
        int at = t * choices + j;
        if (assigned[at] < 0) {
            return;
        }
        int[] count = assignments.count;
        int e = chosen[at];
        if (count[e] >= capacity && options.overflow() == Overflow.NEXT_BEST) {
            int other = best(t, choices, true);
            if (other >= 0 && gates[t * experts + other] > 0) {
                chosen[at] = other;
                e = other;
            }
        }
        assigned[at] = count[e] < capacity ? count[e]++ : -1;
    }

    private void weigh(int t) {
        int from = t * choices;
        float sum = 1;
        if (normalised) {
            sum = 0;
            for (int j = from; j < from + choices; j++) {
                sum += gates[t * experts + chosen[j]];
            }
            // A token rerouted to experts with tiny gates; quotients of such gates are meaningless.
            sum = sum < Float.MIN_NORMAL ? 0 : sum;
        }
        divisor[t] = sum;
        for (int j = from; j < from + choices; j++) {
            if (assigned[j] >= 0) {
                int i = assignments.start[chosen[j]] + assigned[j];
                assigned[j] = i;
                float w = sum == 0 ? 0 : gates[t * experts + chosen[j]] / sum;
                assignments.set(i, t, chosen[j], w);
            }
        }
    }

    /** Whether a token's weights depend on the gates of all experts that it chose. */
    boolean divides() {
        return choices > 1 && normalised;
    }

    /**
     * Adds the gradients of a token's gates where {@link #divides}. With w_j = p_j / S and S the
     * sum of p over the chosen: dp_m = (g_m - sum_j g_j w_j) / S.
     */
    void weightsToGates(int t, float[] gateGradient) {
        if (!(divisor[t] > 0)) {
            return;
        }
        float sum = 0;
        for (int k = assignments.tokenStart[t]; k < assignments.tokenStart[t + 1]; k++) {
            int i = assignments.byToken[k];
            sum += assignments.weightGradient[i] * assignments.weight[i];
        }
        for (int j = t * choices; j < (t + 1) * choices; j++) {
            float g = assigned[j] < 0 ? 0 : assignments.weightGradient[assigned[j]];
            gateGradient[chosen[j]] += (g - sum) / divisor[t];
        }
    }
}
