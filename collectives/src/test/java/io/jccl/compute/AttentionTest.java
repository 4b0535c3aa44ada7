package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Attention against float64, which holds the whole matrix of scores. */
class AttentionTest extends LayersTests {
    private static final AttentionShape[] SHAPES = {
        new AttentionShape(1, 1, 1, 1, 1),
        new AttentionShape(2, 17, 2, 2, 32),
        new AttentionShape(1, 33, 4, 2, 40),
        new AttentionShape(1, 16, 3, 1, 128),
    };

    private static final DataType[] TENSOR_TYPES = {DataType.BFLOAT16, DataType.FLOAT16};

    /** With more rows than a block or a tile has, and sizes that are filled up with zeros. */
    private static final AttentionShape[] TENSOR_SHAPES = {
        new AttentionShape(1, 1, 1, 1, 8),
        new AttentionShape(2, 17, 2, 2, 32),
        new AttentionShape(1, 150, 2, 1, 40),
        new AttentionShape(1, 66, 1, 1, 64),
        new AttentionShape(2, 33, 4, 2, 96),
        new AttentionShape(1, 40, 2, 1, 128),
    };

    /**
     * The direct evaluation, and bounds of what float32 may make of it, and rounding what is
     * multiplied to a type.
     */
    private static final class Direct {
        final AttentionShape s;
        final DataType products;
        final double[] x;
        final double[] out;
        final double[] outBound;
        final double[] sums;
        final double[] sumBound;
        final double[] gradient;
        final double[] gradientBound;

        Direct(AttentionShape s, DataType products, double[] x) {
            this.s = s;
            this.products = products;
            this.x = x;
            out = new double[(int) (s.rows() * s.outputWidth())];
            outBound = new double[out.length];
            sums = new double[(int) s.rows() * s.heads()];
            sumBound = new double[sums.length];
            gradient = new double[x.length];
            gradientBound = new double[x.length];
        }

        /** What a factor of a product has lost when it was rounded to the type. */
        double lost(double factor) {
            return products == DataType.FLOAT32 ? 0 : rounding(products, factor);
        }

        /** Where a head of a row's queries (0), keys (1) or values (2) is. */
        int at(int row, int head, int kind) {
            int key = head / (s.heads() / s.keyHeads());
            int heads = kind == 0 ? head : s.heads() + (kind == 1 ? key : s.keyHeads() + key);
            return (int) (row * s.rowWidth()) + heads * s.size();
        }

        /**
         * Of a row and head: scores e, which float32 moves by (size + 3) steps of the sum of
         * absolute products at most, and so a probability by twice the largest such error, relative
         * to it, and the roundings of a sum of as many as there are columns.
         */
        void run(int first, int row, int head, double[] g, double[] result) {
            int n = row - first + 1;
            double scale = 1 / Math.sqrt(s.size());
            double[] e = new double[n];
            double error = 0;
            double most = Double.NEGATIVE_INFINITY;
            for (int j = 0; j < n; j++) {
                double products = 0;
                for (int d = 0; d < s.size(); d++) {
                    double p = x[at(row, head, 0) + d] * x[at(first + j, head, 1) + d] * scale;
                    e[j] += p;
                    products += Math.abs(p);
                }
                error = Math.max(error, (s.size() + 3) * STEP * products);
                most = Math.max(most, e[j]);
            }
            double sum = 0;
            for (double v : e) {
                sum += Math.exp(v - most);
            }
            int unit = row * s.heads() + head;
            sums[unit] = most + Math.log(sum);
            double relative = 2 * error + (n + 16 + Math.abs(sums[unit])) * STEP;
            sumBound[unit] = relative;
            int to = unit * s.size();
            for (int d = 0; d < s.size(); d++) {
                double size = 0;
                double rounded = 0;
                for (int j = 0; j < n; j++) {
                    double p = Math.exp(e[j] - sums[unit]);
                    double v = x[at(first + j, head, 2) + d];
                    out[to + d] += p * v;
                    size += Math.abs(p * v);
                    // Exponentials are rounded before the division by their sum.
                    rounded += lost(p) * Math.abs(v) * (1 + 2 * relative);
                }
                outBound[to + d] = 2 * relative * size + rounded;
            }
            if (g != null) {
                backward(first, row, head, g, result, e, relative, scale);
            }
        }

