/** Training what does not fit: tiers of memory, transfers behind compute, state on the CPU. */
module io.jccl.offload {
    requires transitive io.jccl.collectives;
    requires jdk.jfr;
    requires static transitive org.jspecify;
    requires static jdk.management; // tests read how much a thread allocates
    requires jdk.unsupported; // ExtendedOpenOption.DIRECT

    // Optional at run time: without it the loops are plain Java.
    requires static jdk.incubator.vector;

    exports io.jccl.offload;
    exports io.jccl.offload.memplan;
    exports io.jccl.offload.nvme;
    exports io.jccl.offload.optim;
    exports io.jccl.offload.zero;
}
