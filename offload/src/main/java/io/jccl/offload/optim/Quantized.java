package io.jccl.offload.optim;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Block-wise dynamic quantization (arXiv 2110.02861, section 2): the 256 values of a dynamic tree,
 * times the largest magnitude of a block of 256 elements.
 */
final class Quantized {
    static final int BLOCK = 256;

    /** Codes of a block, and its scale. */
    static final int BYTES = BLOCK + Float.BYTES;

    static final Quantized SIGNED = new Quantized(true);
    static final Quantized UNSIGNED = new Quantized(false);

    private static final ValueLayout.OfFloat SCALE =
            JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final int EXPONENTS = 7;

    /** Ascending. */
    private final float[] values = new float[256];

    /** Half-way between a value and the next. */
    private final float[] middles = new float[255];

    private final int zero;

    private Quantized(boolean signed) {
        int n = 0;
        for (int e = 0; e < EXPONENTS; e++) {
            int fractions = 1 << (signed ? e : e + 1);
            double power = Math.pow(10, e - EXPONENTS + 1);
            for (int i = 0; i < fractions; i++) {
                // The middle of one of the equal parts of 0.1 to 1.
                float x = (float) (power * (0.1 + 0.9 * (i + 0.5) / fractions));
                values[n++] = x;
                if (signed) {
                    values[n++] = -x;
                }
            }
        }
        values[n++] = 0;
        values[n] = 1;
        Arrays.sort(values);
        for (int i = 0; i < middles.length; i++) {
            middles[i] = (float) (((double) values[i] + values[i + 1]) / 2);
        }
        zero = Arrays.binarySearch(values, 0);
    }

    static long bytes(long parameters) {
        return (parameters + BLOCK - 1) / BLOCK * BYTES;
    }

    float value(int code) {
        return values[code];
    }

    /** The nearest value's code. */
    int code(float x) {
        int low = 0;
        for (int half = 128; half > 0; half >>= 1) {
            int at = low + half - 1;
            if (at < middles.length && x > middles[at]) {
                low += half;
            }
        }
        return low;
    }

    /** Reads a block or a part of it, from its start. */
    void decode(MemorySegment from, long block, float[] to, int at, int n) {
        long base = block * BYTES;
        float scale = from.get(SCALE, base + BLOCK);
        for (int i = 0; i < n; i++) {
            to[at + i] = values[from.get(JAVA_BYTE, base + i) & 0xff] * scale;
        }
    }

    /** Writes a block or a part of it, from its start; what is not finite stays so. */
    void encode(float[] from, int at, int n, MemorySegment to, long block) {
        float scale = 0;
        for (int i = 0; i < n; i++) {
            scale = Math.max(scale, Math.abs(from[at + i]));
        }
        long base = block * BYTES;
        to.set(SCALE, base + BLOCK, scale);
        for (int i = 0; i < n; i++) {
            float x = from[at + i];
            int code = scale == 0 ? zero : code(x / scale);
            // A mean that was rounded to the other sign would move the parameter the wrong way, and
            // one over a square that was rounded to 0 much too far.
            if (x < 0 && code >= zero && this == SIGNED) {
                code = zero - 1;
            } else if (x > 0 && code <= zero) {
                code = zero + 1;
            }
            to.set(JAVA_BYTE, base + i, (byte) code);
        }
    }

    static void decode(Quantized map, MemorySegment from, MemorySegment to, long count) {
        float[] block = new float[BLOCK];
        for (long i = 0; i < count; i += BLOCK) {
            int n = (int) Math.min(BLOCK, count - i);
            map.decode(from, i / BLOCK, block, 0, n);
            MemorySegment.copy(block, 0, to, JAVA_FLOAT_UNALIGNED, i * Float.BYTES, n);
        }
    }

    static void encode(Quantized map, MemorySegment from, MemorySegment to, long count) {
        float[] block = new float[BLOCK];
        for (long i = 0; i < count; i += BLOCK) {
            int n = (int) Math.min(BLOCK, count - i);
            MemorySegment.copy(from, JAVA_FLOAT_UNALIGNED, i * Float.BYTES, block, 0, n);
            map.encode(block, 0, n, to, i / BLOCK);
        }
    }
}
