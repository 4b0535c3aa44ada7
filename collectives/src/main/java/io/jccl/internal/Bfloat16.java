package io.jccl.internal;

/** bfloat16: the upper half of a float32. */
public final class Bfloat16 {
    private Bfloat16() {}

    /** Converts to float32 exactly. */
    public static float toFloat(short bits) {
        return Float.intBitsToFloat(bits << 16);
    }

    /** Converts from float32, rounding to nearest even; NaN remains NaN. */
    public static short of(float value) {
        int bits = Float.floatToRawIntBits(value);
        int rounded = (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
        // A NaN must not be rounded to infinity: its quiet bit is set instead. Float.isNaN would
        // make loops slower.
        return (short) ((bits & 0x7fffffff) > 0x7f800000 ? (bits >>> 16) | 0x40 : rounded);
    }
}
