package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * Template of the loops on the Vector API; see {@link NormKernel}. Narrower vectors than {@link
 * #LANES} take their columns in turn, block by block, so that the blocks come from the cache.
 */
final class VectorNorm extends NormKernel {
    private static final VectorSpecies<Double> DOUBLES = DoubleVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_PREFERRED;
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final int WIDTH = FLOATS.length();
    private static final int HALF = DOUBLES.length();

    private static final int BLOCK = NarrowVectors.SCRATCH;

    private static final float[] NONE = {};
    private static final DataType TYPE;
    private static final int SIZE;
    private static final NormKernel REST;

    static {
        try {
            Data data = MethodHandles.classData(MethodHandles.lookup(), "_", Data.class);
            TYPE = data.type();
            SIZE = TYPE.size();
            REST = data.rest();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    VectorNorm() {}

    @Override
    void add(MemorySegment s, long at, int n, double[] sums) {
        int whole = n / LANES * LANES;
        float[] wide = TYPE == DataType.FLOAT32 ? NONE : NarrowVectors.scratch();
        for (int from = 0; from < whole; from += BLOCK) {
            int count = Math.min(BLOCK, whole - from);
            long block = at + (long) from * SIZE;
            if (TYPE != DataType.FLOAT32) {
                NarrowVectors.widen(TYPE, s, block, wide, 0, count);
            }
            for (int column = 0; column < LANES; column += WIDTH) {
                column(s, block, wide, count, sums, column);
            }
        }
        if (whole < n) {
            REST.add(s, at + (long) whole * SIZE, n - whole, sums);
        }
    }

    /**
     * Adds the squares of a column; float32 is read from memory, what was narrow from the array.
     */
    private static void column(
            MemorySegment s, long at, float[] wide, int count, double[] sums, int column) {
        DoubleVector low = DoubleVector.fromArray(DOUBLES, sums, column);
        DoubleVector high = DoubleVector.fromArray(DOUBLES, sums, column + HALF);
        for (int i = column; i < count; i += LANES) {
            FloatVector values =
                    TYPE == DataType.FLOAT32
                            ? FloatVector.fromMemorySegment(
                                    FLOATS, s, at + (long) i * Float.BYTES, ORDER)
                            : FloatVector.fromArray(FLOATS, wide, i);
            DoubleVector a = (DoubleVector) values.convertShape(VectorOperators.F2D, DOUBLES, 0);
            DoubleVector b = (DoubleVector) values.convertShape(VectorOperators.F2D, DOUBLES, 1);
            low = low.add(a.mul(a));
            high = high.add(b.mul(b));
        }
        low.intoArray(sums, column);
        high.intoArray(sums, column + HALF);
    }
}
