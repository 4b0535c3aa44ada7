package io.jccl.bench;

import io.jccl.device.DataType;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;

/**
 * Writes and reads single elements, deliberately without the engine's own conversions: the check
 * must not share a bug with the code that it checks. Values that a type cannot represent exactly
 * are rejected.
 */
final class Encoding {
    private static final Map<Double, Byte> E4M3 = codes(DataType.FLOAT8E4M3);
    private static final Map<Double, Byte> E5M2 = codes(DataType.FLOAT8E5M2);

    private Encoding() {}

    private static Map<Double, Byte> codes(DataType type) {
        Map<Double, Byte> codes = new HashMap<>();
        for (int code = 0; code < 256; code++) {
            codes.putIfAbsent(float8(type, code), (byte) code);
        }
        return codes;
    }

    /** Decodes a float8 by the definition of its format: sign, exponent, fraction. */
    private static double float8(DataType type, int code) {
        boolean e4m3 = type == DataType.FLOAT8E4M3;
        int fractionBits = e4m3 ? 3 : 2;
        int bias = e4m3 ? 7 : 15;
        int exponent = (code & 0x7f) >> fractionBits;
        int fraction = code & ((1 << fractionBits) - 1);
        double sign = code > 0x7f ? -1.0 : 1.0;
        if (e4m3 ? (code & 0x7f) == 0x7f : exponent == 31) {
            return e4m3 || fraction != 0 ? Double.NaN : sign * Double.POSITIVE_INFINITY;
        }
        double scale = 1 << fractionBits;
        return exponent == 0
                ? sign * Math.scalb(fraction / scale, 1 - bias)
                : sign * Math.scalb(1 + fraction / scale, exponent - bias);
    }

    /** Writes an integer type's element. */
    static void putLong(ByteBuffer to, int index, DataType type, long value) {
        boolean fits =
                switch (type) {
                    case INT8 -> value == (byte) value;
                    case UINT8 -> value == (value & 0xff);
                    case INT32 -> value == (int) value;
                    case UINT32 -> value == (value & 0xffff_ffffL);
                    case UINT64 -> value >= 0;
                    default -> true;
                };
        if (!fits) {
            throw new ArithmeticException(type.label() + " cannot hold " + value);
        }
        putBits(to, index, type, value);
    }

    /** Writes a floating-point type's element. */
    static void putDouble(ByteBuffer to, int index, DataType type, double value) {
        putBits(to, index, type, bits(type, value));
        if (Double.compare(getDouble(to, index, type), value) != 0) {
            throw new ArithmeticException(type.label() + " cannot hold " + value);
        }
    }

    private static long bits(DataType type, double value) {
        return switch (type) {
            case FLOAT64 -> Double.doubleToRawLongBits(value);
            case FLOAT32 -> Float.floatToRawIntBits((float) value);
            case FLOAT16 -> Float.floatToFloat16((float) value);
            case BFLOAT16 -> Float.floatToRawIntBits((float) value) >>> 16;
            case FLOAT8E4M3 -> E4M3.getOrDefault(value, (byte) 0x7f);
            case FLOAT8E5M2 -> E5M2.getOrDefault(value, (byte) 0x7f);
            default -> throw new IllegalArgumentException(type.label());
        };
    }

    /** Writes an element's bits. */
    static void putBits(ByteBuffer to, int index, DataType type, long bits) {
        switch (type.size()) {
            case 1 -> to.put(index, (byte) bits);
            case 2 -> to.putShort(2 * index, (short) bits);
            case 4 -> to.putInt(4 * index, (int) bits);
            default -> to.putLong(8 * index, bits);
        }
    }

    /** Reads an integer type's element; uint64 keeps its bits. */
    static long getLong(ByteBuffer from, int index, DataType type) {
        return switch (type) {
            case INT8 -> from.get(index);
            case UINT8 -> from.get(index) & 0xff;
            case INT32 -> from.getInt(4 * index);
            case UINT32 -> from.getInt(4 * index) & 0xffff_ffffL;
            default -> from.getLong(8 * index);
        };
    }

    /** Reads a floating-point type's element. */
    static double getDouble(ByteBuffer from, int index, DataType type) {
        return switch (type) {
            case FLOAT64 -> from.getDouble(8 * index);
            case FLOAT32 -> from.getFloat(4 * index);
            case FLOAT16 -> Float.float16ToFloat(from.getShort(2 * index));
            case BFLOAT16 -> Float.intBitsToFloat(from.getShort(2 * index) << 16);
            case FLOAT8E4M3, FLOAT8E5M2 -> float8(type, from.get(index) & 0xff);
            default -> throw new IllegalArgumentException(type.label());
        };
    }
}
