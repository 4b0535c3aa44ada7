package io.jccl.parallel;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import io.jccl.kernel.Kernel;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/**
 * Arithmetic on rows of float32 or bfloat16 in host memory. Products and sums of float32 are
 * computed directly from row to row; others use small arrays that stay in the L1 cache, since the
 * compiler vectorizes loops over arrays for any kind of memory. Sums are in float32, in the order
 * of the calls, and rounded once.
 */
final class TokenRows {
    private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT_UNALIGNED;
    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;

    /** Partial sums of a dot product, enough for two vectors on any machine. */
    private static final int LANES = 32;

    private final Kernel product = Kernel.of(DataType.FLOAT32, Kernel.Op.MUL);
    private final Kernel addition = Kernel.of(DataType.FLOAT32, Kernel.Op.ADD);

    private final int features;
    private final long bytes;
    private final boolean narrow;

    /**
     * A float32 product before it is added; a segment, so that the loops see a single kind of
     * memory.
     */
    private final MemorySegment scratch;

    private final float[] sum;
    private final float[] row;
    private final short[] bits;
    private final float[] lanes = new float[LANES];

    /**
     * Creates an instance for rows of a number of elements.
     *
     * @param scratch memory of one row
     */
    TokenRows(int features, DataType type, MemorySegment scratch) {
        this.features = features;
        bytes = (long) features * type.size();
        narrow = type == DataType.BFLOAT16;
        this.scratch = scratch;
        sum = new float[features];
        row = new float[features];
        bits = new short[narrow ? features : 0];
    }

    void copy(MemorySegment from, long fromRow, MemorySegment to, long toRow) {
        MemorySegment.copy(from, fromRow * bytes, to, toRow * bytes, bytes);
    }

    void zero(MemorySegment to, long row, long rows) {
        // In pieces: filling through a slice would allocate one.
        Arrays.fill(sum, 0);
        for (long r = row; r < row + rows; r++) {
            write(sum, to, r);
        }
    }

    /** Multiplies a row by a weight and writes the product to another row. */
    void scale(MemorySegment from, long fromRow, float weight, MemorySegment to, long toRow) {
        if (weight == 1) {
            copy(from, fromRow, to, toRow);
        } else if (narrow) {
            // Not the array of the sum, which may hold a kept row.
            read(from, fromRow, row);
            for (int i = 0; i < features; i++) {
                row[i] *= weight;
            }
            write(row, to, toRow);
        } else {
            product.apply(from, fromRow * bytes, bits(weight), to, toRow * bytes, features);
        }
    }

    private static long bits(float weight) {
        return Float.floatToRawIntBits(weight);
    }

    // Narrow sums are held in an array until they are rounded, float32 sums in their destination.

    /** Begins a weighted sum with a row times a weight; the sum will be written to another row. */
    void begin(MemorySegment from, long fromRow, float weight, MemorySegment to, long toRow) {
        if (!narrow) {
            scale(from, fromRow, weight, to, toRow);
            return;
        }
        read(from, fromRow, sum);
        for (int i = 0; i < features; i++) {
            sum[i] *= weight;
        }
    }

    /** Adds a row times a weight to the sum. */
    void add(MemorySegment from, long fromRow, float weight, MemorySegment to, long toRow) {
        long at = toRow * bytes;
        if (narrow) {
            read(from, fromRow, row);
            for (int i = 0; i < features; i++) {
                sum[i] += weight * row[i];
            }
        } else if (weight == 1) {
            addition.combine(to, at, from, fromRow * bytes, to, at, features);
        } else {
            product.apply(from, fromRow * bytes, bits(weight), scratch, 0, features);
            addition.combine(to, at, scratch, 0, to, at, features);
        }
    }

    /** Completes the sum. */
    void end(MemorySegment to, long toRow) {
        if (narrow) {
            write(sum, to, toRow);
        }
    }

    /** Stores a row for dot products. */
    void keep(MemorySegment from, long at) {
        read(from, at, sum);
    }

    /** The dot product of the stored row and another. */
    float dot(MemorySegment from, long at) {
        read(from, at, row);
        Arrays.fill(lanes, 0);
        int i = 0;
        for (; i + LANES <= features; i += LANES) {
            for (int k = 0; k < LANES; k++) {
                lanes[k] += sum[i + k] * row[i + k];
            }
        }
        for (int k = 0; i < features; i++, k++) {
            lanes[k] += sum[i] * row[i];
        }
        for (int width = LANES / 2; width > 0; width /= 2) {
            for (int k = 0; k < width; k++) {
                lanes[k] += lanes[k + width];
            }
        }
        return lanes[0];
    }

    private void read(MemorySegment from, long at, float[] to) {
        if (!narrow) {
            MemorySegment.copy(from, FLOAT, at * bytes, to, 0, features);
            return;
        }
        MemorySegment.copy(from, SHORT, at * bytes, bits, 0, features);
        for (int i = 0; i < features; i++) {
            to[i] = Bfloat16.toFloat(bits[i]);
        }
    }

    private void write(float[] from, MemorySegment to, long at) {
        if (!narrow) {
            MemorySegment.copy(from, 0, to, FLOAT, at * bytes, features);
            return;
        }
        for (int i = 0; i < features; i++) {
            bits[i] = Bfloat16.of(from[i]);
        }
        MemorySegment.copy(bits, 0, to, SHORT, at * bytes, features);
    }
}
