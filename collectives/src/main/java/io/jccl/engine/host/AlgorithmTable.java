package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.bootstrap.Control;
import io.jccl.flight.Collective;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/**
 * Which algorithm serves which operation, and which one is chosen: the one asked for where it
 * serves, else what the {@link HostPlan} says.
 */
final class AlgorithmTable {
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

    static Algorithm choose(
            Collective op, long blockBytes, int ranks, Algorithm wanted, HostPlan plan) {
        return wanted != Algorithm.AUTO && serves(wanted, op)
                ? wanted
                : plan.choose(op, blockBytes, ranks);
    }
}
