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

/** The call that makes a communicator: its wait for the other ranks, and its end if that fails. */
final class NcclInit {
    private NcclInit() {}

    /** What NCCL is told: calls block unless the user's settings say otherwise. */
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

    /** The same, while other ranks may fail. */
    static void await(
            NcclApi nccl,
            NcclTask task,
            Membership members,
            long deadline,
            Duration timeout,
            int rank,
            int size) {
        String operation =
                "ncclCommInitRank on rank "
                        + rank
                        + " of "
                        + size
                        + " of communicator '"
                        + members.name()
                        + "'";
        while (true) {
            long left = Math.max(deadline - System.nanoTime(), 0);
            try {
                await(nccl, task, Duration.ofNanos(Math.min(200_000_000, left)), operation);
                return;
            } catch (NcclException e) {
                // That another rank failed is all that NCCL knows of it: which and why is told
                // soon.
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
                            operation
                                    + " is not complete after "
                                    + timeout
                                    + ", though all ranks came: connections cannot be made; check"
                                    + " NCCL_SOCKET_IFNAME and firewalls, or set NCCL_DEBUG=INFO");
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
     * Ends a communicator that was never handed out, and frees what was to be its own. NCCL may
     * hang in that, so it is not awaited for ever.
     *
     * @param task what was to make it; null if nothing was started
     */
    static void abandon(
            NcclApi nccl,
            CudaDevice device,
            Resources resources,
            MemorySegment slot,
            @Nullable NcclTask task) {
        abandoning(nccl, device, resources, slot, task).run();
    }

    /** Begins with that; the result waits for it and frees. */
    static Runnable abandoning(
            NcclApi nccl,
            CudaDevice device,
            Resources resources,
            MemorySegment slot,
            @Nullable NcclTask task) {
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
                    // NCCL sets the slot before it waits for others. If it polls, it must be left.
                    awaitThat(() ->
                            task.isOver()
                                    || (!task.wasInProgress()
                                            && slot.get(ValueLayout.JAVA_LONG, 0) != 0));
                    long comm = slot.get(ValueLayout.JAVA_LONG, 0);
                    if (comm != 0 && nccl.supports("ncclCommAbort")) {
                        nccl.ncclCommAbort(comm);
                    }
                    awaitThat(task::isOver);
                    ended.countDown();
                });
        return () -> resources.close(Waits.await(ended, NcclHandle.ABORT_WAIT.toNanos()));
    }

    /** Looks less and less often: NCCL may never get there. */
    private static void awaitThat(BooleanSupplier condition) {
        for (long pause = 1_000_000; !condition.getAsBoolean(); pause += pause / 8) {
            LockSupport.parkNanos(Math.min(pause, 1_000_000_000));
        }
    }
}