        private void backward(
                int first,
                int row,
                int head,
                double[] g,
                double[] result,
                double[] e,
                double relative,
                double scale) {
            int unit = row * s.heads() + head;
            int to = unit * s.size();
            double along = 0;
            double alongSize = 0;
            for (int d = 0; d < s.size(); d++) {
                along += g[to + d] * result[to + d];
                alongSize += Math.abs(g[to + d] * result[to + d]);
            }
            for (int j = 0; j < e.length; j++) {
                double p = Math.exp(e[j] - sums[unit]);
                double slope = 0;
                double size = alongSize;
                for (int d = 0; d < s.size(); d++) {
                    double v = g[to + d] * x[at(first + j, head, 2) + d];
                    slope += v;
                    size += Math.abs(v);
                }
                double ds = p * (slope - along) * scale;
                double within = p * size * scale * (2 * relative + (s.size() + 8) * STEP);
                within += lost(Math.abs(ds) + within);
                int query = at(row, head, 0);
                int key = at(first + j, head, 1);
                int value = at(first + j, head, 2);
                for (int d = 0; d < s.size(); d++) {
                    add(query + d, ds * x[key + d], within * Math.abs(x[key + d]));
                    add(key + d, ds * x[query + d], within * Math.abs(x[query + d]));
                    double v = p * g[to + d];
                    double rounded = lost(p * (1 + 2 * relative)) * Math.abs(g[to + d]);
                    add(value + d, v, 2 * relative * Math.abs(v) + rounded);
                }
            }
        }

        private void add(int at, double v, double bound) {
            gradient[at] += v;
            // Each sum has at most context x heads terms.
            int terms = s.context() * s.heads() / s.keyHeads() + 1;
            gradientBound[at] += bound + terms * STEP * Math.abs(v);
        }

        void all(double[] g, double[] result) {
            for (int row = 0; row < s.rows(); row++) {
                for (int h = 0; h < s.heads(); h++) {
                    run(row / s.context() * s.context(), row, h, g, result);
                }
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void equalsTheDirectEvaluation(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (AttentionShape s : SHAPES) {
                            compare(r, type, DataType.FLOAT32, s);
                        }
                    }
                });
    }

    /** One type for each shape. */
    @ParameterizedTest
    @EnumSource(names = "CUDA")
    void onTensorCores(Where where) {
        on(
                where,
                r -> {
                    edge = ALIGNED;
                    for (int i = 0; i < TENSOR_SHAPES.length; i++) {
                        DataType type = TENSOR_TYPES[i % TENSOR_TYPES.length];
                        compare(r, type, type, TENSOR_SHAPES[i]);
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"CUDA", "CUDA_REVERSED"})
    void onTensorCoresWithAllTypes(Where where) {
        on(
                where,
                r -> {
                    edge = ALIGNED;
                    for (DataType type : TENSOR_TYPES) {
                        for (AttentionShape s : TENSOR_SHAPES) {
                            compare(r, type, type, s);
                        }
                    }
                });
    }

    /** More rows than a tile of the host's loops has, and heads that do not fill a vector. */
    @ParameterizedTest
    @EnumSource(names = "HOST_THREADS")
    void inSeveralTiles(Where where) {
        on(
                where,
                r -> {
                    int i = where.ordinal();
                    for (AttentionShape s : severalTiles()) {
                        compare(r, NARROW[i++ % NARROW.length], DataType.FLOAT32, s);
                    }
                });
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = {"HOST", "HOST_THREADS"})
    void inSeveralTilesWithAllTypes(Where where) {
        on(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (AttentionShape s : severalTiles()) {
                            compare(r, type, DataType.FLOAT32, s);
                        }
                    }
                });
    }

    private static List<AttentionShape> severalTiles() {
        List<AttentionShape> shapes = new ArrayList<>(List.of(TENSOR_SHAPES));
        for (int context : new int[] {63, 64, 65, 128, 131}) {
            shapes.add(new AttentionShape(2, context, 2, 1, 17));
        }
        return shapes;
    }

    @Tag("exhaustive")
    @Test
    void theNumberOfThreadsDoesNotMatter() {
        AttentionShape s = new AttentionShape(5, 100, 6, 3, 24);
        double[] x = as(DataType.FLOAT32, tame(random, (int) (s.rows() * s.rowWidth())));
        double[] first = null;
        for (int threads = 1; threads <= 4; threads++) {
            try (Compute c = Compute.host(threads);
                    Stream stream = c.device().newStream()) {
                DataType type = DataType.FLOAT32;
                double[] gradient = compare(new Run(c, stream), type, type, s, x);
                first = first == null ? gradient : first;
                assertSame(first, gradient, threads + " threads");
            }
        }
    }

