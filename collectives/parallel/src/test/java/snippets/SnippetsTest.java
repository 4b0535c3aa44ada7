package snippets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.GradientReducer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Examples of the Javadoc do what their comments say. */
class SnippetsTest {
    @Test
    void reducer() {
        List<GradientReducer.Parameter> parameters =
                List.of(
                        new GradientReducer.Parameter("weights", 8, 4, DataType.FLOAT32),
                        new GradientReducer.Parameter("bias", 4, DataType.FLOAT32));
        double[] means = new double[2];
        Communicator.runLocal(
                2,
                comm ->
                        means[comm.rank()] =
                                Parallel.reduce(
                                        comm,
                                        parameters,
                                        (gradient, p) -> gradient.set(0, comm.rank() * 4 + p)));
        assertArrayEquals(new double[] {2, 2}, means);
    }

    @Test
    void mesh() {
        int[] seen = new int[4];
        Communicator.runLocal(4, comm -> seen[comm.rank()] = Parallel.coordinate(comm));
        assertArrayEquals(new int[] {20, 20, 21, 21}, seen);
    }

    @Test
    void matmul() {
        try (Buffer a = Device.host().allocate(DataType.FLOAT32, 6);
                Buffer b = Device.host().allocate(DataType.FLOAT32, 6);
                Buffer c = Device.host().allocate(DataType.FLOAT32, 4)) {
            for (int i = 0; i < 6; i++) {
                a.set(i, i + 1);
                b.set(i, i + 1);
            }
            Parallel.multiply(a, b, c);
            assertEquals(
                    List.of(22.0, 28.0, 49.0, 64.0),
                    List.of(c.get(0), c.get(1), c.get(2), c.get(3)));
        }
    }
}
