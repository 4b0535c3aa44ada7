package io.jccl.engine.host;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.bootstrap.LocalProcessGroup;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.NoSuchFileException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.function.IntConsumer;
import java.util.function.IntPredicate;
import org.jspecify.annotations.Nullable;

/**
 * How the remaining ranks synchronize after others have failed or are excluded.
 *
 * <p>The first of them creates a control file whose name all derive from the remaining ranks, and
 * waits until each of the others has recorded in it that it has mapped it. Then it deletes the file
 * and lets them proceed. No rank reads the memory of the failed communicator; the locks of the job
 * show which ranks are alive. A rank that gives up marks the new memory, so that the others do not
 * wait for it; the first one deletes its file before that, so that a second attempt never finds the
 * file of the first.
 */
final class Regroup implements AutoCloseable {
    private static final long POLL_NANOS = 200_000;

    private final int rank;
    private final Duration timeout;
    private final long deadline;

    /** When the thread was interrupted; its interrupt flag would close the files that it opens. */
    private long interrupted;

    /** Begins a synchronization, which {@link #close} ends. */
    Regroup(int rank, Duration timeout) {
        this.rank = rank;
        this.timeout = timeout;
        this.deadline = Deadline.after(timeout);
        this.interrupted = Interrupts.notice(0, System.nanoTime());
    }

    @Override
    public void close() {
        Interrupts.restore(interrupted);
    }

    /** Creates the result from the memory in which all have synchronized. */
    interface Use {
        SharedMemoryTransport of(ControlBlock control, Arena arena);
    }

    /**
     * Synchronizes with the other threads.
     *
     * @param own this rank's place among those that remain
     */
    void threads(CountDownLatch came, ControlBlock control, int own) {
        boolean met = false;
        try {
            came.countDown();
            await(() -> came.getCount() == 0, control::checkOpen, "the others");
            met = true;
        } finally {
            if (!met) {
                control.abort(own, ControlBlock.AbortKind.FAILED, "rank " + rank + " gave up");
            }
        }
    }

    /**
     * Synchronizes with the other processes.
     *
     * @param own this rank's index among the remaining ranks
     * @param members the old ranks of the remaining ones
     * @param alive whether an old rank is alive
     */
    SharedMemoryTransport processes(
            LocalProcessGroup job,
            String file,
            int own,
            int[] members,
            IntPredicate alive,
            Use use) {
        long bytes = ControlBlock.size(members.length);
        Arena arena = Arena.ofShared();
        ControlBlock control = null;
        SharedMemoryTransport made = null;
        boolean met = false;
        try {
            MemorySegment memory;
            if (own == 0) {
                memory = job.folder().create(file, bytes, arena, "the control memory");
            } else {
                MemorySegment[] found = new MemorySegment[1];
                await(
                        () -> (found[0] = map(job, file, bytes, arena)) != null,
                        () -> checkAlive(alive, members[0]),
                        "rank " + members[0]);
                memory = found[0];
            }
            ControlBlock shared = new ControlBlock(memory, members.length);
            control = shared;
            SharedMemoryTransport fabric = use.of(shared, arena);
            made = fabric;
            IntConsumer check =
                    p -> {
                        shared.checkOpen();
                        checkAlive(alive, p);
                    };
            shared.release(shared.state(own) + ControlBlock.JOIN, 1);
            for (int i = 0; i < members.length && own == 0; i++) {
                int p = i;
                await(
                        () -> shared.acquire(shared.state(p) + ControlBlock.JOIN) != 0,
                        () -> check.accept(members[p]),
                        "rank " + members[p]);
            }
            if (own == 0) {
                job.folder().delete(file);
                shared.release(ControlBlock.GO_AT, 1);
            } else {
                await(
                        () -> shared.acquire(ControlBlock.GO_AT) != 0,
                        () -> check.accept(members[0]),
                        "rank " + members[0]);
            }
            met = true;
            return fabric;
        } finally {
            if (!met) {
                if (own == 0) {
                    job.folder().delete(file);
                }
                if (control != null) {
                    control.abort(
                            own,
                            ControlBlock.AbortKind.FAILED,
                            "rank " + rank + " gave up while ranks met to continue without others");
                }
                if (made != null) {
                    made.leave(own);
                } else {
                    arena.close();
                }
            }
        }
    }

    private static @Nullable MemorySegment map(
            LocalProcessGroup job, String file, long bytes, Arena arena) {
        try {
            return job.folder().map(file, bytes, arena);
        } catch (UncheckedIOException e) {
            if (e.getCause() instanceof NoSuchFileException) {
                return null;
            }
            throw e;
        }
    }

    private static void checkAlive(IntPredicate alive, int p) {
        if (!alive.test(p)) {
            throw new RankFailedException(
                    "rank " + p + " ended while ranks met to continue without others");
        }
    }

    /**
     * Waits until a condition holds.
     *
     * @param check throws if it can no longer become true
     * @param whom the ranks waited for
     */
    void await(BooleanSupplier done, Runnable check, String whom) {
        while (!done.getAsBoolean()) {
            check.run();
            long now = System.nanoTime();
            if (now - deadline > 0) {
                throw new CollectiveTimeoutException(
                        ("rank %s waited %s in shrink for %s; all ranks that remain have to call"
                                        + " it with the same list")
                                .formatted(rank, timeout, whom));
            }
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                throw Interrupts.error(
                        "rank " + rank + " in shrink", "the others cannot continue either");
            }
            LockSupport.parkNanos(POLL_NANOS);
        }
    }
}
