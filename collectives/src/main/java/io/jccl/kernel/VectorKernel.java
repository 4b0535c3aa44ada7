package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * Template of the loops on the Vector API; see {@link Kernel}. Loaded only where {@code
 * jdk.incubator.vector} is resolved. C2 of JDK 25 does not vectorise a loop over three memory
 * segments by itself, since it cannot prove that they do not alias.
 */
final class VectorKernel extends Kernel {
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final DataType TYPE;
    private static final VectorOperators.Binary OP;

    /**
     * Of {@link #TYPE}, whatever the type argument. Loops use it as a constant: passed as a
     * parameter to a method that C2 compiles by itself, it would be unknown there, and every vector
     * would become an object.
     */
    private static final VectorSpecies<Byte> SPECIES;

    private static final int LANES;
    private static final int WIDTH;
    private static final int SIZE;
    private static final Kernel REST;

    static {
        try {
            Data data = MethodHandles.classData(MethodHandles.lookup(), "_", Data.class);
            TYPE = data.spec().type();
            REST = data.rest();
            boolean unsigned = TYPE.isUnsigned();
            OP =
                    switch (data.spec().op()) {
                        case ADD -> VectorOperators.ADD;
                        case MUL -> VectorOperators.MUL;
                        case MIN -> unsigned ? VectorOperators.UMIN : VectorOperators.MIN;
                        case MAX -> unsigned ? VectorOperators.UMAX : VectorOperators.MAX;
                        case DIV -> VectorOperators.DIV;
                    };
            SPECIES =
                    unchecked(
                            switch (TYPE) {
                                case INT8, UINT8 -> ByteVector.SPECIES_PREFERRED;
                                case INT32, UINT32 -> IntVector.SPECIES_PREFERRED;
                                case INT64, UINT64 -> LongVector.SPECIES_PREFERRED;
                                case FLOAT32 -> FloatVector.SPECIES_PREFERRED;
                                case FLOAT64 -> DoubleVector.SPECIES_PREFERRED;
                                default ->
                                        throw new IllegalArgumentException(
                                                TYPE + " is widened first");
                            });
            LANES = SPECIES.length();
            WIDTH = SPECIES.vectorByteSize();
            SIZE = TYPE.size();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    VectorKernel() {}

    @SuppressWarnings("unchecked")
    private static VectorSpecies<Byte> unchecked(VectorSpecies<?> species) {
        return (VectorSpecies<Byte>) species;
    }

    @Override
    public void combine(
            MemorySegment a, long ao, MemorySegment b, long bo, MemorySegment o, long oo, int n) {
        int vectors = n / LANES;
        for (int i = 0; i < vectors; i++) {
            long x = (long) i * WIDTH;
            SPECIES.fromMemorySegment(a, ao + x, ORDER)
                    .lanewise(OP, SPECIES.fromMemorySegment(b, bo + x, ORDER))
                    .intoMemorySegment(o, oo + x, ORDER);
        }
        int done = vectors * LANES;
        if (done < n) {
            long x = (long) done * SIZE;
            REST.combine(a, ao + x, b, bo + x, o, oo + x, n - done);
        }
    }

    @Override
    void combine2(
            MemorySegment a,
            long ao,
            MemorySegment b,
            long bo,
            MemorySegment o,
            long oo,
            MemorySegment p,
            long po,
            int n) {
        int vectors = n / LANES;
        for (int i = 0; i < vectors; i++) {
            long x = (long) i * WIDTH;
            Vector<Byte> y =
                    SPECIES.fromMemorySegment(a, ao + x, ORDER)
                            .lanewise(OP, SPECIES.fromMemorySegment(b, bo + x, ORDER));
            y.intoMemorySegment(o, oo + x, ORDER);
            y.intoMemorySegment(p, po + x, ORDER);
        }
        int done = vectors * LANES;
        if (done < n) {
            long x = (long) done * SIZE;
            REST.combine2(a, ao + x, b, bo + x, o, oo + x, p, po + x, n - done);
        }
    }

    @Override
    public void apply(MemorySegment a, long ao, long scalar, MemorySegment o, long oo, int n) {
        if (TYPE.isInteger()) {
            REST.apply(a, ao, scalar, o, oo, n);
            return;
        }
        int vectors = n / LANES;
        for (int i = 0; i < vectors; i++) {
            long x = (long) i * WIDTH;
            switch (TYPE) {
                case FLOAT32 ->
                        FloatVector.fromMemorySegment(
                                        FloatVector.SPECIES_PREFERRED, a, ao + x, ORDER)
                                .lanewise(OP, Float.intBitsToFloat((int) scalar))
                                .intoMemorySegment(o, oo + x, ORDER);
                case FLOAT64 ->
                        DoubleVector.fromMemorySegment(
                                        DoubleVector.SPECIES_PREFERRED, a, ao + x, ORDER)
                                .lanewise(OP, Double.longBitsToDouble(scalar))
                                .intoMemorySegment(o, oo + x, ORDER);
                default -> throw new IllegalStateException("no such vectors for " + TYPE);
            }
        }
        int done = vectors * LANES;
        if (done < n) {
            long x = (long) done * SIZE;
            REST.apply(a, ao + x, scalar, o, oo + x, n - done);
        }
    }
}
