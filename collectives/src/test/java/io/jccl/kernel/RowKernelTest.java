package io.jccl.kernel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Random;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Both kernels against each other, bit by bit, and against float64. */
class RowKernelTest {
    private static final double STEP = 0x1p-23;
    private static final int EDGE = 3;
    private static final float GUARD = -77;
    private static final float[] SPECIAL = {
        0,
        -0f,
        1,
        Float.NaN,
        1 / 0f,
        -1 / 0f,
        Float.MIN_VALUE,
        -1e-40f,
        88.3f,
        -87.3f,
        -87.4f,
        3e38f,
        -3e38f
    };

    private final RowKernel plain = RowKernel.make(false);
    private final RowKernel vector = RowKernel.make(true);
    private final Random random = new Random(2024);

    @BeforeAll
    static void vectorsAreThere() {
        assertTrue(Templates.VECTOR, "the tests' JVM needs --add-modules jdk.incubator.vector");
    }

    /** Random elements and, where there is room, special ones; guards at both ends. */
    private float[] row(int n, boolean special) {
        float[] x = new float[n + 2 * EDGE];
        for (int i = 0; i < x.length; i++) {
            x[i] = i < EDGE || i >= EDGE + n ? GUARD : (float) random.nextGaussian();
        }
        for (int i = 0; special && i < Math.min(n, SPECIAL.length); i++) {
            x[EDGE + (i * 7) % n] = SPECIAL[i];
        }
        return x;
    }

    private static void same(float[] a, float[] b, String what) {
        for (int i = 0; i < a.length; i++) {
            assertEquals(a[i], b[i], what + " at " + i);
        }
        assertEquals(GUARD, b[EDGE - 1], what);
        assertEquals(GUARD, b[b.length - EDGE], what);
    }

    /** What is done to a row y with a row x. */
    private interface Rows {
        void run(RowKernel k, float[] x, float[] y);
    }

