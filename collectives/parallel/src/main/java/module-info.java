/** What trainers build from collectives: reducers, split layers, pipelines, experts, products. */
module io.jccl.parallel {
    requires transitive io.jccl.collectives;
    requires static transitive org.jspecify;
    requires static jdk.management; // tests read how much a thread allocates

    // Optional at run time: without it the loops are plain Java.
    requires static jdk.incubator.vector;

    exports io.jccl.gemm;
    exports io.jccl.parallel;
}
