package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.util.Random;

/** Attention against float64, which holds the whole matrix of scores. */
abstract class AttentionTests extends LayersTests {
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

    final void compare(Run r, DataType type, DataType products, AttentionShape s) {
        compare(r, type, products, s, as(type, tame(random, (int) (s.rows() * s.rowWidth()))));
    }

    /** Forward and backward pass against the direct evaluation; returns the gradient. */
    final double[] compare(Run r, DataType type, DataType products, AttentionShape s, double[] x) {
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
}
