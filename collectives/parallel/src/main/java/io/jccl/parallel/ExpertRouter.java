package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.RouterOptions.ExpertChoice;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.Objects;

/**
 * Decides which tokens of one rank go to which experts, from gate logits x of tokens x experts.
 *
 * <p>Gates are {@code p = softmax(x)} of each token. {@link RouterOptions} says who chooses; in any
 * case the larger gate goes first, and of equal ones the lower expert or token. First choices of
 * all tokens get their slots before second choices (GShard, <a
 * href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>, algorithm 1). The <i>weight</i> of
 * an assignment is its gate p, or with {@link TokenChoice#normalised} p divided by the sum over all
 * experts that the token chose, also those that dropped it or that chance left out; 0 if that sum
 * is below {@link Float#MIN_NORMAL}, as it may be for a token that was sent far down its list.
 *
 * <p>Two losses keep experts busy and logits small; for T tokens and E experts:
 *
 * <ul>
 *   <li>load balancing, {@code E sum_e f_e P_e}, with f the share of tokens whose largest gate is e
 *       and P the mean of gate e (Switch, <a href="https://arxiv.org/abs/2101.03961">arXiv
 *       2101.03961</a>, equation 4); 1 if even
 *   <li>router z-loss, the mean over tokens of {@code log(sum_e exp x_e)^2} (Zoph et al., "ST-MoE",
 *       <a href="https://arxiv.org/abs/2202.08906">arXiv 2202.08906</a>, equation 5)
 * </ul>
 *
 * <p>Both are of this rank's tokens, as in those papers, where each core routes its own group.
 *
 * <p>Everything runs on the calling thread, in heap memory made once; a step allocates nothing.
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class ExpertRouter {
    private final RouterOptions options;
    private final int experts;
    private final int choices;

    /** Whether second choices are used by chance, and its seed. */
    private final boolean byChance;

    private final long seed;

    /** Logits, then gates: tokens x experts. */
    private final float[] gates;

    private final float[] logSum;

    /** The experts that each token chose, after rerouting, and their assignment or -1. */
    private final int[] chosen;

    private final int[] assigned;

    /** Of each token, what divides its gates. */
    private final float[] divisor;

    private final int[] count;
    private final int[] start;
    private final int[] firstChoices;

    // Assignments, by expert and then by slot.
    private final int[] token;
    private final int[] expert;
    private final float[] weight;
    private final float[] weightGradient;

    /** The assignments of each token, by expert. */
    private final int[] tokenStart;

    private final int[] tokenAssignments;
    private final DescendingOrder order;
    private final float[] gateGradient;
    private int tokens;
    private int capacity;
    private int skipped;

    private ExpertRouter(RouterOptions options) {
        this.options = options;
        experts = options.experts();
        choices = options.choice() instanceof TokenChoice t ? t.count() : 0;
        byChance = options.choice() instanceof TokenChoice t && t.chance().isPresent();
        seed = options.choice() instanceof TokenChoice t ? t.chance().orElse(0) : 0;
        int most = options.maxTokens();
        gates = new float[most * experts];
        logSum = new float[most];
        int all = Math.multiplyExact(most, choices);
        chosen = new int[all];
        assigned = new int[all];
        divisor = new float[most];
        count = new int[experts];
        start = new int[experts + 1];
        firstChoices = new int[experts];
        int assignments = options.maxAssignments();
        token = new int[assignments];
        expert = new int[assignments];
        weight = new float[assignments];
        weightGradient = new float[assignments];
        tokenStart = new int[most + 1];
        tokenAssignments = new int[assignments];
        order = new DescendingOrder(most);
        gateGradient = new float[experts];
    }

    /**
     * Makes a router.
     *
     * @param options its settings
     * @return the router
     */
    public static ExpertRouter create(RouterOptions options) {
        return new ExpertRouter(Objects.requireNonNull(options, "options"));
    }

    /**
     * Its settings.
     *
     * @return what it was made with
     */
    public RouterOptions options() {
        return options;
    }

    /**
     * Routes the tokens of a step. Minus infinity is a logit like any other, for experts that a
     * token is not to have, as long as one of the token's logits is finite.
     *
     * @param logits tokens x experts of float32, row after row, in host memory; what follows is
     *     ignored
     * @param tokens how many, 0 to {@link RouterOptions#maxTokens}
     * @throws IllegalArgumentException if the buffer does not fit, or a logit is NaN or infinity;
     *     the router has no assignments then
     */
    public void route(Buffer logits, int tokens) {
        int bad = tryRoute(logits, tokens);
        if (bad >= 0) {
            throw new IllegalArgumentException(badLogit(bad));
        }
    }

    /** What is wrong about a position that {@link #tryRoute} returned. */
    String badLogit(int at) {
        return "the logit of token "
                + at / experts
                + " for expert "
                + at % experts
                + " is NaN or infinity, or all of the token's are minus infinity; expected finite"
                + " ones, and minus infinity only for experts that it is not to have";
    }

    /** Routes, and returns the position of the first logit that is no number, or -1. */
    int tryRoute(Buffer logits, int tokens) {
        check(logits, tokens, "the logits");
        this.tokens = 0;
        skipped = 0;
        capacity = options.capacity(tokens);
        Arrays.fill(count, 0);
        Arrays.fill(firstChoices, 0);
        Arrays.fill(start, 0);
        tokenStart[0] = 0;
        MemorySegment.copy(
                logits.asSegment(),
                ValueLayout.JAVA_FLOAT_UNALIGNED,
                0,
                gates,
                0,
                tokens * experts);
        for (int t = 0; t < tokens; t++) {
            int bad = softmax(t);
            if (bad >= 0) {
                Arrays.fill(firstChoices, 0);
                return bad;
            }
        }
        this.tokens = tokens;
        if (options.choice() instanceof ExpertChoice) {
            expertsChoose();
        } else {
            tokensChoose();
        }
        indexByToken();
        return -1;
    }

    private void check(Buffer buffer, int tokens, String what) {
        if (tokens < 0 || tokens > options.maxTokens()) {
            throw new IllegalArgumentException(
                    "there are "
                            + tokens
                            + " tokens, expected 0 to the maxTokens of "
                            + options.maxTokens()
                            + " that the router was made for");
        }
        if (buffer.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    what
                            + " are on "
                            + buffer.device()
                            + ", but routing needs host memory; copy them to a buffer of"
                            + " Device.host() by Stream.copy first");
        }
        if (buffer.dataType() != DataType.FLOAT32 || buffer.count() < (long) tokens * experts) {
            throw new IllegalArgumentException(
                    what
                            + " are "
                            + buffer.count()
                            + " elements of "
                            + buffer.dataType().label()
                            + ", expected "
                            + tokens
                            + " tokens x "
                            + experts
                            + " experts of float");
        }
    }

    private int softmax(int t) {
        int at = t * experts;
        float most = Float.NEGATIVE_INFINITY;
        for (int e = 0; e < experts; e++) {
            float x = gates[at + e];
            if (!(x < Float.POSITIVE_INFINITY)) {
                return at + e;
            }
            most = Math.max(most, x);
        }
        if (most == Float.NEGATIVE_INFINITY) {
            return at;
        }
        double sum = 0;
        for (int e = 0; e < experts; e++) {
            double y = Math.exp(gates[at + e] - most);
            gates[at + e] = (float) y;
            sum += y;
        }
        float scale = (float) (1 / sum);
        int first = 0;
        for (int e = 0; e < experts; e++) {
            gates[at + e] *= scale;
            // By gates, as choices are: different logits may have been rounded to the same gate.
            first = gates[at + e] > gates[at + first] ? e : first;
        }
        logSum[t] = (float) (most + Math.log(sum));
        firstChoices[first]++;
        return -1;
    }

    // ---- token choice

    private void tokensChoose() {
        for (int t = 0; t < tokens; t++) {
            int at = t * choices;
            for (int j = 0; j < choices; j++) {
                chosen[at + j] = best(t, j, false);
                assigned[at + j] = 0;
            }
            if (byChance
                    && !isWanted(
                            gates[t * experts + chosen[at]], gates[t * experts + chosen[at + 1]])) {
                assigned[at + 1] = -1;
                skipped++;
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
        for (int e = 0; e < experts; e++) {
            start[e + 1] = start[e] + count[e];
        }
        boolean normalised = options.choice() instanceof TokenChoice c && c.normalised();
        for (int t = 0; t < tokens; t++) {
            weigh(t, normalised);
        }
    }

    /** GShard's draw: in proportion to the second one's weight, always if the two are equal. */
    private boolean isWanted(float first, float second) {
        long bits = (long) Float.floatToRawIntBits(first) << 32 | Float.floatToRawIntBits(second);
        double drawn = (SplitMix.mix(seed + SplitMix.GAMMA * bits) >>> 11) * 0x1p-53;
        return 2.0 * second > drawn * ((double) first + second);
    }

    /** The expert with the largest gate that is none of the token's first n, with room if asked. */
    private int best(int t, int n, boolean withRoom) {
        int best = -1;
        for (int e = 0; e < experts; e++) {
            boolean better = best < 0 || gates[t * experts + e] > gates[t * experts + best];
            if (better && !(withRoom && count[e] >= capacity) && !has(t, n, e)) {
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

    /** Gives a token's choice a slot: its number within the expert, until all counts are known. */
    private void place(int t, int j) {
        int at = t * choices + j;
        if (assigned[at] < 0) {
            return;
        }
        int e = chosen[at];
        if (count[e] >= capacity && options.overflow() == Overflow.NEXT_BEST) {
            int other = best(t, choices, true);
            if (other >= 0) {
                chosen[at] = other;
                e = other;
            }
        }
        assigned[at] = count[e] < capacity ? count[e]++ : -1;
    }

    private void weigh(int t, boolean normalised) {
        int from = t * choices;
        float sum = 1;
        if (normalised) {
            sum = 0;
            for (int j = from; j < from + choices; j++) {
                sum += gates[t * experts + chosen[j]];
            }
            // Of a token that was sent far down its list; quotients of such gates mean nothing.
            sum = sum < Float.MIN_NORMAL ? 0 : sum;
        }
        divisor[t] = sum;
        for (int j = from; j < from + choices; j++) {
            if (assigned[j] >= 0) {
                int i = start[chosen[j]] + assigned[j];
                assigned[j] = i;
                assign(i, t, chosen[j], sum == 0 ? 0 : gates[t * experts + chosen[j]] / sum);
            }
        }
    }

    private void assign(int i, int t, int e, float w) {
        token[i] = t;
        expert[i] = e;
        weight[i] = w;
        weightGradient[i] = 0;
    }

    // ---- expert choice

    private void expertsChoose() {
        for (int e = 0; e < experts; e++) {
            order.begin();
            for (int t = 0; t < tokens; t++) {
                order.add(gates[t * experts + e]);
            }
            order.sort();
            count[e] = capacity;
            start[e + 1] = start[e] + capacity;
            for (int i = 0; i < capacity; i++) {
                int t = order.get(i);
                assign(start[e] + i, t, e, gates[t * experts + e]);
            }
        }
    }

    private void indexByToken() {
        Arrays.fill(tokenStart, 0, tokens + 1, 0);
        int n = assignments();
        for (int i = 0; i < n; i++) {
            tokenStart[token[i] + 1]++;
        }
        for (int t = 0; t < tokens; t++) {
            tokenStart[t + 1] += tokenStart[t];
        }
        // Filled from the back, so that starts end up where they belong.
        for (int i = n - 1; i >= 0; i--) {
            tokenAssignments[--tokenStart[token[i] + 1]] = i;
        }
        System.arraycopy(tokenStart, 1, tokenStart, 0, tokens);
        tokenStart[tokens] = n;
    }

    // ---- results

    /**
     * Tokens of the last step.
     *
     * @return what {@link #route} was called with; 0 if it failed
     */
    public int tokens() {
        return tokens;
    }

    /**
     * Slots of an expert for this rank's tokens in the last step.
     *
     * @return {@link RouterOptions#capacity}
     */
    public int capacity() {
        return capacity;
    }

    /**
     * Assignments of a token to an expert in the last step: they are numbered by expert, and within
     * an expert by slot.
     *
     * @return how many there are
     */
    public int assignments() {
        return start[experts];
    }

    /**
     * Tokens that an expert takes.
     *
     * @param expert which
     * @return how many
     */
    public int count(int expert) {
        return count[expert];
    }

    /**
     * Where an expert's assignments start.
     *
     * @param expert which; the number of experts for the end of the last
     * @return the number of its first
     */
    public int start(int expert) {
        return start[expert];
    }

    /**
     * Tokens whose largest gate is an expert's, whatever has become of them.
     *
     * @param expert which
     * @return how many
     */
    public int firstChoices(int expert) {
        return firstChoices[expert];
    }

    /**
     * The token of an assignment.
     *
     * @param assignment its number
     * @return the token
     */
    public int token(int assignment) {
        return token[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * The expert of an assignment.
     *
     * @param assignment its number
     * @return the expert
     */
    public int expert(int assignment) {
        return expert[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * What the expert's output is multiplied by.
     *
     * @param assignment its number
     * @return the weight
     */
    public float weight(int assignment) {
        return weight[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * A gate of the last step.
     *
     * @param token which token
     * @param expert which expert
     * @return the softmax of the token's logits at the expert
     */
    public float gate(int token, int expert) {
        Objects.checkIndex(token, tokens);
        return gates[token * experts + Objects.checkIndex(expert, experts)];
    }

    /**
     * Tokens that no expert takes.
     *
     * @return how many
     */
    public int untaken() {
        int n = 0;
        for (int t = 0; t < tokens; t++) {
            n += tokenStart[t] == tokenStart[t + 1] ? 1 : 0;
        }
        return n;
    }

    /**
     * Second choices that chance has left out; with {@link TokenChoice#chance} alone.
     *
     * @return how many
     */
    public int skipped() {
        return skipped;
    }

    /** The assignments of a token are those at [start(t), start(t + 1)) of this array. */
    int[] assignmentsByToken() {
        return tokenAssignments;
    }

    int startOfToken(int t) {
        return tokenStart[t];
    }

    int[] tokenArray() {
        return token;
    }

    float[] weightArray() {
        return weight;
    }

    /**
     * The load-balancing loss of the last step.
     *
     * @return {@code E sum f P}; 0 without tokens
     */
    public double balanceLoss() {
        if (tokens == 0) {
            return 0;
        }
        double sum = 0;
        for (int t = 0; t < tokens; t++) {
            for (int e = 0; e < experts; e++) {
                sum += (double) firstChoices[e] * gates[t * experts + e];
            }
        }
        return experts * sum / ((double) tokens * tokens);
    }

    /**
     * The router z-loss of the last step.
     *
     * @return the mean of the squared log-sum-exp; 0 without tokens
     */
    public double zLoss() {
        double sum = 0;
        for (int t = 0; t < tokens; t++) {
            sum += (double) logSum[t] * logSum[t];
        }
        return tokens == 0 ? 0 : sum / tokens;
    }

    // ---- backward

    /**
     * Sets the gradient of an assignment's weight; {@link #route} has set all to 0.
     *
     * @param assignment its number
     * @param gradient of the loss by the weight
     */
    public void setWeightGradient(int assignment, float gradient) {
        weightGradient[Objects.checkIndex(assignment, assignments())] = gradient;
    }

    /**
     * Computes the gradient of {@code loss + balance x balanceLoss() + z x zLoss()} by the logits.
     * Which tokens go where counts as constant, as do the shares f.
     *
     * @param logitsGradient tokens x experts of float32 in host memory, overwritten; what follows
     *     is left alone
     * @param balance factor of {@link #balanceLoss} (alpha of Switch: 0.01)
     * @param z factor of {@link #zLoss} (ST-MoE: 0.001)
     * @throws IllegalArgumentException if the buffer does not fit
     */
    public void backward(Buffer logitsGradient, double balance, double z) {
        check(logitsGradient, tokens, "the gradients of the logits");
        MemorySegment target = logitsGradient.asSegment();
        double even = tokens == 0 ? 0 : balance * experts / ((double) tokens * tokens);
        for (int t = 0; t < tokens; t++) {
            for (int e = 0; e < experts; e++) {
                gateGradient[e] = (float) (even * firstChoices[e]);
            }
            weightsToGates(t);
            int at = t * experts;
            double dot = 0;
            for (int e = 0; e < experts; e++) {
                dot += (double) gates[at + e] * gateGradient[e];
            }
            double pull = 2 * z * logSum[t] / tokens - dot;
            for (int e = 0; e < experts; e++) {
                gateGradient[e] = (float) (gates[at + e] * (gateGradient[e] + pull));
            }
            MemorySegment.copy(
                    gateGradient,
                    0,
                    target,
                    ValueLayout.JAVA_FLOAT_UNALIGNED,
                    (long) at * Float.BYTES,
                    experts);
        }
    }

    /** With w_j = p_j / S and S the sum of p over the chosen: dp_m = (g_m - sum_j g_j w_j) / S. */
    private void weightsToGates(int t) {
        boolean divided =
                choices > 1 && options.choice() instanceof TokenChoice c && c.normalised();
        float sum = 0;
        for (int k = tokenStart[t]; k < tokenStart[t + 1]; k++) {
            int i = tokenAssignments[k];
            sum += weightGradient[i] * weight[i];
            if (!divided) {
                gateGradient[expert[i]] += weightGradient[i];
            }
        }
        if (divided && divisor[t] > 0) {
            for (int j = t * choices; j < (t + 1) * choices; j++) {
                float g = assigned[j] < 0 ? 0 : weightGradient[assigned[j]];
                gateGradient[chosen[j]] += (g - sum) / divisor[t];
            }
        }
    }
}
