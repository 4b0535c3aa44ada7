package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaDevice;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A call of NCCL that may wait for other ranks, on its own daemon thread. The caller waits with a
 * deadline, and can end the call by aborting the communicator.
 *
 * <p>For a non-blocking communicator, this thread also polls the state until NCCL has finished,
 * since NCCL writes output arguments only then.
 */
final class NcclTask implements IntSupplier {
    private static final long POLL_NANOS = 100_000;

    private final NcclApi nccl;
    private final IntSupplier call;
    private final boolean polls;
    private final LongSupplier[] comms;

    private volatile int result = nccl_h.ncclInProgress();
    private volatile boolean inProgress;
    private volatile boolean givenUp;
    private volatile boolean left;
    private volatile boolean over;
    private volatile @Nullable RuntimeException thrown;

    /**
     * Starts it.
     *
     * @param polls whether NCCL always continues after the call has returned; otherwise only after
     *     {@code ncclInProgress}
     * @param comms the communicators whose states show that it has finished, one after the other;
     *     those that are 0 by then are skipped
     */
    NcclTask(
            NcclApi nccl,
            CudaDevice device,
            String operation,
            IntSupplier call,
            boolean polls,
            LongSupplier... comms) {
        this.nccl = nccl;
        this.call = call;
        this.polls = polls;
        this.comms = comms;
        Thread.ofPlatform()
                .daemon()
                .name("jccl-" + operation)
                .start(() -> {
                    try {
                        device.adopt();
                        result = run();
                    } catch (RuntimeException e) {
                        thrown = e;
                        result = nccl_h.ncclInternalError();
                    } finally {
                        over = true;
                    }
                });
    }

    private int run() {
        int state = call.getAsInt();
        if (NcclCodes.isError(state) || (!polls && state == nccl_h.ncclSuccess())) {
            return state;
        }
        inProgress = true;
        for (LongSupplier comm : comms) {
            long c = comm.getAsLong();
            state = c == 0 ? nccl_h.ncclSuccess() : Pending.state(nccl, c);
            while (state == nccl_h.ncclInProgress()) {
                if (givenUp) {
                    left = true;
                    return nccl_h.ncclInternalError();
                }
                LockSupport.parkNanos(POLL_NANOS);
                state = Pending.state(nccl, c);
            }
            if (state != nccl_h.ncclSuccess()) {
                return state;
            }
        }
        return nccl_h.ncclSuccess();
    }

    /** NCCL's result; {@code ncclInProgress} until there is one. */
    @Override
    public int getAsInt() {
        int r = result;
        RuntimeException e = thrown;
        if (e != null) {
            throw e;
        }
        return r;
    }

    /** Whether NCCL returned before it had finished, as with non-blocking communicators. */
    boolean wasInProgress() {
        return inProgress;
    }

    /** Ends the polling, which must not continue during an abort. */
    void giveUp() {
        givenUp = true;
    }

    /** Whether the thread has left NCCL. */
    boolean isOver() {
        return over;
    }

    /**
     * Whether polling was given up before NCCL had finished: NCCL may write to the call's memory
     * until the communicator has been aborted.
     */
    boolean wasLeft() {
        return left;
    }
}
