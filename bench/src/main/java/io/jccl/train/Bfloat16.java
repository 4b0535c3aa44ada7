package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.MemorySegment;

/** Between bfloat16 and the float32 that the CPU computes with. */
final class Bfloat16 {
    private Bfloat16() {}

    static void widen(MemorySegment from, MemorySegment to, long count) {
        for (long i = 0; i < count; i++) {
            to.setAtIndex(JAVA_FLOAT, i, wide(from.getAtIndex(JAVA_SHORT, i)));
        }
    }

    static void narrow(MemorySegment from, MemorySegment to, long count) {
        for (long i = 0; i < count; i++) {
            to.setAtIndex(JAVA_SHORT, i, narrow(from.getAtIndex(JAVA_FLOAT, i)));
        }
    }

    static float wide(short bits) {
        return Float.intBitsToFloat(bits << Short.SIZE);
    }

    /** To nearest even. A NaN may become infinite, which a step refuses as well. */
    static short narrow(float value) {
        int bits = Float.floatToRawIntBits(value);
        return (short) ((bits + 0x7fff + ((bits >>> Short.SIZE) & 1)) >>> Short.SIZE);
    }
}
