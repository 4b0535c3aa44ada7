package io.jccl.compute;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.SplitMix;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Random factors, noise and mixes on every device, against formulas written here. */
class MixtureTest extends LayersTests {
    /** Beyond what an int and a float hold. */
    private static final long PLACE = 5_000_000_000L;

    private static final int WIDTH = 7;

    private Buffer floats(Run r, double... values) {
        return of(r.c, DataType.FLOAT32, values);
    }

    private static double factor(RandomFactors f, long place, int column) {
        long index = place * f.columns() + f.firstColumn() + column;
        double jitter = 1 + f.jitter() * (2 * SplitMix.uniform(f.jitterStream(), index) - 1);
        boolean dropped =
                f.dropout() > 0 && SplitMix.uniform(f.dropoutStream(), index) < f.dropout();
        float kept = (float) (1 / (1 - f.dropout()));
        return (float) (f.jitter() > 0 ? jitter : 1) * (dropped ? 0 : kept);
    }

    @ParameterizedTest
    @MethodSource("places")
    void factorsAreFunctionsOfPlaceAndColumn(Where where) {
        RandomFactors[] all = {
            new RandomFactors(0.25, 3, 0, 0, WIDTH, 0),
            new RandomFactors(0, 3, 0.5, -4, WIDTH, 0),
            new RandomFactors(0.25, 3, 0.3, -4, 3 * WIDTH, 2 * WIDTH),
            new RandomFactors(0, 3, 0, -4, WIDTH, 0)
        };
        on(
                where,
                r -> {
                    for (RandomFactors f : all) {
                        for (int rows : new int[] {0, 1, 3, 300}) {
                            double[] x = tame(random, rows * WIDTH);
                            double[] places = new double[2 * rows];
                            double[] following = new double[x.length];
                            double[] scattered = new double[x.length];
                            for (int i = 0; i < x.length; i++) {
                                int row = i / WIDTH;
                                long place = PLACE - 31L * row;
                                places[2 * row] = place % (1 << 24);
                                places[2 * row + 1] = (double) (place >> 24);
                                float v = (float) x[i];
                                following[i] = v * (float) factor(f, PLACE + row, i % WIDTH);
                                scattered[i] = v * (float) factor(f, place, i % WIDTH);
                            }
                            Buffer from = floats(r, x);
                            Buffer to = floats(r, new double[x.length]);
                            Mixture m = r.c.mixture();
                            m.scaleRandomly(f, from, WIDTH, null, PLACE, to, r.stream);
                            assertSame(following, get(r, to), f + ", following rows");
                            Buffer of = floats(r, places);
                            m.scaleRandomly(f, from, WIDTH, of, 0, from, r.stream);
                            assertSame(scattered, get(r, from), f + ", rows with places");
                        }
                    }
                });
    }

    /** But for logarithm and cosine, which may be off by a bit of float64 on a device. */
    @ParameterizedTest
    @MethodSource("places")
    void noiseIsNormal(Where where) {
        on(
                where,
                r -> {
                    for (int n : SIZES) {
                        double[] x = tame(random, n);
                        double[] expected = new double[n];
                        double[] bound = new double[n];
                        for (int i = 0; i < n; i++) {
                            double noise = 0.75 * SplitMix.normal(11, PLACE + i);
                            expected[i] = (float) (x[i] + noise);
                            bound[i] = where.name().startsWith("HOST") ? 0 : 16 * Math.ulp(noise);
                        }
                        Buffer b = floats(r, x);
                        r.c.mixture().addNormal(0.75, 11, PLACE, b, r.stream);
                        double[] actual = get(r, b);
                        if (where.name().startsWith("HOST")) {
                            assertSame(expected, actual, n + " elements");
                        } else {
                            assertClose(DataType.FLOAT32, expected, bound, actual, n + " elements");
                        }
                    }
                });
    }

    /** Sums of float64 in another order: the shares are those of float64, rounded. */
    private static final double NEAR = 4 * STEP;

