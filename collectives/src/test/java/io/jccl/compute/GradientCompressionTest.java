package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.compute.ThinMatrices.Shape;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Compression of gradients on every device, against a sort and Gram-Schmidt in float64 written
 * here.
 */
class GradientCompressionTest extends ComputeTests {
    private static final double EPSILON = 0x1p-23;

    /** Larger than a tile and than all tiles of one block's. */
    private static final int[] COUNTS = {1, 3, 255, 256, 257, 1023, 1025, 4099};

    /** Indices by magnitude, equal ones by index; NaN above all, by its bits. */
    private static int[] largest(double[] x, int k) {
        long[] keys = new long[x.length];
        for (int i = 0; i < x.length; i++) {
            long magnitude = Float.floatToRawIntBits((float) x[i]) & 0x7fffffff;
            keys[i] = (0x7fffffff - magnitude) << 32 | i;
        }
        Arrays.sort(keys);
        int[] order = Arrays.stream(keys).limit(k).mapToInt(key -> (int) key).toArray();
        Arrays.sort(order);
        return order;
    }

    private void select(Run r, double[] x, int k, String what) {
        Buffer vector = of(r.c, DataType.FLOAT32, x);
        Buffer selection = of(r.c, DataType.INT32, new double[2 * k]);
        Buffer scratch = of(r.c, DataType.INT32, new double[GradientCompression.SELECTION_SCRATCH]);
        r.c.compression().selectLargest(vector, selection, scratch, r.stream);
        int[] order = largest(x, k);
        double[] expected = new double[2 * k];
        double[] rest = x.clone();
        for (int i = 0; i < k; i++) {
            expected[i] = order[i];
            expected[k + i] = Float.floatToRawIntBits((float) x[order[i]]);
            rest[order[i]] = 0;
        }
        double[] actual = read(r.c, r.stream, selection);
        for (int i = 0; i < k; i++) {
            // Which NaN is in an element is left open.
            actual[k + i] =
                    Double.isNaN(x[order[i]])
                                    && Float.isNaN(Float.intBitsToFloat((int) actual[k + i]))
                            ? expected[k + i]
                            : actual[k + i];
        }
        assertArrayEquals(expected, actual, what);
        assertSame(rest, read(r.c, r.stream, vector), what + ", the rest");
    }

    @ParameterizedTest
    @MethodSource("places")
    void theLargestAreMovedInOrder(Where where) {
        on(
                where,
                r -> {
                    for (int n : COUNTS) {
                        for (int k : new int[] {1, n / 100, n / 3, n}) {
                            if (k > 0) {
                                select(r, values(DataType.FLOAT32, n), k, k + " of " + n);
                            }
                        }
                        closeBuffers();
                    }
                    // Ties in every digit, and zeros of both signs.
                    double[] equal = new double[2500];
                    for (int i = 0; i < equal.length; i++) {
                        equal[i] = i % 5 == 0 ? -0.0 : (i % 2 == 0 ? 1 : -1) * (1 + i % 3);
                    }
                    for (int k : new int[] {1, 700, 1300, 2400}) {
                        select(r, equal, k, k + " of equal ones");
                    }
                    select(r, new double[300], 7, "zeros");
                });
    }

    private void closeBuffers() {
        open.forEach(Buffer::close);
        open.clear();
    }

