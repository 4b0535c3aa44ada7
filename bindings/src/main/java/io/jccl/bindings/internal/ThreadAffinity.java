package io.jccl.bindings.internal;

import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.util.BitSet;

/**
 * The CPUs on which the calling thread may run: {@code sched_setaffinity(2)} of Linux. Threads that
 * the calling thread starts later inherit them.
 *
 * <p><b>Threads:</b> each call affects only the calling thread, which must be a platform thread.
 */
public final class ThreadAffinity {
    /** A mask as long as those of the largest kernels: 8192 CPUs. */
    private static final int MASK_BYTES = 1024;

    private static final class Calls {
        static final MemoryLayout ERRNO = Linker.Option.captureStateLayout();
        static final VarHandle ERRNO_VALUE =
                ERRNO.varHandle(MemoryLayout.PathElement.groupElement("errno"));
        static final MethodHandle SET =
                Linker.nativeLinker()
                        .downcallHandle(
                                Linker.nativeLinker()
                                        .defaultLookup()
                                        .find("sched_setaffinity")
                                        .orElseThrow(() ->
                                                new UnsupportedOperationException(
                                                        "the C library has no"
                                                                + " sched_setaffinity")),
                                FunctionDescriptor.of(
                                        ValueLayout.JAVA_INT,
                                        ValueLayout.JAVA_INT,
                                        ValueLayout.JAVA_LONG,
                                        ValueLayout.ADDRESS),
                                Linker.Option.captureCallState("errno"));
    }

    private ThreadAffinity() {}

    /**
     * Whether {@link #set} can be called without a warning or refusal by the JVM.
     *
     * @return true on Linux, if this module may call native code
     */
    public static boolean isAvailable() {
        return System.getProperty("os.name", "").equals("Linux")
                && ThreadAffinity.class.getModule().isNativeAccessEnabled();
    }

    /**
     * Restricts the calling thread to some CPUs.
     *
     * @param cpus their numbers, as in {@code /proc/cpuinfo}
     * @throws IllegalArgumentException if there are none, or a number is above 8191
     * @throws IllegalStateException if the calling thread is virtual
     * @throws UnsupportedOperationException if this is not Linux
     * @throws JcclException if the kernel refuses, such as for CPUs that the container does not
     *     have
     */
    public static void set(BitSet cpus) {
        if (cpus.isEmpty() || cpus.length() > MASK_BYTES * Byte.SIZE) {
            throw new IllegalArgumentException(
                    "the CPUs are %s, expected one or more, with numbers below %s"
                            .formatted(cpus, MASK_BYTES * Byte.SIZE));
        }
        if (Thread.currentThread().isVirtual()) {
            throw new IllegalStateException(
                    "a virtual thread cannot be bound to CPUs; call it on a platform thread");
        }
        int result;
        int errno;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment mask = arena.allocate(MASK_BYTES, Long.BYTES);
            byte[] bytes = cpus.toByteArray();
            MemorySegment.copy(bytes, 0, mask, ValueLayout.JAVA_BYTE, 0, bytes.length);
            MemorySegment state = arena.allocate(Calls.ERRNO);
            result = (int) Calls.SET.invokeExact(state, 0, (long) MASK_BYTES, mask);
            errno = (int) Calls.ERRNO_VALUE.get(state, 0L);
        } catch (RuntimeException e) {
            throw e;
        } catch (Throwable t) {
            throw new LinkageError("sched_setaffinity", t);
        }
        if (result != 0) {
            throw new JcclException(
                    ("this thread cannot be bound to the CPUs %s: sched_setaffinity failed with"
                                    + " errno %s; the process may not be allowed to use them")
                            .formatted(cpus, errno));
        }
    }
}
