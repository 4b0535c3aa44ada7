package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Sums of squares in float64, in an order that neither threads nor vector widths change: element i
 * goes to accumulator i modulo {@link #LANES}, and these are added in the end, in order. Squares of
 * float32 are exact in float64 and cannot overflow it.
 */
public abstract class NormKernel {
    /** Accumulators: the lanes of the widest float32 vectors on x86-64. */
    public static final int LANES = 16;

    private static final @Nullable NormKernel[] CACHE = new NormKernel[DataType.values().length];

    /**
     * Adds squares to accumulators.
     *
     * @param s the elements
     * @param at offset of the first in bytes
     * @param n number of elements
     * @param sums the accumulators
     */
    abstract void add(MemorySegment s, long at, int n, double[] sums);

    /** Sum of the squares of elements; sums is scratch. */
    public final double sum(MemorySegment s, long at, int n, double[] sums) {
        for (int i = 0; i < LANES; i++) {
            sums[i] = 0;
        }
        add(s, at, n, sums);
        double sum = 0;
        for (int i = 0; i < LANES; i++) {
            sum += sums[i];
        }
        return sum;
    }

    /** The kernel for float32, bfloat16 or float16. */
    public static NormKernel of(DataType type) {
        NormKernel k = CACHE[type.ordinal()];
        if (k == null) {
            synchronized (CACHE) {
                k = make(type, Templates.VECTOR);
                CACHE[type.ordinal()] = k;
            }
        }
        return k;
    }

    /** The data that a copy on vectors is created from. */
    record Data(DataType type, NormKernel rest) {}

    /** A new copy, on vectors or not. */
    public static NormKernel make(DataType type, boolean vector) {
        NormKernel plain = Templates.copy(NormKernel.class, "PlainNorm", type);
        return vector
                ? Templates.copy(NormKernel.class, "VectorNorm", new Data(type, plain))
                : plain;
    }
}
