package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
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
    private static final int WIDTH = FloatVector.SPECIES_PREFERRED.length();
    private static final int HALF = DOUBLES.length();

    /** A multiple of all widths; 16 KiB of float32. */
    private static final int BLOCK = 4096;

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
        for (int from = 0; from < whole; from += BLOCK) {
            int rows = Math.min(BLOCK, whole - from) / LANES;
            for (int column = 0; column < LANES; column += WIDTH) {
                column(s, at + (long) (from + column) * SIZE, rows, sums, column);
            }
        }
        if (whole < n) {
            REST.add(s, at + (long) whole * SIZE, n - whole, sums);
        }
    }

    private static void column(MemorySegment s, long at, int rows, double[] sums, int column) {
        DoubleVector low = DoubleVector.fromArray(DOUBLES, sums, column);
        DoubleVector high = DoubleVector.fromArray(DOUBLES, sums, column + HALF);
        for (int i = 0; i < rows; i++) {
            FloatVector values = NarrowVectors.load(TYPE, s, at + (long) i * LANES * SIZE);
            DoubleVector a = (DoubleVector) values.convertShape(VectorOperators.F2D, DOUBLES, 0);
            DoubleVector b = (DoubleVector) values.convertShape(VectorOperators.F2D, DOUBLES, 1);
            low = low.add(a.mul(a));
            high = high.add(b.mul(b));
        }
        low.intoArray(sums, column);
        high.intoArray(sums, column + HALF);
    }
}
