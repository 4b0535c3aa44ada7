package io.jccl.gemm;

import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;

/**
 * On the Vector API; loaded only if its module is resolved. Each sum is a local variable, since the
 * compiler does not keep an array of vectors in registers. Two vectors wide, so that one element of
 * the left factor serves two instructions; the main tile has 24 sums, for machines with 32 vector
 * registers.
 */
final class VectorTile extends Tile {
    private static final VectorSpecies<Float> F = FloatVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Integer> I = VectorSpecies.of(int.class, F.vectorShape());
    private static final VectorSpecies<Short> S =
            VectorSpecies.of(short.class, VectorShape.forBitSize(F.vectorBitSize() / 2));
    private static final int LANES = F.length();
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();

    /** AVX-512 and AArch64 have 32 vector registers. */
    private static final boolean MANY_REGISTERS =
            F.vectorBitSize() == 512 || "aarch64".equals(System.getProperty("os.arch"));

    private static final int ROWS = 12;
    private static final int FEW = 4;
    private static final int COLUMNS = 2 * LANES;

    VectorTile() {
        super(MANY_REGISTERS ? ROWS : FEW, FEW, COLUMNS);
    }

    @Override
    void multiply(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt) {
        FloatVector x0 = FloatVector.fromArray(F, c, cAt);
        FloatVector y0 = FloatVector.fromArray(F, c, cAt + LANES);
        FloatVector x1 = FloatVector.fromArray(F, c, cAt + COLUMNS);
        FloatVector y1 = FloatVector.fromArray(F, c, cAt + COLUMNS + LANES);
        FloatVector x2 = FloatVector.fromArray(F, c, cAt + 2 * COLUMNS);
        FloatVector y2 = FloatVector.fromArray(F, c, cAt + 2 * COLUMNS + LANES);
        FloatVector x3 = FloatVector.fromArray(F, c, cAt + 3 * COLUMNS);
        FloatVector y3 = FloatVector.fromArray(F, c, cAt + 3 * COLUMNS + LANES);
        FloatVector x4 = FloatVector.fromArray(F, c, cAt + 4 * COLUMNS);
        FloatVector y4 = FloatVector.fromArray(F, c, cAt + 4 * COLUMNS + LANES);
        FloatVector x5 = FloatVector.fromArray(F, c, cAt + 5 * COLUMNS);
        FloatVector y5 = FloatVector.fromArray(F, c, cAt + 5 * COLUMNS + LANES);
        FloatVector x6 = FloatVector.fromArray(F, c, cAt + 6 * COLUMNS);
        FloatVector y6 = FloatVector.fromArray(F, c, cAt + 6 * COLUMNS + LANES);
        FloatVector x7 = FloatVector.fromArray(F, c, cAt + 7 * COLUMNS);
        FloatVector y7 = FloatVector.fromArray(F, c, cAt + 7 * COLUMNS + LANES);
        FloatVector x8 = FloatVector.fromArray(F, c, cAt + 8 * COLUMNS);
        FloatVector y8 = FloatVector.fromArray(F, c, cAt + 8 * COLUMNS + LANES);
        FloatVector x9 = FloatVector.fromArray(F, c, cAt + 9 * COLUMNS);
        FloatVector y9 = FloatVector.fromArray(F, c, cAt + 9 * COLUMNS + LANES);
        FloatVector x10 = FloatVector.fromArray(F, c, cAt + 10 * COLUMNS);
        FloatVector y10 = FloatVector.fromArray(F, c, cAt + 10 * COLUMNS + LANES);
        FloatVector x11 = FloatVector.fromArray(F, c, cAt + 11 * COLUMNS);
        FloatVector y11 = FloatVector.fromArray(F, c, cAt + 11 * COLUMNS + LANES);
        for (int p = 0; p < k; p++) {
            FloatVector u = FloatVector.fromArray(F, b, bAt + p * COLUMNS);
            FloatVector v = FloatVector.fromArray(F, b, bAt + p * COLUMNS + LANES);
            int at = aAt + p;
            FloatVector s = FloatVector.broadcast(F, a[at]);
            x0 = s.fma(u, x0);
            y0 = s.fma(v, y0);
            s = FloatVector.broadcast(F, a[at + STRIDE]);
            x1 = s.fma(u, x1);
            y1 = s.fma(v, y1);
            s = FloatVector.broadcast(F, a[at + 2 * STRIDE]);
            x2 = s.fma(u, x2);
            y2 = s.fma(v, y2);
            s = FloatVector.broadcast(F, a[at + 3 * STRIDE]);
            x3 = s.fma(u, x3);
            y3 = s.fma(v, y3);
            s = FloatVector.broadcast(F, a[at + 4 * STRIDE]);
            x4 = s.fma(u, x4);
            y4 = s.fma(v, y4);
            s = FloatVector.broadcast(F, a[at + 5 * STRIDE]);
            x5 = s.fma(u, x5);
            y5 = s.fma(v, y5);
            s = FloatVector.broadcast(F, a[at + 6 * STRIDE]);
            x6 = s.fma(u, x6);
            y6 = s.fma(v, y6);
            s = FloatVector.broadcast(F, a[at + 7 * STRIDE]);
            x7 = s.fma(u, x7);
            y7 = s.fma(v, y7);
            s = FloatVector.broadcast(F, a[at + 8 * STRIDE]);
            x8 = s.fma(u, x8);
            y8 = s.fma(v, y8);
            s = FloatVector.broadcast(F, a[at + 9 * STRIDE]);
            x9 = s.fma(u, x9);
            y9 = s.fma(v, y9);
            s = FloatVector.broadcast(F, a[at + 10 * STRIDE]);
            x10 = s.fma(u, x10);
            y10 = s.fma(v, y10);
            s = FloatVector.broadcast(F, a[at + 11 * STRIDE]);
            x11 = s.fma(u, x11);
            y11 = s.fma(v, y11);
        }
        x0.intoArray(c, cAt);
        y0.intoArray(c, cAt + LANES);
        x1.intoArray(c, cAt + COLUMNS);
        y1.intoArray(c, cAt + COLUMNS + LANES);
        x2.intoArray(c, cAt + 2 * COLUMNS);
        y2.intoArray(c, cAt + 2 * COLUMNS + LANES);
        x3.intoArray(c, cAt + 3 * COLUMNS);
        y3.intoArray(c, cAt + 3 * COLUMNS + LANES);
        x4.intoArray(c, cAt + 4 * COLUMNS);
        y4.intoArray(c, cAt + 4 * COLUMNS + LANES);
        x5.intoArray(c, cAt + 5 * COLUMNS);
        y5.intoArray(c, cAt + 5 * COLUMNS + LANES);
        x6.intoArray(c, cAt + 6 * COLUMNS);
        y6.intoArray(c, cAt + 6 * COLUMNS + LANES);
        x7.intoArray(c, cAt + 7 * COLUMNS);
        y7.intoArray(c, cAt + 7 * COLUMNS + LANES);
        x8.intoArray(c, cAt + 8 * COLUMNS);
        y8.intoArray(c, cAt + 8 * COLUMNS + LANES);
        x9.intoArray(c, cAt + 9 * COLUMNS);
        y9.intoArray(c, cAt + 9 * COLUMNS + LANES);
        x10.intoArray(c, cAt + 10 * COLUMNS);
        y10.intoArray(c, cAt + 10 * COLUMNS + LANES);
        x11.intoArray(c, cAt + 11 * COLUMNS);
        y11.intoArray(c, cAt + 11 * COLUMNS + LANES);
    }

