package io.jccl.engine.nccl;

import io.jccl.CollectiveTimeoutException;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * The call that creates a communicator: waiting for the other ranks, and cleaning up on failure.
 */
final class NcclInit {
    private NcclInit() {}

    /** NCCL's configuration: calls block unless the user's settings specify otherwise. */
    static @Nullable MemorySegment config(NcclApi nccl, CommunicatorOptions options, Arena arena) {
        return nccl.supports("ncclCommInitRankConfig")
                ? options.nccl().allocate(arena, nccl.library().version())
                : null;
    }

    static int call(
            NcclApi nccl,
            MemorySegment slot,
            int size,
            MemorySegment id,
            int rank,
            @Nullable MemorySegment config) {
        return config != null
                ? nccl.ncclCommInitRankConfig(slot, size, id, rank, config)
                : nccl.ncclCommInitRank(slot, size, id, rank);
    }

    static void await(NcclApi nccl, NcclTask task, Duration timeout, String operation) {
        int state = Pending.await(task, Deadline.nanos(timeout), () -> false);
        if (state == nccl_h.ncclInProgress()) {
            throw new CollectiveTimeoutException(
                    operation + " is not complete after " + timeout + ": a rank is missing");
        }
        nccl.check(state, operation, 0);
    }

    /**
     * The same for a rank, and ends early if another fails.
     *
     * @param function NCCL's
     * @param cause what keeps it from returning, as far as is known
     */
    static void await(
            NcclApi nccl,
            NcclTask task,
            Membership members,
            long deadline,
            Duration timeout,
            String function,
            String cause) {
        String operation =
                "%s on rank %s of %s of communicator '%s'"
                        .formatted(function, members.rank(), members.size(), members.name());
        while (true) {
            long left = Math.max(deadline - System.nanoTime(), 0);
            try {
                await(nccl, task, Duration.ofNanos(Math.min(200_000_000, left)), operation);
                return;
            } catch (NcclException e) {
                // NCCL only reports that some rank failed; which one and why arrives shortly
                // through the store.
                long since = System.nanoTime();
                while (NcclCodes.mayBeAnothers(e.result())
                        && System.nanoTime() - since < Failures.BLAME_NANOS) {
                    throwIfBroken(members, operation);
                    LockSupport.parkNanos(10_000_000);
                }
                throw e;
            } catch (JcclTimeoutException e) {
                throwIfBroken(members, operation);
                if (left == 0) {
                    throw new CollectiveTimeoutException(
                            ("%s is not complete after %s, %s; check NCCL_SOCKET_IFNAME and"
                                            + " firewalls, or set NCCL_DEBUG=INFO")
                                    .formatted(operation, timeout, cause));
                }
            }
        }
    }

    private static void throwIfBroken(Membership members, String operation) {
        String broken = members.broken();
        if (broken != null) {
            throw new RankFailedException(operation + " cannot succeed: " + broken);
        }
    }

    /**
     * Starts to abort a communicator that was never returned to the caller. Running the result
     * waits for that, for a limited time since NCCL may hang in it, and frees the resources.
     *
     * @param task the call that should have created it; null if none was started
     * @param parentEnded whether the communicator it is derived from has been aborted: NCCL may
     *     write the slot until then
     */
    static Runnable abandoning(
            NcclApi nccl,
            CudaDevice device,
            Resources resources,
            MemorySegment slot,
            @Nullable NcclTask task,
            BooleanSupplier parentEnded) {
        if (task == null) {
            return () -> resources.close(true);
        }
        task.giveUp();
        CountDownLatch ended = new CountDownLatch(1);
        Thread.ofPlatform()
                .daemon()
                .name("jccl-abandon")
                .start(() -> {
                    device.adopt();
                    // NCCL sets the slot before it waits for others. Polling must not continue.
                    BooleanSupplier settled =
                            () -> task.isOver() && (!task.wasLeft() || parentEnded.getAsBoolean());
                    awaitThat(() ->
                            settled.getAsBoolean()
                                    || (!task.wasInProgress()
                                            && slot.get(ValueLayout.JAVA_LONG, 0) != 0));
                    long comm = slot.get(ValueLayout.JAVA_LONG, 0);
                    if (comm != 0 && nccl.supports("ncclCommAbort")) {
                        nccl.ncclCommAbort(comm);
                    }
                    awaitThat(settled);
                    ended.countDown();
                });
        return () -> resources.close(Waits.await(ended, NcclHandle.ABORT_WAIT.toNanos()));
    }

    /** Polls less and less often: NCCL may never finish. */
    private static void awaitThat(BooleanSupplier condition) {
        for (long pause = 1_000_000; !condition.getAsBoolean(); pause += pause / 8) {
            LockSupport.parkNanos(Math.min(pause, 1_000_000_000));
        }
    }
}
