package io.jccl.train;

import io.jccl.parallel.RouterOptions;
import io.jccl.parallel.RouterOptions.Choice;
import io.jccl.parallel.RouterOptions.ExpertChoice;
import io.jccl.parallel.RouterOptions.Overflow;
import io.jccl.parallel.RouterOptions.TokenChoice;
import java.util.Arrays;
import java.util.OptionalLong;
import java.util.stream.Collectors;

/** How a block's router chooses experts for tokens, by the name on the command line. */
public enum Routing {
    /** The expert with the largest gate, weighted by it (arXiv 2101.03961). */
    SWITCH("switch", new TokenChoice(1, false), Overflow.DROP, false),
    /** The two largest, weights normalized (arXiv 2006.16668 without its sampling). */
    TOP2("top2", new TokenChoice(2, true), Overflow.DROP, false),
    /** The same, with the second one sampled (arXiv 2006.16668, algorithm 1). */
    GSHARD("gshard", new TokenChoice(2, true, OptionalLong.of(1)), Overflow.DROP, false),
    /** Each expert takes the tokens with the largest gates for it (arXiv 2202.09368). */
    EXPERT_CHOICE("expert-choice", new ExpertChoice(), Overflow.DROP, false),
    /**
     * The two largest, weighted by the gates; the most confident tokens first (arXiv 2106.05974).
     */
    VMOE("vmoe", new TokenChoice(2, false), Overflow.DROP, true),
    /** As {@link #TOP2}, but a token whose expert is full goes to the next best with room. */
    NEXT_BEST("next-best", new TokenChoice(2, true), Overflow.NEXT_BEST, false),
    /** As {@link #SWITCH} without a capacity, so that no token is dropped (arXiv 2211.15841). */
    NO_DROP("no-drop", new TokenChoice(1, false), Overflow.NONE, false);

    private final String label;
    private final Choice choice;
    private final Overflow overflow;
    private final boolean priority;

    Routing(String label, Choice choice, Overflow overflow, boolean priority) {
        this.label = label;
        this.choice = choice;
        this.overflow = overflow;
        this.priority = priority;
    }

    /**
     * Returns the routing with the given name.
     *
     * @param label such as {@code switch}
     * @return the routing
     * @throws IllegalArgumentException if the name is unknown; the message lists the known ones
     */
    public static Routing of(String label) {
        for (Routing r : values()) {
            if (r.label.equals(label)) {
                return r;
            }
        }
        throw new IllegalArgumentException(
                "--router is '"
                        + label
                        + "', expected one of "
                        + Arrays.stream(values())
                                .map(Routing::label)
                                .collect(Collectors.joining(", ")));
    }

    /**
     * Its name on the command line.
     *
     * @return such as {@code expert-choice}
     */
    public String label() {
        return label;
    }

    /**
     * Experts that a token chooses.
     *
     * @return 1 or 2; 1 if experts choose, which is their mean number for each token at a capacity
     *     factor of 1
     */
    public int choices() {
        return choice instanceof TokenChoice t ? t.count() : 1;
    }

    /**
     * Whether the capacity may adapt to each step.
     *
     * @return whether tokens choose
     */
    public boolean adapts() {
        return choice instanceof TokenChoice;
    }

    /**
     * Whether the last expert of a token may be sampled instead.
     *
     * @return whether tokens choose, and none is sampled already
     */
    public boolean samples() {
        return choice instanceof TokenChoice t && t.chance().isEmpty();
    }

    /**
     * The settings of a router.
     *
     * @param tokens maximum number in a step
     * @param seed of the sampling, another one for each block
     */
    RouterOptions options(GptShape shape, int tokens, long seed) {
        MixtureSettings m = shape.mixture();
        Choice drawn =
                choice instanceof TokenChoice t && t.chance().isPresent()
                        ? new TokenChoice(t.count(), t.normalised(), OptionalLong.of(seed))
                        : choice;
        RouterOptions options =
                new RouterOptions(
                        shape.experts(),
                        tokens,
                        drawn,
                        shape.capacityFactor(),
                        overflow,
                        priority,
                        m.minCapacity());
        return m.sample() ? options.withSampling(seed) : options;
    }
}