    @Override
    void multiplyFew(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt) {
        FloatVector x0 = FloatVector.fromArray(F, c, cAt);
        FloatVector y0 = FloatVector.fromArray(F, c, cAt + LANES);
        FloatVector x1 = FloatVector.fromArray(F, c, cAt + COLUMNS);
        FloatVector y1 = FloatVector.fromArray(F, c, cAt + COLUMNS + LANES);
        FloatVector x2 = FloatVector.fromArray(F, c, cAt + 2 * COLUMNS);
        FloatVector y2 = FloatVector.fromArray(F, c, cAt + 2 * COLUMNS + LANES);
        FloatVector x3 = FloatVector.fromArray(F, c, cAt + 3 * COLUMNS);
        FloatVector y3 = FloatVector.fromArray(F, c, cAt + 3 * COLUMNS + LANES);
        for (int p = 0; p < k; p++) {
            FloatVector u = FloatVector.fromArray(F, b, bAt + p * COLUMNS);
            FloatVector v = FloatVector.fromArray(F, b, bAt + p * COLUMNS + LANES);
            int at = aAt + p;
            FloatVector s = FloatVector.broadcast(F, a[at]);
            x0 = s.fma(u, x0);
            y0 = s.fma(v, y0);
            s = FloatVector.broadcast(F, a[at + STRIDE]);
            x1 = s.fma(u, x1);
            y1 = s.fma(v, y1);
            s = FloatVector.broadcast(F, a[at + 2 * STRIDE]);
            x2 = s.fma(u, x2);
            y2 = s.fma(v, y2);
            s = FloatVector.broadcast(F, a[at + 3 * STRIDE]);
            x3 = s.fma(u, x3);
            y3 = s.fma(v, y3);
        }
        x0.intoArray(c, cAt);
        y0.intoArray(c, cAt + LANES);
        x1.intoArray(c, cAt + COLUMNS);
        y1.intoArray(c, cAt + COLUMNS + LANES);
        x2.intoArray(c, cAt + 2 * COLUMNS);
        y2.intoArray(c, cAt + 2 * COLUMNS + LANES);
        x3.intoArray(c, cAt + 3 * COLUMNS);
        y3.intoArray(c, cAt + 3 * COLUMNS + LANES);
    }

