package io.jccl.topology.cost;

/** Algorithms of collective operations. */
public enum Algorithm {
    /** Data goes round rings. */
    RING,
    /**
     * Data goes up and down trees. NCCL has them for allReduce; for broadcast and reduce they are
     * the packed spanning trees of {@link io.jccl.topology.plan.Planner}.
     */
    TREE,
    /** The NVSwitches reduce and multicast (NVLink SHARP), one NVLink domain. */
    NVLS,
    /** {@link #NVLS} inside each machine, double binary trees over the network. */
    NVLS_TREE,
    /** Parallel aggregated trees: allGather and reduceScatter with one GPU per machine. */
    PAT,
    /** Every pair that has data to exchange does so directly. */
    DIRECT
}
