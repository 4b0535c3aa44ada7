/** Training what does not fit: tiers of memory, transfers behind compute, state on the CPU. */
module io.jccl.offload {
    requires transitive io.jccl.collectives;
    requires jdk.jfr;
    requires static transitive org.jspecify;

    // Optional at run time: without it the loops are plain Java.
    requires static jdk.incubator.vector;

    exports io.jccl.offload;
}
