package snippets;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matrix;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.LinearWeights;
import io.jccl.parallel.PipelineStage;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
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

    private static Buffer floats(double... values) {
        Buffer b = Device.host().allocate(DataType.FLOAT32, values.length);
        for (int i = 0; i < values.length; i++) {
            b.set(i, values[i]);
        }
        return b;
    }

    @Test
    void parametersAreSynchronized() {
        double[] seen = new double[2];
        Communicator.runLocal(
                2,
                comm -> {
                    try (Buffer weights = floats(comm.rank() + 5, 1)) {
                        seen[comm.rank()] = Parallel.synchronize(comm, weights);
                    }
                });
        assertArrayEquals(new double[] {5, 5}, seen);
    }

    @Test
    void parameterServer() {
        double[] seen = new double[3];
        Communicator.runLocal(
                3,
                comm -> {
                    try (Buffer parameters = floats(10);
                            Buffer gradients = floats(0)) {
                        // Workers 0 and 1: the mean of their gradients is 3.
                        Parallel.serve(
                                comm,
                                parameters,
                                gradients,
                                () -> gradients.set(0, 2 + 2 * comm.rank()));
                        seen[comm.rank()] = parameters.get(0);
                    }
                });
        assertArrayEquals(new double[] {7, 7, 10}, seen);
    }

    @Test
    void splitLayers() {
        double[] seen = new double[4];
        Communicator.runLocal(
                2,
                comm -> {
                    double first = 1 + 2 * comm.rank();
                    try (Buffer x = floats(1, 10);
                            Buffer h = floats(0, 0);
                            Buffer y = floats(0, 0);
                            Buffer w1 = floats(first, first + 1, 0, 0);
                            Buffer w2 = floats(1, 0, 0, 1)) {
                        Parallel.mlp(
                                comm,
                                new LinearWeights(Matrix.of(w1, 2, 2), null, null, null),
                                new LinearWeights(Matrix.of(w2, 2, 2), null, null, null),
                                Matrix.of(x, 1, 2),
                                Matrix.of(h, 1, 2),
                                Matrix.of(y, 1, 2));
                        seen[2 * comm.rank()] = y.get(0);
                        seen[2 * comm.rank() + 1] = y.get(1);
                    }
                });
        // h is 1, 2 on rank 0 and 3, 4 on rank 1.
        assertArrayEquals(new double[] {4, 6, 4, 6}, seen);
    }

    /** Adds 1 to what comes, and sends back the micro-batch's number as gradient. */
    private static final class Counting implements PipelineStage {
        private final List<Double> inputs = new ArrayList<>();
        private final List<Double> gradients = new ArrayList<>();

        @Override
        public void forward(
                int microBatch, @Nullable Buffer input, @Nullable Buffer output, Stream stream) {
            double value = input == null ? microBatch : input.get(0);
            inputs.add(value);
            if (output != null) {
                output.set(0, value + 1);
            }
        }

        @Override
        public void backward(
                int microBatch,
                @Nullable Buffer outputGradient,
                @Nullable Buffer inputGradient,
                Stream stream) {
            gradients.add(outputGradient == null ? microBatch : outputGradient.get(0));
            if (inputGradient != null) {
                inputGradient.set(0, microBatch);
            }
        }
    }

    @Test
    void pipeline() {
        Counting[] stages = {new Counting(), new Counting()};
        int[] slots = new int[2];
        Communicator.runLocal(
                2, comm -> slots[comm.rank()] = Parallel.batch(comm, stages[comm.rank()]));
        assertEquals(List.of(0.0, 1.0, 2.0, 3.0), stages[0].inputs);
        assertEquals(List.of(1.0, 2.0, 3.0, 4.0), stages[1].inputs);
        assertEquals(List.of(0.0, 1.0, 2.0, 3.0), stages[0].gradients);
        assertTrue(slots[0] >= slots[1] && slots[1] >= 1, slots[0] + " " + slots[1]);
    }

    @Test
    void stage() {
        Parallel.Scale[] stages = {new Parallel.Scale(), new Parallel.Scale()};
        Communicator.runLocal(2, comm -> Parallel.batch(comm, stages[comm.rank()]));
        // Of each of four micro-batches, the other stage's weight.
        assertEquals(8, stages[0].gradient);
        assertEquals(8, stages[1].gradient);
    }

    @Test
    void router() {
        // The first token goes to expert 1, the second one to expert 0.
        try (Buffer logits = floats(0, 100, 100, 0);
                Buffer tokens = floats(3, 5)) {
            assertEquals(5, Parallel.sumOfExpert(0, logits, tokens));
            assertEquals(3, Parallel.sumOfExpert(1, logits, tokens));
        }
    }

    @Test
    void experts() {
        double[][] seen = new double[2][];
        Communicator.runLocal(
                2,
                comm -> {
                    double own = 10 * (comm.rank() + 1);
                    // The first token goes to expert 1, the second one to expert 0.
                    try (Buffer logits = floats(0, 100, 100, 0);
                            Buffer tokens = floats(own, own + 1, own + 2, own + 3);
                            Buffer result = floats(0, 0, 0, 0)) {
                        Parallel.experts(comm, logits, tokens, result);
                        seen[comm.rank()] =
                                IntStream.range(0, 4).mapToDouble(result::get).toArray();
                    }
                });
        assertArrayEquals(new double[] {20, 22, 24, 26}, seen[0]);
        assertArrayEquals(new double[] {40, 42, 44, 46}, seen[1]);
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