    private void equal(String what, int n, Rows rows) {
        float[] x = row(n, true);
        float[] a = row(n, true);
        float[] b = a.clone();
        rows.run(plain, x, a);
        rows.run(vector, x, b);
        same(a, b, what + " of " + n);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 3, 7, 8, 15, 16, 17, 33, 64, 257})
    void elementsHaveEqualBits(int n) {
        equal("scale", n, (k, x, y) -> k.scale(y, EDGE, n, 0.3f));
        equal("add", n, (k, x, y) -> k.add(x, EDGE, 0.3f, y, EDGE, n));
        equal("slopes", n, (k, x, y) -> k.slopes(x, EDGE, y, EDGE, n, 0.7f));
        equal("norm", n, (k, x, y) -> k.norm(x, EDGE, n, 0.1f, 0.3f, y, EDGE));
        equal("relu squared", n, (k, x, y) -> k.reluSquared(x, EDGE, n, y, EDGE));
        equal("its gradient", n, (k, x, y) -> k.reluSquaredBackward(x, EDGE, n, y, EDGE));
        equal("exp", n, (k, x, y) -> k.exp(y, EDGE, n, 0.25f));
        equal(
                "norm's gradient",
                n,
                (k, x, y) -> k.normBackward(x, EDGE, x, EDGE, n, 0.1f, 2f, 0.2f, 0.3f, y, EDGE));
    }

    /** A sum of n products is off by at most (n + 1) / 2 steps of the absolute ones. */
    @ParameterizedTest
    @ValueSource(ints = {1, 3, 8, 16, 17, 33, 64, 257, 4099})
    void sumsAreWithinTheirBound(int n) {
        float[] x = row(n, false);
        float[] g = row(n, false);
        double sum = 0;
        double size = 0;
        double dot = 0;
        double dotSize = 0;
        double exponentials = 0;
        float most = Float.NEGATIVE_INFINITY;
        for (int i = EDGE; i < EDGE + n; i++) {
            sum += x[i];
            size += Math.abs(x[i]);
            float a = g[i] - 0.5f;
            float b = x[i] - 0.25f;
            dot += (double) a * b;
            dotSize += Math.abs((double) a * b);
            exponentials += Math.exp(x[i]);
            most = Math.max(most, x[i]);
        }
        for (RowKernel k : new RowKernel[] {plain, vector}) {
            assertEquals(sum, k.sum(x, EDGE, n), (n + 1) * STEP / 2 * size);
            double within = (n + 1) * STEP / 2 * dotSize;
            assertEquals(dot, k.dot(g, EDGE, 0.5f, x, EDGE, 0.25f, n), within);
            assertEquals(most, k.max(x, EDGE, n));
            float[] y = x.clone();
            k.exp(y, EDGE, n, 0);
            assertEquals(exponentials, RowKernel.total(y, EDGE, n), STEP * exponentials);
        }
    }

    @Test
    void theExponentialIsWithinAStep() {
        for (float x = RowKernel.EXP_LEAST; x <= RowKernel.EXP_MOST; x += 0.000983f) {
            double e = Math.exp(x);
            assertTrue(Math.abs(RowKernel.exp(x) - e) <= STEP * e, "exp(" + x + ")");
        }
        for (float x = -0x1p-3f; x < 0x1p-3f; x += 0x1p-20f) {
            double e = Math.exp(x);
            assertTrue(Math.abs(RowKernel.exp(x) - e) <= STEP * e, "exp(" + x + ")");
        }
        assertEquals(1, RowKernel.exp(0));
        assertEquals(0, RowKernel.exp(Float.NEGATIVE_INFINITY));
        assertEquals(0, RowKernel.exp(-87.4f));
        assertEquals(Float.POSITIVE_INFINITY, RowKernel.exp(88.4f));
        assertEquals(Float.POSITIVE_INFINITY, RowKernel.exp(Float.POSITIVE_INFINITY));
        assertTrue(Float.isNaN(RowKernel.exp(Float.NaN)));
    }

    @Test
    void theLargestPassesOverNan() {
        float[] x = {1, Float.NaN, 5, 2, 3, Float.NaN, 4, 0, Float.NaN, 7, 6};
        for (RowKernel k : new RowKernel[] {plain, vector}) {
            assertEquals(5, k.max(x, 0, 9));
            assertEquals(7, k.max(x, 0, 11));
            assertEquals(Float.NEGATIVE_INFINITY, k.max(new float[] {Float.NaN}, 0, 1));
            assertEquals(Float.NEGATIVE_INFINITY, k.max(x, 0, 0));
        }
    }

    /** Fused and in the order of the depth, whatever the rows; also with a transposed factor. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4, 5, 7, 8, 11})
    void productsHaveEqualBits(int rows) {
        int columns = Math.max(plain.columns(), 2 * vector.columns());
        for (int depth : new int[] {0, 1, 5, 32}) {
            float[] a = row(rows * depth, true);
            float[] b = row(depth * columns, false);
            float[] c = row(rows * columns, false);
            for (boolean across : new boolean[] {false, true}) {
                float[][] results = new float[2][];
                for (int i = 0; i < 2; i++) {
                    float[] sums = c.clone();
                    RowKernel k = i == 0 ? plain : vector;
                    k.addProduct(
                            a,
                            EDGE,
                            across ? 1 : depth,
                            across ? rows : 1,
                            b,
                            EDGE,
                            columns,
                            depth,
                            sums,
                            EDGE,
                            columns,
                            rows,
                            columns);
                    results[i] = sums;
                }
                same(results[0], results[1], rows + " x " + depth + " " + across);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 8, 17, 100})
    void elementsAreWidenedAndRounded(int n) {
        for (DataType type :
                new DataType[] {DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT16}) {
            float[] x = row(n, n > 0);
            byte[][] bytes = new byte[2][(n + 2) * type.size()];
            float[][] back = {row(n, false), null};
            back[1] = back[0].clone();
            for (int i = 0; i < 2; i++) {
                RowKernel k = i == 0 ? plain : vector;
                MemorySegment memory = MemorySegment.ofArray(bytes[i]);
                k.store(x, EDGE, memory, type, 1, n);
                k.load(memory, type, 1, back[i], EDGE, n);
            }
            assertArrayEquals(bytes[0], bytes[1], type + " of " + n);
            same(back[0], back[1], type + " of " + n);
        }
    }
}
