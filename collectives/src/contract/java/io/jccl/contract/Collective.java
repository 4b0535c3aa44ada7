package io.jccl.contract;

import io.jccl.Algorithm;
import java.util.EnumSet;
import java.util.Set;

/** What a case calls. */
public enum Collective {
    BROADCAST("broadcast", "r"),
    SCATTER("scatter", "br"),
    GATHER("gather", "br"),
    REDUCE("reduce", "or"),
    ALL_REDUCE("allReduce", "o"),
    ALL_GATHER("allGather", "b"),
    REDUCE_SCATTER("reduceScatter", "ob"),
    ALL_TO_ALL("allToAll", "b"),
    GATHERV("gatherv", "br"),
    SCATTERV("scatterv", "br"),
    ALL_GATHERV("allGatherv", "b"),
    REDUCE_SCATTERV("reduceScatterv", "ob"),
    ALL_TO_ALLV("allToAllv", "b"),
    /** In a group: send to the next rank, receive from the one before. */
    RING("sendRecvRing", "x"),
    /** Outside a group: receive from the rank before, send to the next. */
    CHAIN("sendRecvChain", "x"),
    /** In a group: two messages to and from every rank, also this one, in mixed order. */
    EXCHANGE("sendRecvExchange", "bx"),
    BARRIER("barrier", "x"),
    /** Several operations in one group. */
    GROUP("group", "o"),
    /** Operations of communicators that come from split, between those of their parent. */
    SPLIT("split", "o");

    private final String label;
    private final String traits;

    Collective(String label, String traits) {
        this.label = label;
        this.traits = traits;
    }

    /** The name of the method in Communicator, where there is one. */
    public String label() {
        return label;
    }

    /** Whether it takes a ReduceOp. */
    public boolean reduces() {
        return traits.indexOf('o') >= 0;
    }

    /** Whether a buffer holds a block for each rank. */
    public boolean hasBlocks() {
        return traits.indexOf('b') >= 0;
    }

    /** Whether it takes a root. */
    public boolean hasRoot() {
        return traits.indexOf('r') >= 0;
    }

    /** Whether send and receive memory may be the same. */
    public boolean canBeInPlace() {
        return traits.indexOf('x') < 0;
    }

    /** The algorithms that serve it, as Algorithm's Javadoc says. */
    public Set<Algorithm> algorithms() {
        return switch (this) {
            case BROADCAST, REDUCE -> EnumSet.of(Algorithm.DIRECT, Algorithm.RING, Algorithm.TREE);
            case SCATTER, GATHER, SCATTERV, GATHERV -> EnumSet.of(Algorithm.DIRECT, Algorithm.TREE);
            case ALL_REDUCE ->
                    EnumSet.of(
                            Algorithm.DIRECT,
                            Algorithm.RING,
                            Algorithm.TREE,
                            Algorithm.RECURSIVE_DOUBLING);
            case ALL_GATHER, REDUCE_SCATTER ->
                    EnumSet.of(
                            Algorithm.DIRECT,
                            Algorithm.RING,
                            Algorithm.RECURSIVE_DOUBLING,
                            Algorithm.PAIRWISE);
            case ALL_GATHERV, REDUCE_SCATTERV ->
                    EnumSet.of(Algorithm.DIRECT, Algorithm.RING, Algorithm.PAIRWISE);
            case ALL_TO_ALL, ALL_TO_ALLV -> EnumSet.of(Algorithm.DIRECT, Algorithm.PAIRWISE);
            case BARRIER ->
                    EnumSet.of(Algorithm.DIRECT, Algorithm.TREE, Algorithm.RECURSIVE_DOUBLING);
            case RING, CHAIN, EXCHANGE -> EnumSet.of(Algorithm.DIRECT);
            case GROUP, SPLIT -> EnumSet.complementOf(EnumSet.of(Algorithm.AUTO));
        };
    }

    /** The one with a label. */
    public static Collective ofLabel(String label) {
        for (Collective c : values()) {
            if (c.label.equals(label)) {
                return c;
            }
        }
        throw new IllegalArgumentException("collective '" + label + "' is unknown");
    }
}
