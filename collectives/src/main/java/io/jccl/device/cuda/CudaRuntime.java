package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.bindings.internal.CudaContexts;
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
    /** Two results of eight bytes, and what the driver reports of a context. */
    private static final class Slots {
        final MemorySegment first;
        final MemorySegment second;

        /** Four bytes each, written between a call and the reading of its result above. */
        final MemorySegment contextFlags;

        final MemorySegment contextActive;

        /** Whether the thread's current device may have no context. */
        boolean fresh = true;

        Slots() {
            MemorySegment all = Arena.ofAuto().allocate(24, 8);
            first = all.asSlice(0, 8);
            second = all.asSlice(8, 8);
            contextFlags = all.asSlice(16, 4);
            contextActive = all.asSlice(20, 4);
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

    /** {@link CudaContexts#isActive}; leaves both result slots as they are. */
    static boolean hasContext(int device, boolean otherwise) {
        Slots slots = SLOTS.get();
        return CudaContexts.isActive(device, slots.contextFlags, slots.contextActive, otherwise);
    }

    /**
     * Sets what this thread may do while streams are being captured: unless the mode is relaxed, an
     * allocation or a query may fail, and destroy the capture of another library. Returns the mode
     * until now; an error shows in the calls that follow.
     */
    public static int exchangeCaptureMode(int mode) {
        MemorySegment slot = slot();
        slot.set(ValueLayout.JAVA_INT, 0, mode);
        api().cudaThreadExchangeStreamCaptureMode(slot);
        return readInt(slot);
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
