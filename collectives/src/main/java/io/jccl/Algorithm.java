package io.jccl;

import java.util.Locale;

/**
 * How the host engine moves data for a collective.
 *
 * <p>{@link #DIRECT} serves every operation; the others serve those listed with them and refuse the
 * rest.
 */
public enum Algorithm {
    /** The engine's own choice by operation, size and number of ranks. */
    AUTO,
    /** Every rank reads the others' memory; nothing is forwarded. All operations. */
    DIRECT,
    /**
     * Each rank talks to its two neighbours and data goes round in chunks: broadcast, reduce,
     * allReduce, allGather, reduceScatter and their v-variants.
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
     * The algorithm with a name.
     *
     * @param name a name in any case, with {@code -} or {@code _}; {@code rd} is short for {@link
     *     #RECURSIVE_DOUBLING}
     * @return the algorithm
     * @throws IllegalArgumentException if there is none of that name
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
                "algorithm '"
                        + name
                        + "' is unknown, expected auto, direct, ring, tree,"
                        + " recursive-doubling (rd) or pairwise");
    }
}
