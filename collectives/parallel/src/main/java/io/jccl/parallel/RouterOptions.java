package io.jccl.parallel;

import java.util.Objects;
import java.util.OptionalLong;

/**
 * How tokens are assigned to experts; see {@link ExpertRouter}. All ranks pass the same values.
 *
 * @param experts number of experts, of all ranks together, 1 or more
 * @param maxTokens maximum number of tokens that this rank routes in one step, 1 or more; memory is
 *     allocated for it
 * @param choice whether tokens or experts choose
 * @param capacityFactor capacity of the experts relative to a balanced load; see {@link #capacity}.
 *     With 0 the capacity of a step is the smallest that drops no token, with a negative factor the
 *     smaller of that and the capacity for its absolute value, as in Tutel (Hwang et al., <a
 *     href="https://arxiv.org/abs/2206.03382">arXiv 2206.03382</a>); more than 0 with {@link
 *     ExpertChoice}. Ignored with {@link Overflow#NONE}
 * @param overflow treatment of tokens whose expert is full; {@link Overflow#DROP} with {@link
 *     ExpertChoice}, where experts cannot overflow
 * @param batchPriority whether tokens get their slots in descending order of their largest gate
 *     instead of in the order of tokens (batch prioritized routing: Riquelme et al., "V-MoE", <a
 *     href="https://arxiv.org/abs/2106.05974">arXiv 2106.05974</a>, section 4.1)
 * @param minCapacity minimum capacity of an expert, 1 or more, whatever the factor gives; never
 *     more than all tokens ({@code min_capacity} of DeepSpeed, deepspeed/moe/sharded_moe.py)
 */
