package io.jccl.gemm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Products on the host against plain double loops. */
@Timeout(120)
class MatmulTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final Device host = Device.host();

    /** Any shape, transposition, stride, element type, memory and beta. */
    @ParameterizedTest
    @ValueSource(ints = {1, 3})
    void equalsDoubleLoops(int threads) {
        equalsDoubleLoops(threads, 50);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3})
    void equalsDoubleLoopsVeryOften(int threads) {
        equalsDoubleLoops(threads, 150);
    }

    private void equalsDoubleLoops(int threads, int rounds) {
        long seed = System.nanoTime();
        System.out.println("MatmulTest seed " + seed + ", " + threads + " threads");
        Random random = new Random(seed);
        int[] sizes = {0, 1, 2, 3, 4, 5, 8, 11, 12, 13, 17, 31, 32, 33, 64, 97, 255, 257, 300};
        try (Matmul matmul = Matmul.of(host, threads);
                Stream stream = host.newStream()) {
            for (int round = 0; round < rounds; round++) {
                int m = sizes[random.nextInt(sizes.length)];
                int n = sizes[random.nextInt(sizes.length)];
                int k = sizes[random.nextInt(sizes.length)];
                float beta = new float[] {0, 1, -0.5f}[random.nextInt(3)];
                Matrix a = random(random, m, k, type(random));
                Matrix b = random(random, k, n, type(random));
                Matrix c = random(random, m, n, DataType.FLOAT32);
                double[] expected = expected(a, b, c, beta);
                double[] bound = bound(a, b, c);
                if (beta == 0) {
                    fill(c, Double.NaN);
                }
                double around = sumOutside(c);
                Stream on = random.nextBoolean() ? stream : host.defaultStream();
                matmul.multiply(a, b, c, beta, on);
                on.synchronize(LIMIT);
                String what = "seed " + seed + " round " + round + ": " + a + " x " + b;
                check(expected, bound, c, what);
                assertEquals(around, sumOutside(c), what + " wrote outside of c");
            }
        }
    }

    private static DataType type(Random random) {
        return random.nextInt(3) == 0 ? DataType.BFLOAT16 : DataType.FLOAT32;
    }

    /** A view of a larger matrix, perhaps transposed, of native memory or an array. */
    private Matrix random(Random random, int rows, int columns, DataType type) {
        boolean transposed = random.nextBoolean();
        int r = transposed ? columns : rows;
        int c = transposed ? rows : columns;
        int top = random.nextInt(3);
        int left = random.nextInt(3);
        int wide = left + c + random.nextInt(3);
        int high = top + r + random.nextInt(3);
        Buffer buffer =
                random.nextInt(4) == 0 && type == DataType.FLOAT32
                        ? Buffer.wrap(MemorySegment.ofArray(new float[wide * high]), type)
                        : host.allocate(type, (long) wide * high);
        for (long i = 0; i < buffer.count(); i++) {
            buffer.set(i, random.nextDouble() * 2 - 1);
        }
        Matrix view = Matrix.of(buffer, high, wide).rows(top, r).columns(left, c);
        return transposed ? view.transposed() : view;
    }

    /** In arrays, since access to an element of a buffer takes longer than a product. */
    private static double[][] rows(Matrix a) {
        double[][] rows = new double[(int) a.rows()][(int) a.columns()];
        for (int i = 0; i < rows.length; i++) {
            for (int j = 0; j < rows[i].length; j++) {
                rows[i][j] = a.get(i, j);
            }
        }
        return rows;
    }

    private static double[] expected(Matrix a, Matrix b, Matrix c, double beta) {
        int m = (int) c.rows();
        int n = (int) c.columns();
        double[][] x = rows(a);
        double[][] y = rows(b.transposed());
        double[] e = new double[m * n];
        for (int i = 0; i < m; i++) {
            for (int j = 0; j < n; j++) {
                double sum = beta == 0 ? 0 : beta * c.get(i, j);
                for (int p = 0; p < x[i].length; p++) {
                    sum += x[i][p] * y[j][p];
                }
                e[i * n + j] = sum;
            }
        }
        return e;
    }

    /**
     * k + 2 roundings, each of at most half a unit of the last place of a partial sum (Higham,
     * "Accuracy and Stability of Numerical Algorithms", section 3.1).
     */
    private static double[] bound(Matrix a, Matrix b, Matrix c) {
        int n = (int) c.columns();
        double[][] x = rows(a);
        double[][] y = rows(b.transposed());
        double[] e = new double[(int) c.rows() * n];
        double unit = Math.scalb(1.0, -24);
        for (int i = 0; i < c.rows(); i++) {
            for (int j = 0; j < n; j++) {
                double sum = Math.abs(c.get(i, j));
                for (int p = 0; p < x[i].length; p++) {
                    sum += Math.abs(x[i][p] * y[j][p]);
                }
                e[i * n + j] = (a.columns() + 3) * unit * sum;
            }
        }
        return e;
    }

    private static void check(double[] expected, double[] bound, Matrix c, String what) {
        int n = (int) c.columns();
        for (int i = 0; i < c.rows(); i++) {
            for (int j = 0; j < n; j++) {
                double v = c.get(i, j);
                assertTrue(
                        Math.abs(v - expected[i * n + j]) <= bound[i * n + j],
                        what + " (" + i + "," + j + "): " + v + " != " + expected[i * n + j]);
            }
        }
    }

    private static void fill(Matrix c, double value) {
        for (int i = 0; i < c.rows(); i++) {
            for (int j = 0; j < c.columns(); j++) {
                c.set(i, j, value);
            }
        }
    }

    private static double sumOutside(Matrix c) {
        Buffer b = c.buffer();
        boolean[] inside = new boolean[(int) b.count()];
        for (int i = 0; i < c.rows(); i++) {
            for (int j = 0; j < c.columns(); j++) {
                inside[(int) (c.offset() + i * c.rowStride() + j * c.columnStride())] = true;
            }
        }
        double sum = 0;
        for (int i = 0; i < inside.length; i++) {
            sum += inside[i] ? 0 : b.get(i);
        }
        return sum;
    }

    /** Larger than a block in every dimension: all loops, and both threads. */
    @Tag("exhaustive")
    @Test
    void largeProductsHaveTheSameBitsForAllThreadsAndParts() {
        int m = 1000;
        int n = 1100;
        int k = 600;
        Random random = new Random(7);
        Matrix a = random(random, m, k, DataType.FLOAT32);
        Matrix b = random(random, k, n, DataType.FLOAT32);
        float[] first = product(a, b, 1);
        for (int threads = 2; threads <= 4; threads++) {
            float[] other = product(a, b, threads);
            for (int i = 0; i < first.length; i++) {
                assertEquals(first[i], other[i], threads + " threads, element " + i);
            }
        }
        float[] part = product(a.rows(333, 100), b.columns(77, 90), 1);
        for (int i = 0; i < 100; i++) {
            for (int j = 0; j < 90; j++) {
                assertEquals(first[(333 + i) * n + 77 + j], part[i * 90 + j]);
            }
        }
        for (int t = 0; t < 200; t++) {
            int i = random.nextInt(m);
            int j = random.nextInt(n);
            double sum = 0;
            for (int p = 0; p < k; p++) {
                sum += a.get(i, p) * b.get(p, j);
            }
            assertEquals(sum, first[i * n + j], 1e-4);
        }
    }

    /**
     * Few rows go another way than many: the same bits, whatever the threads and the layout, beyond
     * one block of k and one piece of columns.
     */
    @Tag("exhaustive")
    @Test
    void fewRowsHaveTheBitsOfMany() {
        long seed = System.nanoTime();
        System.out.println("MatmulTest seed " + seed);
        Random random = new Random(seed);
        for (int round = 0; round < 12; round++) {
            int n = 1 + random.nextInt(1500);
            int k = 1 + random.nextInt(700);
            String what = "seed " + seed + " round " + round + ": " + k + " x " + n;
            Matrix a = random(random, 20, k, type(random));
            Matrix b = random(random, k, n, type(random));
            float[] many = product(a, b, 1);
            for (int m = 1; m <= 9; m++) {
                int from = random.nextInt(12);
                float[] few = product(a.rows(from, m), b, 1 + random.nextInt(3));
                float[] expected = Arrays.copyOfRange(many, from * n, (from + m) * n);
                assertArrayEquals(expected, few, what + " rows " + from + ", " + m);
            }
            int j = random.nextInt(n);
            float[] column = product(a, b.columns(j, 1), 1 + random.nextInt(3));
            for (int i = 0; i < 20; i++) {
                assertEquals(many[i * n + j], column[i], what + " column " + j);
            }
        }
        // More columns than a region has.
        Matrix a = random(random, 5, 40, DataType.FLOAT32);
        Matrix b = random(random, 40, 40_000, DataType.FLOAT32);
        float[] many = product(a, b, 2);
        float[] few = product(a.rows(1, 2), b, 2);
        assertArrayEquals(Arrays.copyOfRange(many, 40_000, 120_000), few, "seed " + seed);
    }

    private float[] product(Matrix a, Matrix b, int threads) {
        int m = (int) a.rows();
        int n = (int) b.columns();
        float[] result = new float[m * n];
        try (Matmul matmul = Matmul.of(host, threads);
                Buffer c = host.allocate(DataType.FLOAT32, (long) m * n)) {
            matmul.multiply(a, b, Matrix.of(c, m, n), host.defaultStream());
            c.copyTo(result);
        }
        return result;
    }

    /** What is not a number goes where it belongs and nowhere else, also next to padding. */
    @Test
    void notANumberStaysInItsRowAndColumn() {
        try (Matmul matmul = Matmul.of(host, 1);
                Buffer a = host.allocate(DataType.FLOAT32, 13 * 5);
                Buffer b = host.allocate(DataType.FLOAT32, 5 * 33);
                Buffer c = host.allocate(DataType.FLOAT32, 13 * 33)) {
            a.set(12 * 5 + 2, Double.NaN);
            b.set(2 * 33 + 32, Double.POSITIVE_INFINITY);
            matmul.multiply(
                    Matrix.of(a, 13, 5),
                    Matrix.of(b, 5, 33),
                    Matrix.of(c, 13, 33),
                    host.defaultStream());
            for (int i = 0; i < 13; i++) {
                for (int j = 0; j < 33; j++) {
                    double v = c.get(i * 33 + j);
                    assertEquals(i == 12 || j == 32, Double.isNaN(v), i + "," + j + ": " + v);
                }
            }
        }
    }

    @Test
    void faultyArgumentsSayWhatIsWrong() {
        Stream stream = host.defaultStream();
        try (Matmul matmul = Matmul.of(host, 1);
                Buffer a = host.allocate(DataType.FLOAT32, 12);
                Buffer c = host.allocate(DataType.FLOAT32, 16);
                Buffer half = host.allocate(DataType.FLOAT16, 12)) {
            Matrix x = Matrix.of(a, 4, 3);
            Matrix z = Matrix.of(c, 4, 4);
            List<String> messages = new ArrayList<>();
            messages.add(refused(() -> matmul.multiply(x, x, z, stream)));
            messages.add(
                    refused(() ->
                            matmul.multiply(Matrix.of(half, 4, 3), x.transposed(), z, stream)));
            messages.add(
                    refused(() ->
                            matmul.multiply(
                                    x.rows(0, 3),
                                    x.columns(0, 1).rows(0, 3),
                                    x.columns(0, 1).rows(0, 3),
                                    stream)));
            messages.add(refused(() -> matmul.multiply(z, z, z, stream)));
            messages.add(refused(() -> Matmul.of(host, 0)));
            messages.add(refused(() -> Matrix.of(a, 5, 3)));
            messages.add(refused(() -> Matrix.of(a, 1, 4, 3, 3)));
            messages.add(refused(() -> Matrix.of(a, 0, 3, 4, 3)));
            messages.add(refused(() -> Matrix.of(a, Long.MAX_VALUE, 4)));
            assertTrue(messages.get(0).contains("a is 4 x 3, b 4 x 3"), messages.get(0));
            assertTrue(messages.get(1).contains("half"), messages.get(1));
            assertTrue(messages.get(3).contains("shares memory"), messages.get(3));
            assertTrue(messages.get(4).contains("threads is 0"), messages.get(4));
            assertTrue(messages.get(5).contains("5 x 3"), messages.get(5));
            Matmul closed = Matmul.of(host, 2);
            for (int i = 0; i < 2; i++) {
                close(closed);
            }
            assertThrows(
                    IllegalStateException.class,
                    () -> closed.multiply(x, x.transposed(), z, stream));
        }
    }

    /** Single rows of any pitch, in any order, as far apart as they are long or less. */
    @Test
    void rowsThatOverlapAreRefused() {
        int n = 10;
        try (Matmul matmul = Matmul.of(host, 1);
                Buffer one = host.allocate(DataType.FLOAT32, 1);
                Buffer buffer = host.allocate(DataType.FLOAT32, 2L * n)) {
            Matrix a = Matrix.of(one, 1, 1);
            for (int apart = 1; apart <= n; apart++) {
                for (int first : new int[] {0, apart}) {
                    for (int pitch : new int[] {1, n}) {
                        Matrix b = row(buffer, first, n, pitch);
                        Matrix c = row(buffer, apart - first, n, pitch);
                        Runnable product = () -> matmul.multiply(a, b, c, host.defaultStream());
                        if (apart == n) {
                            product.run();
                        } else {
                            String message = refused(product);
                            assertTrue(message.contains("shares memory with b"), message);
                        }
                    }
                }
            }
        }
    }

    /** One row of any pitch: if that is 1, it is the transpose of a column. */
    private static Matrix row(Buffer buffer, int from, int n, int pitch) {
        return pitch == 1
                ? Matrix.of(buffer, from, n, 1, 1).transposed()
                : Matrix.of(buffer, from, 1, n, pitch);
    }

    private static void close(Matmul matmul) {
        matmul.close();
    }

    private static String refused(Runnable call) {
        return String.valueOf(assertThrows(IllegalArgumentException.class, call::run).getMessage());
    }

    @Test
    void closedBuffersAreRefused() {
        try (Matmul matmul = Matmul.of(host, 1);
                Buffer c = host.allocate(DataType.FLOAT32, 16)) {
            Buffer a = host.allocate(DataType.FLOAT32, 16);
            Matrix x = Matrix.of(a, 4, 4);
            a.close();
            assertThrows(
                    IllegalStateException.class,
                    () -> matmul.multiply(x, x, Matrix.of(c, 4, 4), host.defaultStream()));
        }
    }
}
