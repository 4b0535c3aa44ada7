package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.VectorMask;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShuffle;
import jdk.incubator.vector.VectorSpecies;

/**
 * On the Vector API; see {@link RowKernel}. Loaded only where {@code jdk.incubator.vector} is
 * resolved. {@link PlainRows} handles elements that do not fill a vector. No method takes or
 * returns a vector: where C2 does not inline it, each call allocates one.
 */
final class VectorRows extends RowKernel {
    private static final VectorSpecies<Float> F = FloatVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Integer> I = IntVector.SPECIES_PREFERRED;
    private static final int LANES = F.length();
    private static final int COLUMNS = 2 * LANES;
    private static final int ROWS = 4;

    /** Lanes moved down by half, a quarter and so on of a vector, around its end. */
    private static final VectorShuffle<Float> F2 = turned(F, 2);

    private static final VectorShuffle<Float> F4 = turned(F, 4);
    private static final VectorShuffle<Float> F8 = turned(F, 8);
    private static final VectorShuffle<Float> F16 = turned(F, 16);

    private final PlainRows rest = new PlainRows();

    private static <E> VectorShuffle<E> turned(VectorSpecies<E> species, int part) {
        return VectorShuffle.iota(species, species.length() / part, 1, true);
    }

    @Override
    public int columns() {
        return COLUMNS;
    }

    @Override
    public void load(MemorySegment from, DataType type, long index, float[] to, int at, int count) {
        int size = type.size();
        int whole = narrow(type) ? F.loopBound(count) : 0;
        if (whole > 0) {
            NarrowVectors.widen(type, from, index * size, to, at, whole);
        }
        if (whole < count) {
            rest.load(from, type, index + whole, to, at + whole, count - whole);
        }
    }

    @Override
    public void store(
            float[] from, int at, MemorySegment to, DataType type, long index, int count) {
        int size = type.size();
        int whole = narrow(type) ? F.loopBound(count) : 0;
        if (whole > 0) {
            NarrowVectors.round(from, at, type, to, index * size, whole);
        }
        if (whole < count) {
            rest.store(from, at + whole, to, type, index + whole, count - whole);
        }
    }

    private static boolean narrow(DataType type) {
        return type == DataType.BFLOAT16 || type == DataType.FLOAT16;
    }

    @Override
    void addProduct(
            float[] a,
            int aAt,
            int aRow,
            int aStep,
            float[] b,
            int bAt,
            int bStride,
            int depth,
            float[] c,
            int cAt,
            int cStride,
            int rows,
            int columns) {
        int r = 0;
        for (; r + ROWS <= rows; r += ROWS) {
            int from = aAt + r * aRow;
            int to = cAt + r * cStride;
            for (int j = 0; j < columns; j += COLUMNS) {
                four(a, from, aRow, aStep, b, bAt + j, bStride, depth, c, to + j, cStride);
            }
        }
        for (; r < rows; r++) {
            int from = aAt + r * aRow;
            int to = cAt + r * cStride;
            for (int j = 0; j < columns; j += COLUMNS) {
                one(a, from, aStep, b, bAt + j, bStride, depth, c, to + j);
            }
        }
    }

