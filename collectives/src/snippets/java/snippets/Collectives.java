package snippets;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.CpuBinding;
import io.jccl.Group;
import io.jccl.LocalJob;
import io.jccl.NcclCommunicator;
import io.jccl.NcclSteering;
import io.jccl.PeerCopies;
import io.jccl.ReduceOp;
import io.jccl.compute.Activation;
import io.jccl.compute.Compute;
import io.jccl.compute.Layers;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.rendezvous.LaunchEnvironment;
import io.jccl.rendezvous.Store;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Plan;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;

/** Examples of the Javadoc. SnippetsTest runs those that need no GPU, NcclSnippetsTest others. */
final class Collectives {
    static final double[] MEANS = new double[2];

    private Collectives() {}

    // @start region="average"
    static void average() {
        Communicator.runLocal(2, Collectives::train); // two ranks, each in a thread of its own
    }

    static void train(Communicator comm) {
        Stream stream = comm.device().defaultStream();
        try (Buffer gradients = comm.device().allocate(DataType.FLOAT32, 1024)) {
            gradients.set(0, comm.rank() + 1); // 1 on one, 2 on the other
            comm.allReduce(gradients, ReduceOp.AVG, stream);
            MEANS[comm.rank()] = gradients.get(0); // 1.5 on both
        }
    }

    // @end

    static CommunicatorOptions options() {
        // @start region="options"
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT
                        .withTimeout(Duration.ofSeconds(30)) // of one operation
                        .withBinding(CpuBinding.CORE); // CPUs of its own for each rank
        // @end
        return options;
    }

    static double exchange(Communicator comm, Buffer mine, Buffer theirs) {
        // @start region="group"
        Stream stream = comm.device().defaultStream();
        int next = (comm.rank() + 1) % comm.size();
        int previous = (comm.rank() + comm.size() - 1) % comm.size();
        Group.run(
                comm,
                () -> { // both are submitted together, so that no rank waits in send
                    comm.send(mine, next, stream);
                    comm.recv(theirs, previous, stream);
                });
        // @end
        return theirs.get(0);
    }

    static double views() {
        // @start region="buffer"
        try (Buffer all = Device.host().allocate(DataType.FLOAT32, 100)) {
            Buffer half = all.slice(50, 50); // a view: the same memory
            half.set(0, 2.5);
            return all.get(50); // 2.5
        }
        // @end
    }

    static double inOrder() {
        // @start region="stream"
        Device device = Device.host();
        try (Stream copies = device.newStream();
                Event done = device.newEvent();
                Buffer source = device.allocate(DataType.FLOAT32, 1 << 20);
                Buffer target = device.allocate(DataType.FLOAT32, 1 << 20)) {
            source.set(0, 7);
            copies.copy(source, target); // returns at once
            done.record(copies);
            // ... compute something else ...
            done.synchronize(Duration.ofSeconds(10)); // errors of the copy surface here
            return target.get(0);
        }
        // @end
    }

    static String meet(Store store) {
        // @start region="store"
        store.set("address", "node7:4711".getBytes(StandardCharsets.UTF_8)); // on one rank
        byte[] address = store.await("address", Duration.ofSeconds(10)); // on any
        long arrived = store.add("arrived", 1); // 1 for the first, 2 for the second
        // @end
        return new String(address, StandardCharsets.UTF_8) + " " + arrived;
    }

    static long served() {
        // @start region="server"
        StoreSecret secret = StoreSecret.of(StoreSecret.randomText()); // the clients have the same
        try (StoreServer server = StoreServer.open("127.0.0.1", 0, secret); // 0: any free port
                Store store =
                        Store.connect(
                                "tcp://127.0.0.1:" + server.port(),
                                secret,
                                Duration.ofSeconds(10))) {
            return store.add("arrived", 1);
        }
        // @end
    }

    /** Compiled only: needs GPUs. */
    static Communicator onMyGpu() {
        // @start region="environment"
        int gpu =
                LaunchEnvironment.current().localRank(); // this process among those of its machine
        Communicator comm =
                Communicator.fromEnvironment(Cuda.device(gpu), CommunicatorOptions.DEFAULT);
        // @end
        return comm;
    }

    /** Needs a GPU, or the fakes of the tests. */
    static void record(Communicator comm, Buffer gradients, int steps) {
        // @start region="graph"
        try (Stream stream = comm.device().newStream();
                Graph step =
                        Graph.capture(
                                stream, () -> comm.allReduce(gradients, ReduceOp.AVG, stream))) {
            for (int i = 0; i < steps; i++) {
                step.launch(stream); // one call, whatever the graph holds
            }
            stream.synchronize();
        }
        // @end
    }

    /** Compiled only: needs GPUs. */
    static void spread(
            Topology topology, List<Device> devices, List<Buffer> buffers, List<Stream> streams) {
        // @start region="peerCopies"
        try (PeerCopies copies =
                PeerCopies.of(topology, List.of(0, 1), devices, PeerCopies.Settings.DEFAULT)) {
            copies.broadcast(buffers.get(0), buffers, 0, streams); // one call, for all ranks
        }
        // @end
    }

    /** Needs GPUs, or the fakes of the tests. */
    static String withNccl(Communicator comm, Buffer gradients) {
        // @start region="nccl"
        // every communicator whose device is a GPU is one of NCCL
        NcclCommunicator nccl = (NcclCommunicator) comm;
        Stream stream = comm.device().defaultStream();
        NcclCommunicator.Registration zeroCopy = nccl.register(gradients);
        comm.allReduce(gradients, ReduceOp.AVG, stream); // NCCL accesses the buffer directly
        stream.synchronize();
        zeroCopy.close(); // before the buffer and the communicator
        return nccl.ncclVersion(); // such as 2.30.7
        // @end
    }

    static List<String> advised(Plan plan) {
        // @start region="steering"
        try (NcclSteering steering =
                NcclSteering.builder(plan)
                        .algorithm(Operation.ALL_REDUCE, 64 << 20) // the fastest for 64 MiB
                        .build()) { // advises only: nothing is set
            return steering.advice().settings().stream()
                    .map(s -> s.variable() + "=" + s.value() + ", since " + s.why())
                    .toList();
        }
        // @end
    }

    static double descend(Device device) {
        // @start region="compute"
        Stream stream = device.defaultStream();
        try (Compute compute = Compute.of(device); // the host, or a GPU
                Buffer weights = device.allocate(DataType.FLOAT32, 1024);
                Buffer gradients = device.allocate(DataType.FLOAT32, 1024)) {
            compute.fill(gradients, 2, stream);
            compute.axpy(-0.5, gradients, weights, stream); // weights -= 0.5 * gradients
            return weights.get(0); // -1; waits for the stream
        }
        // @end
    }

    static void activate(Compute compute, Buffer products, Buffer bias, Stream stream) {
        // @start region="layers"
        Layers layers = compute.layers();
        layers.addBias(products, bias, stream); // to each row, as long as the bias
        layers.activate(Activation.GELU, products, products, stream); // in place
        // @end
    }

    static ProcessBuilder process(List<String> command, String id, int rank, int size) {
        // @start region="localJob"
        // id: LocalJob.newId(), the same for all ranks
        ProcessBuilder process = new ProcessBuilder(command);
        process.environment().putAll(LocalJob.environment(id, rank, size));
        // each process calls Communicator.fromEnvironment()
        // @end
        return process;
    }
}
