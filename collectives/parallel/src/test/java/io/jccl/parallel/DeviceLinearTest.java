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
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Split layers and pipelines on the fakes of CUDA, NCCL and cuBLAS. */
@UsesFakes
@Timeout(120)
class DeviceLinearTest {
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60));

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    private static List<Device> devices(int count) {
        return IntStream.range(0, count).mapToObj(TestFake::device).toList();
    }

    /** Random layers of any shape and option that devices have, against double loops. */
    @ParameterizedTest
    @ValueSource(ints = 2)
    void randomLayersEqualDoubleLoops(int ranks) {
        long seed = System.nanoTime();
        System.out.println("DeviceLinearTest seed " + seed + ", " + ranks + " ranks");
        Communicator.runLocal(devices(ranks), OPTIONS, comm -> LinearRanks.check(comm, seed, 12));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void randomLayersEqualDoubleLoopsOnMoreRanks(int ranks) {
        randomLayersEqualDoubleLoops(ranks);
    }

    /** Both schedules, with products of every layer on the device. */
    @ParameterizedTest
    @ValueSource(ints = 3)
    void pipelinesOfProductsEqualDoubleLoops(int ranks) {
        long seed = System.nanoTime();
        System.out.println("DeviceLinearTest seed " + seed + ", " + ranks + " ranks");
        for (PipelineSchedule schedule : PipelineSchedule.values()) {
            Communicator.runLocal(
                    devices(ranks), OPTIONS, comm -> PipelineRanks.check(comm, schedule, 4, seed));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void pipelinesOfProductsEqualDoubleLoopsOnMoreRanks(int ranks) {
        pipelinesOfProductsEqualDoubleLoops(ranks);
    }

    /** A product that cuBLAS refuses on one rank ends the others, and nothing is left. */
    @Test
    void errorOfAProductOnOneRankEndsAll() {
        long handles = TestFake.live("cublas");
        TestFake.inject("cublasGemmEx@1:9:error=13");
        try {
            JcclException e =
                    assertThrows(
                            JcclException.class,
                            () ->
                                    Communicator.runLocal(
                                            devices(3),
                                            OPTIONS,
                                            comm -> LinearRanks.check(comm, 5, 4)));
            assertTrue(String.valueOf(e.getMessage()).contains("cublasGemmEx failed"), e::toString);
            assertTrue(String.valueOf(e.getMessage()).contains("EXECUTION_FAILED"), e::toString);
        } finally {
            TestFake.reset();
        }
        assertEquals(handles, TestFake.live("cublas"));
    }

    /** An MLP of two layers, forward and backward, as on one rank of the host. */
    @Test
    void layersOnDevicesEqualTheHost() {
        for (boolean sequence : new boolean[] {false, true}) {
            double[] host = new double[3];
            Communicator.runLocal(
                    1,
                    OPTIONS,
                    c -> {
                        try (Matmul m = Matmul.of(c.device(), 1)) {
                            step(c, m, sequence, host);
                        }
                    });
            double[] device = new double[3];
            Communicator.runLocal(
                    devices(2),
                    OPTIONS,
                    c -> {
                        try (Matmul m = Matmul.of(c.device(), 1)) {
                            step(c, m, sequence, c.rank() == 0 ? device : new double[3]);
                        }
                    });
            for (int i = 0; i < 3; i++) {
                assertEquals(host[i], device[i], 1e-4 * Math.abs(host[i]), "sum " + i);
            }
        }
    }

    /** Sums over Y, dX and the gradient of the second bias, weighted so that places count. */
    private static void step(Communicator comm, Matmul matmul, boolean sequence, double[] sums) {
        int t = 5;
        int in = 4;
        int hidden = 7;
        Device d = comm.device();
        Stream stream = d.defaultStream();
        try (ColumnLinear one =
                        ColumnLinear.create(
                                comm,
                                matmul,
                                t,
                                in,
                                hidden,
                                ColumnLinear.Options.DEFAULT.withSequenceParallel(sequence));
                RowLinear two =
                        RowLinear.create(
                                comm,
                                matmul,
                                t,
                                hidden,
                                in,
                                RowLinear.Options.DEFAULT.withSequenceParallel(sequence))) {
            Part rows = one.tokensHere();
            Part share = one.outputsHere();
            Matrix x = part(d, t, in, rows, new Part(0, in));
            Matrix w1 = part(d, in, hidden, new Part(0, in), share);
            Matrix w2 = part(d, hidden, in, share, new Part(0, in));
            Matrix b1 = part(d, 1, hidden, new Part(0, 1), share);
            Matrix b2 = part(d, 1, in, new Part(0, 1), new Part(0, in));
            Matrix h = part(d, t, hidden, new Part(0, t), share);
            Matrix y = part(d, t, in, rows, new Part(0, in));
            Matrix dy = part(d, t, in, rows, new Part(0, in));
            Matrix dx = part(d, t, in, rows, new Part(0, in));
            Matrix dh = part(d, t, hidden, new Part(0, t), share);
            Matrix dw1 = part(d, in, hidden, new Part(0, in), share);
            Matrix dw2 = part(d, hidden, in, share, new Part(0, in));
            Matrix db1 = part(d, 1, hidden, new Part(0, 1), share);
            Matrix db2 = part(d, 1, in, new Part(0, 1), new Part(0, in));
            var first =
                    one.pass(new LinearWeights(w1, b1.buffer(), dw1, db1.buffer()), x, h, dh, dx);
            var second =
                    two.pass(new LinearWeights(w2, b2.buffer(), dw2, db2.buffer()), h, y, dy, dh);
            first.forward(stream);
            second.forward(stream);
            second.backward(false, stream);
            first.backward(false, stream);
            stream.synchronize();
            // Rank 0 holds the first rows; the whole if the sequence is not split.
            sums[0] = sum(y, 0);
            sums[1] = sum(dx, 0);
            sums[2] = sum(db2, 0);
            for (Matrix m :
                    new Matrix[] {x, w1, w2, b1, b2, h, y, dy, dx, dh, dw1, dw2, db1, db2}) {
                m.buffer().close();
            }
        }
    }

    private static double sum(Matrix m, long row) {
        double sum = 0;
        for (long j = 0; j < m.columns(); j++) {
            sum += (j + 1) * m.get(row, j);
        }
        return sum;
    }

    /** A part of a whole matrix of fixed numbers. */
    private static Matrix part(Device d, long rows, long columns, Part r, Part c) {
        Buffer b = d.allocate(DataType.FLOAT32, r.count() * c.count());
        Matrix m = Matrix.of(b, r.count(), c.count());
        for (long i = 0; i < r.count(); i++) {
            for (long j = 0; j < c.count(); j++) {
                double x = (r.from() + i) * columns + c.from() + j + rows;
                m.set(i, j, Math.sin(x));
            }
        }
        return m;
    }

    @Test
    void pipelinesOnDevices() {
        for (PipelineSchedule schedule : PipelineSchedule.values()) {
            Communicator.runLocal(
                    devices(3),
                    OPTIONS,
                    comm -> {
                        Device d = comm.device();
                        try (Buffer one = Device.host().allocate(DataType.FLOAT32, 4)) {
                            var stage = new Passing(comm.rank(), one);
                            var options =
                                    PipelineOptions.of(5, DataType.FLOAT32, 4)
                                            .withSchedule(schedule);
                            try (Pipeline p = Pipeline.create(comm, stage, options)) {
                                p.run();
                                p.run();
                                PipelineReport report = p.report();
                                assertEquals(3, report.stages().size());
                                assertTrue(report.total().toNanos() > 0, report::toString);
                            }
                            d.defaultStream().synchronize();
                        }
                    });
        }
    }

    /** Hands numbers on; the last stage sends back what came. */
    private record Passing(int rank, Buffer host) implements PipelineStage {
        @Override
        public void forward(int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
            if (in == null) {
                stream.synchronize();
                host.set(0, 100 + i);
                stream.copy(host, Objects.requireNonNull(out));
            } else if (out != null) {
                stream.copy(in, out);
            } else {
                stream.synchronize();
                assertEquals(100 + i, in.get(0));
            }
        }

        @Override
        public void backward(int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
            stream.synchronize();
            if (dy == null) {
                host.set(0, 200 + i);
                stream.copy(host, Objects.requireNonNull(dx));
            } else {
                assertEquals(200 + i, dy.get(0), "rank " + rank);
                if (dx != null) {
                    stream.copy(dy, dx);
                }
            }
        }
    }

    /** The first of two rounds may leave what a device keeps; the second leaves nothing more. */
    @Test
    void whatCannotBeCreatedLeavesNothing() {
        Map<String, Long> before = new HashMap<>();
        for (int round = 0; round < 2; round++) {
            columnsAreNotGatheredOnDevices();
            Communicator.runLocal(devices(3), OPTIONS, DeviceLinearTest::createWithoutMemory);
            for (String kind : List.of("allocations", "streams", "events")) {
                Long live = TestFake.live(kind);
                Long earlier = before.put(kind, live);
                assertEquals(earlier == null ? live : earlier, live, kind);
            }
        }
    }

    /** Allocations fail after others have not: of the vector of ones, and of rank 1's outputs. */
    private static void createWithoutMemory(Communicator comm) {
        long many = 1L << 50;
        try (Matmul matmul = Matmul.of(comm.device(), 1);
                Buffer one = Device.host().allocate(DataType.FLOAT32, 4)) {
            assertThrows(
                    RuntimeException.class,
                    () ->
                            ColumnLinear.create(
                                    comm, matmul, many, 4, 4, ColumnLinear.Options.DEFAULT));
            PipelineOptions options =
                    new PipelineOptions(
                            PipelineSchedule.GPIPE, 3, DataType.FLOAT32, 4, many, false);
            if (comm.rank() == 1) {
                assertThrows(
                        RuntimeException.class,
                        () -> Pipeline.create(comm, new Passing(1, one), options));
            }
        }
    }

    @Test
    void columnsAreNotGatheredOnDevices() {
        Communicator.runLocal(
                devices(2),
                OPTIONS,
                comm -> {
                    try (Matmul matmul = Matmul.of(comm.device(), 1)) {
                        var gather = ColumnLinear.Options.DEFAULT.withGatherOutput(true);
                        Exception e =
                                assertThrows(
                                        IllegalArgumentException.class,
                                        () -> ColumnLinear.create(comm, matmul, 2, 2, 2, gather));
                        assertTrue(String.valueOf(e.getMessage()).contains("RowLinear"));
                        var whole = RowLinear.Options.DEFAULT.withInputIsParallel(false);
                        assertThrows(
                                IllegalArgumentException.class,
                                () -> RowLinear.create(comm, matmul, 2, 2, 2, whole));
                    }
                });
    }
}
