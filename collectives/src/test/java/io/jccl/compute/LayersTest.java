package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Norms, activations and cross entropy against float64, within the bounds of docs/compute.md. */
class LayersTest extends LayersTests {
    private static final float EPSILON = 1e-5f;
    private static final int[][] SHAPES = {{0, 5}, {1, 1}, {3, 7}, {2, 257}, {5, 304}};

    @ParameterizedTest
    @MethodSource("places")
    void norms(Where where) {
        onSlices(
                where,
                r -> {
                    for (Norm.Kind kind : Norm.Kind.values()) {
                        for (DataType type : NARROW) {
                            for (int[] s : SHAPES) {
                                norm(r, new Norm(kind, s[1], EPSILON), type, s[0], s[0] % 2 == 1);
                            }
                        }
                    }
                });
    }

    private void norm(Run r, Norm norm, DataType type, int rows, boolean affine) {
        int width = norm.width();
        double[] x = as(type, tame(random, rows * width));
        if (rows == 5) {
            x[width + 3] = Double.NaN;
            x[3 * width + 3] = Double.POSITIVE_INFINITY;
        }
        Buffer input = of(r.c, type, x);
        Buffer weight = affine ? tame(r, type, width) : null;
        Buffer bias = affine ? tame(r, type, width) : null;
        double[] w = weight == null ? null : get(r, weight);
        double[] b = bias == null ? new double[width] : get(r, bias);
        Buffer y = zeros(r, type, rows * width);
        Buffer statistics = zeros(r, DataType.FLOAT32, rows * norm.statistics());
        r.c.layers().norm(norm, input, weight, bias, y, statistics, r.stream);
        String what = norm + " " + type + " " + rows;
        double[] kept = get(r, statistics);
        double[] expected = new double[x.length];
        double[] bound = new double[x.length];
        double[] mean = new double[rows];
        double[] by = new double[rows];
        for (int row = 0; row < rows; row++) {
            double sum = 0;
            double size = 0;
            for (int i = 0; i < width; i++) {
                sum += x[row * width + i];
                size += Math.abs(x[row * width + i]) / width;
            }
            double middle = norm.kind() == Norm.Kind.LAYER ? sum / width : 0;
            double squares = 0;
            for (int i = 0; i < width; i++) {
                squares += Math.pow(x[row * width + i] - middle, 2);
            }
            double scale = 1 / Math.sqrt(squares / width + EPSILON);
            for (int i = 0; i < width; i++) {
                int at = row * width + i;
                double factor = w == null ? 1 : w[i];
                expected[at] = (x[at] - middle) * scale * factor + b[i];
                double moved = (Math.abs(x[at]) + size) * scale * Math.abs(factor);
                bound[at] = (width + 8) * STEP * moved + STEP * Math.abs(b[i]);
            }
            // The backward pass is compared with what it was given.
            by[row] = kept[row * norm.statistics() + norm.statistics() - 1];
            mean[row] = norm.kind() == Norm.Kind.LAYER ? kept[2 * row] : 0;
        }
        assertClose(type, expected, bound, get(r, y), what);
        assertClose(type, x, new double[x.length], get(r, input), what + " input");
        backward(r, norm, type, input, x, weight, w, statistics, mean, by, what);
    }

    private void backward(
            Run r,
            Norm norm,
            DataType type,
            Buffer input,
            double[] x,
            @Nullable Buffer weight,
            double @Nullable [] w,
            Buffer statistics,
            double[] mean,
            double[] by,
            String what) {
        int width = norm.width();
        Buffer dy = tame(r, type, x.length);
        Buffer gradient = tame(r, type, x.length);
        Buffer dw = tame(r, DataType.FLOAT32, width);
        Buffer db = tame(r, DataType.FLOAT32, width);
        double[] g = get(r, dy);
        double[] expected = get(r, gradient);
        double[] forWeight = get(r, dw);
        double[] forBias = get(r, db);
        double[] bound = new double[x.length];
        double[] weightBound = new double[width];
        double[] biasBound = new double[width];
        r.c.layers().normBackward(norm, input, weight, statistics, dy, gradient, dw, db, r.stream);
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        for (int row = 0; row < by.length; row++) {
            double sum = 0;
            double dot = 0;
            double size = 0;
            double along = 0;
            for (int i = 0; i < width; i++) {
                int at = row * width + i;
                double v = g[at] * (w == null ? 1 : w[i]);
                double hat = (x[at] - mean[row]) * by[row];
                sum += layer ? v / width : 0;
                dot += v * hat / width;
                size += layer ? Math.abs(v) / width : 0;
                along += Math.abs(v * hat) / width;
            }
            for (int i = 0; i < width; i++) {
                int at = row * width + i;
                double v = g[at] * (w == null ? 1 : w[i]);
                double hat = (x[at] - mean[row]) * by[row];
                bound[at] = by[row] * (Math.abs(v) + size + Math.abs(hat) * along);
                bound[at] = (width + 8) * STEP * bound[at] + STEP * Math.abs(expected[at]);
                expected[at] += by[row] * (v - sum - hat * dot);
                forWeight[i] += g[at] * hat;
                forBias[i] += g[at];
                weightBound[i] += (by.length + 8) * STEP * Math.abs(g[at] * hat);
                biasBound[i] += (by.length + 8) * STEP * Math.abs(g[at]);
            }
        }
        for (int i = 0; i < width; i++) {
            weightBound[i] += STEP * Math.abs(forWeight[i]) + STEP * 8;
            biasBound[i] += STEP * Math.abs(forBias[i]) + STEP * 8;
        }
        assertClose(type, expected, bound, get(r, gradient), what + " gradient");
        assertClose(DataType.FLOAT32, forWeight, weightBound, get(r, dw), what + " weight");
        assertClose(DataType.FLOAT32, forBias, biasBound, get(r, db), what + " bias");
    }

