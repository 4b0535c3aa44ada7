package io.jccl.engine.host;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.bootstrap.LocalProcessGroup;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.NoSuchFileException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * How the remaining ranks synchronize after others have failed or are excluded.
 *
 * <p>The first of them creates a control file whose name all derive from the remaining ranks, and
 * waits until each of the others has recorded in it that it has mapped it. Then it deletes the file
 * and lets them proceed. Of the failed communicator's memory only the closed flags are read; the
 * locks of the job show which ranks are alive. A rank that gives up marks the new memory, so that
 * the others do not wait for it; the first one deletes its file before that, so that a second
 * attempt never finds the file of the first.
 *
 * <p>One word of the new memory decides for all: a rank gives up only if the others have not yet
 * been let proceed. Otherwise it proceeds as well, and meets what has happened in its first
 * operation. So no rank is left with the old communicator while the others use the new one.
 */
final class Regroup implements AutoCloseable {
    private static final long POLL_NANOS = 200_000;

    private final SharedMemoryTransport old;
    private final int rank;
    private final int[] members;
    private final Duration timeout;
    private final long deadline;

    /** When the thread was interrupted; its interrupt flag would close the files that it opens. */
    private long interrupted;

    /**
     * Begins a synchronization, which {@link #close} ends.
     *
     * @param old where the ranks have been
     * @param members the old ranks of the remaining ones
     */
    Regroup(SharedMemoryTransport old, int rank, int[] members, Duration timeout) {
        this.old = old;
        this.rank = rank;
        this.members = members;
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
     * @param came counts those that have not come
     * @param control memory of the new communicator
     */
    void threads(CountDownLatch came, ControlBlock control) {
        try {
            came.countDown();
            await(() -> came.getCount() == 0, () -> check(control, rank), "the others");
            proceed(control);
        } catch (RuntimeException | Error e) {
            if (!control.decide(false)) {
                giveUp(control, e);
                throw e;
            }
        }
    }

    /**
     * Synchronizes with the other processes.
     *
     * @param own this rank's index among the remaining ranks
     */
    SharedMemoryTransport processes(LocalProcessGroup job, String file, int own, Use use) {
        long bytes = ControlBlock.size(members.length);
        Arena arena = Arena.ofShared();
        ControlBlock control = null;
        SharedMemoryTransport made = null;
        try {
            MemorySegment memory;
            if (own == 0) {
                memory = job.folder().create(file, bytes, arena, "the control memory");
            } else {
                MemorySegment[] found = new MemorySegment[1];
                await(
                        () -> (found[0] = map(job, file, bytes, arena)) != null,
                        () -> check(null, members[0]),
                        "rank " + members[0]);
                memory = found[0];
            }
            ControlBlock shared = new ControlBlock(memory, members.length);
            control = shared;
            made = use.of(shared, arena);
            shared.release(shared.state(own) + ControlBlock.JOIN, 1);
            for (int i = 0; i < members.length && own == 0; i++) {
                int p = i;
                await(
                        () -> shared.acquire(shared.state(p) + ControlBlock.JOIN) != 0,
                        () -> check(shared, members[p]),
                        "rank " + members[p]);
            }
            if (own == 0) {
                job.folder().delete(file);
                proceed(shared);
            } else {
                await(shared::together, () -> check(shared, members[0]), "rank " + members[0]);
            }
            return made;
        } catch (RuntimeException | Error e) {
            if (made != null && Objects.requireNonNull(control).decide(false)) {
                return made;
            }
            if (own == 0) {
                job.folder().delete(file);
            }
            if (control != null) {
                giveUp(control, e);
            }
            if (made != null) {
                made.leave(own);
            } else {
                arena.close();
            }
            throw e;
        }
    }

    /** Lets all proceed, unless one has given up; then it throws that one's reason. */
    private void proceed(ControlBlock control) {
        if (!control.decide(true)) {
            await(
                    () -> false,
                    () -> Arrays.stream(members).forEach(p -> check(control, p)),
                    "the reason of a rank that gave up");
        }
    }

    private void giveUp(ControlBlock control, Throwable why) {
        String text =
                why instanceof JcclException ? String.valueOf(why.getMessage()) : why.toString();
        control.abort(rank, ControlBlock.AbortKind.FAILED, text);
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

    /** Throws if a rank has given up or left, or the one that is waited for is dead. */
    private void check(@Nullable ControlBlock control, int awaited) {
        if (control != null) {
            control.checkOpen();
        }
        for (int p : members) {
            if (old.control.acquire(old.control.state(p) + ControlBlock.CLOSED) != 0) {
                throw missing(p, "closed its communicator");
            }
        }
        if (!old.isAlive(awaited)) {
            throw missing(awaited, "died");
        }
    }

    private RankFailedException missing(int p, String what) {
        return new RankFailedException(
                "%s %s while ranks met to continue without others".formatted(old.nameOf(p), what));
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
