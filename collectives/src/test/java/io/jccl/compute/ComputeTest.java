package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * What every implementation has to compute, element by element from plain Java: bit by bit, but for
 * the payload of a NaN. Sizes are odd, slices begin anywhere, and what lies around a slice stays.
 */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class ComputeTest {
    private static final DataType[] FLOATS = {
        DataType.FLOAT32, DataType.FLOAT64, DataType.BFLOAT16, DataType.FLOAT16
    };
    private static final DataType[] NARROW = {
        DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT16
    };
    private static final int[] SIZES = {0, 1, 3, 255, 256, 257, 4099};
    private static final int EDGE = 3;
    private static final double GUARD = -77;
    private static final double[] SPECIAL = {
        0,
        -0.0,
        1,
        Double.NaN,
        1.0 / 0,
        -1.0 / 0,
        1e-45,
        -1e-40,
        6e-8,
        3e-5,
        -6.1e-5,
        65504,
        65519,
        65520,
        1e30,
        3.4e38,
        -3.4028235677973366e38,
        1.00048828125,
        1.001953125,
        1e-300,
        1e300
    };

    /** Where it runs. */
    enum Where {
        HOST,
        HOST_THREADS,
        CUDA,
        CUDA_REVERSED;

        Compute open() {
            return switch (this) {
                case HOST -> Compute.of(Device.host());
                case HOST_THREADS -> Compute.host(3);
                default -> {
                    if (this == CUDA_REVERSED) {
                        TestFake.threadsReversed();
                    }
                    yield Compute.of(Cuda.device(1));
                }
            };
        }
    }

    private final Random random = new Random(2024);
    private final List<Buffer> open = new ArrayList<>();

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    @AfterEach
    void closeAll() {
        open.forEach(Buffer::close);
        TestFake.reset();
    }

    /** A slice of a device's buffer, with guards around it, that holds these values. */
    private Buffer of(Compute c, DataType type, double... values) {
        Buffer all = c.device().allocate(type, values.length + 2 * EDGE);
        open.add(all);
        try (Buffer host = Device.host().allocate(type, all.count())) {
            for (int i = 0; i < host.count(); i++) {
                boolean guard = i < EDGE || i >= EDGE + values.length;
                host.set(i, guard ? GUARD : values[i - EDGE]);
            }
            all.copyFrom(host.asSegment());
        }
        return all.slice(EDGE, values.length);
    }

    /** Waits, and reads a slice of {@link #of} back; its guards must be whole. */
    private double[] read(Compute c, Stream stream, Buffer slice) {
        stream.synchronize();
        int n = (int) slice.count();
        for (Buffer all : open) {
            if (all.address() + EDGE * all.dataType().size() == slice.address()
                    && all.count() == n + 2 * EDGE) {
                try (Buffer host = Device.host().allocate(all.dataType(), all.count())) {
                    all.copyTo(host.asSegment());
                    for (int i = 0; i < EDGE; i++) {
                        assertEquals(GUARD, host.get(i), c.device() + ": before the slice");
                        assertEquals(GUARD, host.get(EDGE + n + i), c.device() + ": after it");
                    }
                    double[] values = new double[n];
                    for (int i = 0; i < n; i++) {
                        values[i] = host.get(EDGE + i);
                    }
                    return values;
                }
            }
        }
        throw new AssertionError("not a slice of this test: " + slice);
    }

    /** Random values of all magnitudes, with special ones among them, as elements of a type. */
    private double[] values(DataType type, int n) {
        double[] values = new double[n];
        for (int i = 0; i < n; i++) {
            values[i] =
                    random.nextInt(4) == 0
                            ? SPECIAL[random.nextInt(SPECIAL.length)]
                            : random.nextGaussian() * Math.pow(2, random.nextInt(60) - 30);
        }
        return as(type, values);
    }

    private static double[] tame(Random random, int n) {
        double[] values = new double[n];
        for (int i = 0; i < n; i++) {
            values[i] = (float) random.nextGaussian();
        }
        return values;
    }

    /** Values rounded to a type. */
    private static double[] as(DataType type, double... values) {
        double[] rounded = new double[values.length];
        try (Buffer one = Device.host().allocate(type, 1)) {
            for (int i = 0; i < values.length; i++) {
                one.set(0, values[i]);
                rounded[i] = one.get(0);
            }
        }
        return rounded;
    }

    private void on(Where where, Consumer<Run> body) {
        try (Compute c = where.open();
                Stream stream = c.device().newStream()) {
            body.accept(new Run(c, stream));
        }
    }

    private record Run(Compute c, Stream stream) {}

    private void assertSame(double[] expected, double[] actual, String what) {
        assertEquals(expected.length, actual.length, what);
        for (int i = 0; i < expected.length; i++) {
            int at = i;
            // Bits, so that -0 differs from 0; NaN equals NaN.
            assertEquals(
                    Double.doubleToLongBits(expected[i]),
                    Double.doubleToLongBits(actual[i]),
                    () -> what + " at " + at + ": " + expected[at] + " but is " + actual[at]);
        }
    }

    @ParameterizedTest
    @EnumSource
    void fill(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : DataType.values()) {
                        for (int n : SIZES) {
                            Buffer x = of(r.c, type, new double[n]);
                            r.c.fill(x, 3, r.stream);
                            double[] expected = new double[n];
                            Arrays.fill(expected, 3);
                            double[] actual = new double[n];
                            r.stream.synchronize();
                            try (Buffer host = Device.host().allocate(type, n)) {
                                x.copyTo(host.asSegment());
                                for (int i = 0; i < n; i++) {
                                    actual[i] = host.get(i);
                                }
                            }
                            assertSame(expected, actual, type + " " + n);
                        }
                    }
                });
    }

    @ParameterizedTest
    @EnumSource
    void cast(Where where) {
        on(
                where,
                r -> {
                    for (DataType from : FLOATS) {
                        for (DataType to : FLOATS) {
                            for (int n : SIZES) {
                                double[] x = values(from, n);
                                Buffer source = of(r.c, from, x);
                                Buffer target = of(r.c, to, new double[n]);
                                r.c.cast(source, target, r.stream);
                                assertSame(
                                        as(to, x), read(r.c, r.stream, target), from + " to " + to);
                            }
                        }
                    }
                });
    }

    /** In float32 with one more rounding for narrow types, in float64 for float64. */
    private static double[] widened(DataType type, double[] exact) {
        if (type == DataType.FLOAT64) {
            return exact;
        }
        return as(type, exact);
    }

    @ParameterizedTest
    @EnumSource
    void addScaleAndAxpy(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : FLOATS) {
                        boolean wide = type == DataType.FLOAT64;
                        for (int n : SIZES) {
                            double[] a = values(type, n);
                            double[] b = values(type, n);
                            double factor = 0.7;
                            double f = wide ? factor : (float) factor;
                            double[] sum = new double[n];
                            double[] scaled = new double[n];
                            double[] axpy = new double[n];
                            for (int i = 0; i < n; i++) {
                                sum[i] = wide ? a[i] + b[i] : (float) a[i] + (float) b[i];
                                scaled[i] = wide ? a[i] * f : (float) a[i] * (float) f;
                                float product = (float) f * (float) a[i];
                                axpy[i] = wide ? b[i] + f * a[i] : (float) b[i] + product;
                            }
                            Buffer x = of(r.c, type, a);
                            Buffer y = of(r.c, type, b);
                            Buffer t = of(r.c, type, new double[n]);
                            r.c.add(x, y, t, r.stream);
                            assertSame(
                                    widened(type, sum), read(r.c, r.stream, t), "sum of " + type);
                            r.c.scale(x, factor, t, r.stream);
                            assertSame(
                                    widened(type, scaled),
                                    read(r.c, r.stream, t),
                                    "scaled " + type);
                            r.c.axpy(factor, x, y, r.stream);
                            assertSame(
                                    widened(type, axpy), read(r.c, r.stream, y), "axpy of " + type);
                            r.c.add(x, x, x, r.stream);
                            double[] twice = new double[n];
                            for (int i = 0; i < n; i++) {
                                twice[i] = wide ? 2 * a[i] : 2 * (float) a[i];
                            }
                            assertSame(
                                    widened(type, twice),
                                    read(r.c, r.stream, x),
                                    "in place " + type);
                        }
                    }
                });
    }

    /** The bound of docs/compute.md: on the host up to 4112 roundings follow each other. */
    @ParameterizedTest
    @EnumSource
    void sumOfSquares(Where where) {
        on(
                where,
                r -> {
                    Buffer norm = r.c.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT);
                    open.add(norm);
                    for (DataType type : NARROW) {
                        for (int n : new int[] {0, 1, 255, 1025, 70_001}) {
                            double[] x = as(type, tame(random, n));
                            BigDecimal exact = BigDecimal.ZERO;
                            for (double v : x) {
                                exact = exact.add(new BigDecimal(v * v));
                            }
                            double expected = exact.doubleValue();
                            Buffer b = of(r.c, type, x);
                            r.c.sumOfSquares(b, norm, false, r.stream);
                            r.stream.synchronize();
                            double sum = norm.get(0);
                            assertEquals(expected, sum, expected * 0x1p-40, type + " " + n);
                            r.c.sumOfSquares(b, norm, false, r.stream);
                            r.stream.synchronize();
                            assertEquals(sum, norm.get(0), "the same each time");
                            r.c.sumOfSquares(b, norm, true, r.stream);
                            r.stream.synchronize();
                            assertEquals(sum + sum, norm.get(0), "added");
                            for (double bad : new double[] {Double.NaN, Double.POSITIVE_INFINITY}) {
                                if (n > 0) {
                                    x[n / 2] = bad;
                                    r.c.sumOfSquares(of(r.c, type, x), norm, false, r.stream);
                                    r.stream.synchronize();
                                    assertEquals(bad, norm.get(0), type + " " + n);
                                }
                            }
                        }
                    }
                });
    }

    @ParameterizedTest
    @EnumSource
    void stepControl(Where where) {
        on(
                where,
                r -> {
                    Buffer norm = r.c.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT);
                    open.add(norm);
                    double[][] cases = {
                        // sum of squares, loss scale, largest norm, factor, skip
                        {4, 1, Double.POSITIVE_INFINITY, 1, 0},
                        {4, 1, 1, 1 / (2 + 1e-6), 0},
                        {4, 8, 1, 1 / 8.0, 0},
                        {400, 8, 1, 1 / (20 / 8.0 + 1e-6) / 8, 0},
                        {Double.NaN, 8, 1, 0, 1},
                        {Double.POSITIVE_INFINITY, 8, 1, 0, 1},
                        {1e77, 1e-10, 1, 0, 1},
                        {0, 2, 1, 0.5, 0},
                    };
                    for (double[] k : cases) {
                        norm.set(0, k[0]);
                        r.c.stepControl(norm, k[1], k[2], r.stream);
                        r.stream.synchronize();
                        assertEquals(k[3], norm.get(1), "factor of " + k[0]);
                        assertEquals(k[4], norm.get(2), "skip of " + k[0]);
                    }
                });
    }

    private static double[] updated(Update u, float[][] s, double[] gradients, float factor) {
        double[] p = new double[gradients.length];
        for (int i = 0; i < p.length; i++) {
            float g = (float) gradients[i] * factor;
            float x = s[0][i];
            if (u.rule() == Update.Rule.ADAMW) {
                x = x * u.decay();
            } else {
                g = g + x * u.decay();
            }
            if (u.rule() == Update.Rule.SGD) {
                x = x - g * u.rate();
            } else {
                float m = s[1][i] * u.keep1() + g * u.add1();
                s[1][i] = m;
                switch (u.rule()) {
                    case MOMENTUM -> x = x - m * u.rate();
                    case NESTEROV -> x = x - (g + m * u.keep2()) * u.rate();
                    default -> {
                        float v = s[2][i] * u.keep2() + g * u.add2() * g;
                        s[2][i] = v;
                        x = x - m * u.rate() / ((float) Math.sqrt(v) * u.root() + u.epsilon());
                    }
                }
            }
            s[0][i] = x;
            p[i] = x;
        }
        return p;
    }

    private static double[] wide(float[] x) {
        double[] w = new double[x.length];
        for (int i = 0; i < x.length; i++) {
            w[i] = x[i];
        }
        return w;
    }

    /** Three steps, the second of which is skipped on the device, for all types and rules. */
    @ParameterizedTest
    @EnumSource
    void update(Where where) {
        on(
                where,
                r -> {
                    Buffer norm = r.c.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT);
                    open.add(norm);
                    for (Update.Rule rule : Update.Rule.values()) {
                        Update u =
                                new Update(
                                        rule, 0.99f, 0.9f, 0.1f, 0.98f, 0.02f, 1e-2f, 1.5f, 1e-8f);
                        for (DataType type : NARROW) {
                            for (DataType to :
                                    new DataType[] {null, NARROW[0], NARROW[1], NARROW[2]}) {
                                for (int n : new int[] {0, 1, 257, 1031}) {
                                    update(r, u, type, to, n, norm);
                                }
                            }
                        }
                    }
                });
    }

    private void update(Run r, Update u, DataType type, DataType to, int n, Buffer norm) {
        double[] start = tame(random, n);
        float[][] state = new float[3][n];
        for (int i = 0; i < n; i++) {
            state[0][i] = (float) start[i];
        }
        int moments = u.rule().moments();
        Buffer p = of(r.c, DataType.FLOAT32, start);
        Buffer m = moments > 0 ? of(r.c, DataType.FLOAT32, new double[n]) : null;
        Buffer v = moments > 1 ? of(r.c, DataType.FLOAT32, new double[n]) : null;
        Buffer target = to == null ? null : of(r.c, to, new double[n]);
        String what = u.rule() + " " + type + " " + to + " " + n;
        for (int step = 0; step < 3; step++) {
            double[] g = as(type, tame(random, n));
            Buffer gradients = of(r.c, type, g);
            float factor = step == 0 ? 0.125f : 0.5f;
            if (step == 0) {
                r.c.update(u, p, m, v, gradients, target, factor, null, r.stream);
            } else {
                norm.set(1, factor);
                norm.set(2, step == 1 ? 1 : 0);
                r.c.update(u, p, m, v, gradients, target, Double.NaN, norm, r.stream);
            }
            double[] expected = step == 1 ? wide(state[0]) : updated(u, state, g, factor);
            assertSame(expected, read(r.c, r.stream, p), what + " parameters, step " + step);
            if (m != null) {
                assertSame(wide(state[1]), read(r.c, r.stream, m), what + " first moment");
            }
            if (v != null) {
                assertSame(wide(state[2]), read(r.c, r.stream, v), what + " second moment");
            }
            if (target != null) {
                assertSame(as(to, expected), read(r.c, r.stream, target), what + " target");
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void rowsAndColumns(Where where) {
        on(
                where,
                r -> {
                    for (DataType type :
                            new DataType[] {
                                DataType.UINT8, DataType.BFLOAT16, NARROW[0], FLOATS[1]
                            }) {
                        for (int width : new int[] {1, 3, 8, 64}) {
                            rows(r, type, width);
                        }
                    }
                });
    }

    private void rows(Run r, DataType type, int width) {
        double[] index = {2, 0, -1, 5, 1, 4, 99};
        int rows = 5;
        double[] source = new double[rows * width];
        for (int i = 0; i < source.length; i++) {
            source[i] = 1 + i % 100;
        }
        String what = type + " rows of " + width;
        // Guards of bytes are the values that -77 becomes.
        Buffer s = of(r.c, type, source);
        Buffer which = of(r.c, DataType.INT32, index);
        Buffer gathered = r.c.device().allocate(type, (long) index.length * width);
        open.add(gathered);
        r.c.gatherRows(s, width, which, gathered, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < index.length * width; i++) {
            int row = (int) index[i / width];
            double expected = row >= 0 && row < rows ? source[row * width + i % width] : 0;
            assertEquals(expected, gathered.get(i), what + " gathered " + i);
        }
        double[] back = {3, -5, 0, 77, 1};
        Buffer where = of(r.c, DataType.INT32, back);
        Buffer scattered = r.c.device().allocate(type, 4L * width);
        open.add(scattered);
        r.c.fill(scattered, 7, r.stream);
        r.c.scatterRows(s, width, where, scattered, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < 4 * width; i++) {
            double expected = 7;
            for (int k = 0; k < rows; k++) {
                expected = back[k] == i / width ? source[k * width + i % width] : expected;
            }
            assertEquals(expected, scattered.get(i), what + " scattered " + i);
        }
        int wide = width + 5;
        Buffer matrix = r.c.device().allocate(type, (long) rows * wide);
        open.add(matrix);
        r.c.fill(matrix, 9, r.stream);
        r.c.copyColumns(s, width, 0, matrix, wide, 2, width, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < rows * wide; i++) {
            int column = i % wide - 2;
            boolean inside = column >= 0 && column < width;
            double expected = inside ? source[i / wide * width + column] : 9;
            assertEquals(expected, matrix.get(i), what + " column " + i);
        }
        Buffer packed = r.c.device().allocate(type, source.length);
        open.add(packed);
        r.c.copyColumns(matrix, wide, 2, packed, width, 0, width, r.stream);
        r.stream.synchronize();
        for (int i = 0; i < source.length; i++) {
            assertEquals(source[i], packed.get(i), what + " packed " + i);
        }
    }

    @ParameterizedTest
    @EnumSource
    void spinTakesThatLong(Where where) {
        on(
                where,
                r -> {
                    long began = System.nanoTime();
                    r.c.spin(Duration.ofMillis(20), r.stream);
                    r.stream.synchronize();
                    assertTrue(System.nanoTime() - began >= 20_000_000L);
                });
    }

    @ParameterizedTest
    @EnumSource
    void badArgumentsAreNamed(Where where) {
        on(
                where,
                r -> {
                    Buffer f = of(r.c, DataType.FLOAT32, 1, 2, 3);
                    Buffer g = of(r.c, DataType.FLOAT32, 1, 2);
                    Buffer i = of(r.c, DataType.INT32, 1, 2, 3);
                    Buffer d = of(r.c, DataType.FLOAT64, 1, 2, 3);
                    Update sgd = new Update(Update.Rule.SGD, 0, 0, 0, 0, 0, 1, 0, 0);
                    refuses(
                            "the target has 2 elements, but the source has 3",
                            () -> r.c.cast(f, g, r.stream));
                    refuses(
                            "the source is of int32, expected float",
                            () -> r.c.cast(i, f, r.stream));
                    refuses("b is of double, but a of float", () -> r.c.add(f, d, f, r.stream));
                    refuses("x and y share memory", () -> r.c.axpy(1, f, f, r.stream));
                    refuses(
                            "share memory",
                            () -> r.c.add(f.slice(0, 2), f.slice(0, 2), f.slice(1, 2), r.stream));
                    refuses(
                            "the norm has 3 elements",
                            () -> r.c.sumOfSquares(f, d, false, r.stream));
                    refuses(
                            "x is of double, expected float, bfloat16 or half",
                            () -> r.c.sumOfSquares(d, d, false, r.stream));
                    refuses(
                            "the first moment is given, but SGD keeps 0 moments",
                            () -> r.c.update(sgd, f, g, null, f, null, 1, null, r.stream));
                    refuses("the width of a row is 2", () -> r.c.gatherRows(f, 2, i, g, r.stream));
                    refuses(
                            "columns 2 to 4 do not lie within rows of 3",
                            () -> r.c.copyColumns(f, 3, 2, g, 2, 0, 3, r.stream));
                    refuses(
                            "the duration is PT11S",
                            () -> r.c.spin(Duration.ofSeconds(11), r.stream));
                    boolean host = r.c.device().kind() == Device.Kind.HOST;
                    Device other = host ? Cuda.device(0) : Device.host();
                    Buffer elsewhere = other.allocate(DataType.FLOAT32, 3);
                    open.add(elsewhere);
                    refuses("the target is on " + other, () -> r.c.add(f, f, elsewhere, r.stream));
                    refuses("the stream belongs to", () -> r.c.add(f, f, f, other.defaultStream()));
                });
    }

    private static void refuses(String text, Runnable call) {
        String message = assertThrows(IllegalArgumentException.class, call::run).getMessage();
        assertTrue(message.contains(text), message);
    }
}
