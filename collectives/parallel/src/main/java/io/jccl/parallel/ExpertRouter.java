package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Assigns the tokens of one rank to experts, from gate logits x of shape tokens x experts.
 *
 * <p>Gates are {@code p = softmax(x)} of each token. {@link RouterOptions} specifies who chooses;
 * larger gates take precedence, and among equal ones the lower expert or token. First choices of
 * all tokens get their slots before second choices (GShard, <a
 * href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>, algorithm 1). The <i>weight</i> of
 * an assignment is its gate p, or with {@link TokenChoice#normalised} p divided by the sum over all
 * experts that the token chose, including those that dropped it or were not sampled; 0 if that sum
 * is below {@link Float#MIN_NORMAL}, which can happen if a token was rerouted to an expert with a
 * tiny gate.
 *
 * <p>Two auxiliary losses balance the experts' load and keep logits small; for T tokens and E
 * experts:
 *
 * <ul>
 *   <li>load balancing, {@code E sum_e f_e P_e}, with f_e the fraction of tokens whose first choice
 *       is e, in general that of the largest gate, and P_e the mean of gate e (Switch, <a
 *       href="https://arxiv.org/abs/2101.03961">arXiv 2101.03961</a>, equation 4); 1 if balanced
 *   <li>router z-loss, the mean over tokens of {@code log(sum_e exp x_e)^2} (Zoph et al., "ST-MoE",
 *       <a href="https://arxiv.org/abs/2202.08906">arXiv 2202.08906</a>, equation 5)
 * </ul>
 *
 * <p>Both are computed over this rank's tokens, as in those papers, where each core routes its own
 * group.
 *
 * <p>Everything runs on the calling thread, in heap memory allocated once; a step allocates
 * nothing.
 *
 * {@snippet class="snippets.Parallel" region="router"}
 *
 * <p><b>Threads:</b> one at a time.
 */
public final class ExpertRouter {
    /** Tokens have no place of their own. */
    static final long NO_PLACE = -1;

    private final RouterOptions options;
    private final int experts;

    /** Logits, then gates: tokens x experts. */
    private final float[] gates;

    private final float[] logSum;
    private final int[] firstChoices;
    private final Assignments assignments;
    private final DescendingOrder order;

    /** Null if experts choose. */
    private final @Nullable TokenChooser chooser;

    private final float[] gateGradient;
    private int tokens;
    private int capacity;

    private ExpertRouter(RouterOptions options) {
        this.options = options;
        experts = options.experts();
        int most = options.maxTokens();
        gates = new float[most * experts];
        logSum = new float[most];
        firstChoices = new int[experts];
        assignments = new Assignments(options);
        order = new DescendingOrder(most);
        chooser =
                options.choice() instanceof TokenChoice choice
                        ? new TokenChooser(options, choice, gates, firstChoices, assignments, order)
                        : null;
        gateGradient = new float[experts];
    }

    /**
     * Creates a router.
     *
     * @param options its settings
     * @return the router
     */
    public static ExpertRouter create(RouterOptions options) {
        return new ExpertRouter(Objects.requireNonNull(options, "options"));
    }

    /**
     * The settings.
     *
     * @return the settings passed to {@link #create}
     */
    public RouterOptions options() {
        return options;
    }

    /**
     * Routes the tokens of a step. A logit of minus infinity excludes an expert for a token, as
     * does one so far below the token's largest that the gate is 0: the token chooses fewer experts
     * if too few are left. At least one of the token's logits must be finite. An expert that
     * chooses tokens always fills its slots; those that exclude it come last, with a weight of 0.
     *
     * @param logits tokens x experts of float32, row-major, in host memory; further elements are
     *     ignored
     * @param tokens number of tokens, 0 to {@link RouterOptions#maxTokens}
     * @throws IllegalArgumentException if the buffer is too small or of another type, or a logit is
     *     NaN or plus infinity, or all of a token's are minus infinity; the router then has no
     *     assignments
     */
    public void route(Buffer logits, int tokens) {
        orThrow(tryRoute(logits, tokens, NO_PLACE));
    }

    /**
     * Like {@link #route(Buffer, int)}, for tokens that have consecutive places among all tokens of
     * all ranks and steps. What {@link TokenChoice#chance} and {@link TokenChoice#sample} draw is a
     * function of a token's place.
     *
     * @param logits tokens x experts of float32, as above
     * @param tokens number of tokens, 0 to {@link RouterOptions#maxTokens}
     * @param place of the first token, 0 or more
     * @throws IllegalArgumentException as above, or if the place is negative
     */
    public void route(Buffer logits, int tokens, long place) {
        orThrow(tryRoute(logits, tokens, RouterNoise.checkedPlace(place)));
    }

    private void orThrow(int bad) {
        if (bad >= 0) {
            throw new IllegalArgumentException(badLogit(bad));
        }
    }

    /** The error message for a position that {@link #tryRoute} returned. */
    String badLogit(int at) {
        return ("the logit of token %s for expert %s is NaN or infinity, or all of the"
                        + " token's are minus infinity; expected finite ones, and minus infinity"
                        + " only for experts that it is not to have")
                .formatted(at / experts, at % experts);
    }

    /** Routes, and returns the position of the first invalid logit, or -1. */
    int tryRoute(Buffer logits, int tokens, long place) {
        check(logits, tokens, "the logits");
        checkHost(logits, "the logits");
        this.tokens = 0;
        capacity = options.capacity(tokens);
        Arrays.fill(firstChoices, 0);
        assignments.clear();
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
        if (chooser == null) {
            expertsChoose();
        } else {
            chooser.choose(tokens, capacity, place);
        }
        if (options.adaptive()) {
            capacity = Math.min(tokens, 1);
            for (int count : assignments.count) {
                capacity = Math.max(capacity, count);
            }
        }
        assignments.indexByToken(tokens);
        return -1;
    }

    /** Checks the size and type of logits or their gradients. */
    void check(Buffer buffer, int tokens, String what) {
        if (tokens < 0 || tokens > options.maxTokens()) {
            throw new IllegalArgumentException(
                    ("there are %s tokens, expected 0 to the maxTokens of %s that the router was"
                                    + " made for")
                            .formatted(tokens, options.maxTokens()));
        }
        if (buffer.dataType() != DataType.FLOAT32 || buffer.count() < (long) tokens * experts) {
            throw new IllegalArgumentException(
                    String.format(
                            "%s are %s elements of %s, expected %s tokens x %s experts of float",
                            what, buffer.count(), buffer.dataType().label(), tokens, experts));
        }
    }

    private static void checkHost(Buffer buffer, String what) {
        if (buffer.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    ("%s are on %s, but routing needs host memory; copy them to a buffer of"
                                    + " Device.host() by Stream.copy first")
                            .formatted(what, buffer.device()));
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
            // By gates, like choices: different logits may round to the same gate.
            first = gates[at + e] > gates[at + first] ? e : first;
        }
        logSum[t] = (float) (most + Math.log(sum));
        firstChoices[first]++;
        return -1;
    }

    private void expertsChoose() {
        Arrays.fill(assignments.count, capacity);
        assignments.setStarts();
        for (int e = 0; e < experts; e++) {
            order.begin();
            for (int t = 0; t < tokens; t++) {
                order.add(gates[t * experts + e]);
            }
            order.sort();
            for (int i = 0; i < capacity; i++) {
                int t = order.get(i);
                assignments.set(assignments.start[e] + i, t, e, gates[t * experts + e]);
            }
        }
    }

    // ---- results

    /**
     * Number of tokens of the last step.
     *
     * @return the argument of {@link #route}; 0 if it failed
     */
    public int tokens() {
        return tokens;
    }

    /**
     * Slots per expert for this rank's tokens in the last step.
     *
     * @return {@link RouterOptions#capacity}; if it {@link RouterOptions#adaptive adapts}, the
     *     tokens of the fullest expert, at least 1
     */
    public int capacity() {
        return capacity;
    }

    /**
     * Number of assignments of tokens to experts in the last step; they are numbered by expert,
     * then by slot.
     *
     * @return number of assignments
     */
    public int assignments() {
        return assignments.size();
    }

    /**
     * Number of tokens that an expert accepted.
     *
     * @param expert index of the expert
     * @return number of tokens
     */
    public int count(int expert) {
        return assignments.count[expert];
    }

    /**
     * First assignment of an expert.
     *
     * @param expert index of the expert, or the number of experts for the end of the last one
     * @return number of the assignment
     */
    public int start(int expert) {
        return assignments.start[expert];
    }

    /**
     * Number of tokens whose largest gate is that of an expert, or that drew it if a token's only
     * expert is {@link TokenChoice#sample sampled}; whether accepted or not.
     *
     * @param expert index of the expert
     * @return number of tokens
     */
    public int firstChoices(int expert) {
        return firstChoices[expert];
    }

    /**
     * The token of an assignment.
     *
     * @param assignment number of the assignment
     * @return the token
     */
    public int token(int assignment) {
        return assignments.token[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * The expert of an assignment.
     *
     * @param assignment number of the assignment
     * @return the expert
     */
    public int expert(int assignment) {
        return assignments.expert[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * The weight by which the expert's output is multiplied.
     *
     * @param assignment number of the assignment
     * @return the weight
     */
    public float weight(int assignment) {
        return assignments.weight[Objects.checkIndex(assignment, assignments())];
    }

    /**
     * A gate of the last step.
     *
     * @param token index of the token
     * @param expert index of the expert
     * @return the softmax of the token's logits at the expert
     */
    public float gate(int token, int expert) {
        Objects.checkIndex(token, tokens);
        return gates[token * experts + Objects.checkIndex(expert, experts)];
    }

    /**
     * Number of dropped tokens, which no expert accepted.
     *
     * @return number of tokens
     */
    public int droppedTokens() {
        int[] starts = assignments.tokenStart;
        int n = 0;
        for (int t = 0; t < tokens; t++) {
            n += starts[t] == starts[t + 1] ? 1 : 0;
        }
        return n;
    }

    /**
     * Number of choices that were not sampled, with {@link TokenChoice#chance}, or not made because
     * a token's other experts are excluded.
     *
     * @return number of choices
     */
    public int unsampled() {
        return chooser == null || tokens == 0 ? 0 : chooser.unsampled();
    }

    /** The assignments of the last step, with their index by token. */
    Assignments table() {
        return assignments;
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

    // ---- backward pass

    /**
     * Sets the gradient of an assignment's weight; {@link #route} sets all to 0.
     *
     * @param assignment number of the assignment
     * @param gradient of the loss with respect to the weight
     */
    public void setWeightGradient(int assignment, float gradient) {
        assignments.weightGradient[Objects.checkIndex(assignment, assignments())] = gradient;
    }

    /**
     * Computes the gradient of {@code loss + balance x balanceLoss() + z x zLoss()} with respect to
     * the logits. Assignments and the fractions f are treated as constants.
     *
     * @param logitsGradient tokens x experts of float32 in host memory, overwritten; further
     *     elements are not changed
     * @param balance factor of {@link #balanceLoss} (alpha of Switch: 0.01)
     * @param z factor of {@link #zLoss} (ST-MoE: 0.001)
     * @throws IllegalArgumentException if the buffer is too small or of another type
     */
    public void backward(Buffer logitsGradient, double balance, double z) {
        check(logitsGradient, tokens, "the gradients of the logits");
        checkHost(logitsGradient, "the gradients of the logits");
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

    private void weightsToGates(int t) {
        if (chooser != null && chooser.divides()) {
            chooser.weightsToGates(t, gateGradient);
            return;
        }
        for (int k = assignments.tokenStart[t]; k < assignments.tokenStart[t + 1]; k++) {
            int i = assignments.byToken[k];
            gateGradient[assignments.expert[i]] += assignments.weightGradient[i];
        }
    }
}
