package snippets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.CpuBinding;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.rendezvous.Store;
import java.time.Duration;
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
    void server() {
        assertEquals(1, Collectives.served());
    }
}
