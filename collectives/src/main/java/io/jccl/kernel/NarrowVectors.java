package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;

/**
 * Float32 from and to memory of bfloat16 or float16, in integer arithmetic on vectors, since the
 * Vector API of JDK 25 has no narrow floats. Both formats are stored rounded to nearest even.
 * Loaded only where {@code jdk.incubator.vector} is resolved.
 */
final class NarrowVectors {
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Integer> INTS = IntVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Short> SHORTS =
            VectorSpecies.of(short.class, VectorShape.forBitSize(FLOATS.vectorBitSize() / 2));

    /**
     * Elements of a thread's scratch: a multiple of all widths, and half of a first-level cache.
     */
    static final int SCRATCH = 4096;

    private static final ThreadLocal<float[]> OWN =
            ThreadLocal.withInitial(() -> new float[SCRATCH]);

    private static final int SIGN = 0x80000000;
    private static final int INFINITY = 0x7f800000;

    private NarrowVectors() {}

    /** Memory of the calling thread, for converted elements. */
    static float[] scratch() {
        return OWN.get();
    }

    // The loops are written out: a method that takes or returns a vector is not always inlined, and
    // then the vector is allocated. reinterpretAsInts and reinterpretAsFloats of JDK 27 end with
    // such a call, which C2 does not inline where both are used; hence reinterpretShape.

    /** Widens elements of a narrow type, as many as whole vectors have. */
    static void widen(DataType type, MemorySegment s, long at, float[] to, int first, int count) {
        if (type == DataType.BFLOAT16) {
            widenBfloat16(s, at, to, first, count);
        } else {
            widenFloat16(s, at, to, first, count);
        }
    }

    private static void widenBfloat16(MemorySegment s, long at, float[] to, int first, int count) {
        for (int i = 0; i < count; i += FLOATS.length()) {
            IntVector bits =
                    (IntVector)
                            ShortVector.fromMemorySegment(SHORTS, s, at + 2L * i, ORDER)
                                    .castShape(INTS, 0);
            Vector<Float> value =
                    bits.lanewise(VectorOperators.LSHL, 16).reinterpretShape(FLOATS, 0);
            ((FloatVector) value).intoArray(to, first + i);
        }
    }

    private static void widenFloat16(MemorySegment s, long at, float[] to, int first, int count) {
        for (int i = 0; i < count; i += FLOATS.length()) {
            IntVector bits =
                    (IntVector)
                            ShortVector.fromMemorySegment(SHORTS, s, at + 2L * i, ORDER)
                                    .castShape(INTS, 0);
            // With the fraction in place, the exponent is 127 - 15 too small. Multiplying puts that
            // right and normalises subnormals, exactly. 31 means infinity or NaN.
            IntVector magnitude =
                    bits.lanewise(VectorOperators.AND, 0x7fff).lanewise(VectorOperators.LSHL, 13);
            FloatVector scaled =
                    ((FloatVector) magnitude.reinterpretShape(FLOATS, 0)).mul(0x1p112f);
            IntVector value = (IntVector) scaled.reinterpretShape(INTS, 0);
            value =
                    value.blend(
                            magnitude.lanewise(VectorOperators.OR, INFINITY),
                            magnitude.compare(VectorOperators.GE, 31 << 23));
            value =
                    value.lanewise(
                            VectorOperators.OR,
                            bits.lanewise(VectorOperators.LSHL, 16)
                                    .lanewise(VectorOperators.AND, SIGN));
            ((FloatVector) value.reinterpretShape(FLOATS, 0)).intoArray(to, first + i);
        }
    }

    /** Rounds elements to a narrow type, as many as whole vectors have. */
    static void round(float[] from, int first, DataType type, MemorySegment s, long at, int count) {
        if (type == DataType.BFLOAT16) {
            roundBfloat16(from, first, s, at, count);
        } else {
            roundFloat16(from, first, s, at, count);
        }
    }

    private static void roundBfloat16(
            float[] from, int first, MemorySegment s, long at, int count) {
        for (int i = 0; i < count; i += FLOATS.length()) {
            IntVector bits =
                    (IntVector)
                            FloatVector.fromArray(FLOATS, from, first + i)
                                    .reinterpretShape(INTS, 0);
            IntVector high = bits.lanewise(VectorOperators.LSHR, 16);
            IntVector rounded =
                    bits.add(high.lanewise(VectorOperators.AND, 1))
                            .add(0x7fff)
                            .lanewise(VectorOperators.LSHR, 16);
            // A NaN must not be rounded into infinity: set its quiet bit instead.
            IntVector narrow =
                    rounded.blend(
                            high.lanewise(VectorOperators.OR, 0x40),
                            bits.lanewise(VectorOperators.AND, ~SIGN)
                                    .compare(VectorOperators.GT, INFINITY));
            // castShape, since C2 of JDK 25 takes more than twice as long for convertShape.
            ((ShortVector) narrow.castShape(SHORTS, 0)).intoMemorySegment(s, at + 2L * i, ORDER);
        }
    }

    private static void roundFloat16(float[] from, int first, MemorySegment s, long at, int count) {
        for (int i = 0; i < count; i += FLOATS.length()) {
            IntVector bits =
                    (IntVector)
                            FloatVector.fromArray(FLOATS, from, first + i)
                                    .reinterpretShape(INTS, 0);
            IntVector magnitude = bits.lanewise(VectorOperators.AND, ~SIGN);
            IntVector odd =
                    magnitude.lanewise(VectorOperators.LSHR, 13).lanewise(VectorOperators.AND, 1);
            // Rebias the exponent and round; 65520 and above carry into float16's infinity.
            IntVector code =
                    magnitude
                            .sub((127 - 15) << 23)
                            .add(0xfff)
                            .add(odd)
                            .lanewise(VectorOperators.LSHR, 13);
            // Below the smallest normal number, 2^-14: the last bit of a float32 in [0.5, 1) is
            // worth 2^-24, one unit of float16's subnormals, so adding 0.5 rounds to such units.
            FloatVector above = ((FloatVector) magnitude.reinterpretShape(FLOATS, 0)).add(0.5f);
            IntVector small =
                    ((IntVector) above.reinterpretShape(INTS, 0))
                            .sub(Float.floatToRawIntBits(0.5f));
            code = code.blend(small, magnitude.compare(VectorOperators.LT, (127 - 14) << 23));
            code = code.blend(0x7c00, magnitude.compare(VectorOperators.GE, (127 + 16) << 23));
            code = code.blend(0x7e00, magnitude.compare(VectorOperators.GT, INFINITY));
            IntVector narrow =
                    code.lanewise(
                            VectorOperators.OR,
                            bits.lanewise(VectorOperators.LSHR, 16)
                                    .lanewise(VectorOperators.AND, 0x8000));
            ((ShortVector) narrow.castShape(SHORTS, 0)).intoMemorySegment(s, at + 2L * i, ORDER);
        }
    }
}