    private static double logistic(double x) {
        return 1 / (1 + Math.exp(-x));
    }

    private static double gelu(double x) {
        return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
    }

    private static double geluSlope(double x) {
        double root = Math.sqrt(2 / Math.PI);
        double t = Math.tanh(root * (x + 0.044715 * x * x * x));
        double bend = 0.5 * (1 - t * t);
        return 0.5 * (1 + t) + (bend == 0 ? 0 : x * bend * root * (1 + 3 * 0.044715 * x * x));
    }

    @ParameterizedTest
    @MethodSource("places")
    void activations(Where where) {
        onSlices(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int n : SIZES) {
                            activation(r, type, n);
                        }
                    }
                });
    }

    private void activation(Run r, DataType type, int n) {
        String what = type + " " + n;
        double[] x = values(type, n);
        double[] g = as(type, tame(random, n));
        Buffer in = of(r.c, type, x);
        Buffer y = zeros(r, type, n);
        Buffer gradient = of(r.c, type, g);
        r.c.layers().activate(Activation.RELU_SQUARED, in, y, r.stream);
        r.c.layers().activateBackward(Activation.RELU_SQUARED, in, gradient, r.stream);
        double[] square = new double[n];
        double[] slope = new double[n];
        for (int i = 0; i < n; i++) {
            float v = Math.max((float) x[i], 0);
            square[i] = v * v;
            slope[i] = (float) g[i] * 2 * v;
        }
        assertSame(as(type, square), get(r, y), "relu squared " + what);
        assertSame(as(type, slope), get(r, gradient), "its gradient " + what);

        Buffer inPlace = of(r.c, type, x);
        gradient = of(r.c, type, g);
        r.c.layers().activateBackward(Activation.GELU, in, gradient, r.stream);
        r.c.layers().activate(Activation.GELU, inPlace, inPlace, r.stream);
        double[] bound = new double[n];
        double[] slopeBound = new double[n];
        for (int i = 0; i < n; i++) {
            // tanh(-infinity) leaves 0, which times infinity is NaN.
            square[i] = gelu(x[i]);
            slope[i] = g[i] * geluSlope(x[i]);
            bound[i] = Math.abs(x[i]) * 0x1p-20;
            slopeBound[i] = Math.abs(g[i]) * 0x1p-18;
        }
        assertClose(type, square, bound, get(r, inPlace), "gelu " + what);
        assertClose(type, slope, slopeBound, get(r, gradient), "gelu gradient " + what);
    }

    @ParameterizedTest
    @MethodSource("places")
    void swiglu(Where where) {
        onSlices(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int[] s : SHAPES) {
                            swiglu(r, type, s[0], s[1]);
                        }
                    }
                });
    }

    private void swiglu(Run r, DataType type, int rows, int width) {
        double[] x = as(type, tame(random, 2 * rows * width));
        if (rows == 5) {
            x[3] = Double.NaN;
            x[2 * width + 3] = Double.POSITIVE_INFINITY;
            x[5 * width] = Double.NEGATIVE_INFINITY;
        }
        double[] g = as(type, tame(random, rows * width));
        Buffer in = of(r.c, type, x);
        Buffer y = zeros(r, type, g.length);
        Buffer gradient = zeros(r, type, x.length);
        r.c.layers().swiglu(in, width, y, r.stream);
        r.c.layers().swigluBackward(in, width, of(r.c, type, g), gradient, r.stream);
        double[] expected = new double[g.length];
        double[] bound = new double[g.length];
        double[] slope = new double[x.length];
        double[] slopeBound = new double[x.length];
        for (int i = 0; i < g.length; i++) {
            int at = i / width * 2 * width + i % width;
            double a = x[at];
            double b = x[at + width];
            double s = logistic(a);
            expected[i] = a * s * b;
            bound[i] = Math.abs(a * b) * 0x1p-20;
            slope[at] = g[i] * b * (s * (1 + a * (1 - s)));
            slope[at + width] = g[i] * (a * s);
            slopeBound[at] = Math.abs(g[i] * b) * 0x1p-19;
            slopeBound[at + width] = Math.abs(g[i] * a) * 0x1p-20;
        }
        String what = "swiglu " + type + " " + rows + " x " + width;
        assertClose(type, expected, bound, get(r, y), what);
        assertClose(type, slope, slopeBound, get(r, gradient), what + " gradient");
    }

    @ParameterizedTest
    @MethodSource("places")
    void crossEntropy(Where where) {
        onSlices(
                where,
                r -> {
                    for (DataType type : NARROW) {
                        for (int[] s : SHAPES) {
                            crossEntropy(r, type, s[0], s[1]);
                        }
                    }
                });
    }

    private void crossEntropy(Run r, DataType type, int rows, int tokens) {
        double[] x = as(type, tame(random, rows * tokens));
        double[] labels = new double[rows];
        for (int i = 0; i < rows; i++) {
            labels[i] = random.nextInt(tokens);
        }
        if (rows == 5) {
            labels[1] = -1;
            labels[2] = tokens;
            x[3 * tokens + 7] = Double.NaN;
            x[4 * tokens + 9] = Double.NEGATIVE_INFINITY;
            labels[4] = 8;
        }
        double scale = 0.25;
        Buffer logits = of(r.c, type, x);
        Buffer which = of(r.c, DataType.INT32, labels);
        Buffer losses = zeros(r, DataType.FLOAT32, rows);
        r.c.layers().crossEntropy(logits, tokens, which, losses, null, 1, r.stream);
        String what = "cross entropy " + type + " " + rows + " x " + tokens;
        assertClose(type, x, new double[x.length], get(r, logits), what + " kept");
        double[] alone = get(r, losses);
        r.c.layers().crossEntropy(logits, tokens, which, losses, logits, 0.25f, r.stream);
        assertSame(alone, get(r, losses), what + " again");
        int pitch = tokens + 3;
        double[] spread = as(type, tame(random, rows * pitch));
        for (int row = 0; row < rows; row++) {
            System.arraycopy(x, row * tokens, spread, row * pitch, tokens);
        }
        Buffer apart = of(r.c, type, spread);
        r.c.layers().crossEntropy(apart, pitch, tokens, which, losses, apart, 0.25f, r.stream);
        assertSame(alone, get(r, losses), what + " with a pitch");
        double[] own = get(r, logits);
        for (int row = 0; row < rows; row++) {
            System.arraycopy(own, row * tokens, spread, row * pitch, tokens);
        }
        assertSame(spread, get(r, apart), what + " with a pitch, gradient");
        double[] loss = new double[rows];
        double[] lossBound = new double[rows];
        double[] gradient = new double[x.length];
        double[] bound = new double[x.length];
        for (int row = 0; row < rows; row++) {
            int label = (int) labels[row];
            boolean counts = label >= 0 && label < tokens;
            double most = Double.NEGATIVE_INFINITY;
            double least = 0;
            for (int t = 0; t < tokens; t++) {
                double v = x[row * tokens + t];
                most = Math.max(most, v);
                least = Double.isInfinite(v) ? least : Math.min(least, v);
            }
            double sum = 0;
            for (int t = 0; t < tokens; t++) {
                sum += Math.exp(x[row * tokens + t] - most);
            }
            double error = (most - least + 4) * STEP;
            loss[row] = counts ? Math.log(sum) - (x[row * tokens + label] - most) : 0;
            lossBound[row] = counts ? error * 2 : 0;
            for (int t = 0; counts && t < tokens; t++) {
                double p = Math.exp(x[row * tokens + t] - most) / sum;
                gradient[row * tokens + t] = (t == label ? p - 1 : p) * scale;
                bound[row * tokens + t] = 2 * error * scale * (t == label ? 1 : p);
            }
        }
        assertClose(DataType.FLOAT32, loss, lossBound, alone, what);
        assertClose(type, gradient, bound, get(r, logits), what + " gradient");
        if (rows == 5) {
            assertEquals(0, alone[1], "an ignored row");
        }
    }
}
