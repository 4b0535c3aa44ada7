package io.jccl.parallel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.gemm.Matrix;
import io.jccl.internal.SplitMix;
import io.jccl.parallel.GradientReducer.Parameter;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Low-rank compression of matrices: algorithm 1 of arXiv 1905.13727 with the error feedback of its
 * algorithm 2.
 *
 * <p>Let D (a x b) be a rank's gradient plus error and Q (b x r) the last factor. Then P = mean
 * over ranks of D Q, with orthonormalized columns; Q = mean of D<sup>T</sup> P; the result is P
 * Q<sup>T</sup>. A rank keeps D - P (D<sup>T</sup> P)<sup>T</sup>, the error of its own
 * contribution, which is never larger than D; the mean of these errors is the error of the result.
 *
 * <p>Thin matrices are column-major. Loops run over arrays, which the compiler vectorizes.
 */
final class PowerSgdExchange extends Exchange {
    /**
     * If only this fraction of a column is orthogonal to the earlier ones, it is rounding error:
     * float32 has 2^-24.
     */
    private static final double LOST = 1e-6;

    /**
     * A matrix that starts at an element of the bucket, and its factors.
     *
     * @param p start of P in the first buffer
     * @param q start of Q in the second
     */
    private record Matrix(long at, int rows, int columns, int rank, long p, long q) {}

    /** Elements that are sent uncompressed, at an element of the first buffer. */
    private record Rest(long at, long count, long to) {}

    private final Communicator c;
    private final Buffer bucket;
    private final long seed;
    private final List<Matrix> matrices = new ArrayList<>();
    private final List<Rest> rests = new ArrayList<>();

    /** All P, then the uncompressed elements. */
    private final Buffer first;

    /** All Q; kept for the next step. */
    private final Buffer second;

    private final Buffer error;

    // One row, and one thin matrix of each kind.
    private final float[] row;
    private final float[] p;
    private final float[] q;

    /** Number of random columns drawn so far. */
    private final Buffer drawn;

    private final Runnable makeP = this::makeP;
    private final Runnable makeQ = this::makeQ;
    private final Runnable expand = this::expand;

    PowerSgdExchange(
            Communicator c,
            Buffer bucket,
            Bucket.Plan plan,
            List<Parameter> parameters,
            Compression.PowerSgd options) {
        this.c = c;
        this.bucket = bucket;
        this.seed = options.seed();
        long pEnd = 0;
        long qEnd = 0;
        int widest = 0;
        int mostP = 0;
        int mostQ = 0;
        for (int i = 0; i < plan.members().size(); i++) {
            Parameter parameter = parameters.get(plan.members().get(i));
            long at = plan.offsets().get(i);
            long rank = Math.min(options.rank(), Math.min(parameter.rows(), parameter.columns()));
            long thin = rank * (parameter.rows() + parameter.columns());
            if (thin >= parameter.count() || thin > Integer.MAX_VALUE) {
                // Stored after all P.
                rests.add(new Rest(at, parameter.count(), 0));
                continue;
            }
            int rows = (int) parameter.rows();
            int columns = (int) parameter.columns();
            matrices.add(new Matrix(at, rows, columns, (int) rank, pEnd, qEnd));
            pEnd += rank * rows;
            qEnd += rank * columns;
            widest = Math.max(widest, columns);
            mostP = Math.max(mostP, (int) rank * rows);
            mostQ = Math.max(mostQ, (int) rank * columns);
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            rests.set(i, new Rest(r.at, r.count, pEnd));
            pEnd += r.count;
        }
        row = new float[widest];
        p = new float[mostP];
        q = new float[mostQ];
        List<Buffer> made = new ArrayList<>();
        try {
            first = c.device().allocate(DataType.FLOAT32, pEnd);
            made.add(first);
            second = c.device().allocate(DataType.FLOAT32, qEnd);
            made.add(second);
            drawn = c.device().allocate(DataType.INT64, 1);
            made.add(drawn);
            error = c.device().allocate(DataType.FLOAT32, matrices.isEmpty() ? 0 : bucket.count());
        } catch (RuntimeException e) {
            made.forEach(Buffer::close);
            throw e;
        }
        for (Matrix m : matrices) {
            for (int k = 0; k < m.rank; k++) {
                draw(m, k);
            }
        }
    }

