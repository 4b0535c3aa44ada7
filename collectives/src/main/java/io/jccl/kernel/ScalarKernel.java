package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;

/** Template of the loops in plain Java; see {@link Kernel}. The compiler removes the switches. */
final class ScalarKernel extends Kernel {
    private static final DataType TYPE;
    private static final Op OP;
    private static final int SIZE;

    static {
        try {
            Spec spec = MethodHandles.classData(MethodHandles.lookup(), "_", Spec.class);
            TYPE = spec.type();
            OP = spec.op();
            SIZE = TYPE.size();
        } catch (IllegalAccessException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    ScalarKernel() {}

    @Override
    public void combine(
            MemorySegment a, long ao, MemorySegment b, long bo, MemorySegment o, long oo, int n) {
        for (int i = 0; i < n; i++) {
            long x = (long) i * SIZE;
            switch (TYPE) {
                case FLOAT32 ->
                        o.set(
                                JAVA_FLOAT_UNALIGNED,
                                oo + x,
                                op(
                                        a.get(JAVA_FLOAT_UNALIGNED, ao + x),
                                        b.get(JAVA_FLOAT_UNALIGNED, bo + x)));
                case FLOAT64 ->
                        o.set(
                                JAVA_DOUBLE_UNALIGNED,
                                oo + x,
                                op(
                                        a.get(JAVA_DOUBLE_UNALIGNED, ao + x),
                                        b.get(JAVA_DOUBLE_UNALIGNED, bo + x)));
                default -> put(o, oo + x, op(load(a, ao + x), load(b, bo + x)));
            }
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
        combine(a, ao, b, bo, o, oo, n);
        MemorySegment.copy(o, oo, p, po, (long) n * SIZE);
    }

    @Override
    public void apply(MemorySegment a, long ao, long scalar, MemorySegment o, long oo, int n) {
        for (int i = 0; i < n; i++) {
            long x = (long) i * SIZE;
            switch (TYPE) {
                case FLOAT32 ->
                        o.set(
                                JAVA_FLOAT_UNALIGNED,
                                oo + x,
                                op(
                                        a.get(JAVA_FLOAT_UNALIGNED, ao + x),
                                        Float.intBitsToFloat((int) scalar)));
                case FLOAT64 ->
                        o.set(
                                JAVA_DOUBLE_UNALIGNED,
                                oo + x,
                                op(
                                        a.get(JAVA_DOUBLE_UNALIGNED, ao + x),
                                        Double.longBitsToDouble(scalar)));
                default -> put(o, oo + x, op(load(a, ao + x), scalar));
            }
        }
    }

    private static long load(MemorySegment s, long at) {
        return switch (TYPE) {
            case INT8 -> s.get(JAVA_BYTE, at);
            case UINT8 -> s.get(JAVA_BYTE, at) & 0xff;
            case INT32 -> s.get(JAVA_INT_UNALIGNED, at);
            case UINT32 -> s.get(JAVA_INT_UNALIGNED, at) & 0xffffffffL;
            default -> s.get(JAVA_LONG_UNALIGNED, at);
        };
    }

    private static void put(MemorySegment s, long at, long v) {
        switch (TYPE.size()) {
            case 1 -> s.set(JAVA_BYTE, at, (byte) v);
            case 4 -> s.set(JAVA_INT_UNALIGNED, at, (int) v);
            default -> s.set(JAVA_LONG_UNALIGNED, at, v);
        }
    }

    private static float op(float a, float b) {
        return switch (OP) {
            case ADD -> a + b;
            case MUL -> a * b;
            case MIN -> Math.min(a, b);
            case MAX -> Math.max(a, b);
            case DIV -> a / b;
        };
    }

    private static double op(double a, double b) {
        return switch (OP) {
            case ADD -> a + b;
            case MUL -> a * b;
            case MIN -> Math.min(a, b);
            case MAX -> Math.max(a, b);
            case DIV -> a / b;
        };
    }

    /**
     * On integers widened to 64 bits; storing wraps. Only 64-bit unsigned integers need a separate
     * comparison.
     */
    private static long op(long a, long b) {
        boolean unsigned = TYPE == DataType.UINT64;
        return switch (OP) {
            case ADD -> a + b;
            case MUL -> a * b;
            case MIN -> (unsigned ? Long.compareUnsigned(a, b) : Long.compare(a, b)) <= 0 ? a : b;
            case MAX -> (unsigned ? Long.compareUnsigned(a, b) : Long.compare(a, b)) >= 0 ? a : b;
            case DIV -> unsigned ? Long.divideUnsigned(a, b) : a / b;
        };
    }
}
