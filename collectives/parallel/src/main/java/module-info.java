/** What trainers build from collectives: reducers, split layers, pipelines, experts, products. */
module io.jccl.parallel {
    requires transitive io.jccl.collectives;
    requires static org.jspecify;
    requires static jdk.management; // tests read how much a thread allocates

    exports io.jccl.gemm;
    exports io.jccl.parallel;
}