    /** Draws a random column of Q, the same on all ranks: from -1 to 1 by SplitMix64. */
    private void draw(Matrix m, int k) {
        long before = drawn.getLong(0);
        drawn.setLong(0, before + 1);
        long state = seed * 31 + (m.q + k) * 0xD1342543DE82EF95L + before;
        for (int j = 0; j < m.columns; j++) {
            state += SplitMix.GAMMA;
            float value = (SplitMix.mix(state) >>> 40) * 0x1p-23f - 1;
            second.asSegment().setAtIndex(JAVA_FLOAT, m.q + (long) k * m.columns + j, value);
        }
    }

    @Override
    void enqueue(Stream stream) {
        stream.launchHostFunction(makeP);
        c.allReduce(first, ReduceOp.AVG, stream);
        if (!matrices.isEmpty()) {
            stream.launchHostFunction(makeQ);
            c.allReduce(second, ReduceOp.AVG, stream);
        }
        stream.launchHostFunction(expand);
    }

    private void makeP() {
        MemorySegment gradient = bucket.asSegment();
        MemorySegment thin = first.asSegment();
        for (int i = 0; i < matrices.size(); i++) {
            Matrix m = matrices.get(i);
            load(second, m.q, q, m.rank * m.columns);
            for (int k = 0; k < m.rank; k++) {
                // The norm of a column does not matter as long as no product underflows.
                normalize(q, k * m.columns, m.columns, 0);
            }
            for (int y = 0; y < m.rows; y++) {
                long at = m.at + (long) y * m.columns;
                load(error, at, row, m.columns);
                for (int x = 0; x < m.columns; x++) {
                    row[x] += gradient.getAtIndex(JAVA_FLOAT, at + x);
                }
                store(row, m.columns, error, at);
                for (int k = 0; k < m.rank; k++) {
                    p[k * m.rows + y] = dot(row, q, k * m.columns, m.columns);
                }
            }
            store(p, m.rank * m.rows, first, m.p);
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            copy(gradient, r.at, thin, r.to, r.count);
        }
    }

    private void makeQ() {
        for (int i = 0; i < matrices.size(); i++) {
            Matrix m = matrices.get(i);
            load(first, m.p, p, m.rank * m.rows);
            orthonormalize(p, m.rows, m.rank);
            store(p, m.rank * m.rows, first, m.p);
            Arrays.fill(q, 0, m.rank * m.columns, 0);
            for (int y = 0; y < m.rows; y++) {
                load(error, m.at + (long) y * m.columns, row, m.columns);
                for (int k = 0; k < m.rank; k++) {
                    axpy(p[k * m.rows + y], row, 0, q, k * m.columns, m.columns);
                }
            }
            store(q, m.rank * m.columns, second, m.q);
            for (int y = 0; y < m.rows; y++) {
                long at = m.at + (long) y * m.columns;
                load(error, at, row, m.columns);
                for (int k = 0; k < m.rank; k++) {
                    axpy(-p[k * m.rows + y], q, k * m.columns, row, 0, m.columns);
                }
                store(row, m.columns, error, at);
            }
        }
    }

    private void expand() {
        MemorySegment gradient = bucket.asSegment();
        for (int i = 0; i < matrices.size(); i++) {
            Matrix m = matrices.get(i);
            load(first, m.p, p, m.rank * m.rows);
            load(second, m.q, q, m.rank * m.columns);
            for (int y = 0; y < m.rows; y++) {
                Arrays.fill(row, 0, m.columns, 0);
                for (int k = 0; k < m.rank; k++) {
                    axpy(p[k * m.rows + y], q, k * m.columns, row, 0, m.columns);
                }
                store(row, m.columns, bucket, m.at + (long) y * m.columns);
            }
            for (int k = 0; k < m.rank; k++) {
                if (isZero(q, k * m.columns, m.columns)) {
                    // A zero column would remain zero forever.
                    draw(m, k);
                }
            }
        }
        for (int i = 0; i < rests.size(); i++) {
            Rest r = rests.get(i);
            copy(first.asSegment(), r.to, gradient, r.at, r.count);
        }
    }