    /** Slices that tensor cores cannot load and older devices: float32, with its own roundings. */
    @Test
    void whereTensorCoresAreNotUsed() {
        AttentionShape s = new AttentionShape(1, 33, 2, 1, 64);
        double[] x = as(DataType.BFLOAT16, tame(random, (int) (s.rows() * s.rowWidth())));
        List<double[]> results = new ArrayList<>();
        on(
                Where.CUDA,
                r -> {
                    for (int e : new int[] {ALIGNED, EDGE}) {
                        edge = e;
                        results.add(compare(r, DataType.BFLOAT16, DataType.BFLOAT16, s, x));
                    }
                });
        TestFake.capability(75);
        edge = ALIGNED;
        Device old = Cuda.view(2);
        try (Compute c = Compute.of(old);
                Stream stream = old.newStream()) {
            DataType products = DataType.FLOAT32;
            results.add(compare(new Run(c, stream), DataType.BFLOAT16, products, s, x));
        }
        assertSame(results.get(1), results.get(2), "misaligned, and compute capability 7.5");
        assertFalse(Arrays.equals(results.get(0), results.get(1)), "tensor cores round more");
    }

    private void compare(Run r, DataType type, DataType products, AttentionShape s) {
        compare(r, type, products, s, as(type, tame(random, (int) (s.rows() * s.rowWidth()))));
    }

    /** Forward and backward pass against the direct evaluation; returns the gradient. */
    private double[] compare(
            Run r, DataType type, DataType products, AttentionShape s, double[] x) {
        String what = s + " " + type;
        Direct direct = new Direct(s, products, x);
        Buffer qkv = of(r.c, type, x);
        Buffer out = zeros(r, type, direct.out.length);
        Buffer sums = zeros(r, DataType.FLOAT32, direct.sums.length);
        r.c.layers().attention(s, qkv, out, sums, r.stream);
        double[] g = as(type, tame(new Random(7), direct.out.length));
        Buffer gradient = zeros(r, type, x.length);
        Buffer scratch = zeros(r, DataType.FLOAT32, direct.sums.length);
        Buffer dout = of(r.c, type, g);
        r.c.layers().attentionBackward(s, qkv, out, sums, dout, scratch, gradient, r.stream);
        // The backward pass is given the outputs as they were rounded.
        direct.all(g, get(r, out));
        assertClose(type, direct.out, direct.outBound, get(r, out), what);
        assertClose(DataType.FLOAT32, direct.sums, direct.sumBound, get(r, sums), what + " sums");
        double[] actual = get(r, gradient);
        assertClose(type, direct.gradient, direct.gradientBound, actual, what + " gradient");
        r.c.layers().attentionBackward(s, qkv, out, sums, dout, scratch, gradient, r.stream);
        assertSame(actual, get(r, gradient), what + " again");
        return actual;
    }

    /** What a row must not see does not reach it, not even as 0 times infinity. */
    @ParameterizedTest
    @EnumSource
    void laterRowsAreNotSeen(Where where) {
        on(
                where,
                r -> {
                    laterRowsAreNotSeen(r, 19, 5);
                    laterRowsAreNotSeen(r, 150, 70);
                });
    }

    private void laterRowsAreNotSeen(Run r, int context, int bad) {
        AttentionShape s = new AttentionShape(2, context, 2, 1, 32);
        int width = (int) s.rowWidth();
        double[] x = as(DataType.FLOAT32, tame(random, (int) s.rows() * width));
        double[] spoilt = x.clone();
        Arrays.fill(spoilt, bad * width + 64, bad * width + 96, Double.NaN);
        int next = bad + 2;
        Arrays.fill(spoilt, next * width + 96, (next + 1) * width, Double.POSITIVE_INFINITY);
        double[] clean = forward(r, s, x);
        double[] out = forward(r, s, spoilt);
        for (int i = 0; i < out.length; i++) {
            int row = i / (int) s.outputWidth();
            if (row >= bad && row < s.context()) {
                assertTrue(Double.isNaN(out[i]), "row " + row + " is " + out[i]);
            } else {
                assertEquals(clean[i], out[i], "row " + row);
            }
        }
    }

    private double[] forward(Run r, AttentionShape s, double[] x) {
        Buffer out = zeros(r, DataType.FLOAT32, (int) (s.rows() * s.outputWidth()));
        Buffer sums = zeros(r, DataType.FLOAT32, (int) s.rows() * s.heads());
        r.c.layers().attention(s, of(r.c, DataType.FLOAT32, x), out, sums, r.stream);
        return get(r, out);
    }
}