    /** More chunks than the scratch counts, so that one has several tiles. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"HOST", "CUDA"})
    void aLongVector(Where where) {
        int n = 1024 * 1024 + 5;
        float[] x = new float[n];
        for (int i = 0; i < n; i++) {
            x[i] = (((i * 2654435761L) >>> 7) & 1023) - 512;
        }
        on(
                where,
                r -> {
                    int k = 5000;
                    Buffer vector = r.c.device().allocate(DataType.FLOAT32, n).copyFrom(x);
                    Buffer selection = r.c.device().allocate(DataType.INT32, 2L * k);
                    Buffer scratch =
                            r.c.device()
                                    .allocate(
                                            DataType.INT32, GradientCompression.SELECTION_SCRATCH);
                    open.addAll(List.of(vector, selection, scratch));
                    r.c.compression().selectLargest(vector, selection, scratch, r.stream);
                    r.stream.synchronize();
                    double[] wide = new double[n];
                    for (int i = 0; i < n; i++) {
                        wide[i] = x[i];
                    }
                    int[] expected = largest(wide, k);
                    try (Buffer host = Device.host().allocate(DataType.INT32, 2L * k)) {
                        selection.copyTo(host.asSegment());
                        for (int i = 0; i < k; i++) {
                            assertEquals(expected[i], host.get(i), "index " + i);
                        }
                    }
                });
    }

    @ParameterizedTest
    @MethodSource("places")
    void selectionsAreAdded(Where where) {
        on(
                where,
                r -> {
                    double[] target = tame(random, 700);
                    int k = 300;
                    double[] selection = new double[2 * k];
                    double[] expected = target.clone();
                    for (int i = 0; i < k; i++) {
                        // The last one lies behind the target.
                        int to = i == k - 1 ? 700 : 2 * i + 1;
                        float value = (float) random.nextGaussian();
                        selection[i] = to;
                        selection[k + i] = Float.floatToRawIntBits(value);
                        if (to < 700) {
                            expected[to] = (float) target[to] + value;
                        }
                    }
                    Buffer sums = of(r.c, DataType.FLOAT32, target);
                    Buffer added = of(r.c, DataType.INT32, selection);
                    r.c.compression().addSelection(added, sums, r.stream);
                    assertSame(expected, read(r.c, r.stream, sums), "sums");
                });
    }

    private static double dot(double[] a, int x, int y, int length) {
        double sum = 0;
        for (int i = 0; i < length; i++) {
            sum += a[x + i] * a[y + i];
        }
        return sum;
    }

    /** Gram-Schmidt in float64. */
    private static void orthonormalize(double[] a, Shape s) {
        int n = s.length();
        for (int k = 0; k < s.columns(); k++) {
            int at = (int) s.at() + k * n;
            double before = Math.sqrt(dot(a, at, at, n));
            for (int twice = 0; twice < 2; twice++) {
                for (int l = 0; l < k; l++) {
                    int other = (int) s.at() + l * n;
                    double d = dot(a, at, other, n);
                    for (int i = 0; i < n; i++) {
                        a[at + i] -= d * a[other + i];
                    }
                }
            }
            double norm = Math.sqrt(dot(a, at, at, n));
            for (int i = 0; i < n; i++) {
                a[at + i] = norm <= 1e-6 * before ? 0 : a[at + i] / norm;
            }
        }
    }

    /**
     * A column's distance from the exact one: each of its 4 k subtractions is off by a rounding of
     * each element and of a dot product of n terms of a column whose norm is at most 1, and what is
     * left is divided by its share of the norm, here at least a tenth.
     */
    private static double bound(int length, int column) {
        return (4 * column * (length / 2.0 + 2) + 2) * EPSILON * 10;
    }

    @ParameterizedTest
    @MethodSource("places")
    void columnsBecomeOrthonormal(Where where) {
        List<Shape> shapes =
                List.of(
                        new Shape(2, 1, 1),
                        new Shape(3, 300, 4),
                        new Shape(1210, 64, 1),
                        new Shape(1280, 37, 3));
        double[] values = tame(random, 1400);
        for (int i = 0; i < 37; i++) {
            // The last column of the last matrix is the sum of the others, rounded.
            values[1280 + 74 + i] = (float) (values[1280 + i] + values[1280 + 37 + i]);
        }
        double[] expected = values.clone();
        shapes.forEach(s -> orthonormalize(expected, s));
        on(
                where,
                r -> {
                    Buffer all = of(r.c, DataType.FLOAT32, values);
                    try (ThinMatrices matrices = ThinMatrices.of(all, shapes)) {
                        r.c.compression().orthonormalize(matrices, r.stream);
                        double[] actual = read(r.c, r.stream, all);
                        boolean[] inside = new boolean[values.length];
                        for (Shape s : shapes) {
                            for (int i = 0; i < s.columns() * s.length(); i++) {
                                int at = (int) s.at() + i;
                                inside[at] = true;
                                boolean lost = s.length() == 37 && i >= 74;
                                assertEquals(
                                        lost ? 0 : expected[at],
                                        actual[at],
                                        bound(s.length(), i / s.length()),
                                        s + " " + i);
                                assertTrue(!lost || actual[at] == 0, "dependent: " + actual[at]);
                            }
                        }
                        for (int i = 0; i < values.length; i++) {
                            assertTrue(inside[i] || actual[i] == values[i], "between " + i);
                        }
                        // Columns of norm 1 are as they were but for one rounding.
                        r.c.compression().normalize(matrices, r.stream);
                        double[] again = read(r.c, r.stream, all);
                        for (int i = 0; i < values.length; i++) {
                            assertEquals(actual[i], again[i], 2 * EPSILON, "norm of 1, " + i);
                        }
                    }
                });
    }