    @Override
    void addRows(
            float[] a,
            int aAt,
            int aStride,
            float[] b,
            int bStride,
            int depth,
            int count,
            float[] c,
            int cAt) {
        int p = 0;
        for (; p + STREAM_ROWS <= depth; p += STREAM_ROWS) {
            addEight(a, aAt + p * aStride, aStride, b, p * bStride, bStride, count, c, cAt);
        }
        for (; p < depth; p++) {
            FloatVector s = FloatVector.broadcast(F, a[aAt + p * aStride]);
            for (int j = 0; j < count; j += LANES) {
                FloatVector x = FloatVector.fromArray(F, c, cAt + j);
                s.fma(FloatVector.fromArray(F, b, p * bStride + j), x).intoArray(c, cAt + j);
            }
        }
    }

    private static void addEight(
            float[] a,
            int aAt,
            int aStride,
            float[] b,
            int bAt,
            int bStride,
            int count,
            float[] c,
            int cAt) {
        FloatVector s0 = FloatVector.broadcast(F, a[aAt]);
        FloatVector s1 = FloatVector.broadcast(F, a[aAt + aStride]);
        FloatVector s2 = FloatVector.broadcast(F, a[aAt + 2 * aStride]);
        FloatVector s3 = FloatVector.broadcast(F, a[aAt + 3 * aStride]);
        FloatVector s4 = FloatVector.broadcast(F, a[aAt + 4 * aStride]);
        FloatVector s5 = FloatVector.broadcast(F, a[aAt + 5 * aStride]);
        FloatVector s6 = FloatVector.broadcast(F, a[aAt + 6 * aStride]);
        FloatVector s7 = FloatVector.broadcast(F, a[aAt + 7 * aStride]);
        for (int j = 0; j < count; j += LANES) {
            int at = bAt + j;
            FloatVector x = FloatVector.fromArray(F, c, cAt + j);
            x = s0.fma(FloatVector.fromArray(F, b, at), x);
            x = s1.fma(FloatVector.fromArray(F, b, at + bStride), x);
            x = s2.fma(FloatVector.fromArray(F, b, at + 2 * bStride), x);
            x = s3.fma(FloatVector.fromArray(F, b, at + 3 * bStride), x);
            x = s4.fma(FloatVector.fromArray(F, b, at + 4 * bStride), x);
            x = s5.fma(FloatVector.fromArray(F, b, at + 5 * bStride), x);
            x = s6.fma(FloatVector.fromArray(F, b, at + 6 * bStride), x);
            x = s7.fma(FloatVector.fromArray(F, b, at + 7 * bStride), x);
            x.intoArray(c, cAt + j);
        }
    }

    @Override
    float add(float a, float b, float c) {
        return Math.fma(a, b, c);
    }

    @Override
    int nativeColumns(int count) {
        return F.loopBound(count);
    }

