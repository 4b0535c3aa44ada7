package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What has equal bits everywhere: rotations, bias, sums in a stated order, choices. */
class LayersRowsTest extends LayersTests {
    @ParameterizedTest
    @MethodSource("places")
    void rotary(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int[] s : new int[][] {{1, 2, 1, 2}, {2, 6, 3, 19}, {3, 32, 4, 97}}) {
                            rotary(r, type, new Rotary(s[0], s[1], s[2], s[3]));
                        }
                    }
                });
    }

    private void rotary(Run r, DataType type, Rotary rotary) {
        float[] angles = rotary.angles(10000);
        double[] table = new double[angles.length];
        for (int i = 0; i < table.length; i++) {
            table[i] = angles[i];
        }
        Buffer turns = of(r.c, DataType.FLOAT32, table);
        int rows = 2 * rotary.context() + 1;
        int stride = (int) rotary.rowWidth();
        int size = rotary.size();
        double[] x = values(type, rows * stride);
        for (boolean back : new boolean[] {false, true}) {
            Buffer b = of(r.c, type, x);
            r.c.layers().rotate(rotary, b, turns, back, r.stream);
            double[] expected = x.clone();
            for (int row = 0; row < rows; row++) {
                for (int h = 0; h < rotary.heads(); h++) {
                    for (int i = 0; i < size / 2; i++) {
                        double theta = row % rotary.context() * Math.pow(10000, -2.0 * i / size);
                        float c = (float) Math.cos(theta);
                        float s = (float) Math.sin(theta) * (back ? -1 : 1);
                        int at = row * stride + h * size + i;
                        float u = (float) x[at];
                        float v = (float) x[at + size / 2];
                        expected[at] = u * c - v * s;
                        expected[at + size / 2] = u * s + v * c;
                    }
                }
            }
            assertSame(as(type, expected), get(r, b), rotary + " " + type + " " + back);
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void biasAndColumnSums(Where where) {
        onSlices(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        int[][] shapes = {{0, 3}, {1, 1}, {37, 5}, {300, 33}, {9, 300}, {1100, 16}};
                        for (int[] s : shapes) {
                            columns(r, type, s[0], s[1]);
                        }
                    }
                });
    }

    private void columns(Run r, DataType type, int rows, int width) {
        double[] x = values(type, rows * width);
        double[] b = values(type, width);
        Buffer in = of(r.c, type, x);
        double[] start = tame(random, width);
        Buffer sums = of(r.c, DataType.FLOAT32, start);
        r.c.layers().columnSums(in, sums, r.stream);
        r.c.layers().addBias(in, of(r.c, type, b), r.stream);
        double[] added = new double[x.length];
        for (int i = 0; i < x.length; i++) {
            added[i] = (float) x[i] + (float) b[i % width];
        }
        double[] expected = start.clone();
        for (int c = 0; c < width; c++) {
            float[] part = new float[128];
            for (int row = 0; row < rows; row++) {
                part[row % 128] += (float) x[row * width + c];
            }
            for (int half = 64; half > 0; half /= 2) {
                for (int k = 0; k < half; k++) {
                    part[k] += part[k + half];
                }
            }
            expected[c] = rows == 0 ? start[c] : (float) start[c] + part[0];
        }
        String what = type + " " + rows + " x " + width;
        assertSame(as(type, added), get(r, in), "bias " + what);
        assertSame(expected, get(r, sums), "sums " + what);
    }

    @ParameterizedTest
    @MethodSource("places")
    void scatterAdd(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int width : new int[] {1, 7, 300}) {
                            scatterAdd(r, type, width);
                        }
                    }
                });
    }

    private void scatterAdd(Run r, DataType type, int width) {
        double[] index = {3, 0, -1, 3, 5, 3, 0, 1 << 30, 2, 3};
        int targets = 5;
        double[] x = values(type, index.length * width);
        double[] start = tame(random, targets * width);
        Buffer target = of(r.c, DataType.FLOAT32, start);
        Buffer which = of(r.c, DataType.INT32, index);
        r.c.layers().scatterAddRows(of(r.c, type, x), width, which, target, r.stream);
        double[] expected = start.clone();
        for (int i = 0; i < x.length; i++) {
            int row = (int) index[i / width];
            if (row >= 0 && row < targets) {
                int at = row * width + i % width;
                expected[at] = (float) expected[at] + (float) x[i];
            }
        }
        assertSame(expected, get(r, target), type + " rows of " + width);
    }

    /** Sums of weighted rows: rows repeat, are absent, and some sums have no entries. */
    @ParameterizedTest
    @MethodSource("places")
    void combineRows(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int width : new int[] {1, 7, 300}) {
                            for (boolean weighted : new boolean[] {false, true}) {
                                combineRows(r, type, width, weighted, START);
                                combineRows(r, type, width, weighted, null);
                            }
                        }
                    }
                });
    }

    /** The last one is more than there are entries. */
    private static final double[] START = {0, 2, 2, 5, 12};

    private static final double[] INDEX = {3, 0, -1, 3, 1, 5, 0, 1 << 30, 2};
    private static final int SOURCES = 5;

    private static int rowsOf(double @Nullable [] start) {
        return start == null ? INDEX.length : start.length - 1;
    }

    /** First entry of a row. */
    private static int first(double @Nullable [] start, int row) {
        return start == null ? row : Math.min((int) start[row], INDEX.length);
    }

    private void combineRows(
            Run r, DataType type, int width, boolean weighted, double @Nullable [] start) {
        double[] x = values(type, SOURCES * width);
        double[] w = values(DataType.FLOAT32, INDEX.length);
        int rows = rowsOf(start);
        Buffer target = of(r.c, type, values(type, rows * width));
        r.c.layers()
                .combineRows(
                        of(r.c, type, x),
                        width,
                        start == null ? null : of(r.c, DataType.INT32, start),
                        of(r.c, DataType.INT32, INDEX),
                        weighted ? of(r.c, DataType.FLOAT32, w) : null,
                        target,
                        r.stream);
        double[] expected = new double[rows * width];
        for (int i = 0; i < expected.length; i++) {
            float sum = 0;
            for (int k = first(start, i / width); k < first(start, i / width + 1); k++) {
                if (INDEX[k] >= 0 && INDEX[k] < SOURCES) {
                    float v = (float) x[((int) INDEX[k]) * width + i % width];
                    sum += weighted ? (float) w[k] * v : v;
                }
            }
            expected[i] = sum;
        }
        assertSame(as(type, expected), get(r, target), type + " rows of " + width);
    }

    @ParameterizedTest
    @MethodSource("places")
    void rowDots(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int width : new int[] {1, 7, 300}) {
                            rowDots(r, type, width, START);
                            rowDots(r, type, width, null);
                        }
                    }
                });
    }

    private void rowDots(Run r, DataType type, int width, double @Nullable [] start) {
        int rows = rowsOf(start);
        double[] x = as(type, tame(random, rows * width));
        double[] y = as(type, tame(random, SOURCES * width));
        x[0] = Double.NaN;
        y[SOURCES * width - 1] = Double.POSITIVE_INFINITY;
        Buffer dots = tame(r, DataType.FLOAT32, INDEX.length);
        r.c.layers()
                .rowDots(
                        of(r.c, type, x),
                        width,
                        start == null ? null : of(r.c, DataType.INT32, start),
                        of(r.c, DataType.INT32, INDEX),
                        of(r.c, type, y),
                        dots,
                        r.stream);
        double[] expected = new double[INDEX.length];
        double[] bound = new double[INDEX.length];
        for (int row = 0; row < rows; row++) {
            for (int k = first(start, row); k < first(start, row + 1); k++) {
                for (int i = 0; i < width && INDEX[k] >= 0 && INDEX[k] < SOURCES; i++) {
                    double v = x[row * width + i] * y[((int) INDEX[k]) * width + i];
                    expected[k] += v;
                    bound[k] += (width + 1) * STEP / 2 * Math.abs(v);
                }
            }
        }
        assertClose(DataType.FLOAT32, expected, bound, get(r, dots), type + " rows of " + width);
    }

    @ParameterizedTest
    @MethodSource("places")
    void topK(Where where) {
        on(
                where,
                r -> {
                    double nan = Double.NaN;
                    double inf = Double.POSITIVE_INFINITY;
                    double[] x = {
                        1, 3, 2, 3, -1, nan, nan, nan, nan, nan, -inf, nan, inf, -0.0, 0, 0, 0, -1,
                        5, -0.0
                    };
                    double[][] order = {{1, 3, 2, 0, 4}, {0, 1, 2, 3, 4}, {2, 3, 4, 0, 1}};
                    double[] last = {3, 0, 1, 4, 2};
                    for (DataType type : NARROW) {
                        for (int k = 1; k <= 5; k++) {
                            Buffer values = zeros(r, type, 4 * k);
                            Buffer indices = zeros(r, DataType.INT32, 4 * k);
                            r.c.layers().topK(of(r.c, type, x), 5, k, values, indices, r.stream);
                            double[] at = new double[4 * k];
                            double[] best = new double[4 * k];
                            for (int i = 0; i < at.length; i++) {
                                at[i] = i / k < 3 ? order[i / k][i % k] : last[i % k];
                                best[i] = x[i / k * 5 + (int) at[i]];
                            }
                            assertSame(at, get(r, indices), type + " indices, k " + k);
                            assertSame(best, get(r, values), type + " values, k " + k);
                        }
                    }
                });
    }

    @ParameterizedTest
    @MethodSource("places")
    void badArgumentsAreNamed(Where where) {
        on(
                where,
                r -> {
                    Layers l = r.c.layers();
                    Buffer f = tame(r, DataType.FLOAT32, 6);
                    Buffer g = tame(r, DataType.FLOAT32, 4);
                    Buffer d = tame(r, DataType.FLOAT64, 6);
                    Buffer h = tame(r, DataType.BFLOAT16, 6);
                    Buffer i = zeros(r, DataType.INT32, 2);
                    Norm rms = new Norm(Norm.Kind.RMS, 3, 0);
                    refuses(
                            "statistics has 4 elements, but what the rows of x need has 2",
                            () ->
                                    l.norm(
                                            rms,
                                            f,
                                            null,
                                            null,
                                            tame(r, f.dataType(), 6),
                                            g,
                                            r.stream));
                    refuses(
                            "x is of double, expected float, bfloat16 or half",
                            () -> l.activate(Activation.GELU, d, d, r.stream));
                    refuses(
                            "y is of bfloat16, but x of float",
                            () -> l.activate(Activation.GELU, f, h, r.stream));
                    refuses(
                            "the gradient and x share memory",
                            () -> l.activateBackward(Activation.GELU, f, f, r.stream));
                    refuses(
                            "y has 4 elements, but half of x has 3",
                            () -> l.swiglu(f, 1, g, r.stream));
                    refuses("k is 4, expected 1 to 3", () -> l.topK(f, 3, 4, f, i, r.stream));
                    refuses(
                            "the losses has 6 elements, but the rows of the logits has 2",
                            () -> l.crossEntropy(f, 3, i, f, null, 1, r.stream));
                    refuses(
                            "rows have 3 tokens and a pitch of 2, expected 1 or more and a pitch",
                            () -> l.crossEntropy(f, 2, 3, i, f, null, 1, r.stream));
                    refuses(
                            "the labels is of float, expected int32",
                            () -> l.crossEntropy(f, 3, g, g, null, 1, r.stream));
                    refuses(
                            "the target is of bfloat16, expected float",
                            () -> l.scatterAddRows(f, 3, i, h, r.stream));
                    Buffer three = zeros(r, DataType.INT32, 3);
                    refuses(
                            "the start has 2 elements, but the rows of the target and one more"
                                    + " has 3",
                            () ->
                                    l.combineRows(
                                            f,
                                            3,
                                            i,
                                            three,
                                            null,
                                            zeros(r, f.dataType(), 6),
                                            r.stream));
                    refuses(
                            "the index has 3 elements, but the rows of the target has 2",
                            () ->
                                    l.combineRows(
                                            f,
                                            3,
                                            null,
                                            three,
                                            null,
                                            zeros(r, f.dataType(), 6),
                                            r.stream));
                    refuses(
                            "the source and the target share memory",
                            () -> l.combineRows(f, 3, null, i, null, f, r.stream));
                    refuses(
                            "dots has 4 elements, but the index has 2",
                            () -> l.rowDots(f, 3, null, i, f, g, r.stream));
                    AttentionShape shape = new AttentionShape(1, 2, 1, 1, 1);
                    refuses(
                            "the output has 4 elements, but the shape has 2",
                            () -> l.attention(shape, f, g, g, r.stream));
                    assertEquals(l, r.c.layers(), "made once");
                });
    }

    @Test
    void badShapesAreNamed() {
        refuses("there are 2 key heads", () -> new AttentionShape(1, 1, 3, 2, 8));
        refuses("the size of a head is 0", () -> new AttentionShape(1, 1, 1, 1, 0));
        AttentionShape wide = new AttentionShape(1, 1, 1, 1, 129);
        refuses("the size of a head is 129", () -> wide.on(Device.Kind.CUDA));
        refuses("the context is 0", () -> new AttentionShape(1, 0, 1, 1, 1));
        refuses("the size of a head is 3", () -> new Rotary(1, 3, 1, 3));
        refuses("a row has 7 elements", () -> new Rotary(2, 4, 1, 7));
        refuses("epsilon is NaN", () -> new Norm(Norm.Kind.LAYER, 1, Float.NaN));
        assertArrayEquals(
                new float[] {1, 0, (float) Math.cos(1), (float) Math.sin(1)},
                new Rotary(1, 2, 2, 2).angles(10000));
    }

    private static void refuses(String text, Runnable call) {
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, call::run).getMessage());
        assertTrue(message.contains(text), message);
    }
}