    @ParameterizedTest
    @MethodSource("places")
    void tinyColumnsAreNormalizedAndNanSpreads(Where where) {
        on(
                where,
                r -> {
                    // Squares of the first vanish in float32.
                    double[] values = as(DataType.FLOAT32, 3e-30, 4e-30, Double.NaN, 1, 0, -0.0);
                    Buffer all = of(r.c, DataType.FLOAT32, values);
                    try (ThinMatrices matrices =
                            ThinMatrices.of(all, List.of(new Shape(0, 2, 3)))) {
                        r.c.compression().normalize(matrices, r.stream);
                        double[] actual = read(r.c, r.stream, all);
                        assertEquals(0.6, actual[0], EPSILON);
                        assertEquals(0.8, actual[1], EPSILON);
                        assertTrue(Double.isNaN(actual[2]) && Double.isNaN(actual[3]));
                        assertEquals(0, actual[4]);
                        assertEquals(0, actual[5]);
                    }
                });
    }

    /** SplitMix64 by the JDK's own generator, whose states go on by the same increment. */
    @ParameterizedTest
    @MethodSource("places")
    void zeroColumnsAreDrawn(Where where) {
        List<Shape> shapes = List.of(new Shape(0, 300, 2), new Shape(601, 5, 3));
        double[] values = tame(random, 616);
        Arrays.fill(values, 300, 600, 0);
        Arrays.fill(values, 601, 606, -0.0);
        Arrays.fill(values, 611, 616, 0);
        double[] expected = values.clone();
        long seed = 99;
        long drawn = 7;
        int[][] zero = {{300, 300, 1}, {601, 5, 601}, {611, 5, 603}};
        for (int[] column : zero) {
            long state = seed * 31 + column[2] * 0xD1342543DE82EF95L + drawn++;
            SplittableRandom numbers = new SplittableRandom(state);
            for (int i = 0; i < column[1]; i++) {
                expected[column[0] + i] = (numbers.nextLong() >>> 40) * 0x1p-23 - 1;
            }
        }
        on(
                where,
                r -> {
                    Buffer all = of(r.c, DataType.FLOAT32, values);
                    Buffer count = of(r.c, DataType.INT64, 7);
                    try (ThinMatrices matrices = ThinMatrices.of(all, shapes)) {
                        r.c.compression().redrawZeroColumns(matrices, count, seed, r.stream);
                        assertSame(expected, read(r.c, r.stream, all), "drawn");
                        assertEquals(10, read(r.c, r.stream, count)[0]);
                        r.c.compression().redrawZeroColumns(matrices, count, seed, r.stream);
                        assertSame(expected, read(r.c, r.stream, all), "nothing to draw");
                        assertEquals(10, read(r.c, r.stream, count)[0]);
                    }
                });
    }

    @ParameterizedTest
    @MethodSource("places")
    void wrongArgumentsAreNamed(Where where) {
        on(
                where,
                r -> {
                    GradientCompression c = r.c.compression();
                    Buffer x = of(r.c, DataType.FLOAT32, new double[5]);
                    Buffer four = of(r.c, DataType.INT32, new double[4]);
                    Buffer twelve = of(r.c, DataType.INT32, new double[12]);
                    refuses(
                            "the scratch has 12 elements",
                            () -> c.selectLargest(x, four, twelve, r.stream));
                    refuses(
                            "the selection has 12 elements and the target 5",
                            () -> c.addSelection(twelve, x, r.stream));
                    refuses("x is of int32", () -> c.selectLargest(four, four, four, r.stream));
                    refuses(
                            "does not lie within the 5 elements",
                            () -> ThinMatrices.of(x, List.of(new Shape(0, 3, 2))));
                    refuses("1 columns of 0 elements", () -> new Shape(0, 0, 1));
                    ThinMatrices empty = ThinMatrices.of(x, List.of());
                    c.orthonormalize(empty, r.stream);
                    empty.close();
                });
    }

    private static void refuses(String message, Runnable call) {
        IllegalArgumentException e = assertThrows(IllegalArgumentException.class, call::run);
        assertTrue(String.valueOf(e.getMessage()).contains(message), e::toString);
    }
}
