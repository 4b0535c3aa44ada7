package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibraryUnavailableException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/**
 * The CUDA runtime of this process, and slots for its results.
 *
 * <p><b>Threads:</b> any; each has its own slots.
 */
public final class CudaRuntime {
    /** Two results of eight bytes, and a device's name. */
    private static final class Slots {
        final MemorySegment first;
        final MemorySegment second;

        /** Whether the thread's current device may have no context. */
        boolean fresh = true;

        Slots() {
            MemorySegment both = Arena.ofAuto().allocate(16, 8);
            first = both.asSlice(0, 8);
            second = both.asSlice(8, 8);
        }
    }

    /** Resolved once, when CUDA is first needed. */
    private static final class Holder {
        static final @Nullable CudaApi API = find();

        private static @Nullable CudaApi find() {
            try {
                return NativeLibraries.cuda();
            } catch (NativeLibraryUnavailableException e) {
                // Thrown by each call of api(); thrown here, it would make the class unusable.
                return null;
            }
        }
    }

    private static final ThreadLocal<Slots> SLOTS = ThreadLocal.withInitial(Slots::new);

    private CudaRuntime() {}

    /**
     * The CUDA runtime.
     *
     * @throws io.jccl.bindings.NativeLibraryUnavailableException if there is none
     */
    public static CudaApi api() {
        CudaApi found = Holder.API;
        return found != null ? found : NativeLibraries.cuda();
    }

    /** This thread's first result slot, of eight bytes. */
    public static MemorySegment slot() {
        return SLOTS.get().first;
    }

    /** This thread's second result slot, of eight bytes. */
    static MemorySegment otherSlot() {
        return SLOTS.get().second;
    }

    /** Whether this thread has not called {@link #notFresh} yet. */
    static boolean isFresh() {
        return SLOTS.get().fresh;
    }

    static void notFresh() {
        SLOTS.get().fresh = false;
    }

    static int readInt(MemorySegment slot) {
        return slot.get(ValueLayout.JAVA_INT, 0);
    }

    static long readLong(MemorySegment slot) {
        return slot.get(ValueLayout.JAVA_LONG, 0);
    }

    /**
     * Throws unless a call succeeded. The non-sticky error that CUDA stores for this thread is
     * cleared, so that no later call reports it again.
     */
    public static void check(int result, String operation) {
        if (result != 0) {
            CudaApi api = api();
            api.cudaGetLastError();
            api.check(result, operation);
        }
    }
}
