package io.jccl.bindings.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/** Creates functions that MPI can call to reduce elements, {@code MPI_User_function} in C. */
public final class MpiReduction {
    /** All memory, so that a call creates no segment and no garbage. */
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final FunctionDescriptor TYPE =
            FunctionDescriptor.ofVoid(
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG,
                    ValueLayout.JAVA_LONG);

    /** A function that combines elements. */
    @FunctionalInterface
    public interface Combiner {
        /**
         * Combines elements: {@code b[i] = a[i] op b[i]}. Runs on the thread that called MPI; must
         * not throw, since that would end the process.
         *
         * @param memory all memory; offsets in it are addresses
         * @param a address of the first operands
         * @param b address of the second operands and of the result
         * @param count number of elements
         */
        void combine(MemorySegment memory, long a, long b, int count);
    }

    private MpiReduction() {}

    /**
     * Creates a native function. It lives as long as the process.
     *
     * @param combiner combines elements
     * @return the function's address, for {@link io.jccl.bindings.MpiApi#MPI_Op_create}
     */
    public static MemorySegment create(Combiner combiner) {
        try {
            MethodHandle call =
                    MethodHandles.lookup()
                            .findStatic(
                                    MpiReduction.class,
                                    "call",
                                    MethodType.methodType(
                                            void.class,
                                            Combiner.class,
                                            long.class,
                                            long.class,
                                            long.class,
                                            long.class));
            return Linker.nativeLinker().upcallStub(call.bindTo(combiner), TYPE, Arena.global());
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("MpiReduction.call", e);
        }
    }

    @SuppressWarnings("unused")
    private static void call(Combiner combiner, long a, long b, long count, long type) {
        combiner.combine(MEMORY, a, b, MEMORY.get(ValueLayout.JAVA_INT, count));
    }
}
