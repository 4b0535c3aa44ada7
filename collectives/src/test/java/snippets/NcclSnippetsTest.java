package snippets;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Examples of the Javadoc that need GPUs, on the fakes. */
@UsesFakes
class NcclSnippetsTest {
    private static final int COUNT = 1024;

    @BeforeAll
    static void useFakes() {
        TestFake.use();
    }

    private interface Example {
        void run(Communicator comm, Buffer gradients);
    }

    /** Runs on two ranks, whose gradients are 1 and 3 before. */
    private static double[] gradientsAfter(Example example) {
        double[] after = new double[2];
        Communicator.runLocal(
                List.of(Cuda.device(0), Cuda.device(1)),
                CommunicatorOptions.DEFAULT,
                comm -> {
                    try (Buffer gradients = comm.device().allocate(DataType.FLOAT32, COUNT)) {
                        gradients.set(0, 1 + 2 * comm.rank());
                        example.run(comm, gradients);
                        after[comm.rank()] = gradients.get(0);
                    }
                });
        return after;
    }

    private static long calls(String function) {
        return Math.max(0, TestFake.calls(function)); // -1 before the first
    }

    private static void assertMeans(double[] after) {
        assertEquals(List.of(2.0, 2.0), List.of(after[0], after[1]));
    }

    @Test
    void registration() {
        long registered = calls("ncclCommRegister");
        long left = registered - calls("ncclCommDeregister");
        assertMeans(
                gradientsAfter((comm, gradients) ->
                        assertTrue(Collectives.withNccl(comm, gradients).startsWith("2."))));
        assertEquals(registered + 2, calls("ncclCommRegister"));
        assertEquals(left, registered + 2 - calls("ncclCommDeregister"), "a registration is left");
    }

    @Test
    void graph() {
        long launches = calls("cudaGraphLaunch");
        assertMeans(gradientsAfter((comm, gradients) -> Collectives.record(comm, gradients, 3)));
        assertEquals(launches + 6, calls("cudaGraphLaunch"));
    }

    @Test
    void compute() {
        assertEquals(-1, Collectives.descend(Cuda.device(0)));
        assertEquals(Device.Kind.CUDA, Cuda.device(0).kind());
    }
}
