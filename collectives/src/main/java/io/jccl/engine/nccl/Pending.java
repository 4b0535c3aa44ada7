package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.internal.Interrupts;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.IntSupplier;

/** Waits for calls that NCCL has not finished. */
final class Pending {
    private static final int SPINS = 100;
    private static final long LONGEST_NANOS = 1_000_000;

    private Pending() {}

    /**
     * The communicator's state: {@code ncclSuccess}, {@code ncclInProgress} or an error. For a
     * non-blocking communicator, NCCL joins a thread and frees memory in this call, so no other
     * call for it may run at the same time.
     */
    static int state(NcclApi nccl, long comm) {
        MemorySegment slot = CudaRuntime.slot();
        int result = nccl.ncclCommGetAsyncError(comm, slot);
        return result != nccl_h.ncclSuccess() ? result : slot.get(ValueLayout.JAVA_INT, 0);
    }

    /** Waits while a state is in progress; returns the last one when the time is over. */
    static int await(IntSupplier stateOf, long nanos, BooleanSupplier giveUp) {
        long began = System.nanoTime();
        long pause = 10_000;
        long interrupted = 0;
        try {
            for (int i = 0; ; i++) {
                int state = stateOf.getAsInt();
                if (state != nccl_h.ncclInProgress() || giveUp.getAsBoolean()) {
                    return state;
                }
                if (i < SPINS) {
                    Thread.onSpinWait();
                    continue;
                }
                long now = System.nanoTime();
                if (now - began > nanos) {
                    return state;
                }
                interrupted = Interrupts.notice(interrupted, now);
                if (Interrupts.overdue(interrupted, now)) {
                    throw Interrupts.error(
                            "the wait for NCCL",
                            "it has not finished the call, so the communicator has"
                                    + " failed on all ranks");
                }
                LockSupport.parkNanos(pause);
                pause = Math.min(pause * 2, LONGEST_NANOS);
            }
        } finally {
            Interrupts.restore(interrupted);
        }
    }
}
