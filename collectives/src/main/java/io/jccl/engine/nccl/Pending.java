package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/** What a communicator that does not block is doing. */
final class Pending {
    private static final int SPINS = 100;
    private static final long LONGEST_NANOS = 1_000_000;

    private Pending() {}

    /** The communicator's state: {@code ncclSuccess}, {@code ncclInProgress} or an error. */
    static int state(NcclApi nccl, long comm) {
        MemorySegment slot = CudaRuntime.slot();
        int result = nccl.ncclCommGetAsyncError(comm, slot);
        return result != nccl_h.ncclSuccess() ? result : slot.get(ValueLayout.JAVA_INT, 0);
    }

    /** Waits while it is in progress; the state then, still in progress when the time is over. */
    static int await(NcclApi nccl, long comm, Duration timeout, BooleanSupplier giveUp) {
        long began = System.nanoTime();
        long limit = Deadline.nanos(timeout);
        long pause = 10_000;
        long interrupted = 0;
        try {
            for (int i = 0; ; i++) {
                int state = state(nccl, comm);
                if (state != nccl_h.ncclInProgress() || giveUp.getAsBoolean()) {
                    return state;
                }
                if (i < SPINS) {
                    Thread.onSpinWait();
                    continue;
                }
                long now = System.nanoTime();
                if (now - began > limit) {
                    return state;
                }
                interrupted = Interrupts.notice(interrupted, now);
                if (Interrupts.overdue(interrupted, now)) {
                    throw Interrupts.error(
                            "the wait for NCCL",
                            "it has not enqueued what it was given, so the communicator has"
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
