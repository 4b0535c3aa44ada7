package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.List;
import java.util.Optional;

/**
 * Finds the rings, trees or exchange that move an operation's data fastest over the links of a
 * machine, for sizes so large that latency does not count.
 *
 * <p>Bandwidth is bus bandwidth as nccl-tests has it ({@link Operation#busFactor}). Rings: the sum
 * of the channels' GB/s, whatever the operation. Trees of a broadcast or reduce: the sum as well;
 * of an allReduce: the sum times 2(n-1)/n, as each byte goes up and down each tree once. An
 * exchange: GB/s of a hop times n-1, as each rank sends to n-1 others at once; between neighbours
 * (sendRecv) that of a hop.
 *
 * <p>Where NVLink alone joins the GPUs, PCIe is left out, of plan and bound. GPUs that do not take
 * part forward nothing. One GPU alone gets a plan without channels, of bandwidth 0 and bound 0.
 *
 * <p>All methods throw {@link IllegalArgumentException} if a GPU is not there or named twice, the
 * root is none of the ranks, or no link joins the GPUs. They are pure: the same arguments give the
 * same plan. Safe for use by many threads.
 */
public final class Planner {
    private Planner() {}

    /**
     * The best plan of all kinds.
     *
     * @param t the machine
     * @param op what is to be done
     * @param gpus the GPUs by rank: places in {@link Topology#gpus()}
     * @param root rank of the root; counts for broadcast, reduce, gather and scatter
     * @return the plan with the highest bandwidth; of equal ones rings rather than trees, and an
     *     exchange, which has one step, rather than either
     */
    public static Plan plan(Topology t, Operation op, List<Integer> gpus, int root) {
        return new Search(t, op, gpus, root).best();
    }

    /**
     * The set of directed rings with the highest bandwidth.
     *
     * @param t the machine
     * @param op what is to be done
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; none if the operation has no ring algorithm
     */
    public static Optional<Plan> rings(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).rings());
    }

    /**
     * Spanning trees packed into the links.
     *
     * @param t the machine
     * @param op what is to be done
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; none unless the operation is an allReduce, broadcast or reduce
     */
    public static Optional<Plan> trees(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).trees());
    }

    /**
     * Direct exchange: every rank sends to its peers at once.
     *
     * @param t the machine
     * @param op what is to be done
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; none if the operation reduces or is a broadcast, or if two GPUs that
     *     exchange data only reach each other through others
     */
    public static Optional<Plan> exchange(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).exchange());
    }

    /**
     * Looks for errors in a plan: rings that are not Hamiltonian, trees that do not span, arcs that
     * carry more than they can, bandwidth that is not what the channels give or is above the bound.
     *
     * @param plan any plan
     * @return what is wrong, a line each; empty if nothing is
     */
    public static List<String> check(Plan plan) {
        return Check.of(plan);
    }

    /**
     * The best plan for many machines. In a ring, data comes in at a rail's entry, goes along the
     * chain and leaves at its exit. In a tree, entry and exit are one GPU, which exchanges data
     * with that of the parent machine and those of the children; the chain hangs below it.
     * Bandwidth and bound are bus bandwidth over all ranks: the sum of the rails' GB/s, times
     * 2(N-1)/N for trees of an allReduce of N ranks.
     *
     * <p>A NIC of unknown bandwidth is taken for {@link io.jccl.topology.LinkModel#DEFAULT_NIC}.
     *
     * @param c the machines, at least 2
     * @param op allReduce, allGather, reduceScatter, broadcast or reduce
     * @param gpus the GPUs that take part on each machine
     * @return the plan with the highest bandwidth; of equal ones rings
     */
    public static ClusterPlan plan(Cluster c, Operation op, List<Integer> gpus) {
        return new ClusterSearch(c, op, gpus).best();
    }

    /**
     * Rings over the machines, one for each NIC.
     *
     * @param c the machines, at least 2
     * @param op as in {@link #plan(Cluster, Operation, List)}
     * @param gpus the GPUs that take part on each machine
     * @return the plan
     */
    public static ClusterPlan rings(Cluster c, Operation op, List<Integer> gpus) {
        return new ClusterSearch(c, op, gpus).rails(false);
    }

    /**
     * Two complementary binary trees over the machines for each NIC: less latency than a ring.
     *
     * @param c the machines, at least 2
     * @param op as in {@link #plan(Cluster, Operation, List)}
     * @param gpus the GPUs that take part on each machine
     * @return the plan; none unless the operation is an allReduce: with one root a ring, which is a
     *     chain then, is as fast
     */
    public static Optional<ClusterPlan> trees(Cluster c, Operation op, List<Integer> gpus) {
        ClusterSearch search = new ClusterSearch(c, op, gpus);
        return op == Operation.ALL_REDUCE ? Optional.of(search.rails(true)) : Optional.empty();
    }

    /**
     * Looks for errors in a plan for many machines.
     *
     * @param plan any plan
     * @return what is wrong, a line each; empty if nothing is
     */
    public static List<String> check(ClusterPlan plan) {
        return ClusterCheck.of(plan);
    }
}
