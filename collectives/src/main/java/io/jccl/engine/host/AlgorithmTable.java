package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.flight.CollectiveOp;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;

/**
 * The algorithms that support each operation, and the choice among them: the requested one if it
 * supports the operation, otherwise that of the {@link HostPlan}.
 */
final class AlgorithmTable {
    private static final Map<Algorithm, Set<CollectiveOp>> SERVES = new EnumMap<>(Algorithm.class);

    static {
        SERVES.put(Algorithm.DIRECT, EnumSet.allOf(CollectiveOp.class));
        SERVES.put(
                Algorithm.RING,
                EnumSet.of(
                        CollectiveOp.BROADCAST,
                        CollectiveOp.REDUCE,
                        CollectiveOp.ALL_REDUCE,
                        CollectiveOp.ALL_GATHER,
                        CollectiveOp.ALL_GATHERV,
                        CollectiveOp.REDUCE_SCATTER,
                        CollectiveOp.REDUCE_SCATTERV));
        SERVES.put(
                Algorithm.TREE,
                EnumSet.of(
                        CollectiveOp.BROADCAST,
                        CollectiveOp.SCATTER,
                        CollectiveOp.SCATTERV,
                        CollectiveOp.GATHER,
                        CollectiveOp.GATHERV,
                        CollectiveOp.REDUCE,
                        CollectiveOp.ALL_REDUCE,
                        CollectiveOp.BARRIER));
        SERVES.put(
                Algorithm.RECURSIVE_DOUBLING,
                EnumSet.of(
                        CollectiveOp.ALL_REDUCE,
                        CollectiveOp.ALL_GATHER,
                        CollectiveOp.REDUCE_SCATTER,
                        CollectiveOp.BARRIER));
        SERVES.put(
                Algorithm.PAIRWISE,
                EnumSet.of(
                        CollectiveOp.ALL_TO_ALL,
                        CollectiveOp.ALL_TO_ALLV,
                        CollectiveOp.ALL_GATHER,
                        CollectiveOp.ALL_GATHERV,
                        CollectiveOp.REDUCE_SCATTER,
                        CollectiveOp.REDUCE_SCATTERV));
    }

    private AlgorithmTable() {}

    /**
     * Bytes up to which a payload is sent in the slot. With few ranks, from about half a KiB on,
     * the second barrier of the zero-copy path costs less than an additional copy; with more ranks,
     * or more ranks than cores, saving an exchange is more important.
     */
    static long eagerLimit(int ranks) {
        return ranks <= 2 ? 512 : ControlBlock.EAGER;
    }

    static boolean serves(Algorithm algorithm, CollectiveOp op) {
        Set<CollectiveOp> ops = SERVES.get(algorithm);
        return ops != null && ops.contains(op);
    }

    static Algorithm choose(
            CollectiveOp op, long blockBytes, int ranks, Algorithm wanted, HostPlan plan) {
        return wanted != Algorithm.AUTO && serves(wanted, op)
                ? wanted
                : plan.choose(op, blockBytes, ranks);
    }
}