    @Override
    void addNative(
            float[] a,
            int aAt,
            int aStride,
            MemorySegment b,
            long bAt,
            long bStride,
            int count,
            float[] c,
            int cAt) {
        FloatVector s0 = FloatVector.broadcast(F, a[aAt]);
        FloatVector s1 = FloatVector.broadcast(F, a[aAt + aStride]);
        FloatVector s2 = FloatVector.broadcast(F, a[aAt + 2 * aStride]);
        FloatVector s3 = FloatVector.broadcast(F, a[aAt + 3 * aStride]);
        FloatVector s4 = FloatVector.broadcast(F, a[aAt + 4 * aStride]);
        FloatVector s5 = FloatVector.broadcast(F, a[aAt + 5 * aStride]);
        FloatVector s6 = FloatVector.broadcast(F, a[aAt + 6 * aStride]);
        FloatVector s7 = FloatVector.broadcast(F, a[aAt + 7 * aStride]);
        for (int j = 0; j < count; j += LANES) {
            long at = bAt + (long) j * Float.BYTES;
            FloatVector x = FloatVector.fromArray(F, c, cAt + j);
            x = s0.fma(FloatVector.fromMemorySegment(F, b, at, ORDER), x);
            x = s1.fma(FloatVector.fromMemorySegment(F, b, at + bStride, ORDER), x);
            x = s2.fma(FloatVector.fromMemorySegment(F, b, at + 2 * bStride, ORDER), x);
            x = s3.fma(FloatVector.fromMemorySegment(F, b, at + 3 * bStride, ORDER), x);
            x = s4.fma(FloatVector.fromMemorySegment(F, b, at + 4 * bStride, ORDER), x);
            x = s5.fma(FloatVector.fromMemorySegment(F, b, at + 5 * bStride, ORDER), x);
            x = s6.fma(FloatVector.fromMemorySegment(F, b, at + 6 * bStride, ORDER), x);
            x = s7.fma(FloatVector.fromMemorySegment(F, b, at + 7 * bStride, ORDER), x);
            x.intoArray(c, cAt + j);
        }
    }

    @Override
    void spread(float[] from, int steps, int count, float[] to, int at, int panelStride) {
        for (int j = 0, o = at; j < count; j += COLUMNS, o += panelStride) {
            for (int i = 0; i < steps; i++) {
                int x = i * count + j;
                int y = o + i * COLUMNS;
                FloatVector.fromArray(F, from, x).intoArray(to, y);
                FloatVector.fromArray(F, from, x + LANES).intoArray(to, y + LANES);
            }
        }
    }

    @Override
    void collect(float[] from, int at, int panelStride, float[] to, int count) {
        for (int j = 0, i = at; j < count; j += COLUMNS, i += panelStride) {
            FloatVector.fromArray(F, from, i).intoArray(to, j);
            FloatVector.fromArray(F, from, i + LANES).intoArray(to, j + LANES);
        }
    }

    @Override
    void scaleAdd(float[] from, int fromAt, float factor, float[] to, int at, int count) {
        int whole = F.loopBound(count);
        for (int i = 0; i < whole; i += LANES) {
            FloatVector x = FloatVector.fromArray(F, from, fromAt + i);
            FloatVector y = FloatVector.fromArray(F, to, at + i);
            y.mul(factor).add(x).intoArray(to, at + i);
        }
        for (int i = whole; i < count; i++) {
            to[at + i] = factor * to[at + i] + from[fromAt + i];
        }
    }

    @Override
    void widen(short[] from, float[] to, int at, int count) {
        int whole = S.loopBound(count);
        for (int i = 0; i < whole; i += LANES) {
            IntVector bits =
                    (IntVector)
                            ShortVector.fromArray(S, from, i)
                                    .convertShape(VectorOperators.S2I, I, 0);
            // Not reinterpretAsFloats: JDK 27 allocates in it once NarrowVectors converts too.
            Vector<Float> value = bits.lanewise(VectorOperators.LSHL, 16).reinterpretShape(F, 0);
            ((FloatVector) value).intoArray(to, at + i);
        }
        for (int i = whole; i < count; i++) {
            to[at + i] = Bfloat16.toFloat(from[i]);
        }
    }
}
