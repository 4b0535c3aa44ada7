package snippets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CpuBinding;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.rendezvous.Store;
import io.jccl.topology.Operation;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Examples of the Javadoc do what their comments say. */
class SnippetsTest {
    @Test
    void average() {
        Collectives.average();
        assertArrayEquals(new double[] {1.5, 1.5}, Collectives.MEANS);
    }

    @Test
    void options() {
        assertEquals(Duration.ofSeconds(30), Collectives.options().timeout());
        assertEquals(CpuBinding.CORE, Collectives.options().binding());
    }

    @Test
    void group() {
        double[] received = new double[3];
        Communicator.runLocal(
                3,
                comm -> {
                    try (Buffer mine = comm.device().allocate(DataType.FLOAT32, 1000);
                            Buffer theirs = comm.device().allocate(DataType.FLOAT32, 1000)) {
                        mine.set(0, comm.rank());
                        received[comm.rank()] = Collectives.exchange(comm, mine, theirs);
                    }
                });
        assertArrayEquals(new double[] {2, 0, 1}, received);
    }

    @Test
    void buffersAndStreams() {
        assertEquals(2.5, Collectives.views());
        assertEquals(7, Collectives.inOrder());
    }

    @Test
    void store() {
        try (Store store = Store.inMemory()) {
            assertEquals("node7:4711 1", Collectives.meet(store));
        }
    }

    @Test
    void compute() {
        assertEquals(-1, Collectives.descend(Device.host()));
    }

    @Test
    void layers() {
        Device host = Device.host();
        try (Compute compute = Compute.of(host);
                Buffer products = host.allocate(DataType.FLOAT32, 4);
                Buffer bias = host.allocate(DataType.FLOAT32, 2)) {
            bias.set(1, 10);
            products.set(3, 1);
            Collectives.activate(compute, products, bias, host.defaultStream());
            assertEquals(List.of(0.0, 10.0), List.of(products.get(0), products.get(1)));
            assertEquals(11, products.get(3), 1e-5);
        }
    }

    @Test
    void localJob() {
        Map<String, String> environment =
                Collectives.process(List.of("java"), "a", 1, 2).environment();
        assertEquals("a", environment.get("JCCL_JOB_ID"));
        assertEquals("1", environment.get("RANK"));
        assertEquals("2", environment.get("WORLD_SIZE"));
    }

    @Test
    void steering() throws IOException {
        String dump = Files.readString(Path.of("../docs/examples/dgx-1.txt"));
        Plan plan =
                Planner.plan(
                        TopologyReader.topology(dump, ReadOptions.DEFAULT),
                        Operation.ALL_REDUCE,
                        List.of(0, 1, 2, 3),
                        0);
        List<String> advised = Collectives.advised(plan);
        assertTrue(advised.stream().anyMatch(s -> s.startsWith("NCCL_ALGO=")), advised::toString);
        assertNull(System.getenv("NCCL_ALGO"));
    }

    @Test
    void server() {
        assertEquals(1, Collectives.served());
    }
}
