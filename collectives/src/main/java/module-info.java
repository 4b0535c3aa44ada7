/** Communicators, devices and streams, with the host, NCCL and MPI engines. */
@SuppressWarnings("module") // modules that see internal packages are compiled later
module io.jccl.collectives {
    requires transitive io.jccl.bindings;
    requires transitive io.jccl.topology;
    requires static org.jspecify;
    requires static jdk.management; // tests read how much a thread allocates

    // Optional at run time: without it there are no events.
    requires static jdk.jfr;

    exports io.jccl;
    exports io.jccl.compute;
    exports io.jccl.device;
    exports io.jccl.device.cuda to
            io.jccl.parallel;
    exports io.jccl.engine to
            io.jccl.bench,
            io.jccl.parallel;
    exports io.jccl.internal to
            io.jccl.bench,
            io.jccl.offload,
            io.jccl.parallel;
    exports io.jccl.kernel to
            io.jccl.bench,
            io.jccl.offload,
            io.jccl.parallel;
    exports io.jccl.ras to
            io.jccl.bench;
    exports io.jccl.rendezvous;

    uses io.jccl.EngineProvider;
    uses io.jccl.device.DeviceProvider;

    provides io.jccl.EngineProvider with
            io.jccl.provider.Engines;
    provides io.jccl.device.DeviceProvider with
            io.jccl.provider.Devices;
}
