package io.jccl.parallel;

import java.util.Objects;
import java.util.OptionalLong;

/**
 * How tokens are given to experts; see {@link ExpertRouter}. All ranks pass the same.
 *
 * @param experts number of experts, of all ranks together, 1 or more
 * @param maxTokens the most tokens that this rank routes in one step, 1 or more; all memory is
 *     sized for it once
 * @param choice who chooses
 * @param capacityFactor room in the experts relative to an even spread, more than 0; see {@link
 *     #capacity}. Without effect with {@link Overflow#NONE}
 * @param overflow what becomes of a token whose expert is full; {@link Overflow#DROP} with {@link
 *     ExpertChoice}, where no expert is ever too full
 * @param batchPriority whether tokens get their slots in the order of their largest gate, the most
 *     certain first, rather than in their own order (batch prioritized routing: Riquelme et al.,
 *     "V-MoE", <a href="https://arxiv.org/abs/2106.05974">arXiv 2106.05974</a>, section 4.1)
 */
public record RouterOptions(
        int experts,
        int maxTokens,
        Choice choice,
        double capacityFactor,
        Overflow overflow,
        boolean batchPriority) {
    /** Who chooses whom. */
    public sealed interface Choice permits TokenChoice, ExpertChoice {}

    /**
     * Every token chooses the experts with its largest gates.
     *
     * @param count how many, 1 to the number of experts; 1 is Switch (Fedus et al., <a
     *     href="https://arxiv.org/abs/2101.03961">arXiv 2101.03961</a>, section 2.1), 2 is GShard
     *     (Lepikhin et al., <a href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>,
     *     algorithm 1)
     * @param normalised whether the gates of the chosen experts are divided by their sum, as in
     *     GShard; not with 1, as the weight would be 1 and the router would learn nothing
     * @param chance whether the second of two experts is used by chance, as in GShard: with the
     *     probability {@code min(1, 2 w)} for its weight w. The number drawn is a function of this
     *     seed and of the token's two gates, so the same gates always have the same outcome, when
     *     they are computed again and on whatever rank
     */
    public record TokenChoice(int count, boolean normalised, OptionalLong chance)
            implements Choice {
        /**
         * All chosen experts are used.
         *
         * @param count as above
         * @param normalised as above
         */
        public TokenChoice(int count, boolean normalised) {
            this(count, normalised, OptionalLong.empty());
        }

        /** Checks the number. */
        public TokenChoice {
            Objects.requireNonNull(chance, "chance");
            if (count < 1) {
                throw new IllegalArgumentException(
                        "a token chooses " + count + " experts, expected 1 or more");
            }
            if (count == 1 && normalised) {
                throw new IllegalArgumentException(
                        "a single gate divided by itself is always 1, so that the router would get"
                                + " no gradient; do not normalise with 1 expert a token");
            }
            if (chance.isPresent() && !(count == 2 && normalised)) {
                throw new IllegalArgumentException(
                        "the second expert is used by chance, but a token chooses "
                                + count
                                + " experts and normalised is "
                                + normalised
                                + ", expected 2 and true");
            }
        }
    }

    /**
     * Every expert chooses the tokens with the largest gates for it, as many as its capacity; a
     * token may be chosen by several experts, or by none. Weights are the gates (Zhou et al., <a
     * href="https://arxiv.org/abs/2202.09368">arXiv 2202.09368</a>, section 3.2). It looks at all
     * tokens of the step at once, so it is not for models that predict the next token.
     */
    public record ExpertChoice() implements Choice {}

    /** What becomes of a token whose expert is full. */
    public enum Overflow {
        /** The expert leaves it out; only what goes round the layer (the residual) remains. */
        DROP,
        /**
         * It goes to the expert with the next largest gate that has room and that it does not have
         * yet, if there is one; otherwise it is dropped.
         */
        NEXT_BEST,
        /** No expert is ever full: no token is dropped, and experts get as many as want them. */
        NONE
    }

    /** Checks that the settings fit each other. */
    public RouterOptions {
        Objects.requireNonNull(choice, "choice");
        Objects.requireNonNull(overflow, "overflow");
        if (experts < 1 || maxTokens < 1) {
            throw new IllegalArgumentException(
                    "there are "
                            + experts
                            + " experts and at most "
                            + maxTokens
                            + " tokens, expected 1 or more of each");
        }
        if (!(capacityFactor > 0) || Double.isInfinite(capacityFactor)) {
            throw new IllegalArgumentException(
                    "capacityFactor is " + capacityFactor + ", expected more than 0, such as 1.25");
        }
        long gates = (long) experts * maxTokens;
        if (choice instanceof TokenChoice t) {
            if (t.count > experts) {
                throw new IllegalArgumentException(
                        "a token chooses "
                                + t.count
                                + " of "
                                + experts
                                + " experts, expected at most"
                                + " as many as there are");
            }
            if (batchPriority && overflow == Overflow.NONE) {
                throw new IllegalArgumentException(
                        "batchPriority is set, but with overflow NONE every token gets its experts"
                                + " in any order; leave it out, or choose DROP or NEXT_BEST");
            }
        } else if (overflow != Overflow.DROP || batchPriority) {
            throw new IllegalArgumentException(
                    "overflow is "
                            + overflow
                            + " and batchPriority "
                            + batchPriority
                            + ", expected DROP and false with ExpertChoice: experts take their best"
                            + " tokens and are never too full");
        }
        if (gates > Integer.MAX_VALUE - 8) {
            throw new IllegalArgumentException(
                    experts
                            + " experts x "
                            + maxTokens
                            + " tokens are "
                            + gates
                            + " gates, expected less than 2^31; route the tokens in several steps");
        }
    }

    /**
     * Switch: one expert for each token, 1.25 times the room of an even spread, tokens beyond it
     * dropped.
     *
     * @param experts number of experts
     * @param maxTokens the most tokens of a step on this rank
     * @return the settings
     */
    public static RouterOptions top1(int experts, int maxTokens) {
        return new RouterOptions(
                experts, maxTokens, new TokenChoice(1, false), 1.25, Overflow.DROP, false);
    }

    /**
     * GShard, with both experts always used: two experts for each token, weights normalised, room
     * for an even spread, tokens beyond it dropped.
     *
     * @param experts number of experts, 2 or more
     * @param maxTokens the most tokens of a step on this rank
     * @return the settings
     */
    public static RouterOptions top2(int experts, int maxTokens) {
        return new RouterOptions(
                experts, maxTokens, new TokenChoice(2, true), 1, Overflow.DROP, false);
    }

    /**
     * GShard: as {@link #top2}, and the second expert is used by chance.
     *
     * @param experts number of experts, 2 or more
     * @param maxTokens the most tokens of a step on this rank
     * @param seed of the chance
     * @return the settings
     */
    public static RouterOptions gshard(int experts, int maxTokens, long seed) {
        TokenChoice choice = new TokenChoice(2, true, OptionalLong.of(seed));
        return new RouterOptions(experts, maxTokens, choice, 1, Overflow.DROP, false);
    }

    /**
     * Experts choose, with room for two experts a token on average, as in the paper.
     *
     * @param experts number of experts
     * @param maxTokens the most tokens of a step on this rank
     * @return the settings
     */
    public static RouterOptions expertChoice(int experts, int maxTokens) {
        return new RouterOptions(experts, maxTokens, new ExpertChoice(), 2, Overflow.DROP, false);
    }

    /**
     * These settings with another capacity factor.
     *
     * @param factor more than 0
     * @return new settings
     */
    public RouterOptions withCapacityFactor(double factor) {
        return new RouterOptions(experts, maxTokens, choice, factor, overflow, batchPriority);
    }

    /**
     * These settings with another treatment of tokens whose expert is full.
     *
     * @param policy what becomes of them
     * @return new settings
     */
    public RouterOptions withOverflow(Overflow policy) {
        return new RouterOptions(experts, maxTokens, choice, capacityFactor, policy, batchPriority);
    }

    /**
     * These settings with or without batch-priority routing.
     *
     * @param value whether the most certain tokens get their slots first
     * @return new settings
     */
    public RouterOptions withBatchPriority(boolean value) {
        return new RouterOptions(experts, maxTokens, choice, capacityFactor, overflow, value);
    }

    /** Experts that a token chooses; for {@link ExpertChoice} 1, as its factor counts them all. */
    int choices() {
        return choice instanceof TokenChoice t ? t.count : 1;
    }

    /**
     * The most tokens that one expert takes from this rank in a step: {@code ceil(k tokens factor /
     * experts)} for k choices a token (1 with {@link ExpertChoice}), at least 1 and at most all
     * tokens; all with {@link Overflow#NONE}.
     *
     * @param tokens of the step on this rank
     * @return the number of slots
     */
    public int capacity(int tokens) {
        if (overflow == Overflow.NONE || tokens == 0) {
            return tokens;
        }
        // A factor such as 1.1 is not exact in binary: 1.1 x 10 is to be 11, not a little more.
        double slots = (1 - 1e-12) * choices() * capacityFactor * tokens / experts;
        return Math.clamp((long) Math.ceil(slots), 1, tokens);
    }

    /**
     * The most assignments of tokens to experts that this rank makes in a step.
     *
     * @return the number of rows that it sends at most
     */
    public int maxAssignments() {
        long all = (long) experts * capacity(maxTokens);
        return (int)
                (choice instanceof TokenChoice t ? Math.min(all, (long) t.count * maxTokens) : all);
    }

    /** The most rows that one rank sends to one other that has some of the experts. */
    long maxRowsTo(int localExperts) {
        long room = (long) localExperts * capacity(maxTokens);
        return choice instanceof TokenChoice t
                ? Math.min(room, (long) Math.min(t.count, localExperts) * maxTokens)
                : room;
    }
}