    private static void assertNear(double[] expected, double[] actual, String what) {
        assertEquals(expected.length, actual.length, what);
        for (int i = 0; i < expected.length; i++) {
            double off = Math.abs(expected[i] - actual[i]);
            assertTrue(
                    off <= NEAR * (1 + Math.abs(expected[i])),
                    what + " at " + i + ": " + expected[i] + " but is " + actual[i]);
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void outputsAreMixedAndGradientsFlowBack(Where where) {
        on(
                where,
                r -> {
                    mixes(r, 1, WIDTH);
                    mixes(r, 3, 1);
                    mixes(r, 5, 300);
                    mixes(r, 300, WIDTH);
                });
    }

    private void mixes(Run r, int rows, int width) {
        String what = rows + " x " + width + ", ";
        double[] x = tame(random, rows * width);
        double[] c = tame(random, 2 * width);
        double[] bias = tame(random, 2);
        double[] a = tame(random, x.length);
        double[] b = tame(random, x.length);
        double[] g = tame(random, x.length);
        double[] ofX = tame(random, x.length);
        double[] share = new double[rows];
        double[] mixed = new double[x.length];
        double[] difference = new double[x.length];
        double[] toA = new double[x.length];
        double[] toB = new double[x.length];
        double[] ofXAfter = ofX.clone();
        double[] sums = new double[width + 1];
        for (int row = 0; row < rows; row++) {
            double[] z = {bias[0], bias[1]};
            for (int f = 0; f < width; f++) {
                z[0] += x[row * width + f] * c[2 * f];
                z[1] += x[row * width + f] * c[2 * f + 1];
            }
            double s = 1 / (1 + Math.exp(z[1] - z[0]));
            share[row] = s;
            double dot = 0;
            for (int i = row * width; i < (row + 1) * width; i++) {
                difference[i] = (float) a[i] - (float) b[i];
                mixed[i] = s * a[i] + (1 - s) * b[i];
                toA[i] = s * g[i];
                toB[i] = (1 - s) * g[i];
                dot += g[i] * (a[i] - b[i]);
            }
            double logit = s * (1 - s) * dot;
            sums[width] += logit;
            for (int f = 0; f < width; f++) {
                sums[f] += logit * x[row * width + f];
                ofXAfter[row * width + f] += logit * (c[2 * f] - c[2 * f + 1]);
            }
        }
        Mixture m = r.c.mixture();
        Buffer of = floats(r, x);
        Buffer coefficient = floats(r, c);
        Buffer second = floats(r, b);
        Buffer kept = floats(r, new double[x.length]);
        Buffer shares = floats(r, new double[rows]);
        m.mix(
                of,
                width,
                coefficient,
                floats(r, bias),
                floats(r, a),
                second,
                kept,
                shares,
                r.stream);
        assertNear(share, get(r, shares), what + "shares");
        assertNear(mixed, get(r, second), what + "the mix");
        assertNear(difference, get(r, kept), what + "differences");
        Buffer gradient = floats(r, g);
        Buffer part = floats(r, new double[x.length]);
        m.scaleByShare(gradient, width, shares, false, part, r.stream);
        assertNear(toA, get(r, part), what + "gradient of a");
        m.scaleByShare(gradient, width, shares, true, part, r.stream);
        assertNear(toB, get(r, part), what + "gradient of b");
        Buffer back = floats(r, ofX);
        Buffer added = of(r.c, DataType.FLOAT64, new double[width + 1]);
        Buffer scratch = of(r.c, DataType.FLOAT64, new double[rows]);
        m.mixBackward(
                of, width, coefficient, gradient, kept, shares, back, added, scratch, r.stream);
        assertScaled(ofXAfter, get(r, back), width, what + "gradient of x");
        double[] actual = get(r, added);
        assertScaled(sums, actual, rows * width, what + "sums");
        double[] cBefore = tame(random, 2 * width);
        double[] biasBefore = tame(random, 2);
        double[] cAfter = new double[2 * width];
        for (int f = 0; f < width; f++) {
            cAfter[2 * f] = (float) (cBefore[2 * f] + actual[f]);
            cAfter[2 * f + 1] = (float) (cBefore[2 * f + 1] - actual[f]);
        }
        Buffer toC = floats(r, cBefore);
        Buffer toBias = floats(r, biasBefore);
        m.addSums(added, toC, toBias, r.stream);
        assertSame(cAfter, get(r, toC), what + "gradient of the coefficients");
        double[] biasAfter = {
            (float) (biasBefore[0] + actual[width]), (float) (biasBefore[1] - actual[width])
        };
        assertSame(biasAfter, get(r, toBias), what + "gradient of the bias");
        open.forEach(Buffer::close);
        open.clear();
    }

    /** Shares are rounded to float32, so each of the terms of a sum is off by parts of that. */
    private static void assertScaled(double[] expected, double[] actual, int terms, String what) {
        for (int i = 0; i < expected.length; i++) {
            assertEquals(expected[i], actual[i], NEAR * (4 + terms), what + " at " + i);
        }
    }

    @ParameterizedTest
    @MethodSource("places")
    void badArgumentsAreNamed(Where where) {
        refuses("jitter is 1.0", () -> new RandomFactors(1, 0, 0, 0, 1, 0));
        refuses("dropout is -0.5", () -> new RandomFactors(0, 0, -0.5, 0, 1, 0));
        refuses("the first column is 2 of 2", () -> new RandomFactors(0, 0, 0, 0, 2, 2));
        on(
                where,
                r -> {
                    Mixture m = r.c.mixture();
                    assertEquals(m, r.c.mixture(), "made once");
                    Buffer six = tame(r, DataType.FLOAT32, 6);
                    Buffer two = tame(r, DataType.FLOAT32, 2);
                    Buffer wide = tame(r, DataType.FLOAT64, 6);
                    RandomFactors f = new RandomFactors(0.1, 0, 0, 0, 3, 1);
                    refuses(
                            "columns 1 to 3 do not lie within rows of 3 elements of the factors",
                            () -> m.scaleRandomly(f, six, 3, null, 0, six, r.stream));
                    refuses(
                            "the places has 2 elements, but two for each row of the source has 6",
                            () -> m.scaleRandomly(f, six, 2, two, 0, six, r.stream));
                    refuses(
                            "the place of the first row is -1",
                            () -> m.scaleRandomly(f, six, 2, null, -1, six, r.stream));
                    refuses("x is of double", () -> m.addNormal(1, 0, 0, wide, r.stream));
                    refuses(
                            "the deviation is NaN",
                            () -> m.addNormal(0.0 / 0, 0, 0, six, r.stream));
                    refuses(
                            "the share has 6 elements, but the rows of the source has 3",
                            () -> m.scaleByShare(six, 2, six, false, six, r.stream));
                    Buffer a = tame(r, DataType.FLOAT32, 6);
                    Buffer four = tame(r, DataType.FLOAT32, 4);
                    Buffer three = tame(r, DataType.FLOAT32, 3);
                    refuses(
                            "b and another buffer of the operation share memory",
                            () -> m.mix(six, 2, four, two, a, a, a, three, r.stream));
                    refuses(
                            "the coefficient has 4 elements, but two for each sum but one has 10",
                            () -> m.addSums(wide, four, two, r.stream));
                });
    }

    private static void refuses(String text, Runnable call) {
        String message =
                String.valueOf(
                        assertThrows(IllegalArgumentException.class, call::run).getMessage());
        assertTrue(message.contains(text), message);
    }
}
