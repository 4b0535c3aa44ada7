package io.jccl.train.fit;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;

/**
 * Products of row-major matrices, in float32. Weights and gradients may be bfloat16: weights are
 * widened as they are packed into a tile, gradients rounded as a panel is added to them. Offsets
 * and strides count elements; all memory is the caller's.
 */
final class Kernels {
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final VectorSpecies<Float> FLOATS =
            FloatVector.SPECIES_PREFERRED.length() > 16
                    ? FloatVector.SPECIES_512
                    : FloatVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Integer> INTS =
            VectorSpecies.of(int.class, FLOATS.vectorShape());
    private static final VectorSpecies<Short> SHORTS =
            VectorSpecies.of(short.class, VectorShape.forBitSize(FLOATS.vectorBitSize() / 2));
    private static final int LANES = FLOATS.length();

    /** Columns of a panel: two vectors, 32 columns at most. */
    static final int PANEL = 2 * LANES;

    private static final int ROWS = 4;

    private Kernels() {}

    /** {@code c[m, PANEL] (+)= a[m, k] tile[k, PANEL]}, a with any strides. */
    private static void panel(
            MemorySegment a,
            long aFrom,
            long aRow,
            long aColumn,
            MemorySegment tile,
            int k,
            MemorySegment c,
            long cFrom,
            long cRow,
            int m,
            boolean add) {
        int i = 0;
        for (; i + ROWS <= m; i += ROWS) {
            long a0 = aFrom + i * aRow;
            FloatVector x0 = FloatVector.zero(FLOATS);
            FloatVector y0 = x0;
            FloatVector x1 = x0;
            FloatVector y1 = x0;
            FloatVector x2 = x0;
            FloatVector y2 = x0;
            FloatVector x3 = x0;
            FloatVector y3 = x0;
            for (int p = 0; p < k; p++) {
                long t = (long) p * PANEL * Float.BYTES;
                FloatVector u = FloatVector.fromMemorySegment(FLOATS, tile, t, ORDER);
                FloatVector v =
                        FloatVector.fromMemorySegment(
                                FLOATS, tile, t + (long) LANES * Float.BYTES, ORDER);
                long at = a0 + p * aColumn;
                FloatVector b = FloatVector.broadcast(FLOATS, a.getAtIndex(JAVA_FLOAT, at));
                x0 = b.fma(u, x0);
                y0 = b.fma(v, y0);
                b = FloatVector.broadcast(FLOATS, a.getAtIndex(JAVA_FLOAT, at + aRow));
                x1 = b.fma(u, x1);
                y1 = b.fma(v, y1);
                b = FloatVector.broadcast(FLOATS, a.getAtIndex(JAVA_FLOAT, at + 2 * aRow));
                x2 = b.fma(u, x2);
                y2 = b.fma(v, y2);
                b = FloatVector.broadcast(FLOATS, a.getAtIndex(JAVA_FLOAT, at + 3 * aRow));
                x3 = b.fma(u, x3);
                y3 = b.fma(v, y3);
            }
            put(x0, y0, c, cFrom + i * cRow, add);
            put(x1, y1, c, cFrom + (i + 1) * cRow, add);
            put(x2, y2, c, cFrom + (i + 2) * cRow, add);
            put(x3, y3, c, cFrom + (i + 3) * cRow, add);
        }
        for (; i < m; i++) {
            FloatVector x = FloatVector.zero(FLOATS);
            FloatVector y = x;
            for (int p = 0; p < k; p++) {
                long t = (long) p * PANEL * Float.BYTES;
                FloatVector b =
                        FloatVector.broadcast(
                                FLOATS, a.getAtIndex(JAVA_FLOAT, aFrom + i * aRow + p * aColumn));
                x = b.fma(FloatVector.fromMemorySegment(FLOATS, tile, t, ORDER), x);
                y =
                        b.fma(
                                FloatVector.fromMemorySegment(
                                        FLOATS, tile, t + (long) LANES * Float.BYTES, ORDER),
                                y);
            }
            put(x, y, c, cFrom + i * cRow, add);
        }
    }

    private static void put(FloatVector x, FloatVector y, MemorySegment c, long at, boolean add) {
        long first = at * Float.BYTES;
        long second = first + (long) LANES * Float.BYTES;
        FloatVector u = x;
        FloatVector v = y;
        if (add) {
            u = u.add(FloatVector.fromMemorySegment(FLOATS, c, first, ORDER));
            v = v.add(FloatVector.fromMemorySegment(FLOATS, c, second, ORDER));
        }
        u.intoMemorySegment(c, first, ORDER);
        v.intoMemorySegment(c, second, ORDER);
    }

    /** {@code y[m, n] (+)= x[m, k] w[k, n]}. */
    static void times(
            MemorySegment x,
            MemorySegment w,
            long wFrom,
            DataType type,
            MemorySegment y,
            int m,
            int k,
            int n,
            boolean add,
            MemorySegment tile) {
        for (int j = 0; j < n; j += PANEL) {
            for (int p = 0; p < k; p++) {
                widen(w, type, wFrom + (long) p * n + j, tile, (long) p * PANEL, PANEL);
            }
            panel(x, 0, k, 1, tile, k, y, j, n, m, add);
        }
    }

