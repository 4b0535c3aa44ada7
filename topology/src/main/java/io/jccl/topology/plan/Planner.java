package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.List;
import java.util.Optional;

/**
 * Finds the rings, trees or exchange that move an operation's data fastest over the links of a
 * machine, for sizes at which latency is negligible.
 *
 * {@snippet class="snippets.Topologies" region="plan"}
 *
 * <p>Bandwidth is bus bandwidth as in nccl-tests ({@link Operation#busFactor}). For rings it is the
 * sum of the channels' GB/s, for every operation. For trees of a broadcast or reduce it is that sum
 * too; for trees of an allReduce it is the sum times 2(n-1)/n, since each byte goes up and down its
 * tree once. For an exchange it is the GB/s of a hop times n-1, since each rank sends to n-1 others
 * at once; between neighbours (sendRecv) it is that of a hop.
 *
 * <p>Where NVLink alone joins the GPUs, PCIe is left out of plan and bound. GPUs that do not
 * participate forward nothing. The plan of a single GPU has no channels, bandwidth 0 and bound 0.
 *
 * <p>All methods throw {@link IllegalArgumentException} if a GPU does not exist or is named twice,
 * the root is not a rank, or no link joins the GPUs. They are deterministic: the same arguments
 * give the same plan. Safe for use by many threads.
 */
public final class Planner {
    private Planner() {}

    /**
     * The best plan of any kind.
     *
     * @param t the machine
     * @param op the operation
     * @param gpus the GPUs by rank: indices in {@link Topology#gpus()}
     * @param root rank of the root, for broadcast, reduce, gather and scatter
     * @return the plan with the highest bandwidth; of equal ones an exchange, which has one step,
     *     else rings
     */
    public static Plan plan(Topology t, Operation op, List<Integer> gpus, int root) {
        return new Search(t, op, gpus, root).best();
    }

    /**
     * The set of directed rings with the highest bandwidth.
     *
     * @param t the machine
     * @param op the operation
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; empty if the operation has no ring algorithm
     */
    public static Optional<Plan> rings(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).rings());
    }

    /**
     * Spanning trees packed into the links.
     *
     * @param t the machine
     * @param op the operation
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; empty unless the operation is an allReduce, broadcast or reduce
     */
    public static Optional<Plan> trees(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).trees());
    }

    /**
     * Direct exchange: every rank sends to its peers at once.
     *
     * @param t the machine
     * @param op the operation
     * @param gpus the GPUs by rank
     * @param root rank of the root
     * @return the plan; empty if the operation reduces or is a broadcast, or if two GPUs that
     *     exchange data reach each other only through others
     */
    public static Optional<Plan> exchange(Topology t, Operation op, List<Integer> gpus, int root) {
        return Optional.ofNullable(new Search(t, op, gpus, root).exchange());
    }

    /**
     * Checks a plan for errors: rings that are not Hamiltonian, trees that do not span, arcs above
     * their bandwidth, a stated bandwidth that differs from that of the channels or exceeds the
     * bound.
     *
     * @param plan any plan
     * @return the errors, one per line; empty if there are none
     */
    public static List<String> check(Plan plan) {
        return Check.of(plan);
    }

    /**
     * The best plan for many machines. In a ring, data enters at a rail's entry, passes along the
     * chain and leaves at its exit. In a tree, entry and exit are the same GPU, which exchanges
     * data with those of the parent and child machines and is the head of the chain. Bandwidth and
     * bound are bus bandwidth over all ranks: the sum of the rails' GB/s, times 2(N-1)/N for trees
     * of an allReduce of N ranks.
     *
     * <p>For a NIC of unknown bandwidth {@link io.jccl.topology.LinkModel#DEFAULT_NIC} is assumed.
     *
     * @param c the machines, at least 2
     * @param op allReduce, allGather, reduceScatter, broadcast or reduce
     * @param gpus the participating GPUs of each machine
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
     * @param gpus the participating GPUs of each machine
     * @return the plan
     */
    public static ClusterPlan rings(Cluster c, Operation op, List<Integer> gpus) {
        return new ClusterSearch(c, op, gpus).rails(false);
    }

    /**
     * Two complementary binary trees over the machines for each NIC, with less latency than rings.
     *
     * @param c the machines, at least 2
     * @param op as in {@link #plan(Cluster, Operation, List)}
     * @param gpus the participating GPUs of each machine
     * @return the plan; empty unless the operation is an allReduce: with one root a ring is a
     *     chain, and as fast
     */
    public static Optional<ClusterPlan> trees(Cluster c, Operation op, List<Integer> gpus) {
        ClusterSearch search = new ClusterSearch(c, op, gpus);
        return op == Operation.ALL_REDUCE ? Optional.of(search.rails(true)) : Optional.empty();
    }

    /**
     * Checks a plan for many machines for errors.
     *
     * @param plan any plan
     * @return the errors, one per line; empty if there are none
     */
    public static List<String> check(ClusterPlan plan) {
        return ClusterCheck.of(plan);
    }
}
