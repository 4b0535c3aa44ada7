package io.jccl.offload.optim;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.kernel.Chunks;
import io.jccl.testkit.AllocationRounds;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Rules that bring their own kernel, against their published formulas in float64. */
class OpenRulesTest {
    private static final Device HOST = Device.host();

    /** A rule of a user, with all methods that one has to write. */
    private record Halving() implements Optimizer {
        private static final List<StateTensor> STATE = List.of(StateTensor.float32("last"));

        @Override
        public String label() {
            return "halving";
        }

        @Override
        public List<StateTensor> state() {
            return STATE;
        }

        @Override
        public void apply(Slice s) {
            for (int i = 0; i < s.count(); i++) {
                s.setState(0, i, s.state(0, i) * 0.5f + s.gradient(i));
                s.setParameter(
                        i, s.parameter(i) - (float) s.learningRate() * s.state(0, i) * s.step());
            }
        }
    }

    static List<Optimizer> rules() {
        return List.of(Lamb.defaults(), new Adam8bit(0.9, 0.99, 1e-8, 0.1), new Halving());
    }

    private static Buffer random(Random r, DataType type, long count, double scale) {
        Buffer b = HOST.allocate(type, count);
        for (long i = 0; i < count; i++) {
            b.set(i, r.nextGaussian() * scale);
        }
        return b;
    }

    private static double[] values(Buffer b) {
        double[] x = new double[Math.toIntExact(b.count())];
        for (int i = 0; i < x.length; i++) {
            x[i] = b.get(i);
        }
        return x;
    }

    private static byte[] bytes(Buffer b) {
        return b.asSegment().toArray(ValueLayout.JAVA_BYTE);
    }

    @Test
    void lambFollowsItsPaper() {
        int n = 700;
        Lamb o = new Lamb(0.8, 0.95, 1e-6, 0.1);
        Random random = new Random(5);
        try (OptimizerState s = OptimizerState.allocate(o, HOST, n)) {
            for (int i = 0; i < n; i++) {
                s.parameters().set(i, random.nextGaussian());
            }
            double[] p = values(s.parameters());
            double[] m = new double[n];
            double[] v = new double[n];
            for (int t = 1; t <= 20; t++) {
                try (Buffer g = random(random, DataType.FLOAT32, n, 64)) {
                    o.step(s, 0, g, null, t, 0.01, 1.0 / 64);
                    double[] r = new double[n];
                    double of = 0;
                    double to = 0;
                    for (int i = 0; i < n; i++) {
                        double x = g.get(i) / 64;
                        m[i] = 0.8 * m[i] + 0.2 * x;
                        v[i] = 0.95 * v[i] + 0.05 * x * x;
                        double mean = m[i] / (1 - Math.pow(0.8, t));
                        double square = v[i] / (1 - Math.pow(0.95, t));
                        r[i] = mean / (Math.sqrt(square) + 1e-6) + 0.1 * p[i];
                        of += p[i] * p[i];
                        to += r[i] * r[i];
                    }
                    for (int i = 0; i < n; i++) {
                        p[i] -= 0.01 * Math.sqrt(of / to) * r[i];
                    }
                }
            }
            for (int i = 0; i < n; i++) {
                assertEquals(p[i], s.parameters().get(i), 5e-6, "parameter " + i);
                assertEquals(m[i], s.moment(0).get(i), 2e-6, "mean " + i);
                assertEquals(v[i], s.moment(1).get(i), 2e-6, "square " + i);
            }
        }
    }

    /** A tensor of zeros has no norm to keep: the quotient is 1, as in the paper's code. */
    @Test
    void lambMovesATensorOfZerosLikeAdam() {
        Lamb o = new Lamb(0.5, 0.75, 0.5, 0);
        try (OptimizerState s = OptimizerState.allocate(o, HOST, 1);
                Buffer g = HOST.allocate(DataType.FLOAT32, 1)) {
            g.set(0, 2);
            o.step(s, 0, g, null, 1, 0.25, 1);
            // m = 1 and v = 1: 2 / (2 + 0.5)
            assertEquals(-0.25f * (2 / 2.5f), (float) s.parameters().get(0));
        }
    }

