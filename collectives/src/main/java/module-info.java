/** Communicators, devices and streams, with the host, NCCL and MPI engines. */
module io.jccl.collectives {
    requires transitive io.jccl.bindings;
    requires static transitive org.jspecify;

    // Optional at run time: without it the loops are plain Java.
    requires static jdk.incubator.vector;

    exports io.jccl;
    exports io.jccl.device;
    exports io.jccl.rendezvous;
}
