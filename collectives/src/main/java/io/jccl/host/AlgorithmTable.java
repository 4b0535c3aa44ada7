package io.jccl.host;

import io.jccl.Algorithm;
import io.jccl.engine.Collective;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Which algorithm serves which operation, and which one is chosen. This is the one place a topology
 * plan replaces.
 */
final class AlgorithmTable {
    /**
     * A choice: for these operations, up to this many bytes in a block and from this many ranks.
     * The first row that fits wins.
     */
    private record Row(Set<Collective> ops, long maxBytes, int minRanks, Algorithm algorithm) {}

    private static final Map<Algorithm, Set<Collective>> SERVES = new EnumMap<>(Algorithm.class);

    static {
        SERVES.put(Algorithm.DIRECT, EnumSet.allOf(Collective.class));
        SERVES.put(
                Algorithm.RING,
                EnumSet.of(
                        Collective.BROADCAST,
                        Collective.REDUCE,
                        Collective.ALL_REDUCE,
                        Collective.ALL_GATHER,
                        Collective.ALL_GATHERV,
                        Collective.REDUCE_SCATTER,
                        Collective.REDUCE_SCATTERV));
        SERVES.put(
                Algorithm.TREE,
                EnumSet.of(
                        Collective.BROADCAST,
                        Collective.SCATTER,
                        Collective.SCATTERV,
                        Collective.GATHER,
                        Collective.GATHERV,
                        Collective.REDUCE,
                        Collective.ALL_REDUCE,
                        Collective.BARRIER));
        SERVES.put(
                Algorithm.RECURSIVE_DOUBLING,
                EnumSet.of(
                        Collective.ALL_REDUCE,
                        Collective.ALL_GATHER,
                        Collective.REDUCE_SCATTER,
                        Collective.BARRIER));
        SERVES.put(
                Algorithm.PAIRWISE,
                EnumSet.of(
                        Collective.ALL_TO_ALL,
                        Collective.ALL_TO_ALLV,
                        Collective.ALL_GATHER,
                        Collective.ALL_GATHERV,
                        Collective.REDUCE_SCATTER,
                        Collective.REDUCE_SCATTERV));
    }

    /**
     * In shared memory every rank reaches every other's buffer at the same cost, so nothing gains
     * from forwarding: DIRECT moves each byte once where the others move it once a hop.
     */
    private static final List<Row> ROWS =
            List.of(new Row(EnumSet.allOf(Collective.class), Long.MAX_VALUE, 1, Algorithm.DIRECT));

    private AlgorithmTable() {}

    /**
     * Bytes up to which a payload travels in the slot. With few ranks the second barrier of the
     * zero-copy way costs less than a further copy from about half a KiB on; with more ranks, or
     * more than there are cores, every exchange saved counts.
     */
    static long eagerLimit(int ranks) {
        return ranks <= 2 ? 512 : Control.EAGER;
    }

    static boolean serves(Algorithm algorithm, Collective op) {
        Set<Collective> ops = SERVES.get(algorithm);
        return ops != null && ops.contains(op);
    }

    static Algorithm choose(Collective op, long blockBytes, int ranks, Algorithm wanted) {
        if (wanted != Algorithm.AUTO && serves(wanted, op)) {
            return wanted;
        }
        for (int i = 0; i < ROWS.size(); i++) {
            Row row = ROWS.get(i);
            if (row.ops.contains(op) && blockBytes <= row.maxBytes && ranks >= row.minRanks) {
                return row.algorithm;
            }
        }
        return Algorithm.DIRECT;
    }
}