    /**
     * The data type of bitsandbytes, {@code create_dynamic_map(signed)}: values at some indices as
     * its formula gives them with torch 2.13 in float32 (torch.linspace(0.1, 1, n), middles of
     * neighbours, times powers of ten, sorted).
     */
    @Test
    void codesAreThoseOfBitsandbytes() {
        int[] at = {0, 1, 63, 64, 100, 126, 127, 128, 129, 191, 192, 254, 255};
        double[] signed = {
            -0.992968738,
            -0.978906274,
            -0.107031256,
            -0.0985937491,
            -0.00746874977,
            -5.50000038e-07,
            0,
            5.50000038e-07,
            3.25000019e-06,
            0.107031256,
            0.12109375,
            0.992968738,
            1
        };
        double[] unsigned = {
            0,
            3.2500003e-07,
            0.010703126,
            0.0121093756,
            0.0627343804,
            0.0992968753,
            0.103515625,
            0.110546872,
            0.117578126,
            0.553515673,
            0.560546875,
            0.996484399,
            1
        };
        for (int i = 0; i < at.length; i++) {
            double s = Quantized.SIGNED.value(at[i]);
            double u = Quantized.UNSIGNED.value(at[i]);
            assertEquals(signed[i], s, 3e-7 * Math.abs(s), "signed " + at[i]);
            assertEquals(unsigned[i], u, 3e-7 * Math.abs(u), "unsigned " + at[i]);
        }
        for (int c = 0; c < 256; c++) {
            assertEquals(c, Quantized.SIGNED.code(Quantized.SIGNED.value(c)));
            assertEquals(c, Quantized.UNSIGNED.code(Quantized.UNSIGNED.value(c)));
        }
    }

    /** The 256 values of the paper, by lists and sorting as bitsandbytes makes them. */
    private static List<Double> map(boolean signed) {
        List<Double> all = new ArrayList<>();
        for (int e = 0; e < 7; e++) {
            int n = (int) Math.pow(2, signed ? e : e + 1);
            for (int i = 0; i < n; i++) {
                double low = 0.1 + 0.9 * i / n;
                double high = 0.1 + 0.9 * (i + 1) / n;
                all.add(Math.pow(10, e - 6) * (low + high) / 2);
                if (signed) {
                    all.add(-Math.pow(10, e - 6) * (low + high) / 2);
                }
            }
        }
        all.add(0.0);
        all.add(1.0);
        Collections.sort(all);
        return all;
    }

    /** Rounds each block to its scale times the nearest value; the sign stays, and no 0 is new. */
    private static void round(double[] x, List<Double> map) {
        for (int from = 0; from < x.length; from += 256) {
            int end = Math.min(x.length, from + 256);
            double most = 0;
            for (int i = from; i < end; i++) {
                most = Math.max(most, Math.abs(x[i]));
            }
            for (int i = from; i < end && most > 0; i++) {
                double best = Double.NaN;
                for (double y : map) {
                    boolean side = x[i] == 0 || y * x[i] > 0;
                    if (side && !(Math.abs(y - x[i] / most) >= Math.abs(best - x[i] / most))) {
                        best = y;
                    }
                }
                x[i] = best * most;
            }
        }
    }

