package io.jccl.bootstrap;

import io.jccl.CollectiveTimeoutException;
import io.jccl.CommunicatorOptions;
import io.jccl.device.host.HostDevice;
import io.jccl.device.host.SharedHeap;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A process's membership in a job on one machine: its lock, its shared heap, and its view of the
 * other processes' heaps.
 *
 * <p>Joining: rank 0 removes what an earlier run left, creates the control file and waits; every
 * other rank maps it and writes a random number, which rank 0 echoes. For a control file left by a
 * dead run, no process echoes. When all have joined, rank 0 deletes the file: the mappings stay,
 * and nothing is left behind however the processes end, except heaps and locks, which each process
 * deletes when it leaves, survivors delete for dead processes, and the next run deletes otherwise.
 */
public final class LocalProcessGroup {
    static final String CONTROL = "ctl-0";
    private static final long POLL_NANOS = 200_000;

    /** How long a process that joins as the same rank may be one of an earlier run that ends. */
    private static final long CLAIM_NANOS = 5_000_000_000L;

    private final SharedFolder folder;
    private final int rank;
    private final int size;
    private final SharedFolder.Lock lock;
    private final SharedHeap heap;
    private final HostDevice device;
    private final Thread hook;

    private final PeerChunks peers;

    /** Communicators that use this job. */
    private final AtomicInteger users = new AtomicInteger();

    /** The memory of the communicator of all processes, while this process joins. */
    private volatile @Nullable ControlBlock control;

    /** Distinguishes this run from others of the same name. */
    private volatile long nonce;

    /** Needed until this process has joined. */
    private final LocalHandshake arrivals;

    private volatile boolean joined;
    private boolean left;

    private LocalProcessGroup(SharedFolder folder, int rank, int size, SharedFolder.Lock lock) {
        this.folder = folder;
        this.rank = rank;
        this.size = size;
        this.lock = lock;
        this.arrivals = new LocalHandshake(folder, rank, size, lock.token());
        this.peers = new PeerChunks(folder);
        this.heap = new SharedHeap(new HeapFiles());
        this.device = new HostDevice(heap);
        this.hook = new Thread(this::leave, "jccl-cleanup");
        Runtime.getRuntime().addShutdownHook(hook);
    }

    private final class HeapFiles implements SharedHeap.ChunkSource {
        /**
         * Own chunks are unmapped when no buffer refers to them any more, so results remain
         * readable after the communicator is closed.
         */
        @Override
        public MemorySegment create(int chunk, long bytes) {
            String what = "the buffers of rank " + rank;
            return folder.create(PeerChunks.file(rank, chunk), bytes, Arena.ofAuto(), what);
        }

        @Override
        public void delete(int chunk) {
            folder.delete(PeerChunks.file(rank, chunk));
        }

        @Override
        public boolean unmapDeleted() {
            return LocalProcessGroup.this.unmapDeleted();
        }
    }

    public SharedFolder folder() {
        return folder;
    }

    /** The folder of this run's store. */
    Path store() {
        return folder.store(nonce);
    }

    public HostDevice device() {
        return device;
    }

    public long nonce() {
        return nonce;
    }

    public boolean isAlive(int jobRank) {
        return folder.isHeld(jobRank);
    }

    /** The mapping of a chunk of a rank's heap; null if it was not needed before. */
    public @Nullable MemorySegment chunk(int jobRank, int chunk) {
        return jobRank == rank ? heap.chunk(chunk) : peers.get(jobRank, chunk);
    }

    /** Maps a chunk of another rank's heap. */
    public MemorySegment map(int jobRank, int chunk) {
        return peers.map(jobRank, chunk);
    }

    /** Unmaps what other processes have deleted; returns whether there was anything. */
    public boolean unmapDeleted() {
        return peers.unmapDeleted();
    }

    public void retain() {
        users.incrementAndGet();
    }

