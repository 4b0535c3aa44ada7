package io.jccl.parallel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Arithmetic on rows of float32 or bfloat16 in host memory, by way of small arrays that stay in the
 * first-level cache: loops over arrays are those the compiler vectorises, wherever the memory lies.
 * Sums are in float32, in the order of the calls, and rounded once.
 */
final class TokenRows {
    private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT_UNALIGNED;
    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;

    /** Sums of a scalar product side by side, enough for two vectors of any machine. */
    private static final int LANES = 32;

    private final int features;
    private final long bytes;
    private final boolean narrow;
    private final float[] sum;
    private final float[] row;
    private final short[] bits;
    private final float[] lanes = new float[LANES];

    TokenRows(int features, DataType type) {
        this.features = features;
        bytes = (long) features * type.size();
        narrow = type == DataType.BFLOAT16;
        sum = new float[features];
        row = new float[features];
        bits = new short[narrow ? features : 0];
    }

    void copy(MemorySegment from, long fromRow, MemorySegment to, long toRow) {
        MemorySegment.copy(from, fromRow * bytes, to, toRow * bytes, bytes);
    }

    void zero(MemorySegment to, long row, long rows) {
        // By pieces: filling through a slice would make one.
        java.util.Arrays.fill(sum, 0);
        for (long r = row; r < row + rows; r++) {
            write(sum, to, r);
        }
    }

    /** Makes a row the sum. */
    void load(MemorySegment from, long at) {
        read(from, at, sum);
    }

    /** Makes a row times a weight the sum. */
    void loadScaled(MemorySegment from, long at, float weight) {
        read(from, at, sum);
        if (weight != 1) {
            for (int i = 0; i < features; i++) {
                sum[i] *= weight;
            }
        }
    }

    /** Adds a row times a weight to the sum. */
    void addScaled(MemorySegment from, long at, float weight) {
        read(from, at, row);
        for (int i = 0; i < features; i++) {
            sum[i] += weight * row[i];
        }
    }

    /** Writes the sum to a row. */
    void store(MemorySegment to, long at) {
        write(sum, to, at);
    }

    /** Writes the sum times a weight to a row. */
    void storeScaled(float weight, MemorySegment to, long at) {
        for (int i = 0; i < features; i++) {
            row[i] = weight * sum[i];
        }
        write(row, to, at);
    }

    /** The scalar product of the sum and a row. */
    float dot(MemorySegment from, long at) {
        read(from, at, row);
        java.util.Arrays.fill(lanes, 0);
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
            to[i] = Float.intBitsToFloat(bits[i] << 16);
        }
    }

    private void write(float[] from, MemorySegment to, long at) {
        if (!narrow) {
            MemorySegment.copy(from, 0, to, FLOAT, at * bytes, features);
            return;
        }
        for (int i = 0; i < features; i++) {
            int b = Float.floatToRawIntBits(from[i]);
            int rounded = (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;
            // A NaN must not be rounded into infinity: set its quiet bit instead.
            bits[i] = (short) ((b & 0x7fffffff) > 0x7f800000 ? (b >>> 16) | 0x40 : rounded);
        }
        MemorySegment.copy(bits, 0, to, SHORT, at * bytes, features);
    }
}