    @Test
    void adam8bitFollowsItsPaper() {
        int n = 600; // two blocks and a part of one
        Adam8bit o = new Adam8bit(0.9, 0.99, 1e-8, 0.1);
        Random random = new Random(11);
        List<Double> signed = map(true);
        List<Double> unsigned = map(false);
        try (OptimizerState s = OptimizerState.allocate(o, HOST, n);
                Buffer values = HOST.allocate(DataType.FLOAT32, n)) {
            for (int i = 0; i < n; i++) {
                s.parameters().set(i, random.nextGaussian());
            }
            double[] p = values(s.parameters());
            double[] m = new double[n];
            double[] v = new double[n];
            for (int t = 1; t <= 10; t++) {
                try (Buffer g = random(random, DataType.FLOAT32, n, i(t))) {
                    o.step(s, 0, g, null, t, 0.01, 1);
                    for (int i = 0; i < n; i++) {
                        double x = g.get(i);
                        m[i] = 0.9 * m[i] + 0.1 * x;
                        v[i] = 0.99 * v[i] + 0.01 * x * x;
                        double d = Math.sqrt(v[i] / (1 - Math.pow(0.99, t))) + 1e-8;
                        p[i] = p[i] * (1 - 0.01 * 0.1) - 0.01 * m[i] / (1 - Math.pow(0.9, t)) / d;
                    }
                }
                // A value half-way between two may go to either: the reference follows.
                round(m, signed);
                round(v, unsigned);
                near(m, decoded(s, 0, values), "mean, step " + t);
                near(v, decoded(s, 1, values), "square, step " + t);
            }
            for (int i = 0; i < n; i++) {
                assertEquals(p[i], s.parameters().get(i), 2e-5, "parameter " + i);
            }
        }
    }

    private static double i(int t) {
        return t % 3 == 0 ? 10 : 0.1;
    }

    private static double[] decoded(OptimizerState s, int k, Buffer values) {
        s.tensor(k).decode(s.moment(k), values);
        return values(values);
    }

    /**
     * Equal to float32's rounding, except for at most one value in two hundred that lay between.
     */
    private static void near(double[] expected, double[] got, String what) {
        int apart = 0;
        for (int i = 0; i < got.length; i++) {
            if (Math.abs(expected[i] - got[i]) > 1e-5 * Math.abs(expected[i])) {
                apart++;
            }
            expected[i] = got[i];
        }
        assertTrue(apart <= got.length / 200, what + ": " + apart + " of " + got.length);
    }

    /**
     * Gradients much smaller than the largest of their block, then none, as of a rare token's row.
     */
    @Test
    void adam8bitTakesNoLongStepsAfterSmallGradients() {
        int n = 256;
        try (OptimizerState s = OptimizerState.allocate(Adam8bit.defaults(), HOST, n);
                Buffer g = HOST.allocate(DataType.FLOAT32, n)) {
            s.parameters().zero();
            for (int t = 1; t <= 20; t++) {
                double[] before = values(s.parameters());
                for (int i = 0; i < n; i++) {
                    g.set(i, i == 0 ? 1 : t % 4 == 1 ? Math.pow(10, -i / 16.0) : 0);
                }
                Adam8bit.defaults().step(s, 0, g, null, t, 0.001, 1);
                for (int i = 0; i < n; i++) {
                    double step = Math.abs(s.parameters().get(i) - before[i]) / 0.001;
                    assertTrue(step < 3, "step " + t + " of element " + i + ": " + step);
                }
            }
        }
    }