public record RouterOptions(
        int experts,
        int maxTokens,
        Choice choice,
        double capacityFactor,
        Overflow overflow,
        boolean batchPriority,
        int minCapacity) {
    /** Whether tokens choose experts or experts choose tokens. */
    public sealed interface Choice permits TokenChoice, ExpertChoice {}

    /**
     * Every token chooses the experts with its largest gates (top-k).
     *
     * @param count k, 1 to the number of experts; 1 is Switch (Fedus et al., <a
     *     href="https://arxiv.org/abs/2101.03961">arXiv 2101.03961</a>, section 2.1), 2 is GShard
     *     (Lepikhin et al., <a href="https://arxiv.org/abs/2006.16668">arXiv 2006.16668</a>,
     *     algorithm 1)
     * @param normalised whether the gates of the chosen experts are divided by their sum, as in
     *     GShard; not with a count of 1, as the weight would always be 1 and the router would not
     *     learn
     * @param chance the seed if the second of two experts is sampled, as in GShard, with
     *     probability {@code min(1, 2 w)} for its weight w; otherwise empty. The random number is a
     *     function of the seed and of the token's place, which is passed to {@link
     *     ExpertDispatch#route(io.jccl.device.Buffer, int, long)}, or, without a place, of the
     *     token's two gates; so it is the same when drawn again, or on another rank
     * @param sample the seed if the last of one or two experts is sampled among those that are
     *     left, with probabilities in proportion to their gates; otherwise empty. This is
     *     equivalent to Gumbel noise on the logits that affects only the choice, since weights are
     *     the gates without noise: for one expert {@code RSample} of DeepSpeed, for two the second
     *     expert of its {@code top2gating} (deepspeed/moe/sharded_moe.py). The random number
     *     depends on the seed and the token's place; without a place, as in evaluation, the largest
     *     gate decides
     */
    public record TokenChoice(
            int count, boolean normalised, OptionalLong chance, OptionalLong sample)
            implements Choice {
        /**
         * Chooses by the largest gates.
         *
         * @param count experts per token
         * @param normalised whether the gates of the chosen experts are divided by their sum
         * @param chance the seed if the second of two experts is sampled
         */
        public TokenChoice(int count, boolean normalised, OptionalLong chance) {
            this(count, normalised, chance, OptionalLong.empty());
        }

        /**
         * Always uses all chosen experts.
         *
         * @param count experts per token
         * @param normalised whether the gates of the chosen experts are divided by their sum
         */
        public TokenChoice(int count, boolean normalised) {
            this(count, normalised, OptionalLong.empty());
        }

        /** Checks the number. */
        public TokenChoice {
            Objects.requireNonNull(chance, "chance");
            Objects.requireNonNull(sample, "sample");
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
                        ("the second expert is used by chance, but a token chooses %s experts and"
                                        + " normalised is %s, expected 2 and true")
                                .formatted(count, normalised));
            }
            if (sample.isPresent() && count > 2) {
                throw new IllegalArgumentException(
                        "the last expert is sampled, but a token chooses "
                                + count
                                + " experts, expected 1 or 2");
            }
            if (sample.isPresent() && chance.isPresent()) {
                throw new IllegalArgumentException(
                        "the second expert is both sampled and used by chance; leave out one");
            }
        }
    }

    /**
     * Every expert chooses the tokens with the largest gates for it, up to its capacity; a token
     * may be chosen by several experts or by none. Weights are the gates (Zhou et al., <a
     * href="https://arxiv.org/abs/2202.09368">arXiv 2202.09368</a>, section 3.2). It considers all
     * tokens of the step at once, so it is not suitable for autoregressive models.
     */
    public record ExpertChoice() implements Choice {}

    /** Treatment of tokens whose expert is full. */
    public enum Overflow {
        /** The expert drops the token; only the residual connection remains. */
        DROP,
        /**
         * The token is rerouted to the expert with the next largest gate that has room and that it
         * has not chosen; if there is none, it is dropped.
         */
        NEXT_BEST,
        /** Capacity is unlimited: no token is dropped. */
        NONE
    }

    /**
     * Experts have a capacity of 1 or more.
     *
     * @param experts number of experts
     * @param maxTokens maximum number of tokens per step on this rank
     * @param choice whether tokens or experts choose
     * @param capacityFactor capacity of the experts relative to a balanced load
     * @param overflow treatment of tokens whose expert is full
     * @param batchPriority whether tokens with the largest gates get their slots first
     */
    public RouterOptions(
            int experts,
            int maxTokens,
            Choice choice,
            double capacityFactor,
            Overflow overflow,
            boolean batchPriority) {
        this(experts, maxTokens, choice, capacityFactor, overflow, batchPriority, 1);
    }

    /** Checks that the settings are consistent. */
    public RouterOptions {
        Objects.requireNonNull(choice, "choice");
        Objects.requireNonNull(overflow, "overflow");
        if (experts < 1 || maxTokens < 1) {
            throw new IllegalArgumentException(
                    "there are %s experts and at most %s tokens, expected 1 or more of each"
                            .formatted(experts, maxTokens));
        }
        if (!Double.isFinite(capacityFactor)) {
            throw new IllegalArgumentException(
                    "capacityFactor is "
                            + capacityFactor
                            + ", expected a number such as 1.25, or 0 or less for a capacity that"
                            + " adapts");
        }
        if (choice instanceof ExpertChoice && capacityFactor <= 0) {
            throw new IllegalArgumentException(
                    "capacityFactor is "
                            + capacityFactor
                            + ", but with ExpertChoice it determines how many tokens an expert"
                            + " takes and cannot adapt; expected more than 0, such as 2");
        }
        if (minCapacity < 1) {
            throw new IllegalArgumentException(
                    "minCapacity is " + minCapacity + ", expected 1 or more, such as 4");
        }
        long gates = (long) experts * maxTokens;
        if (choice instanceof TokenChoice t) {
            if (t.count > experts) {
                throw new IllegalArgumentException(
                        "a token chooses %s of %s experts, expected at most as many as there are"
                                .formatted(t.count, experts));
            }
            if (batchPriority && overflow == Overflow.NONE) {
                throw new IllegalArgumentException(
                        "batchPriority is set, but with overflow NONE every token gets its experts"
                                + " in any order; leave it out, or choose DROP or NEXT_BEST");
            }
        } else if (overflow != Overflow.DROP || batchPriority) {
            throw new IllegalArgumentException(
                    ("overflow is %s and batchPriority %s, expected DROP and false"
                                    + " with ExpertChoice: experts take their best tokens and are"
                                    + " never too full")
                            .formatted(overflow, batchPriority));
        }
        if (gates > Integer.MAX_VALUE - 8) {
            throw new IllegalArgumentException(
                    ("%s experts x %s tokens are %s gates, expected less than 2^31; route the"
                                    + " tokens in several steps")
                            .formatted(experts, maxTokens, gates));
        }
    }

    /**
     * Switch: one expert per token, capacity factor 1.25, overflowing tokens are dropped.
     *
     * @param experts number of experts
     * @param maxTokens maximum number of tokens per step on this rank
     * @return the settings
     */
    public static RouterOptions top1(int experts, int maxTokens) {
        return new RouterOptions(
                experts, maxTokens, new TokenChoice(1, false), 1.25, Overflow.DROP, false);
    }

    /**
     * GShard without sampling: two experts per token, normalized weights, capacity factor 1,
     * overflowing tokens are dropped.
     *
     * @param experts number of experts, 2 or more
     * @param maxTokens maximum number of tokens per step on this rank
     * @return the settings
     */
    public static RouterOptions top2(int experts, int maxTokens) {
        return new RouterOptions(
                experts, maxTokens, new TokenChoice(2, true), 1, Overflow.DROP, false);
    }

    /**
     * GShard: like {@link #top2}, with the second expert sampled.
     *
     * @param experts number of experts, 2 or more
     * @param maxTokens maximum number of tokens per step on this rank
     * @param seed seed of the sampling
     * @return the settings
     */
    public static RouterOptions gshard(int experts, int maxTokens, long seed) {
        TokenChoice choice = new TokenChoice(2, true, OptionalLong.of(seed));
        return new RouterOptions(experts, maxTokens, choice, 1, Overflow.DROP, false);
    }

    /**
     * Expert choice with capacity for two experts per token on average, as in the paper.
     *
     * @param experts number of experts
     * @param maxTokens maximum number of tokens per step on this rank
     * @return the settings
     */
    public static RouterOptions expertChoice(int experts, int maxTokens) {
        return new RouterOptions(experts, maxTokens, new ExpertChoice(), 2, Overflow.DROP, false);
    }

    /**
     * These settings with another capacity factor.
     *
     * @param factor more than 0, or 0 or less for a capacity that adapts to each step
     * @return new settings
     */
    public RouterOptions withCapacityFactor(double factor) {
        return new RouterOptions(
                experts, maxTokens, choice, factor, overflow, batchPriority, minCapacity);
    }

    /**
     * These settings with another overflow policy.
     *
     * @param policy treatment of tokens whose expert is full
     * @return new settings
     */
    public RouterOptions withOverflow(Overflow policy) {
        return new RouterOptions(
                experts, maxTokens, choice, capacityFactor, policy, batchPriority, minCapacity);
    }

    /**
     * These settings with or without batch-priority routing.
     *
     * @param value whether tokens with the largest gates get their slots first
     * @return new settings
     */
    public RouterOptions withBatchPriority(boolean value) {
        return new RouterOptions(
                experts, maxTokens, choice, capacityFactor, overflow, value, minCapacity);
    }

    /**
     * These settings with another minimum capacity.
     *
     * @param slots minimum number of slots of an expert, 1 or more; 4 in DeepSpeed
     * @return new settings
     */
    public RouterOptions withMinCapacity(int slots) {
        return new RouterOptions(
                experts, maxTokens, choice, capacityFactor, overflow, batchPriority, slots);
    }

    /**
     * These settings with the last of one or two experts of a token sampled: see {@link
     * TokenChoice#sample}.
     *
     * @param seed seed of the sampling
     * @return new settings
     * @throws IllegalArgumentException if experts choose, or a token chooses more than two, or
     *     samples the second
     */
    public RouterOptions withSampling(long seed) {
        if (!(choice instanceof TokenChoice t)) {
            throw new IllegalArgumentException(
                    "the expert of a token is sampled, but experts choose tokens; expected"
                            + " TokenChoice");
        }
        TokenChoice sampled =
                new TokenChoice(t.count, t.normalised, t.chance, OptionalLong.of(seed));
        return new RouterOptions(
                experts, maxTokens, sampled, capacityFactor, overflow, batchPriority, minCapacity);
    }

    /** Experts per token; 1 for {@link ExpertChoice}, whose capacity factor includes them. */
    int choices() {
        return choice instanceof TokenChoice t ? t.count : 1;
    }

    /**
     * Whether the capacity adapts to each step, so that blocks of tokens vary in size.
     *
     * @return whether the capacity factor is 0 or less, and overflow is not {@link Overflow#NONE}
     */
    public boolean adaptive() {
        return overflow != Overflow.NONE && capacityFactor <= 0;
    }

    /**
     * Capacity of one expert for this rank's tokens in a step: {@code ceil(k tokens factor /
     * experts)} for k choices per token (1 with {@link ExpertChoice}), at least {@link
     * #minCapacity} and at most all tokens; all tokens with {@link Overflow#NONE} or a factor of 0.
     * If it {@link #adaptive adapts}, its maximum: {@link ExpertRouter#capacity} is that of a step.
     *
     * @param tokens tokens of the step on this rank
     * @return number of slots
     */
    public int capacity(int tokens) {
        if (overflow == Overflow.NONE || capacityFactor == 0 || tokens == 0) {
            return tokens;
        }
        // A factor such as 1.1 is not exact in binary: 1.1 x 10 must yield 11, not slightly more.
        double slots = (1 - 1e-12) * choices() * Math.abs(capacityFactor) * tokens / experts;
        return Math.clamp((long) Math.ceil(slots), Math.min(minCapacity, tokens), tokens);
    }

    /**
     * Maximum number of assignments of this rank's tokens to experts in a step.
     *
     * @return the maximum number of rows that it sends
     */
    public int maxAssignments() {
        long all = (long) experts * capacity(maxTokens);
        return (int)
                (choice instanceof TokenChoice t ? Math.min(all, (long) t.count * maxTokens) : all);
    }

    /** Maximum number of rows that one rank sends to another one that holds some of the experts. */
    long maxRowsTo(int localExperts) {
        long room = (long) localExperts * capacity(maxTokens);
        return choice instanceof TokenChoice t
                ? Math.min(room, (long) Math.min(t.count, localExperts) * maxTokens)
                : room;
    }
}
