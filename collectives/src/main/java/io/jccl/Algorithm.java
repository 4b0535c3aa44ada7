package io.jccl;

import java.util.Locale;

/**
 * How the host engine moves data for a collective.
 *
 * <p>{@link #DIRECT} supports every operation. For an operation that is not listed at an algorithm
 * below, the engine chooses as by {@link #AUTO}.
 */
public enum Algorithm {
    /** Chosen by the engine from operation, size and number of ranks. */
    AUTO,
    /** Every rank reads the others' memory; nothing is forwarded. All operations. */
    DIRECT,
    /**
     * Each rank exchanges chunks with its two neighbours on a ring: broadcast, reduce, allReduce,
     * allGather, reduceScatter and their v-variants.
     */
    RING,
    /**
     * A binomial tree: broadcast, scatter, gather, reduce, allReduce, barrier, scatterv, gatherv.
     */
    TREE,
    /**
     * Partners at distance 1, 2, 4, ...: allReduce, allGather, reduceScatter (by halving), barrier
     * (by dissemination).
     */
    RECURSIVE_DOUBLING,
    /**
     * In step k each rank exchanges with those k before and after it: allToAll, allGather,
     * reduceScatter and their v-variants.
     */
    PAIRWISE;

    /**
     * Returns the algorithm with the given name.
     *
     * @param name a name in any case, with {@code -} or {@code _}; {@code rd} is short for {@link
     *     #RECURSIVE_DOUBLING}
     * @return the algorithm
     * @throws IllegalArgumentException if no algorithm has that name
     */
    public static Algorithm ofName(String name) {
        String key = name.toUpperCase(Locale.ROOT).replace('-', '_');
        if (key.equals("RD")) {
            return RECURSIVE_DOUBLING;
        }
        for (Algorithm a : values()) {
            if (a.name().equals(key)) {
                return a;
            }
        }
        throw new IllegalArgumentException(
                ("algorithm '%s' is unknown, expected auto, direct, ring, tree, recursive-doubling"
                                + " (rd) or pairwise")
                        .formatted(name));
    }
}