    // ---- thin matrices by columns

    /**
     * Modified Gram-Schmidt, applied twice to each column, since a single pass is inaccurate in
     * float32.
     */
    private static void orthonormalize(float[] a, int length, int columns) {
        for (int k = 0; k < columns; k++) {
            int at = k * length;
            double before = norm(a, at, length);
            for (int pass = 0; pass < 2; pass++) {
                for (int l = 0; l < k; l++) {
                    axpy(-dot(a, at, a, l * length, length), a, l * length, a, at, length);
                }
            }
            normalize(a, at, length, LOST * before);
        }
    }

    /** Normalizes a column, or sets it to zero if its norm does not exceed a limit. */
    private static void normalize(float[] a, int at, int length, double least) {
        double norm = norm(a, at, length);
        boolean nothing = norm <= least;
        for (int i = at; i < at + length; i++) {
            a[i] = nothing ? 0 : (float) (a[i] / norm);
        }
    }

    private static double norm(float[] a, int at, int length) {
        double sum = 0;
        for (int i = at; i < at + length; i++) {
            sum += (double) a[i] * a[i];
        }
        return Math.sqrt(sum);
    }

    private static boolean isZero(float[] a, int at, int length) {
        for (int i = at; i < at + length; i++) {
            if (a[i] != 0) {
                return false;
            }
        }
        return true;
    }

    private static float dot(float[] a, float[] b, int at, int n) {
        return dot(a, 0, b, at, n);
    }

    /** Eight partial sums, so that additions do not depend on each other. */
    private static float dot(float[] a, int aAt, float[] b, int bAt, int n) {
        float s0 = 0;
        float s1 = 0;
        float s2 = 0;
        float s3 = 0;
        float s4 = 0;
        float s5 = 0;
        float s6 = 0;
        float s7 = 0;
        int i = 0;
        for (; i < n - 7; i += 8) {
            s0 += a[aAt + i] * b[bAt + i];
            s1 += a[aAt + i + 1] * b[bAt + i + 1];
            s2 += a[aAt + i + 2] * b[bAt + i + 2];
            s3 += a[aAt + i + 3] * b[bAt + i + 3];
            s4 += a[aAt + i + 4] * b[bAt + i + 4];
            s5 += a[aAt + i + 5] * b[bAt + i + 5];
            s6 += a[aAt + i + 6] * b[bAt + i + 6];
            s7 += a[aAt + i + 7] * b[bAt + i + 7];
        }
        for (; i < n; i++) {
            s0 += a[aAt + i] * b[bAt + i];
        }
        return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
    }

    /** {@code y += factor x}. */
    private static void axpy(float factor, float[] x, int xAt, float[] y, int yAt, int n) {
        for (int i = 0; i < n; i++) {
            y[yAt + i] += factor * x[xAt + i];
        }
    }

    private static void load(Buffer from, long at, float[] to, int n) {
        MemorySegment.copy(from.asSegment(), JAVA_FLOAT, at * Float.BYTES, to, 0, n);
    }

    private static void store(float[] from, int n, Buffer to, long at) {
        MemorySegment.copy(from, 0, to.asSegment(), JAVA_FLOAT, at * Float.BYTES, n);
    }

    private static void copy(
            MemorySegment from, long at, MemorySegment to, long toAt, long elements) {
        MemorySegment.copy(from, at * Float.BYTES, to, toAt * Float.BYTES, elements * Float.BYTES);
    }

    @Override
    long bytes() {
        return first.byteSize() + second.byteSize();
    }

    @Override
    List<Buffer> carried() {
        return List.of(error, second, drawn);
    }

    @Override
    public void close() {
        error.close();
        drawn.close();
        second.close();
        first.close();
    }
}
