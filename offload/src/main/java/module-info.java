/** Training what does not fit: tiers of memory, transfers behind compute, state on the CPU. */
module io.jccl.offload {
    requires transitive io.jccl.collectives;
    requires com.fasterxml.jackson.core; // headers of safetensors files
    requires jdk.jfr;
    requires static org.jspecify;
    requires static jdk.management; // tests read how much a thread allocates
    requires jdk.unsupported; // ExtendedOpenOption.DIRECT

    exports io.jccl.offload;
    exports io.jccl.offload.memplan;
    exports io.jccl.offload.nvme;
    exports io.jccl.offload.optim;
    exports io.jccl.offload.timeplan;
    exports io.jccl.offload.weights;
    exports io.jccl.offload.zero;
}
