package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Split linear layers. */
@Timeout(180)
class LinearTest {
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));

    @ParameterizedTest
    @ValueSource(ints = 3)
    void equalsDoubleLoops(int ranks) {
        long seed = System.nanoTime();
        System.out.println("LinearTest seed " + seed + ", " + ranks + " ranks");
        Communicator.runLocal(ranks, OPTIONS, comm -> LinearRanks.check(comm, seed, 40));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void equalsDoubleLoopsOnMoreRanks(int ranks) {
        equalsDoubleLoops(ranks);
    }

    /** Outputs that are split have the bits that one rank computes. */
    @Test
    void columnsHaveTheBitsOfOneRank() {
        float[] whole = new float[60 * 70];
        float[] parts = new float[60 * 70];
        Communicator.runLocal(1, OPTIONS, comm -> forward(comm, whole));
        Communicator.runLocal(3, OPTIONS, comm -> forward(comm, parts));
        for (int i = 0; i < whole.length; i++) {
            assertEquals(whole[i], parts[i]);
        }
    }

    private static void forward(Communicator comm, float[] result) {
        Device device = comm.device();
        var options = ColumnLinear.Options.DEFAULT.withGatherOutput(true);
        try (Matmul matmul = Matmul.of(device, 1);
                ColumnLinear linear = ColumnLinear.create(comm, matmul, 60, 300, 70, options);
                Buffer x = random(device, 60 * 300, 1);
                Buffer w = random(device, 300 * 70, 2);
                Buffer y = device.allocate(DataType.FLOAT32, 60 * 70)) {
            Part out = linear.outputsHere();
            Matrix weight = Matrix.of(w, 300, 70).columns(out.from(), out.count());
            linear.pass(
                            new LinearWeights(weight, null, null, null),
                            Matrix.of(x, 60, 300),
                            Matrix.of(y, 60, 70),
                            null,
                            null)
                    .forward(device.defaultStream());
            if (comm.rank() == comm.size() - 1) {
                y.copyTo(result);
            }
        }
    }

    private static Buffer random(Device device, long count, long seed) {
        Random random = new Random(seed);
        Buffer b = device.allocate(DataType.FLOAT32, count);
        for (long i = 0; i < count; i++) {
            b.set(i, random.nextDouble() - 0.5);
        }
        return b;
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void stepsAllocateNothing(boolean sequence) {
        AllocationRounds rounds = new AllocationRounds(2);
        Communicator.runLocal(
                2,
                OPTIONS,
                comm -> {
                    Device d = comm.device();
                    int t = 16;
                    int share = sequence ? t / 2 : t;
                    var co = ColumnLinear.Options.DEFAULT.withSequenceParallel(sequence);
                    var ro = RowLinear.Options.DEFAULT.withSequenceParallel(sequence);
                    Stream stream = d.defaultStream();
                    try (Matmul matmul = Matmul.of(d, 1);
                            ColumnLinear first = ColumnLinear.create(comm, matmul, t, 24, 40, co);
                            RowLinear second = RowLinear.create(comm, matmul, t, 40, 24, ro);
                            Buffer x = random(d, (long) share * 24, 1);
                            Buffer dx = random(d, (long) share * 24, 1);
                            Buffer y = random(d, (long) share * 24, 1);
                            Buffer dy = random(d, (long) share * 24, 1);
                            Buffer h = random(d, (long) t * 20, 1);
                            Buffer dh = random(d, (long) t * 20, 1);
                            Buffer parameters = random(d, 24 * 20 + 20 + 20 * 24 + 24, 1);
                            Buffer gradients = random(d, parameters.count(), 1)) {
                        LinearWeights w1 = weights(parameters, gradients, 0, 24, 20);
                        LinearWeights w2 = weights(parameters, gradients, 24 * 20 + 20, 20, 24);
                        ColumnLinear.Pass one =
                                first.pass(
                                        w1,
                                        Matrix.of(x, share, 24),
                                        Matrix.of(h, t, 20),
                                        Matrix.of(dh, t, 20),
                                        Matrix.of(dx, share, 24));
                        RowLinear.Pass two =
                                second.pass(
                                        w2,
                                        Matrix.of(h, t, 20),
                                        Matrix.of(y, share, 24),
                                        Matrix.of(dy, share, 24),
                                        Matrix.of(dh, t, 20));
                        rounds.repeat(
                                comm.rank(),
                                100,
                                () -> {
                                    one.forward(stream);
                                    two.forward(stream);
                                    two.backward(true, stream);
                                    one.backward(true, stream);
                                });
                    }
                });
        rounds.assertNone();
    }

    private static LinearWeights weights(
            Buffer parameters, Buffer gradients, long at, long in, long out) {
        return new LinearWeights(
                Matrix.of(parameters, at, in, out, out),
                parameters.slice(at + in * out, out),
                Matrix.of(gradients, at, in, out, out),
                gradients.slice(at + in * out, out));
    }

    @Test
    void faultyShapesAreNamed() {
        Communicator.runLocal(
                2,
                OPTIONS,
                comm -> {
                    Device d = comm.device();
                    try (Matmul matmul = Matmul.of(d, 1);
                            ColumnLinear linear =
                                    ColumnLinear.create(
                                            comm, matmul, 4, 6, 8, ColumnLinear.Options.DEFAULT);
                            Buffer b = d.allocate(DataType.FLOAT32, 48)) {
                        Matrix m = Matrix.of(b, 6, 8);
                        LinearWeights wrong = new LinearWeights(m, null, null, null);
                        String message =
                                String.valueOf(
                                        assertThrows(
                                                        IllegalArgumentException.class,
                                                        () -> linear.pass(wrong, m, m, null, null))
                                                .getMessage());
                        assertTrue(message.contains("expected 6 x 4"), message);
                        assertThrows(
                                IllegalArgumentException.class,
                                () -> new LinearWeights(m, b, null, null));
                        assertThrows(
                                IllegalArgumentException.class,
                                () ->
                                        ColumnLinear.create(
                                                comm,
                                                matmul,
                                                0,
                                                1,
                                                1,
                                                ColumnLinear.Options.DEFAULT));
                    }
                });
    }

    /** A product that fails beside a collective fails the pass, and no rank hangs. */
    @Test
    void errorOfAProductBesideComesOut() {
        JcclException e =
                assertThrows(
                        JcclException.class,
                        () -> Communicator.runLocal(2, OPTIONS, LinearTest::failBeside));
        assertTrue(String.valueOf(e.getMessage()).contains("closed"), e::toString);
    }

    private static void failBeside(Communicator comm) {
        Device d = comm.device();
        try (Matmul matmul = Matmul.of(d, 1);
                Stream stream = d.newStream();
                ColumnLinear linear =
                        ColumnLinear.create(comm, matmul, 4, 6, 8, ColumnLinear.Options.DEFAULT);
                Buffer all = d.allocate(DataType.FLOAT32, 1000)) {
            Matrix w = Matrix.of(all, 0, 6, 4, 4);
            Buffer gradient = d.allocate(DataType.FLOAT32, 24);
            ColumnLinear.Pass pass =
                    linear.pass(
                            new LinearWeights(w, null, Matrix.of(gradient, 6, 4), null),
                            Matrix.of(all, 100, 4, 6, 6),
                            Matrix.of(all, 200, 4, 4, 4),
                            Matrix.of(all, 300, 4, 4, 4),
                            Matrix.of(all, 400, 4, 6, 6));
            pass.backward(false, stream);
            stream.synchronize(Duration.ofSeconds(60));
            // Enqueued behind a pause, so that the memory is gone when the product runs.
            Object gate = new Object();
            boolean[] open = {false};
            stream.launchHostFunction(() -> await(gate, open));
            pass.backward(false, stream);
            gradient.close();
            synchronized (gate) {
                open[0] = true;
                gate.notifyAll();
            }
            stream.synchronize(Duration.ofSeconds(60));
        }
    }

    private static void await(Object gate, boolean[] open) {
        synchronized (gate) {
            while (!open[0]) {
                try {
                    gate.wait();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
        }
    }
}