    /** {@code x[m, k] = y[m, n] w[k, n]^T}. */
    static void timesTransposed(
            MemorySegment y,
            MemorySegment w,
            long wFrom,
            DataType type,
            MemorySegment x,
            int m,
            int k,
            int n,
            MemorySegment tile) {
        boolean narrow = type == DataType.BFLOAT16;
        for (int j = 0; j < k; j += PANEL) {
            for (int c = 0; c < PANEL; c++) {
                long row = wFrom + (long) (j + c) * n;
                if (narrow) {
                    for (int p = 0; p < n; p++) {
                        tile.setAtIndex(
                                JAVA_FLOAT,
                                (long) p * PANEL + c,
                                Bfloat16.toFloat(w.getAtIndex(JAVA_SHORT, row + p)));
                    }
                } else {
                    for (int p = 0; p < n; p++) {
                        tile.setAtIndex(
                                JAVA_FLOAT,
                                (long) p * PANEL + c,
                                w.getAtIndex(JAVA_FLOAT, row + p));
                    }
                }
            }
            panel(y, 0, n, 1, tile, n, x, j, k, m, false);
        }
    }

    /** {@code g[k, n] += x[m, k]^T y[m, n]}. */
    static void addOuter(
            MemorySegment x,
            MemorySegment y,
            MemorySegment g,
            long gFrom,
            DataType type,
            int m,
            int k,
            int n,
            MemorySegment tile,
            MemorySegment sums) {
        for (int j = 0; j < n; j += PANEL) {
            for (int p = 0; p < m; p++) {
                widen(y, DataType.FLOAT32, (long) p * n + j, tile, (long) p * PANEL, PANEL);
            }
            panel(x, 0, 1, k, tile, m, sums, 0, PANEL, k, false);
            for (int p = 0; p < k; p++) {
                add(sums, (long) p * PANEL, g, type, gFrom + (long) p * n + j, PANEL);
            }
        }
    }

    /** Copies into float32; the count is a multiple of the lanes. */
    static void widen(
            MemorySegment from, DataType type, long at, MemorySegment to, long toAt, int count) {
        if (type == DataType.FLOAT32) {
            MemorySegment.copy(
                    from, at * Float.BYTES, to, toAt * Float.BYTES, (long) count * Float.BYTES);
            return;
        }
        for (int i = 0; i < count; i += LANES) {
            bfloat16(from, at + i).intoMemorySegment(to, (toAt + i) * Float.BYTES, ORDER);
        }
    }

    /**
     * Rounds float32 to the type that is kept, so that later computations use the values that the
     * backward pass will see.
     */
    static void keep(MemorySegment values, MemorySegment kept, DataType type, int count) {
        if (type == DataType.FLOAT32) {
            MemorySegment.copy(values, 0, kept, 0, (long) count * Float.BYTES);
            return;
        }
        for (int i = 0; i < count; i += LANES) {
            FloatVector v =
                    FloatVector.fromMemorySegment(FLOATS, values, (long) i * Float.BYTES, ORDER);
            store(v, kept, i);
            bfloat16(kept, i).intoMemorySegment(values, (long) i * Float.BYTES, ORDER);
        }
    }

    /** {@code to += from}, rounded to the target's type. */
    static void add(
            MemorySegment from, long at, MemorySegment to, DataType type, long toAt, int count) {
        for (int i = 0; i < count; i += LANES) {
            FloatVector v =
                    FloatVector.fromMemorySegment(FLOATS, from, (at + i) * Float.BYTES, ORDER);
            if (type == DataType.FLOAT32) {
                long b = (toAt + i) * Float.BYTES;
                v.add(FloatVector.fromMemorySegment(FLOATS, to, b, ORDER))
                        .intoMemorySegment(to, b, ORDER);
            } else {
                store(v.add(bfloat16(to, toAt + i)), to, toAt + i);
            }
        }
    }

    private static FloatVector bfloat16(MemorySegment s, long at) {
        IntVector bits =
                (IntVector)
                        ShortVector.fromMemorySegment(SHORTS, s, at * Short.BYTES, ORDER)
                                .convertShape(VectorOperators.S2I, INTS, 0);
        return bits.lanewise(VectorOperators.LSHL, 16).reinterpretAsFloats();
    }

    /** To nearest even. A NaN may become infinite, which a step refuses as well. */
    private static void store(FloatVector v, MemorySegment s, long at) {
        IntVector bits = v.reinterpretAsInts();
        IntVector odd = bits.lanewise(VectorOperators.LSHR, 16).lanewise(VectorOperators.AND, 1);
        bits.add(odd)
                .add(0x7fff)
                .lanewise(VectorOperators.LSHR, 16)
                .convertShape(VectorOperators.I2S, SHORTS, 0)
                .reinterpretAsShorts()
                .intoMemorySegment(s, at * Short.BYTES, ORDER);
    }
}
