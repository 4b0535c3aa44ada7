package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.flight.CollectiveOp;
import io.jccl.internal.Cpus;
import io.jccl.topology.read.Cpu;
import java.util.BitSet;
import java.util.Comparator;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The host engine's plan for the placement of its ranks: the order in which they forward data, so
 * that neighbours share a cache or at least a NUMA node, and the algorithm of each operation.
 *
 * <p>Where a rank runs is only known if its process is pinned (by {@code mpirun --bind-to}, {@code
 * srun --cpu-bind}, {@code numactl}, {@code taskset}) to CPUs of one NUMA node when it joins. If
 * one rank is not pinned, or all are on one node, the plan is {@link #FLAT}: ranks in their own
 * order and direct algorithms. {@link io.jccl.CpuBinding} pins as well. Ranks that are threads of
 * one JVM count as not pinned.
 *
 * @param order ranks in the order in which they forward data; empty for their own order
 * @param nodes number of NUMA nodes that they are on, 1 if unknown
 */
record HostPlan(int[] order, int nodes) {
    /** All ranks are the same distance apart, as far as is known. */
    static final HostPlan FLAT = new HostPlan(new int[0], 1);

    /** If it is {@code off} on all ranks, they count as not pinned. */
    static final String VARIABLE = "JCCL_HOST_PLAN";

    /** A rank that may run on CPUs of several NUMA nodes, or does not report its CPUs. */
    static final long UNKNOWN = 0;

    /**
     * Across nodes, a choice: for these operations, from these numbers of bytes in a block and of
     * ranks. With direct reads, every block crosses the link between the nodes once for each rank
     * on the other side; forwarded in the plan's order, once for each pair of neighbouring nodes,
     * at the cost of one more copy per rank. The size from which that is faster is an assumption,
     * not measured on a machine of several nodes: below a megabyte a block stays in the cache of
     * the far node after its first crossing.
     */
    private record Row(Set<CollectiveOp> ops, long minBytes, int minRanks, Algorithm algorithm) {}

    private static final long LARGE = 1 << 20;

    private static final List<Row> ROWS =
            List.of(
                    new Row(
                            EnumSet.of(
                                    CollectiveOp.ALL_REDUCE,
                                    CollectiveOp.ALL_GATHER,
                                    CollectiveOp.REDUCE_SCATTER),
                            LARGE,
                            4,
                            Algorithm.RING),
                    new Row(
                            EnumSet.of(CollectiveOp.BROADCAST, CollectiveOp.REDUCE),
                            LARGE,
                            4,
                            Algorithm.TREE));

    /**
     * The plan for ranks at known places.
     *
     * @param homes by rank, see {@link #home}; the same on all ranks
     */
    static HostPlan of(long[] homes) {
        for (long home : homes) {
            if (home == UNKNOWN) {
                return FLAT;
            }
        }
        int nodes =
                (int)
                        IntStream.range(0, homes.length)
                                .mapToLong(r -> homes[r] >>> 48)
                                .distinct()
                                .count();
        if (nodes == 1) {
            return FLAT;
        }
        // By node, then cache, then core; ranks on one core keep their order.
        int[] order =
                IntStream.range(0, homes.length)
                        .boxed()
                        .sorted(Comparator.comparingLong((Integer r) -> homes[r]))
                        .mapToInt(r -> r)
                        .toArray();
        return new HostPlan(order, nodes);
    }

    /**
     * The algorithm for an operation whose choice is left to the engine. Within a node every rank
     * reaches every other's buffer at the same cost, so forwarding gains nothing: DIRECT moves each
     * byte once where the others move it once a hop.
     */
    Algorithm choose(CollectiveOp op, long blockBytes, int ranks) {
        for (int i = 0; nodes > 1 && i < ROWS.size(); i++) {
            Row row = ROWS.get(i);
            if (row.ops.contains(op) && blockBytes >= row.minBytes && ranks >= row.minRanks) {
                return row.algorithm;
            }
        }
        return Algorithm.DIRECT;
    }

    /**
     * The position of the calling thread, as a number that orders near positions next to each
     * other.
     *
     * @throws IllegalArgumentException if {@link #VARIABLE} is set to something else than {@code
     *     off}
     */
    static long ownHome() {
        return isOff(System.getenv(VARIABLE)) ? UNKNOWN : home(Cpus.all(), Cpus.ofThread());
    }

    static boolean isOff(@Nullable String value) {
        if (value == null || value.isEmpty()) {
            return false;
        }
        if (!value.equals("off")) {
            throw new IllegalArgumentException(
                    VARIABLE + " is '" + value + "', expected off, or unset it");
        }
        return true;
    }

    /**
     * The place of a process that may run on some CPUs: its NUMA node, and the level 3 cache and
     * the core as far as all its CPUs share them. Each counts from 1; 0 is unknown.
     *
     * @param cpus all of the machine
     * @param allowed numbers of those that the process may use
     */
    static long home(List<Cpu> cpus, BitSet allowed) {
        List<Cpu> own = cpus.stream().filter(c -> allowed.get(c.id())).toList();
        if (own.isEmpty() || own.stream().mapToInt(Cpu::numa).distinct().count() != 1) {
            return UNKNOWN;
        }
        return (own.getFirst().numa() + 1L) << 48
                | common(own.stream().mapToInt(Cpu::l3)) << 24
                | common(own.stream().mapToInt(Cpu::core));
    }

    private static long common(IntStream values) {
        int[] distinct = values.distinct().toArray();
        return distinct.length == 1 ? distinct[0] + 1L : 0;
    }

    /** Describes the placement of a communicator's ranks, for messages and tests. */
    @Override
    public String toString() {
        return nodes == 1
                ? "ranks in their own order"
                : "ranks over "
                        + nodes
                        + " NUMA nodes in the order "
                        + java.util.Arrays.toString(order);
    }
}