    public void release() {
        if (users.decrementAndGet() == 0) {
            leave();
            peers.unmapAll();
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                // The JVM is shutting down and has run the hook.
            }
        }
    }

    /**
     * Removes the files of this process and of dead ones. A process that has neither joined nor
     * reported an error keeps its lock file, by which the others notice its end.
     */
    private synchronized void leave() {
        if (left) {
            return;
        }
        left = true;
        folder.deleteAll(PeerChunks.files(rank));
        folder.unlock(rank, lock, joined || arrivals.isTold());
        folder.deleteIfAbandoned();
    }

    public static void checkSize(String name, int size) {
        if (size < 1 || size > ControlBlock.MAX_RANKS) {
            throw new IllegalArgumentException(
                    "%s is %s, expected 1 to %s ranks on one machine"
                            .formatted(name, size, ControlBlock.MAX_RANKS));
        }
    }

    public static void checkOneMachine(LaunchEnvironment launch) {
        if (launch.isOnSeveralMachines()) {
            throw new IllegalArgumentException(
                    ("the %s ranks are on %s machines according to the variables of %s: the host"
                                    + " engine runs on one machine; use JCCL_ENGINE=mpi under"
                                    + " mpirun, or NCCL with fromEnvironment(Cuda.device(...),"
                                    + " options), or start all ranks on one machine")
                            .formatted(launch.size(), launch.machines(), launch.launcher()));
        }
    }

    /** Creates the caller's object from a job that all have joined; the caller closes the arena. */
    public interface Use<T> {
        T of(LocalProcessGroup job, ControlBlock control, Arena arena);
    }

    /** Joins a job only to know its processes. */
    static LocalPeers meet(String jobId, int rank, int size, CommunicatorOptions options) {
        return join(
                jobId,
                rank,
                size,
                options,
                true,
                (job, control, arena) -> {
                    arena.close();
                    job.retain();
                    return new LocalPeers(rank, size, job);
                });
    }

    /** The wait of a rank that joins: until the timeout, or briefly after an interrupt. */
    private static final class Patience implements AutoCloseable {
        final long deadline;
        private final String who;

        /** When the thread was interrupted; its flag would close the files that it opens. */
        private long interrupted = Interrupts.notice(0, System.nanoTime());

        Patience(String jobId, int rank, Duration timeout) {
            this.who = "rank " + rank + " of job " + jobId;
            this.deadline = Deadline.after(timeout);
        }

        boolean isOver() {
            return System.nanoTime() - deadline > 0;
        }

        /** Clears the thread's flag, as before each use of files. */
        void notice() {
            interrupted = Interrupts.notice(interrupted, System.nanoTime());
        }

        boolean wasInterrupted() {
            notice();
            return interrupted != 0;
        }

        void pause() {
            notice();
            if (Interrupts.overdue(interrupted, System.nanoTime())) {
                throw Interrupts.error(who + " in its join", "it does not join");
            }
            LockSupport.parkNanos(POLL_NANOS);
            notice();
        }

        @Override
        public void close() {
            Interrupts.restore(interrupted);
        }
    }

    /**
     * Joins a job.
     *
     * @param store whether they need a folder for a store
     * @param use creates the result
     */
    public static <T> T join(
            String jobId,
            int rank,
            int size,
            CommunicatorOptions options,
            boolean store,
            Use<T> use) {
        try (Patience patience = new Patience(jobId, rank, options.timeout())) {
            return join(jobId, rank, size, options, store, use, patience);
        }
    }

    private static <T> T join(
            String jobId,
            int rank,
            int size,
            CommunicatorOptions options,
            boolean store,
            Use<T> use,
            Patience patience) {
        SharedFolder.removeStale();
        SharedFolder folder = new SharedFolder(jobId);
        SharedFolder.Lock lock = folder.tryLock(rank);
        FileLocks.Look holder = folder.look(rank);
        long heldSince = System.nanoTime();
        while (lock == null) {
            FileLocks.Look now = folder.look(rank);
            if (patience.isOver()) {
                throw now.held()
                        ? new JcclException(
                                ("rank %s of job %s is already running; give each process its own"
                                                + " rank, or this run another JCCL_JOB_ID")
                                        .formatted(rank, jobId))
                        : new CollectiveTimeoutException(
                                ("rank %s of %s waited %s for its turn in %s: another process of"
                                                + " the job is stopped there, or the machine is"
                                                + " overloaded; raise the timeout")
                                        .formatted(rank, size, options.timeout(), folder.path()));
            }
            if (!now.equals(holder)) {
                holder = now;
                heldSince = System.nanoTime();
            } else if (now.held()
                    && now.token() != 0
                    && System.nanoTime() - heldSince > CLAIM_NANOS) {
                throw new LocalHandshake(folder, rank, size, now.token()).claimedTwice(jobId);
            }
            patience.pause();
            lock = folder.tryLock(rank);
        }
        LocalProcessGroup job = new LocalProcessGroup(folder, rank, size, lock);
        boolean done = false;
        Arena arena = Arena.ofShared();
        try {
            ControlBlock control =
                    rank == 0
                            ? job.host(arena, patience, options, store)
                            : job.attach(arena, patience, options);
            job.nonce = control.nonce();
            job.joined = true;
            patience.notice();
            folder.joined(rank, lock);
            T made = use.of(job, control, arena);
            done = true;
            return made;
        } catch (RuntimeException | Error e) {
            job.tell(e, !patience.wasInterrupted());
            throw e;
        } finally {
            if (!done) {
                arena.close();
                job.retain();
                job.release();
            }
        }
    }

    /**
     * Reports to the others why this rank fails to join, unless they know; patient: also to late
     * ones.
     */
    private void tell(Throwable why, boolean patient) {
        if (arrivals.isTold()) {
            return;
        }
        try {
            if (!joined) {
                arrivals.refuse(lock.token(), why);
            }
            ControlBlock c = control;
            if (c != null) {
                // Ranks that have already joined notice it in their next operation.
                c.abort(rank, ControlBlock.AbortKind.of(why), arrivals.story(why));
            }
            if (!joined && patient) {
                arrivals.awaitLate(why);
            }
        } catch (RuntimeException e) {
            why.addSuppressed(e);
        }
    }

    private ControlBlock host(
            Arena arena, Patience patience, CommunicatorOptions options, boolean store) {
        folder.deleteLeftovers(size);
        LocalHandshake.forget(folder);
        long number = ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE);
        arrivals.come(number);
        if (store) {
            folder.makeStore(number);
        }
        MemorySegment memory =
                folder.create(CONTROL, ControlBlock.size(size), arena, "the control memory");
        ControlBlock control = new ControlBlock(memory, size);
        control.set(ControlBlock.RANKS_AT, size);
        control.set(ControlBlock.MAGIC_AT, ControlBlock.MAGIC);
        control.release(ControlBlock.NONCE_AT, number);
        this.control = control;
        List<Integer> missing = new ArrayList<>();
        do {
            missing.clear();
            for (int r = 1; r < size; r++) {
                long state = control.state(r);
                long join = control.acquire(state + ControlBlock.JOIN);
                if (join == 0) {
                    missing.add(r);
                } else {
                    control.release(state + ControlBlock.JOIN_ECHO, join);
                }
            }
            if (!missing.isEmpty()) {
                arrivals.checkVerdict(number);
                arrivals.checkOthers(control);
                if (patience.isOver()) {
                    folder.delete(CONTROL);
                    throw absent(missing, options);
                }
                patience.pause();
            }
        } while (!missing.isEmpty());
        control.release(ControlBlock.GO_AT, 1);
        folder.delete(CONTROL);
        LocalHandshake.forget(folder);
        return control;
    }

    private ControlBlock attach(Arena arena, Patience patience, CommunicatorOptions options) {
        long token = ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE);
        @Nullable ControlBlock control = null;
        long nonce = 0;
        while (true) {
            // A new number under the same name: rank 0 replaced a stale file. Map the new one.
            long now = folder.word(CONTROL, ControlBlock.NONCE_AT);
            if (now != 0 && now != nonce) {
                arrivals.come(now);
                if (arrivals.fits(now)) {
                    control = open(arena);
                    this.control = control;
                    if (control != null) {
                        nonce = now;
                        control.release(control.state(rank) + ControlBlock.JOIN, token);
                    }
                } else {
                    arrivals.judge(now, patience.deadline);
                }
            }
            ControlBlock met =
                    control != null
                                    && control.acquire(control.state(rank) + ControlBlock.JOIN_ECHO)
                                            == token
                            ? control
                            : null;
            if (met != null && met.acquire(ControlBlock.GO_AT) == 1) {
                return met;
            }
            if (now != 0) {
                arrivals.checkVerdict(now);
            }
            arrivals.checkOthers(met);
            if (patience.isOver()) {
                List<Integer> missing = new ArrayList<>();
                for (int r = 0; r < size; r++) {
                    if (r != rank && !folder.isHeld(r)) {
                        missing.add(r);
                    }
                }
                throw absent(missing, options);
            }
            patience.pause();
        }
    }

    /** Maps the control file; null if rank 0 has just deleted it. */
    private @Nullable ControlBlock open(Arena arena) {
        long bytes = folder.size(CONTROL);
        if (bytes < 0) {
            return null;
        }
        long magic = folder.word(CONTROL, ControlBlock.MAGIC_AT);
        long ranks = folder.word(CONTROL, ControlBlock.RANKS_AT);
        if (magic != 0 && magic != ControlBlock.MAGIC) {
            throw new JcclException(
                    "rank 0 runs another version of JCCL than rank "
                            + rank
                            + "; give all ranks the same jars");
        }
        if (ranks != 0 && (ranks != size || bytes != ControlBlock.size(size))) {
            throw new JcclException(
                    "rank 0 was started with WORLD_SIZE %s, rank %s with %s"
                            .formatted(ranks, rank, size));
        }
        try {
            return new ControlBlock(folder.map(CONTROL, ControlBlock.size(size), arena), size);
        } catch (UncheckedIOException e) {
            return null;
        }
    }

    private CollectiveTimeoutException absent(List<Integer> missing, CommunicatorOptions options) {
        return new CollectiveTimeoutException(
                "rank "
                        + rank
                        + " of "
                        + size
                        + " waited "
                        + options.timeout()
                        + " for the other ranks of the job in "
                        + folder.path()
                        + ", but "
                        + (missing.isEmpty()
                                ? "rank 0 did not start it"
                                : "these are not here: " + missing)
                        + ". Check that all run on this machine with the same JCCL_JOB_ID (or"
                        + " MASTER_ADDR and MASTER_PORT)");
    }
}
