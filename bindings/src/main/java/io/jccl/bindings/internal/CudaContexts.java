package io.jccl.bindings.internal;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import org.jspecify.annotations.Nullable;

/**
 * Which devices this process already uses. The CUDA runtime cannot report this without creating a
 * context; the driver can, by {@code cuDevicePrimaryCtxGetState}.
 *
 * <p><b>Threads:</b> any.
 */
public final class CudaContexts {
    private static final class Driver {
        /** Null without a driver, such as with a fake runtime. */
        static final @Nullable MethodHandle STATE = find();

        private static @Nullable MethodHandle find() {
            try {
                return SymbolLookup.libraryLookup("libcuda.so.1", Arena.global())
                        .find("cuDevicePrimaryCtxGetState")
                        .map(f ->
                                Linker.nativeLinker()
                                        .downcallHandle(
                                                f,
                                                FunctionDescriptor.of(
                                                        ValueLayout.JAVA_INT,
                                                        ValueLayout.JAVA_INT,
                                                        ValueLayout.ADDRESS,
                                                        ValueLayout.ADDRESS)))
                        .orElse(null);
            } catch (IllegalArgumentException e) {
                return null;
            }
        }
    }

    private CudaContexts() {}

    /**
     * Whether a device has a context in this process.
     *
     * @param device its number in this process
     * @param flags room for four bytes
     * @param active room for four other bytes
     * @param otherwise the answer if the driver cannot report it
     * @return whether work on it creates no context
     */
    public static boolean isActive(
            int device, MemorySegment flags, MemorySegment active, boolean otherwise) {
        MethodHandle state = Driver.STATE;
        if (state == null) {
            return otherwise;
        }
        int result;
        try {
            result = (int) state.invokeExact(device, flags, active);
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
        return result == 0 ? active.get(ValueLayout.JAVA_INT, 0) != 0 : otherwise;
    }
}
