package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;

/** Template of the loops in plain Java; see {@link NormKernel}. */
final class PlainNorm extends NormKernel {
    private static final DataType TYPE;
    private static final int SIZE;

    static {
        try {
            TYPE = MethodHandles.classData(MethodHandles.lookup(), "_", DataType.class);
            SIZE = TYPE.size();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    PlainNorm() {}

    @Override
    void add(MemorySegment s, long at, int n, double[] sums) {
        for (int i = 0; i < n; i++) {
            long x = at + (long) i * SIZE;
            double value =
                    switch (TYPE) {
                        case FLOAT32 -> s.get(JAVA_FLOAT_UNALIGNED, x);
                        case BFLOAT16 -> Bfloat16.toFloat(s.get(JAVA_SHORT_UNALIGNED, x));
                        default -> Float.float16ToFloat(s.get(JAVA_SHORT_UNALIGNED, x));
                    };
            sums[i % LANES] += value * value;
        }
    }
}
