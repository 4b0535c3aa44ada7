package io.jccl.offload.zero;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;

/** Conversions and sums of buffers in host memory; float32, bfloat16 and float16. */
final class Numbers {
    private static final int BLOCK = 4096;

    private Numbers() {}

    /** Copies, rounding to nearest even where the target is narrower. */
    static void copy(Buffer from, Buffer to) {
        check(from, to);
        if (from.dataType() == to.dataType()) {
            to.asSegment().copyFrom(from.asSegment());
            return;
        }
        each(from, to, false);
    }

    /** {@code to += from}, in float32, rounded to the target's type. */
    static void add(Buffer from, Buffer to) {
        check(from, to);
        each(from, to, true);
    }

    private static void check(Buffer from, Buffer to) {
        if (from.count() != to.count()) {
            throw new IllegalArgumentException(
                    "source holds " + from.count() + " elements, target " + to.count());
        }
    }

    private static void each(Buffer from, Buffer to, boolean add) {
        MemorySegment a = from.asSegment();
        MemorySegment b = to.asSegment();
        // Inner loops of one shape each, which the compiler can turn into vectors.
        for (long i = 0; i < from.count(); i += BLOCK) {
            int n = (int) Math.min(BLOCK, from.count() - i);
            if (from.dataType() == DataType.FLOAT32 && to.dataType() == DataType.FLOAT32) {
                for (int j = 0; j < n; j++) {
                    long at = (i + j) * Float.BYTES;
                    float x = a.get(JAVA_FLOAT_UNALIGNED, at);
                    b.set(JAVA_FLOAT_UNALIGNED, at, x + b.get(JAVA_FLOAT_UNALIGNED, at));
                }
            } else {
                for (long j = i; j < i + n; j++) {
                    float x = get(a, from.dataType(), j);
                    put(b, to.dataType(), j, add ? x + get(b, to.dataType(), j) : x);
                }
            }
        }
    }

    private static float get(MemorySegment s, DataType type, long i) {
        return switch (type) {
            case FLOAT32 -> s.get(JAVA_FLOAT_UNALIGNED, i * Float.BYTES);
            case BFLOAT16 -> Bfloat16.toFloat(s.get(JAVA_SHORT_UNALIGNED, i * Short.BYTES));
            default -> Float.float16ToFloat(s.get(JAVA_SHORT_UNALIGNED, i * Short.BYTES));
        };
    }

    private static void put(MemorySegment s, DataType type, long i, float x) {
        switch (type) {
            case FLOAT32 -> s.set(JAVA_FLOAT_UNALIGNED, i * Float.BYTES, x);
            case BFLOAT16 -> s.set(JAVA_SHORT_UNALIGNED, i * Short.BYTES, Bfloat16.of(x));
            default -> s.set(JAVA_SHORT_UNALIGNED, i * Short.BYTES, Float.floatToFloat16(x));
        }
    }
}