    /** What has been rounded is rounded to itself, so files that are read give the same state. */
    @Test
    void quantizedValuesStayWhatTheyAre() {
        StateTensor square = new StateTensor("v", StateTensor.Layout.UNSIGNED_8BIT);
        try (Buffer x = random(new Random(3), DataType.FLOAT32, 777, 1);
                Buffer q = HOST.allocate(square.type(), square.count(777));
                Buffer again = HOST.allocate(square.type(), square.count(777))) {
            q.zero();
            again.zero();
            for (int i = 0; i < 777; i++) {
                x.set(i, Math.abs(x.get(i)));
            }
            square.encode(x, q);
            square.decode(q, x);
            square.encode(x, again);
            assertArrayEquals(bytes(q), bytes(again));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("rules")
    void anyNumberOfThreadsGivesTheSameBits(Optimizer o) {
        int n = 3 * Chunks.CHUNK + 1234;
        Random r = new Random(9);
        try (OptimizerState one = OptimizerState.allocate(o, HOST, n);
                OptimizerState two = OptimizerState.allocate(o, HOST, n);
                Buffer g = random(r, DataType.BFLOAT16, n, 1);
                Buffer x = HOST.allocate(DataType.BFLOAT16, n);
                Buffer y = HOST.allocate(DataType.BFLOAT16, n);
                Workers workers = Workers.of(3)) {
            for (int i = 0; i < n; i++) {
                one.parameters().set(i, r.nextGaussian());
            }
            two.parameters().copyFrom(one.parameters().asSegment());
            for (int t = 1; t <= 2; t++) {
                o.step(one, 0, g, x, t, 0.01, 1);
                o.step(workers, two, 0, g, y, t, 0.01, 1);
            }
            assertArrayEquals(bytes(one.parameters()), bytes(two.parameters()));
            assertArrayEquals(bytes(x), bytes(y));
            for (int k = 0; k < o.moments(); k++) {
                assertArrayEquals(bytes(one.moment(k)), bytes(two.moment(k)), "moment " + k);
            }
            for (int i = 0; i < n; i += 1000) {
                assertEquals(x.get(i), one.parameters().get(i), 0.02 * Math.abs(x.get(i)) + 1e-30);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("rules")
    void stepsAllocateNothing(Optimizer o) {
        try (OptimizerState s = OptimizerState.allocate(o, HOST, 300);
                Buffer g = random(new Random(1), DataType.FLOAT32, 300, 1)) {
            AllocationRounds rounds = new AllocationRounds(1, 16);
            int[] step = new int[1];
            rounds.repeat(0, 500, () -> o.step(s, 0, g, null, ++step[0], 1e-3, 1));
            rounds.assertNone();
        }
    }

    /** Blocks can be read and written from their start, and written whole. */
    @Test
    void blocksAreNotReadOrWrittenFromTheirMiddle() {
        try (OptimizerState s = OptimizerState.allocate(Adam8bit.defaults(), HOST, 600);
                Buffer x = HOST.allocate(DataType.FLOAT32, 600);
                Buffer y = HOST.allocate(DataType.FLOAT32, 600)) {
            for (int i = 0; i < 600; i++) {
                x.set(i, i % 99);
            }
            s.encode(1, 0, x);
            s.decode(1, 0, x);
            refused("element 100", () -> s.decode(1, 100, y.slice(0, 10)));
            refused("element 100", () -> s.encode(1, 100, y.slice(0, 412)));
            refused("before element 266", () -> s.encode(1, 256, y.slice(0, 10)));
            for (long from : new long[] {-256, 512}) {
                assertThrows(
                        IndexOutOfBoundsException.class, () -> s.decode(1, from, y.slice(0, 256)));
            }
            s.encode(1, 256, x.slice(256, 344));
            s.decode(1, 256, y.slice(0, 10));
            assertArrayEquals(values(x.slice(256, 10)), values(y.slice(0, 10)));
            s.decode(1, 0, y);
            assertArrayEquals(values(x), values(y));
        }
    }

    private static void refused(String part, Runnable call) {
        String message =
                String.valueOf(assertThrows(RuntimeException.class, call::run).getMessage());
        assertTrue(message.contains(part), message);
    }

    @Test
    void whatDoesNotFitIsNamed() {
        try (OptimizerState bits = OptimizerState.allocate(Adam8bit.defaults(), HOST, 1000);
                OptimizerState floats = OptimizerState.allocate(Adam.defaults(), HOST, 1000);
                Buffer g = HOST.allocate(DataType.FLOAT32, 10)) {
            Adam8bit o = Adam8bit.defaults();
            refused("element 5", () -> o.step(bits, 5, g, null, 1, 1, 1));
            refused("before element 266", () -> o.step(bits, 256, g, null, 1, 1, 1));
            refused("Adam8bit", () -> o.step(floats, 0, g, null, 1, 1, 1));
            refused("Adam[", () -> Adam.defaults().step(bits, 0, g, null, 1, 1, 1));
            refused("lamb has no kernel for a GPU", () -> Lamb.defaults().update(1, 1));
            refused("halving has no weight decay", () -> new Halving().withWeightDecay(1));
            refused(
                    "pass is 0",
                    () -> Adam.defaults().pass(0, new double[2], 0, floats, 0, g, null, 1, 1, 1));
            refused("step is 0", () -> Lamb.defaults().step(floats, 0, g, null, 0, 1, 1));
        }
    }
}