    /** Four rows and two vectors of columns: eight sums in registers. */
    private static void four(
            float[] a,
            int aAt,
            int aRow,
            int aStep,
            float[] b,
            int bAt,
            int bStride,
            int depth,
            float[] c,
            int cAt,
            int cStride) {
        int c1 = cAt + cStride;
        int c2 = c1 + cStride;
        int c3 = c2 + cStride;
        FloatVector x0 = FloatVector.fromArray(F, c, cAt);
        FloatVector y0 = FloatVector.fromArray(F, c, cAt + LANES);
        FloatVector x1 = FloatVector.fromArray(F, c, c1);
        FloatVector y1 = FloatVector.fromArray(F, c, c1 + LANES);
        FloatVector x2 = FloatVector.fromArray(F, c, c2);
        FloatVector y2 = FloatVector.fromArray(F, c, c2 + LANES);
        FloatVector x3 = FloatVector.fromArray(F, c, c3);
        FloatVector y3 = FloatVector.fromArray(F, c, c3 + LANES);
        int row2 = 2 * aRow;
        int row3 = 3 * aRow;
        int at = aAt;
        int from = bAt;
        for (int p = 0; p < depth; p++) {
            FloatVector u = FloatVector.fromArray(F, b, from);
            FloatVector v = FloatVector.fromArray(F, b, from + LANES);
            FloatVector s = FloatVector.broadcast(F, a[at]);
            x0 = s.fma(u, x0);
            y0 = s.fma(v, y0);
            s = FloatVector.broadcast(F, a[at + aRow]);
            x1 = s.fma(u, x1);
            y1 = s.fma(v, y1);
            s = FloatVector.broadcast(F, a[at + row2]);
            x2 = s.fma(u, x2);
            y2 = s.fma(v, y2);
            s = FloatVector.broadcast(F, a[at + row3]);
            x3 = s.fma(u, x3);
            y3 = s.fma(v, y3);
            at += aStep;
            from += bStride;
        }
        x0.intoArray(c, cAt);
        y0.intoArray(c, cAt + LANES);
        x1.intoArray(c, c1);
        y1.intoArray(c, c1 + LANES);
        x2.intoArray(c, c2);
        y2.intoArray(c, c2 + LANES);
        x3.intoArray(c, c3);
        y3.intoArray(c, c3 + LANES);
    }

    private static void one(
            float[] a,
            int aAt,
            int aStep,
            float[] b,
            int bAt,
            int bStride,
            int depth,
            float[] c,
            int cAt) {
        FloatVector x = FloatVector.fromArray(F, c, cAt);
        FloatVector y = FloatVector.fromArray(F, c, cAt + LANES);
        for (int p = 0; p < depth; p++) {
            FloatVector s = FloatVector.broadcast(F, a[aAt + p * aStep]);
            int from = bAt + p * bStride;
            x = s.fma(FloatVector.fromArray(F, b, from), x);
            y = s.fma(FloatVector.fromArray(F, b, from + LANES), y);
        }
        x.intoArray(c, cAt);
        y.intoArray(c, cAt + LANES);
    }

