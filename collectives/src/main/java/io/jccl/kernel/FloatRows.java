package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;

/** Float32 arrays from and to elements of float32, bfloat16 or float16. */
public final class FloatRows {
    private FloatRows() {}

    /** Widens elements from {@code index} on. */
    public static void load(
            MemorySegment from, DataType type, long index, float[] to, int at, int count) {
        switch (type) {
            case FLOAT32 ->
                    MemorySegment.copy(
                            from, JAVA_FLOAT_UNALIGNED, index * Float.BYTES, to, at, count);
            case BFLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = from.getAtIndex(JAVA_SHORT_UNALIGNED, index + i);
                    to[at + i] = Bfloat16.toFloat(bits);
                }
            }
            case FLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = from.getAtIndex(JAVA_SHORT_UNALIGNED, index + i);
                    to[at + i] = Float.float16ToFloat(bits);
                }
            }
            default -> throw wrong(type);
        }
    }

    /** Rounds to elements from {@code index} on. */
    public static void store(
            float[] from, int at, MemorySegment to, DataType type, long index, int count) {
        switch (type) {
            case FLOAT32 ->
                    MemorySegment.copy(
                            from, at, to, JAVA_FLOAT_UNALIGNED, index * Float.BYTES, count);
            case BFLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = Bfloat16.of(from[at + i]);
                    to.setAtIndex(JAVA_SHORT_UNALIGNED, index + i, bits);
                }
            }
            case FLOAT16 -> {
                for (int i = 0; i < count; i++) {
                    short bits = Float.floatToFloat16(from[at + i]);
                    to.setAtIndex(JAVA_SHORT_UNALIGNED, index + i, bits);
                }
            }
            default -> throw wrong(type);
        }
    }

    private static IllegalArgumentException wrong(DataType type) {
        return new IllegalArgumentException(
                "elements are of " + type.label() + ", expected float, bfloat16 or half");
    }
}
