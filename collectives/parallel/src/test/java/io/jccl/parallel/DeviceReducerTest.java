package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.compute.Compute;
import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * A training loop around the reducer whose arithmetic is all {@link Compute}'s: accumulation over
 * passes, a loss scale, compression, and a step that the device decides about. On (fake) GPUs and
 * on the host.
 */
@UsesFakes
@Timeout(120)
class DeviceReducerTest {
    private static final int STEPS = 4;
    private static final int PASSES = 2;

    /** The step in which a gradient is infinite. */
    private static final int BAD = 1;

    private static final double SCALE = 1024;

    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT
                    .withAlgorithm(Algorithm.DIRECT)
                    .withTimeout(Duration.ofSeconds(60));

    private static final List<Parameter> PARAMETERS =
            List.of(
                    new Parameter("w", 37, 19, DataType.FLOAT32),
                    new Parameter("b", 19, DataType.FLOAT32),
                    new Parameter("odd", 1, DataType.FLOAT32),
                    new Parameter("last", 301, DataType.FLOAT32));

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    private static float[] train(List<Device> devices, Compression form) {
        CommunicatorOptions options =
                devices.getFirst().kind() == Device.Kind.CUDA
                        ? CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(60))
                        : OPTIONS;
        AtomicReferenceArray<float[]> results = new AtomicReferenceArray<>(devices.size());
        Communicator.runLocal(
                devices,
                options,
                c -> {
                    try (Rank rank = new Rank(c, form)) {
                        results.set(c.rank(), rank.train());
                    }
                });
        for (int r = 1; r < devices.size(); r++) {
            assertArrayEquals(results.get(0), results.get(r), "rank " + r);
        }
        return results.get(0);
    }

    /** One rank's model. */
    private static final class Rank implements AutoCloseable {
        private final Communicator comm;

        /** The step in which a gradient is infinite; none with PowerSGD, where that remains. */
        private final int bad;

        private final Compute compute;
        private final Stream stream;
        private final GradientReducer reducer;
        private final Buffer norm;
        private final List<Buffer> parameters = new ArrayList<>();
        private final List<Buffer> moments = new ArrayList<>();

        /** What backward gives: bfloat16, widened. */
        private final List<Buffer> gradients = new ArrayList<>();

        private final List<Buffer> wide = new ArrayList<>();

        Rank(Communicator comm, Compression form) {
            this.comm = comm;
            bad = form instanceof Compression.PowerSgd ? -1 : BAD;
            Device d = comm.device();
            compute = Compute.of(d);
            stream = d.newStream();
            // Two buckets.
            ReducerOptions options =
                    ReducerOptions.DEFAULT.withBuckets(1000, 4096).withCompression(form);
            reducer = GradientReducer.create(comm, PARAMETERS, options);
            norm = d.allocate(DataType.FLOAT64, Compute.NORM_COUNT);
            for (Parameter p : PARAMETERS) {
                parameters.add(d.allocate(DataType.FLOAT32, p.count()).zero());
                moments.add(d.allocate(DataType.FLOAT32, p.count()).zero());
                gradients.add(d.allocate(DataType.BFLOAT16, p.count()));
                wide.add(d.allocate(DataType.FLOAT32, p.count()));
            }
        }

        float[] train() {
            Update rule = new Update(Update.Rule.MOMENTUM, 0.01f, 0.9f, 1, 0, 0, 0.05f, 1, 0);
            for (int s = 0; s < STEPS; s++) {
                reducer.zero();
                for (int pass = 0; pass < PASSES; pass++) {
                    reducer.begin(pass == PASSES - 1);
                    for (int p = PARAMETERS.size() - 1; p >= 0; p--) {
                        backward(s, pass, p);
                        reducer.ready(p, stream);
                    }
                    reducer.finish();
                }
                for (int p = 0; p < PARAMETERS.size(); p++) {
                    compute.sumOfSquares(reducer.gradient(p), norm, p > 0, stream);
                }
                compute.stepControl(norm, SCALE * PASSES, 1e6, stream);
                for (int p = 0; p < PARAMETERS.size(); p++) {
                    compute.update(
                            rule,
                            parameters.get(p),
                            moments.get(p),
                            null,
                            reducer.gradient(p),
                            null,
                            1,
                            norm,
                            stream);
                }
                stream.synchronize();
                assertEquals(s == bad ? 1 : 0, norm.get(2), "step " + s + " skipped");
            }
            float[] all = new float[(int) PARAMETERS.stream().mapToLong(Parameter::count).sum()];
            int at = 0;
            for (Buffer b : parameters) {
                for (int i = 0; i < b.count(); i++) {
                    all[at++] = (float) b.get(i);
                }
            }
            return all;
        }

        /** Adds the scaled gradient of a pass to the reducer's. */
        private void backward(int step, int pass, int p) {
            Buffer narrow = gradients.get(p);
            Random data = new Random(1000L * step + 100L * pass + 10L * p + comm.rank());
            try (Buffer host = Device.host().allocate(DataType.BFLOAT16, narrow.count())) {
                for (int i = 0; i < host.count(); i++) {
                    host.set(i, data.nextGaussian());
                }
                if (step == bad && pass == 0 && p == 3 && comm.rank() == comm.size() - 1) {
                    host.set(5, Double.POSITIVE_INFINITY);
                }
                narrow.copyFrom(host.asSegment());
            }
            compute.cast(narrow, wide.get(p), stream);
            compute.axpy(SCALE, wide.get(p), reducer.gradient(p), stream);
            stream.synchronize(); // the next pass fills the same buffers
        }

        @Override
        public void close() {
            reducer.close();
            for (List<Buffer> some : List.of(parameters, moments, gradients, wide)) {
                some.forEach(Buffer::close);
            }
            norm.close();
            stream.close();
            compute.close();
        }
    }

    private static List<Device> gpus(int ranks) {
        return IntStream.range(0, ranks).mapToObj(TestFake::device).toList();
    }

    private static List<Device> hosts(int ranks) {
        return IntStream.range(0, ranks).mapToObj(i -> Device.host()).toList();
    }

    /**
     * The fake adds in rank order as the host's direct algorithm does: equal bits for two ranks.
     * With more, partial sums are rounded to the type, as NCCL's are.
     */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, BFLOAT16", "2, BFLOAT16", "2, FLOAT16", "3, BFLOAT16", "4, FLOAT16"})
    void castGivesTheParametersOfTheHost(int ranks, DataType wire) {
        Compression form = new Compression.Cast(wire);
        float[] expected = train(hosts(ranks), form);
        if (ranks == 2) {
            assertArrayEquals(expected, train(gpus(ranks), form));
        } else {
            assertArrayEquals(expected, train(gpus(ranks), form), 5e-3f);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, 0.1", "2, 0.01", "2, 1", "3, 0.1"})
    void topKGivesTheParametersOfTheHost(int ranks, double density) {
        Compression form = new Compression.TopK(density);
        assertArrayEquals(train(hosts(ranks), form), train(gpus(ranks), form));
    }

    /**
     * Products are sums in another order. Parameters are below 2; their distance is 2e-7 in these
     * cases.
     */
    @ParameterizedTest
    @CsvSource({"2, 2"})
    void powerSgdGivesTheParametersOfTheHost(int ranks, int rank) {
        Compression form = new Compression.PowerSgd(rank);
        float[] expected = train(hosts(ranks), form);
        assertArrayEquals(expected, train(gpus(ranks), form), 1e-5f);
        float[] plain = train(hosts(ranks), Compression.NONE);
        assertFalse(Arrays.equals(expected, plain), "nothing was compressed");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, 1", "3, 4"})
    void powerSgdGivesTheParametersOfTheHostInMoreCases(int ranks, int rank) {
        powerSgdGivesTheParametersOfTheHost(ranks, rank);
    }

    private static List<float[]> carried(GradientReducer r) {
        List<float[]> all = new ArrayList<>();
        for (Buffer b : r.carried()) {
            try (Buffer host = Device.host().allocate(b.dataType(), b.count())) {
                b.copyTo(host.asSegment());
                float[] values = new float[(int) b.count()];
                for (int i = 0; i < values.length; i++) {
                    values[i] = (float) host.get(i);
                }
                all.add(values);
            }
        }
        return all;
    }

    /**
     * What is carried after each of three steps, and the gradients of the last; one vanishes, and
     * is drawn.
     *
     * @param zeroed whether what is carried is set to zero first
     */
    private static List<float[]> reduce(Device device, Compression form, boolean zeroed) {
        List<float[]> result = new ArrayList<>();
        ReducerOptions options = ReducerOptions.DEFAULT.withCompression(form);
        List<Parameter> parameters =
                List.of(
                        new Parameter("w", 37, 19, DataType.FLOAT32),
                        new Parameter("zero", 16, 32, DataType.FLOAT32),
                        new Parameter("b", 19, DataType.FLOAT32));
        Communicator.runLocal(
                List.of(device),
                CommunicatorOptions.DEFAULT,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        if (zeroed) {
                            r.carried().forEach(Buffer::zero);
                        }
                        for (int s = 0; s < 3; s++) {
                            r.begin(true);
                            for (int p = 0; p < 3; p++) {
                                Random random = new Random(10L * s + p);
                                float[] values = new float[(int) r.gradient(p).count()];
                                for (int i = 0; i < values.length; i++) {
                                    values[i] = p == 1 ? 0 : (float) random.nextGaussian();
                                }
                                r.gradient(p).copyFrom(values);
                                r.ready(p);
                            }
                            r.finish();
                            result.addAll(carried(r));
                        }
                        for (int p = 0; p < 3; p++) {
                            float[] mean = new float[(int) r.gradient(p).count()];
                            r.gradient(p).copyTo(mean);
                            result.add(mean);
                        }
                    }
                });
        return result;
    }

    @ParameterizedTest
    @CsvSource({"true, 0", "false, 1e-5"})
    void carriedStateIsThatOfTheHost(boolean topK, float within) {
        Compression form = topK ? new Compression.TopK(0.1) : new Compression.PowerSgd(2, 5);
        List<float[]> host = reduce(Device.host(), form, false);
        List<float[]> gpu = reduce(TestFake.device(0), form, false);
        List<float[]> zeroed = reduce(TestFake.device(0), form, true);
        assertEquals(host.size(), gpu.size());
        for (int i = 0; i < host.size(); i++) {
            assertArrayEquals(host.get(i), gpu.get(i), within, "array " + i);
            assertArrayEquals(gpu.get(i), zeroed.get(i), "from zero, array " + i);
        }
    }

    @ParameterizedTest
    @CsvSource({"true", "false"})
    void compressionAllocatesNothingInAStep(boolean topK) {
        Compression form = topK ? new Compression.TopK(0.1) : new Compression.PowerSgd(2);
        AllocationRounds rounds = new AllocationRounds(1);
        Communicator.runLocal(
                gpus(1),
                CommunicatorOptions.DEFAULT,
                c -> {
                    ReducerOptions options = ReducerOptions.DEFAULT.withCompression(form);
                    try (GradientReducer r = GradientReducer.create(c, PARAMETERS, options)) {
                        rounds.repeat(
                                0,
                                5,
                                () -> {
                                    r.begin(true);
                                    for (int p = PARAMETERS.size() - 1; p >= 0; p--) {
                                        r.ready(p);
                                    }
                                    r.finish();
                                });
                    }
                });
        rounds.assertNone();
    }

    @Tag("exhaustive")
    @Test
    void uncompressedGivesTheParametersOfTheHost() {
        assertArrayEquals(train(hosts(2), Compression.NONE), train(gpus(2), Compression.NONE));
        // NCCL multiplies by a rounded third.
        float[] expected = train(hosts(3), Compression.NONE);
        assertArrayEquals(expected, train(gpus(3), Compression.NONE), 1e-6f);
    }

    /** What the comparison above would miss if nothing were compressed. */
    @Tag("exhaustive")
    @Test
    void castChangesBits() {
        float[] plain = train(gpus(2), Compression.NONE);
        float[] narrow = train(gpus(2), new Compression.Cast(DataType.BFLOAT16));
        int differ = 0;
        for (int i = 0; i < plain.length; i++) {
            differ += plain[i] == narrow[i] ? 0 : 1;
            assertEquals(plain[i], narrow[i], 0.01 * STEPS, "element " + i);
        }
        assertNotEquals(0, differ);
    }

    @Tag("exhaustive")
    @Test
    void allMemoryIsGivenBack() {
        for (Compression form :
                List.of(
                        new Compression.Cast(DataType.FLOAT16),
                        new Compression.TopK(0.1),
                        new Compression.PowerSgd(2))) {
            train(gpus(1), form);
            long before = TestFake.live("allocations");
            train(gpus(1), form);
            assertEquals(before, TestFake.live("allocations"), form.toString());
        }
    }
}