    @Override
    float max(float[] x, int at, int n) {
        int whole = F.loopBound(n);
        FloatVector most = FloatVector.broadcast(F, Float.NEGATIVE_INFINITY);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector v = FloatVector.fromArray(F, x, at + i);
            most = most.blend(v, v.compare(VectorOperators.GT, most));
        }
        return Math.max(most.reduceLanes(VectorOperators.MAX), rest.max(x, at + whole, n - whole));
    }

    @Override
    void exp(float[] x, int at, int n, float minus) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector v = FloatVector.fromArray(F, x, at + i).sub(minus);
            VectorMask<Float> low = v.compare(VectorOperators.LT, EXP_LEAST);
            VectorMask<Float> high = v.compare(VectorOperators.GT, EXP_MOST);
            FloatVector t = v.blend(EXP_LEAST, low).blend(EXP_MOST, high);
            FloatVector shifted = t.fma(LOG2_E, TO_INTEGER);
            FloatVector k = shifted.sub(TO_INTEGER);
            FloatVector r =
                    k.fma(
                            FloatVector.broadcast(F, -LN2_LOW),
                            k.fma(FloatVector.broadcast(F, -LN2_HIGH), t));
            FloatVector p = r.fma(C7, C6);
            p = p.fma(r, FloatVector.broadcast(F, C5));
            p = p.fma(r, FloatVector.broadcast(F, C4));
            p = p.fma(r, FloatVector.broadcast(F, C3));
            p = p.fma(r, FloatVector.broadcast(F, C2));
            p = p.fma(r, FloatVector.broadcast(F, 1));
            p = p.fma(r, FloatVector.broadcast(F, 1));
            // Not reinterpretAsInts: see NarrowVectors.
            IntVector exponent =
                    ((IntVector) shifted.reinterpretShape(I, 0))
                            .lanewise(VectorOperators.LSHL, FRACTION_BITS)
                            .add(ONE);
            p.mul(exponent.reinterpretShape(F, 0))
                    .blend(0, low)
                    .blend(Float.POSITIVE_INFINITY, high)
                    .intoArray(x, at + i);
        }
        rest.exp(x, at + whole, n - whole, minus);
    }

    @Override
    void slopes(float[] x, int at, float[] y, int to, int n, float minus) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector.fromArray(F, y, to + i)
                    .sub(minus)
                    .mul(FloatVector.fromArray(F, x, at + i))
                    .intoArray(y, to + i);
        }
        rest.slopes(x, at + whole, y, to + whole, n - whole, minus);
    }

    @Override
    public void scale(float[] x, int at, int n, float by) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector.fromArray(F, x, at + i).mul(by).intoArray(x, at + i);
        }
        rest.scale(x, at + whole, n - whole, by);
    }

    @Override
    public void add(float[] x, int at, float by, float[] y, int to, int n) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector v = FloatVector.fromArray(F, x, at + i).mul(by);
            FloatVector.fromArray(F, y, to + i).add(v).intoArray(y, to + i);
        }
        rest.add(x, at + whole, by, y, to + whole, n - whole);
    }

    @Override
    float sum(float[] x, int at, int n) {
        int whole = F.loopBound(n);
        FloatVector sum = FloatVector.zero(F);
        for (int i = 0; i < whole; i += LANES) {
            sum = sum.add(FloatVector.fromArray(F, x, at + i));
        }
        // Both halves of the lanes, then both quarters ...: reduceLanes adds in another order in
        // compiled code than in interpreted code.
        sum = sum.add(sum.rearrange(F2));
        sum = LANES > 2 ? sum.add(sum.rearrange(F4)) : sum;
        sum = LANES > 4 ? sum.add(sum.rearrange(F8)) : sum;
        sum = LANES > 8 ? sum.add(sum.rearrange(F16)) : sum;
        return sum.lane(0) + rest.sum(x, at + whole, n - whole);
    }

    @Override
    float dot(float[] g, int gAt, float gMean, float[] x, int at, float mean, int n) {
        int whole = F.loopBound(n);
        FloatVector sum = FloatVector.zero(F);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector u = FloatVector.fromArray(F, g, gAt + i).sub(gMean);
            FloatVector v = FloatVector.fromArray(F, x, at + i).sub(mean);
            sum = sum.add(u.mul(v));
        }
        // As in sum.
        sum = sum.add(sum.rearrange(F2));
        sum = LANES > 2 ? sum.add(sum.rearrange(F4)) : sum;
        sum = LANES > 4 ? sum.add(sum.rearrange(F8)) : sum;
        sum = LANES > 8 ? sum.add(sum.rearrange(F16)) : sum;
        return sum.lane(0) + rest.dot(g, gAt + whole, gMean, x, at + whole, mean, n - whole);
    }

    @Override
    void norm(float[] x, int at, int n, float mean, float by, float[] y, int to) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector.fromArray(F, x, at + i).sub(mean).mul(by).intoArray(y, to + i);
        }
        rest.norm(x, at + whole, n - whole, mean, by, y, to + whole);
    }

    @Override
    void normBackward(
            float[] x,
            int at,
            float[] g,
            int gAt,
            int n,
            float mean,
            float by,
            float level,
            float along,
            float[] y,
            int to) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector u = FloatVector.fromArray(F, x, at + i).sub(mean).mul(along);
            FloatVector v = FloatVector.fromArray(F, g, gAt + i).sub(level).sub(u).mul(by);
            FloatVector.fromArray(F, y, to + i).add(v).intoArray(y, to + i);
        }
        rest.normBackward(
                x, at + whole, g, gAt + whole, n - whole, mean, by, level, along, y, to + whole);
    }

    @Override
    void reluSquared(float[] x, int at, int n, float[] y, int to) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector v = FloatVector.fromArray(F, x, at + i);
            // Math.max with 0: NaN remains, and -0 becomes 0.
            v = v.blend(0, v.compare(VectorOperators.LE, 0));
            v.mul(v).intoArray(y, to + i);
        }
        rest.reluSquared(x, at + whole, n - whole, y, to + whole);
    }

    @Override
    void reluSquaredBackward(float[] x, int at, int n, float[] g, int gAt) {
        int whole = F.loopBound(n);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector v = FloatVector.fromArray(F, x, at + i);
            v = v.blend(0, v.compare(VectorOperators.LE, 0));
            FloatVector.fromArray(F, g, gAt + i).mul(2).mul(v).intoArray(g, gAt + i);
        }
        rest.reluSquaredBackward(x, at + whole, n - whole, g, gAt + whole);
    }
}
