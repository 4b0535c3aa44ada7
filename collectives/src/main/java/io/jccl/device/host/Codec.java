package io.jccl.device.host;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Conversion between elements and Java's numbers.
 *
 * <p>The float8 formats are those of the OCP 8-bit Floating Point Specification; converting to them
 * saturates (finite values out of range and infinities become the largest finite value), as CUDA's
 * {@code __NV_SATFINITE} does. float16 and bfloat16 overflow to infinity.
 */
public final class Codec {
    private static final float[] E4M3 = new float[256];
    private static final float[] E5M2 = new float[256];

    static {
        for (int code = 0; code < 256; code++) {
            E4M3[code] = (code & 0x7f) == 0x7f ? Float.NaN : small(code, 3, 7);
            boolean special = (code & 0x7c) == 0x7c;
            float inf = code < 0x80 ? Float.POSITIVE_INFINITY : Float.NEGATIVE_INFINITY;
            E5M2[code] = !special ? small(code, 2, 15) : (code & 3) == 0 ? inf : Float.NaN;
        }
    }

    private Codec() {}

    /** Decodes a sign bit, a biased exponent and fraction bits. */
    private static float small(int code, int fractionBits, int bias) {
        int exponent = (code & 0x7f) >> fractionBits;
        int fraction = code & ((1 << fractionBits) - 1);
        float magnitude =
                exponent == 0
                        ? Math.scalb((float) fraction, 1 - bias - fractionBits)
                        : Math.scalb(
                                (float) (fraction | 1 << fractionBits),
                                exponent - bias - fractionBits);
        return code < 0x80 ? magnitude : -magnitude;
    }

    public static float e4m3(byte code) {
        return E4M3[code & 0xff];
    }

    public static float e5m2(byte code) {
        return E5M2[code & 0xff];
    }

    public static byte toE4m3(float value) {
        return toSmall(value, 3, 7, 0x7e);
    }

    public static byte toE5m2(float value) {
        return toSmall(value, 2, 15, 0x7b);
    }

    private static byte toSmall(float value, int fractionBits, int bias, int maxCode) {
        int bits = Float.floatToRawIntBits(value);
        int sign = (bits >>> 24) & 0x80;
        int magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000) {
            return (byte) (sign | 0x7f);
        }
        int code;
        if ((magnitude >>> 23) - 127 >= 1 - bias) {
            int shift = 23 - fractionBits;
            int tie = (magnitude >>> shift) & 1;
            int rounded = (magnitude + (1 << (shift - 1)) - 1 + tie) >>> shift;
            code = rounded - ((127 - bias) << fractionBits);
        } else {
            // Subnormal: count units of the smallest value. Scaling by a power of two is exact.
            float unit = Math.scalb(1f, bias - 1 + fractionBits);
            code = (int) Math.rint(Float.intBitsToFloat(magnitude) * unit);
        }
        return (byte) (sign | Math.min(code, maxCode));
    }

    /**
     * Rounds to float32 to odd: the last bit is 1 if inexact. Rounding that again to a much
     * narrower type then equals rounding once from float64.
     */
    private static float toFloatOdd(double value) {
        float f = (float) value;
        if (f == value || Float.isNaN(f)) {
            return f;
        }
        float down = Math.abs((double) f) > Math.abs(value) ? towardsZero(f) : f;
        return Float.intBitsToFloat(Float.floatToRawIntBits(down) | 1);
    }

    private static float towardsZero(float f) {
        return f > 0 ? Math.nextDown(f) : Math.nextUp(f);
    }

    /** An element at an index, as a float64. */
    public static double get(MemorySegment s, DataType type, long i) {
        return switch (type) {
            case INT8 -> s.get(ValueLayout.JAVA_BYTE, i);
            case UINT8 -> s.get(ValueLayout.JAVA_BYTE, i) & 0xff;
            case INT32 -> s.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i);
            case UINT32 -> s.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i) & 0xffffffffL;
            case INT64 -> s.getAtIndex(ValueLayout.JAVA_LONG_UNALIGNED, i);
            case UINT64 -> unsigned(s.getAtIndex(ValueLayout.JAVA_LONG_UNALIGNED, i));
            case FLOAT16 -> Float.float16ToFloat(s.getAtIndex(ValueLayout.JAVA_SHORT_UNALIGNED, i));
            case BFLOAT16 -> Bfloat16.toFloat(s.getAtIndex(ValueLayout.JAVA_SHORT_UNALIGNED, i));
            case FLOAT32 -> s.getAtIndex(ValueLayout.JAVA_FLOAT_UNALIGNED, i);
            case FLOAT64 -> s.getAtIndex(ValueLayout.JAVA_DOUBLE_UNALIGNED, i);
            case FLOAT8E4M3 -> e4m3(s.get(ValueLayout.JAVA_BYTE, i));
            case FLOAT8E5M2 -> e5m2(s.get(ValueLayout.JAVA_BYTE, i));
        };
    }

    private static double unsigned(long v) {
        // Halve, keeping the lost bit sticky so that the result is rounded once.
        return v >= 0 ? (double) v : (double) ((v >>> 1) | (v & 1)) * 2.0;
    }

    /** Stores a value as an element at an index, rounded once. */
    public static void set(MemorySegment s, DataType type, long i, double v) {
        switch (type) {
            case FLOAT16 ->
                    s.setAtIndex(
                            ValueLayout.JAVA_SHORT_UNALIGNED,
                            i,
                            Float.floatToFloat16(toFloatOdd(v)));
            case BFLOAT16 ->
                    s.setAtIndex(ValueLayout.JAVA_SHORT_UNALIGNED, i, Bfloat16.of(toFloatOdd(v)));
            case FLOAT32 -> s.setAtIndex(ValueLayout.JAVA_FLOAT_UNALIGNED, i, (float) v);
            case FLOAT64 -> s.setAtIndex(ValueLayout.JAVA_DOUBLE_UNALIGNED, i, v);
            case FLOAT8E4M3 -> s.set(ValueLayout.JAVA_BYTE, i, toE4m3(toFloatOdd(v)));
            case FLOAT8E5M2 -> s.set(ValueLayout.JAVA_BYTE, i, toE5m2(toFloatOdd(v)));
            case UINT64 ->
                    setLong(
                            s,
                            type,
                            i,
                            v >= 0x1p63 ? (long) (v - 0x1p63) + Long.MIN_VALUE : (long) v);
            default -> setLong(s, type, i, (long) v);
        }
    }

    static long getLong(MemorySegment s, DataType type, long i) {
        return switch (type) {
            case INT8 -> s.get(ValueLayout.JAVA_BYTE, i);
            case UINT8 -> s.get(ValueLayout.JAVA_BYTE, i) & 0xff;
            case INT32 -> s.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i);
            case UINT32 -> s.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i) & 0xffffffffL;
            case INT64, UINT64 -> s.getAtIndex(ValueLayout.JAVA_LONG_UNALIGNED, i);
            default -> throw notInteger(type);
        };
    }

    static void setLong(MemorySegment s, DataType type, long i, long v) {
        switch (type) {
            case INT8, UINT8 -> s.set(ValueLayout.JAVA_BYTE, i, (byte) v);
            case INT32, UINT32 -> s.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, i, (int) v);
            case INT64, UINT64 -> s.setAtIndex(ValueLayout.JAVA_LONG_UNALIGNED, i, v);
            default -> throw notInteger(type);
        }
    }

    private static UnsupportedOperationException notInteger(DataType type) {
        return new UnsupportedOperationException(
                type.label() + " is not an integer type; use get and set");
    }
}
