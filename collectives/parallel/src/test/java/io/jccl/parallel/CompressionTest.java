package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.GradientReducer.Parameter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Gradients that travel in another form than they have. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class CompressionTest {
    private static final ReducerOptions OPTIONS = ReducerOptions.DEFAULT.withBuckets(3000, 9000);

    private final long seed = Long.getLong("jccl.seed", System.nanoTime());

    private static void step(GradientReducer r, Parameters values) {
        r.begin(true);
        for (int p = values.count() - 1; p >= 0; p--) {
            values.write(p, r.gradient(p));
            r.ready(p);
        }
        r.finish();
    }

    private interface Writer {
        float at(int parameter, long element);
    }

    private record Parameters(int count, Writer writer) {
        void write(int p, Buffer gradient) {
            for (long i = 0; i < gradient.count(); i++) {
                gradient.set(i, writer.at(p, i));
            }
        }
    }

    private static List<Parameter> random(Random random) {
        return ParallelBodies.parameters(random, DataType.FLOAT32);
    }

    private void seeded(String what, int ranks) {
        System.out.println(
                "CompressionTest." + what + ": " + ranks + " ranks, -Djccl.seed=" + seed);
    }

    /** Rounded, added in float32 in the order of ranks, divided, rounded: bit for bit. */
    @ParameterizedTest
    @EnumSource(names = {"BFLOAT16", "FLOAT16"})
    void castRoundsOnceEachWay(DataType type) {
        seeded("cast", 3);
        int ranks = 3;
        List<Parameter> parameters = random(new Random(seed));
        Communicator.runLocal(
                ranks,
                c -> {
                    ReducerOptions options = OPTIONS.withCompression(new Compression.Cast(type));
                    float[][][] all = new float[ranks][parameters.size()][];
                    for (int rank = 0; rank < ranks; rank++) {
                        Random random = new Random(seed + rank);
                        for (int p = 0; p < parameters.size(); p++) {
                            all[rank][p] = new float[(int) parameters.get(p).count()];
                            for (int i = 0; i < all[rank][p].length; i++) {
                                all[rank][p][i] = (float) (random.nextGaussian() * 1e-2);
                            }
                        }
                    }
                    // Large ones must not overflow in the sum, only by themselves.
                    for (int rank = 0; rank < ranks; rank++) {
                        all[rank][0][0] = 60000;
                    }
                    try (GradientReducer r = GradientReducer.create(c, parameters, options);
                            Buffer narrow = Device.host().allocate(type, 1)) {
                        step(r, of(all[c.rank()]));
                        for (int p = 0; p < parameters.size(); p++) {
                            for (int i = 0; i < all[0][p].length; i++) {
                                float sum = 0;
                                for (float[][] ofRank : all) {
                                    narrow.set(0, ofRank[p][i]);
                                    sum += (float) narrow.get(0);
                                }
                                narrow.set(0, sum / ranks);
                                assertEquals(narrow.get(0), r.gradient(p).get(i));
                            }
                        }
                        assertTrue(r.gradient(0).get(0) < 61000);
                        long half = parameters.stream().mapToLong(x -> 2 * x.count()).sum();
                        assertTrue(r.wireBytes() >= half && r.wireBytes() < half + 64L * 12);
                    }
                });
    }

    private static Parameters of(float[][] values) {
        return new Parameters(values.length, (p, i) -> values[p][(int) i]);
    }

    /** What a plain implementation in double arrays makes of the same gradients. */
    @ParameterizedTest
    @ValueSource(ints = 3)
    void topKIsTheDefinition(int ranks) {
        seeded("topK", ranks);
        int count = 500 + new Random(seed).nextInt(500);
        double density = 0.05;
        int k = (int) Math.ceil(density * count);
        int steps = 6;
        // Few values that differ, so that there are ties, in all ranks' and all steps' gradients.
        float[][][] gradients = new float[ranks][steps][count];
        Random random = new Random(seed);
        for (float[][] ofRank : gradients) {
            for (float[] g : ofRank) {
                for (int i = 0; i < count; i++) {
                    g[i] = random.nextInt(41) - 20;
                }
            }
        }
        float[][] residual = new float[ranks][count];
        float[][] expected = new float[steps][count];
        for (int s = 0; s < steps; s++) {
            for (int r = 0; r < ranks; r++) {
                float[] sum = residual[r];
                for (int i = 0; i < count; i++) {
                    sum[i] += gradients[r][s][i];
                }
                List<Integer> largest =
                        IntStream.range(0, count)
                                .boxed()
                                .sorted(
                                        Comparator.<Integer>comparingDouble(i -> -Math.abs(sum[i]))
                                                .thenComparing(i -> i))
                                .limit(k)
                                .toList();
                for (int i : largest) {
                    expected[s][i] += sum[i];
                    sum[i] = 0;
                }
            }
            for (int i = 0; i < count; i++) {
                expected[s][i] /= ranks;
            }
        }
        List<Parameter> parameters = List.of(new Parameter("w", count, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.TopK(density));
        Communicator.runLocal(
                ranks,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int s = 0; s < steps; s++) {
                            float[] mine = gradients[c.rank()][s];
                            step(r, new Parameters(1, (p, i) -> mine[(int) i]));
                            float[] got = new float[count];
                            r.gradient(0).copyTo(got);
                            assertEquals(-1, Arrays.mismatch(expected[s], got), "step " + s);
                        }
                        assertEquals(8L * k, r.wireBytes());
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void topKIsTheDefinitionOnMoreRanks(int ranks) {
        topKIsTheDefinition(ranks);
    }

    /** Error feedback: what is not sent is sent later, exactly, since the values are integers. */
    @ParameterizedTest
    @ValueSource(ints = 2)
    void topKLosesNothing(int ranks) {
        seeded("nothing lost", ranks);
        List<Parameter> parameters = random(new Random(seed));
        ReducerOptions options = OPTIONS.withCompression(new Compression.TopK(0.1));
        Communicator.runLocal(
                ranks,
                c -> {
                    double[][] sums = zeros(parameters);
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int s = 0; s < 20; s++) {
                            int at = s;
                            step(
                                    r,
                                    new Parameters(
                                            parameters.size(),
                                            (p, i) ->
                                                    at >= 8
                                                            ? 0
                                                            : ParallelBodies.value(
                                                                    seed, c.rank(), at, p, i)));
                            add(sums, r);
                        }
                    }
                    for (int p = 0; p < sums.length; p++) {
                        for (int i = 0; i < sums[p].length; i++) {
                            double total = 0;
                            for (int rank = 0; rank < ranks; rank++) {
                                for (int s = 0; s < 8; s++) {
                                    total += ParallelBodies.value(seed, rank, s, p, i);
                                }
                            }
                            assertEquals(total / ranks, sums[p][i], p + "[" + i + "]");
                        }
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 4})
    void topKLosesNothingOnMoreRanks(int ranks) {
        topKLosesNothing(ranks);
    }

    /** Ten gradients of one element, 64 bytes apart: half of them are five. */
    @Test
    void topKDoesNotCountPadding() {
        List<Parameter> parameters = new ArrayList<>();
        for (int p = 0; p < 10; p++) {
            parameters.add(new Parameter("p" + p, 1, DataType.FLOAT32));
        }
        ReducerOptions options = ReducerOptions.DEFAULT.withCompression(new Compression.TopK(0.5));
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        assertEquals(5 * 8, r.wireBytes());
                        for (int s = 0; s < 2; s++) {
                            // The largest first: those of the second step were left by the first.
                            boolean again = s == 1;
                            step(r, new Parameters(10, (p, i) -> again ? 0 : p + 1));
                            for (int p = 0; p < 10; p++) {
                                double sent = again == p < 5 ? p + 1 : 0;
                                assertEquals(sent, r.gradient(p).get(0), "step " + s + ", " + p);
                            }
                        }
                    }
                });
    }

    private static double[][] zeros(List<Parameter> parameters) {
        return parameters.stream().map(p -> new double[(int) p.count()]).toArray(double[][]::new);
    }

    private static void add(double[][] sums, GradientReducer r) {
        for (int p = 0; p < sums.length; p++) {
            for (int i = 0; i < sums[p].length; i++) {
                sums[p][i] += r.gradient(p).get(i);
            }
        }
    }

    /**
     * What is carried is all that a step needs of the earlier ones: another reducer goes on, and
     * one in which it is zero starts again.
     */
    @Test
    void carriedBuffersContinueInAnotherReducer() {
        seeded("carried", 2);
        List<Parameter> parameters = new ArrayList<>(random(new Random(seed)));
        // PowerSGD carries nothing for vectors, which all the random ones may be.
        parameters.add(new Parameter("matrix", 20, 30, DataType.FLOAT32));
        List<Compression> forms = List.of(new Compression.TopK(0.1), new Compression.PowerSgd(1));
        Communicator.runLocal(
                2,
                c -> {
                    for (Compression form : forms) {
                        ReducerOptions options = OPTIONS.withCompression(form);
                        try (GradientReducer one = GradientReducer.create(c, parameters, options);
                                GradientReducer two =
                                        GradientReducer.create(c, parameters, options);
                                GradientReducer none =
                                        GradientReducer.create(c, parameters, options)) {
                            for (int s = 0; s < 3; s++) {
                                step(one, ofStep(c, s, parameters.size()));
                            }
                            for (int i = 0; i < one.carried().size(); i++) {
                                two.carried().get(i).copyFrom(one.carried().get(i).asSegment());
                            }
                            boolean differs = false;
                            for (int s = 3; s < 6; s++) {
                                step(one, ofStep(c, s, parameters.size()));
                                step(two, ofStep(c, s, parameters.size()));
                                step(none, ofStep(c, s, parameters.size()));
                                for (int p = 0; p < parameters.size(); p++) {
                                    MemorySegment g = one.gradient(p).asSegment();
                                    assertEquals(-1, g.mismatch(two.gradient(p).asSegment()));
                                    differs |= g.mismatch(none.gradient(p).asSegment()) >= 0;
                                }
                            }
                            assertTrue(differs, form + " carries nothing that matters");
                            // As a trainer does whose checkpoint has none of it.
                            two.carried().forEach(Buffer::zero);
                            try (GradientReducer fresh =
                                    GradientReducer.create(c, parameters, options)) {
                                for (int s = 6; s < 8; s++) {
                                    step(two, ofStep(c, s, parameters.size()));
                                    step(fresh, ofStep(c, s, parameters.size()));
                                    for (int p = 0; p < parameters.size(); p++) {
                                        MemorySegment g = two.gradient(p).asSegment();
                                        assertEquals(-1, g.mismatch(fresh.gradient(p).asSegment()));
                                    }
                                }
                            }
                        }
                    }
                    try (GradientReducer r = GradientReducer.create(c, parameters, OPTIONS)) {
                        assertEquals(List.of(), r.carried());
                    }
                });
    }

    private Parameters ofStep(Communicator c, int step, int count) {
        return new Parameters(
                count, (p, i) -> ParallelBodies.value(seed, c.rank(), step, p, i) * (1 + i % 7));
    }

    @Test
    void nanIsSent() {
        List<Parameter> parameters = List.of(new Parameter("w", 50, 40, DataType.FLOAT32));
        List<Compression> forms = List.of(new Compression.TopK(0.01), new Compression.PowerSgd(2));
        Communicator.runLocal(
                2,
                c -> {
                    for (Compression form : forms) {
                        ReducerOptions options = OPTIONS.withCompression(form);
                        try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                            step(
                                    r,
                                    new Parameters(
                                            1, (p, i) -> i == 7 && c.rank() == 1 ? Float.NaN : 1));
                            assertTrue(Double.isNaN(r.gradient(0).get(7)), form.toString());
                        }
                    }
                });
    }

    /** A mean of rank r is found in one step, if each rank's share of it is found. */
    @ParameterizedTest
    @ValueSource(ints = 3)
    void powerSgdIsExactForMatricesOfItsRank(int ranks) {
        seeded("powerSgd", ranks);
        Random random = new Random(seed);
        int rows = 20 + random.nextInt(100);
        int columns = 20 + random.nextInt(100);
        float[][] u = new float[2][rows];
        float[][] v = new float[2][columns];
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < rows; i++) {
                u[k][i] = (float) random.nextGaussian();
            }
            for (int i = 0; i < columns; i++) {
                v[k][i] = (float) random.nextGaussian();
            }
        }
        List<Parameter> parameters =
                List.of(
                        new Parameter("bias", 30, DataType.FLOAT32),
                        new Parameter("w", rows, columns, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(2, seed));
        Communicator.runLocal(
                ranks,
                c -> {
                    // The ranks' factors differ; their mean is ((n + 1) / 2, 1) of the vectors.
                    Parameters values =
                            new Parameters(
                                    2,
                                    (p, i) -> {
                                        int y = (int) (i / columns);
                                        int x = (int) (i % columns);
                                        return p == 0
                                                ? i + c.rank()
                                                : (1 + c.rank()) * u[0][y] * v[0][x]
                                                        + u[1][y] * v[1][x];
                                    });
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int s = 0; s < 3; s++) {
                            step(r, values);
                            double mean = (ranks + 1) / 2.0;
                            // Random factors at the start may be almost parallel, which magnifies
                            // roundings: one of 1400 starts is off by more than 2e-3. What a step
                            // does not remove it feeds back; the third one starts from the result.
                            double within = s < 2 ? 0.2 : 1e-4;
                            for (long i = 0; i < (long) rows * columns; i++) {
                                int y = (int) (i / columns);
                                int x = (int) (i % columns);
                                double exact = mean * u[0][y] * v[0][x] + u[1][y] * v[1][x];
                                assertEquals(exact, r.gradient(1).get(i), within, "step " + s);
                            }
                            for (int i = 0; i < 30; i++) {
                                assertEquals((float) (i + (ranks - 1) / 2.0), r.gradient(0).get(i));
                            }
                        }
                        assertEquals(4L * (2 * (rows + columns) + 30), r.wireBytes());
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 4})
    void powerSgdIsExactOnMoreRanks(int ranks) {
        powerSgdIsExactForMatricesOfItsRank(ranks);
    }

    /**
     * Error feedback: of a constant gradient, the mean of the results comes close, however low the
     * rank. What is missing is one error, which is bounded, divided by the number of steps.
     */
    @ParameterizedTest
    @ValueSource(ints = 2)
    void powerSgdMakesUpForWhatItLost(int ranks) {
        seeded("feedback", ranks);
        List<Parameter> parameters = List.of(new Parameter("w", 24, 16, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(1, seed));
        Communicator.runLocal(
                ranks,
                c -> {
                    double[][] sums = zeros(parameters);
                    double firstError = 0;
                    double lastError = 0;
                    int steps = 400;
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int s = 1; s <= steps; s++) {
                            step(
                                    r,
                                    new Parameters(
                                            1,
                                            (p, i) ->
                                                    ParallelBodies.value(seed, c.rank(), 0, p, i)));
                            add(sums, r);
                            if (s == 1 || s == steps) {
                                double square = 0;
                                for (int i = 0; i < sums[0].length; i++) {
                                    double mean = 0;
                                    for (int k = 0; k < ranks; k++) {
                                        mean += ParallelBodies.value(seed, k, 0, 0, i);
                                    }
                                    double d = sums[0][i] / s - mean / ranks;
                                    square += d * d;
                                }
                                firstError = s == 1 ? Math.sqrt(square) : firstError;
                                lastError = Math.sqrt(square);
                            }
                        }
                    }
                    assertTrue(
                            lastError < firstError / 10,
                            "error "
                                    + firstError
                                    + " after one step, "
                                    + lastError
                                    + " in the end");
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 4})
    void powerSgdMakesUpForWhatItLostOnMoreRanks(int ranks) {
        powerSgdMakesUpForWhatItLost(ranks);
    }

    /** A gradient that vanishes for a while does not leave the factors dead. */
    @Test
    void powerSgdComesBackFromZero() {
        List<Parameter> parameters = List.of(new Parameter("w", 30, 20, DataType.FLOAT32));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(2));
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        for (int s = 0; s < 6; s++) {
                            int at = s;
                            // tiny enough that squares underflow in float32
                            float scale = s < 3 ? 0 : 1e-30f;
                            step(
                                    r,
                                    new Parameters(
                                            1, (p, i) -> scale * (1 + i / 20) * (1 + i % 20)));
                            for (long i = 0; i < 600; i++) {
                                double exact = scale * (1 + i / 20) * (1 + i % 20);
                                assertEquals(
                                        exact, r.gradient(0).get(i), 1e-4 * exact, "step " + at);
                            }
                        }
                    }
                });
    }

    /** A bucket of more matrices than a stream's queue has places: ready returns all the same. */
    @Test
    void powerSgdOfManyMatricesDoesNotWaitForOtherRanks() {
        int count = 300;
        List<Parameter> parameters =
                IntStream.range(0, count)
                        .mapToObj(p -> new Parameter("w" + p, 4, 4, DataType.FLOAT32))
                        .toList();
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(1));
        CountDownLatch ready = new CountDownLatch(1);
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        r.begin(true);
                        boolean others = c.rank() == 0 || ready.await(20, TimeUnit.SECONDS);
                        for (int p = 0; p < count; p++) {
                            r.ready(p);
                        }
                        ready.countDown();
                        r.finish();
                        assertTrue(others, "rank 0 waits in ready for rank 1");
                    }
                });
    }

    @Test
    void smallAndThinTravelAsTheyAre() {
        List<Parameter> parameters = new ArrayList<>();
        parameters.add(new Parameter("vector", 1, 100, DataType.FLOAT32));
        parameters.add(new Parameter("column", 100, 1, DataType.FLOAT32));
        parameters.add(new Parameter("small", 4, 4, DataType.FLOAT32));
        parameters.add(new Parameter("double", 50, 50, DataType.FLOAT64));
        ReducerOptions options =
                ReducerOptions.DEFAULT.withCompression(new Compression.PowerSgd(4));
        Communicator.runLocal(
                2,
                c -> {
                    try (GradientReducer r = GradientReducer.create(c, parameters, options)) {
                        step(
                                r,
                                new Parameters(
                                        4,
                                        (p, i) -> ParallelBodies.value(seed, c.rank(), 0, p, i)));
                        for (int p = 0; p < 4; p++) {
                            for (long i = 0; i < parameters.get(p).count(); i++) {
                                float a = ParallelBodies.value(seed, 0, 0, p, i);
                                float b = ParallelBodies.value(seed, 1, 0, p, i);
                                assertEquals((a + b) / 2, r.gradient(p).get(i));
                            }
                        }
                    }
                });
    }

    @Test
    void settingsAreChecked() {
        assertThrows(IllegalArgumentException.class, () -> new Compression.Cast(DataType.FLOAT32));
        assertThrows(IllegalArgumentException.class, () -> new Compression.TopK(0));
        assertThrows(IllegalArgumentException.class, () -> new Compression.TopK(1.1));
        assertThrows(IllegalArgumentException.class, () -> new Compression.TopK(Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> new Compression.PowerSgd(0));
        assertThrows(
                IllegalArgumentException.class, () -> ReducerOptions.DEFAULT.withBuckets(0, 1));
    }
}
