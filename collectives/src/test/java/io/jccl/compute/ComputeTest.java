package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.util.Arrays;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What every implementation has to compute, element by element from plain Java: bit by bit, but for
 * the payload of a NaN. Sizes are odd, slices begin anywhere, and what lies around a slice stays.
 */
class ComputeTest extends ComputeTests {
    @ParameterizedTest
    @MethodSource("places")
    void fill(Where where) {
        onSlices(
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
    @MethodSource("places")
    void cast(Where where) {
        onSlices(
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
    @MethodSource("places")
    void addScaleDivideAndAxpy(Where where) {
        onSlices(
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
                            double[] divided = new double[n];
                            double[] axpy = new double[n];
                            for (int i = 0; i < n; i++) {
                                sum[i] = wide ? a[i] + b[i] : (float) a[i] + (float) b[i];
                                scaled[i] = wide ? a[i] * f : (float) a[i] * (float) f;
                                divided[i] = wide ? a[i] / f : (float) a[i] / (float) f;
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
                            r.c.divide(x, factor, t, r.stream);
                            assertSame(
                                    widened(type, divided),
                                    read(r.c, r.stream, t),
                                    "divided " + type);
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

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"HOST", "CUDA_REVERSED"})
    void sumOfSquaresElsewhere(Where where) {
        sumOfSquares(where);
    }

    /** The bound of docs/compute.md: on the host up to 4112 roundings follow each other. */
    @ParameterizedTest
    @EnumSource(names = {"HOST_THREADS", "CUDA"})
    void sumOfSquares(Where where) {
        onSlices(
                where,
                r -> {
                    Buffer norm = r.c.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT);
                    open.add(norm);
                    for (DataType type : NARROW) {
                        for (int n : new int[] {0, 1, 255, 1025, 70_001}) {
                            double[] x = as(type, tame(random, n));
                            // Squares of float32 are exact, and what each sum loses is kept.
                            double expected = 0;
                            double lost = 0;
                            for (double v : x) {
                                double sum = expected + v * v;
                                double added = sum - expected;
                                lost += (expected - (sum - added)) + (v * v - added);
                                expected = sum;
                            }
                            expected += lost;
                            Buffer b = of(r.c, type, x);
                            r.c.sumOfSquares(b, norm, false, r.stream);
                            r.stream.synchronize();
                            double sumOfSquares = norm.get(0);
                            assertEquals(
                                    expected, sumOfSquares, expected * 0x1p-40, type + " " + n);
                            r.c.sumOfSquares(b, norm, false, r.stream);
                            r.stream.synchronize();
                            assertEquals(sumOfSquares, norm.get(0), "the same each time");
                            r.c.sumOfSquares(b, norm, true, r.stream);
                            r.stream.synchronize();
                            assertEquals(2 * sumOfSquares, norm.get(0), "added");
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
    @MethodSource("places")
    void stepControl(Where where) {
        onSlices(
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
            if (u.rule() == Update.Rule.ADAMW || u.rule() == Update.Rule.LION) {
                x = x * u.decay();
            } else {
                g = g + x * u.decay();
            }
            if (u.rule() == Update.Rule.SGD) {
                x = x - g * u.rate();
            } else if (u.rule() == Update.Rule.LION) {
                x = x - Math.signum(s[1][i] * u.keep1() + g * u.add1()) * u.rate();
                s[1][i] = s[1][i] * u.keep2() + g * u.add2();
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
    @MethodSource("places")
    void update(Where where) {
        update(where, false);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void updateOfAllSizes(Where where) {
        update(where, true);
    }

    /** Each rule with each pair of types, on one size or on all. */
    private void update(Where where, boolean all) {
        int[] sizes = {0, 1, 257, 1031};
        onSlices(
                where,
                r -> {
                    Buffer norm = r.c.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT);
                    open.add(norm);
                    int i = where.ordinal();
                    for (Update.Rule rule : Update.Rule.values()) {
                        Update u =
                                new Update(
                                        rule, 0.99f, 0.9f, 0.1f, 0.98f, 0.02f, 1e-2f, 1.5f, 1e-8f);
                        for (DataType type : NARROW) {
                            i++; // or each type of the result would have one size
                            for (DataType to :
                                    new DataType[] {null, NARROW[0], NARROW[1], NARROW[2]}) {
                                int one = sizes[i++ % sizes.length];
                                for (int n : all ? sizes : new int[] {one}) {
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
}
