package io.jccl.engine.mpi;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * MPI in this process: initialized once, by the thread {@code jccl-mpi}, which then monitors the
 * communicators, answers other ranks' status requests, and finalizes MPI when the JVM ends. MPI
 * that other code has initialized is left to that code.
 *
 * <p><b>Threads:</b> any.
 */
final class MpiProcess {
    /** Polling interval of the service thread. */
    private static final long TICK_NANOS = 20_000_000;

    /** Number of polls between receives, if only one thread may call MPI. */
    private static final int TICKS_ALONE = 5;

    /** How long the shutdown of the JVM waits for MPI's finalization, once all ranks end. */
    private static final Duration FINALIZE_WAIT = Duration.ofSeconds(10);

    /**
     * How long a process that ends waits at least for the others to end too, before it ends the
     * job: after a failure, they may report what has happened.
     */
    private static final Duration LEAVE_WAIT = Duration.ofSeconds(5);

    /** Polling interval of a process that waits for the others, or its own threads, to end. */
    private static final long LEAVE_NANOS = 5_000_000;

    /** How long the JVM has to end once MPI is finalized, before threads get errors. */
    private static final long LAST_PAUSE_NANOS = 1_000_000_000;

    /** How often it looks whether its own threads have left MPI. */
    private static final int IDLE_LOOKS = 20;

    /**
     * How long MPI_Init_thread has to register this process with the launcher: MPICH's launcher
     * does not end the job when a process exits that has not registered.
     */
    private static final Duration REGISTER_WAIT = Duration.ofSeconds(5);

    /** How long MPI has to end the job before this process ends alone. */
    private static final Duration ABORT_WAIT = Duration.ofSeconds(3);

    /** Exit status of a process that ends the job. */
    private static final int ABORTED = 124;

    private static final class Holder {
        static final MpiProcess PROCESS = new MpiProcess();
    }

    /** Counted down when MPI is loaded and MPI_Init_thread is about to be called. */
    private final CountDownLatch loaded = new CountDownLatch(1);

    private final CountDownLatch ready = new CountDownLatch(1);

    /** Counted down when all ranks end, or this one no longer waits for that. */
    private final CountDownLatch over = new CountDownLatch(1);

    private final CountDownLatch finished = new CountDownLatch(1);
    private final ConcurrentLinkedQueue<Runnable> errands = new ConcurrentLinkedQueue<>();
    private final ConcurrentHashMap<Long, MpiCommunicator> communicators =
            new ConcurrentHashMap<>();

    /** The same as an array, to iterate over without allocation. */
    private volatile List<MpiCommunicator> open = List.of();

    private final Thread service;

    /** Why MPI cannot be used: it was not initialized, the JVM ends, or other code finalizes it. */
    private volatile @Nullable RuntimeException failure;

    private volatile boolean ending;

    /** How long this process waits for the others if it has closed its communicators. */
    private volatile Duration patience = LEAVE_WAIT;

    /** Of the service thread. */
    private long ticks;

    private volatile @Nullable State state;

    /**
     * The state of MPI once it is initialized.
     *
     * @param finalizes whether JCCL has initialized it, and so finalizes it
     * @param attribute the key of the attribute whose deletion tells of MPI_Finalize
     * @param job the same on all ranks, and in no other job
     * @param blocking whether collectives block; the same on all ranks
     * @param turn serializes calls of MPI; null if all threads may call it
     */
    record State(
            MpiApi mpi,
            MpiAbi abi,
            boolean finalizes,
            int attribute,
            MpiTypes types,
            long world,
            int rank,
            int size,
            long job,
            boolean blocking,
            @Nullable SerializedLock turn,
            ControlChannel control) {}

    private MpiProcess() {
        service = Thread.ofPlatform().daemon().name("jccl-mpi").start(this::serve);
        Runtime.getRuntime().addShutdownHook(Thread.ofPlatform().unstarted(this::end));
    }

    /**
     * Initializes MPI, if it is not initialized yet.
     *
     * @param timeout how long to wait for it, and thus for the other ranks
     */
    static MpiProcess start(Duration timeout) {
        MpiProcess p = Holder.PROCESS;
        boolean done;
        try {
            done = p.ready.await(Deadline.nanos(timeout), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new JcclException("interrupted while MPI was initialized", e);
        }
        if (!done) {
            throw new CollectiveTimeoutException(
                    "MPI was not initialized within "
                            + timeout
                            + ": MPI_Init_thread waits for all processes that the launcher started;"
                            + " look at those that have not called it");
        }
        RuntimeException f = p.failure;
        if (f != null) {
            throw f;
        }
        return p;
    }

    State state() {
        return Objects.requireNonNull(state);
    }

    private void serve() {
        try {
            state = MpiStart.state(System.getenv(), loaded::countDown, this::finalizing);
        } catch (RuntimeException | LinkageError e) {
            failure =
                    e instanceof RuntimeException r
                            ? r
                            : new JcclException("MPI could not be initialized: " + e, e);
            finished.countDown();
            return;
        } finally {
            loaded.countDown();
            ready.countDown();
        }
        State s = state();
        try {
            while (!ending && failure == null) {
                tick(s);
                LockSupport.parkNanos(TICK_NANOS);
            }
            awaitOthersEnd(s);
            over.countDown();
            JcclException end =
                    new JcclException(
                            "the JVM ends, as those of all ranks do: nothing can use the"
                                    + " communicators any more, not even a shutdown hook");
            refuse(end);
            boolean idle = awaitIdle();
            // Otherwise other code finalizes MPI just now, or a thread cannot leave it.
            if (failure == end && (s.turn == null || s.turn.take())) {
                if (s.finalizes && idle && !s.control.broken()) {
                    s.mpi.MPI_Finalize();
                } else {
                    // MPI_Finalize may come when the JVM no longer lets C code call it.
                    s.mpi.MPI_Comm_delete_attr(s.mpi.MPI_COMM_SELF(), s.attribute);
                }
            }
            finished.countDown();
            // The JVM waits for other shutdown hooks. One that blocks in MPI ends the job.
            while (!isIdle()) {
                look();
                LockSupport.parkNanos(TICK_NANOS);
            }
        } finally {
            over.countDown();
            finished.countDown();
        }
    }

    /** Lets no further operation begin: other threads may go on while the JVM ends. */
    private synchronized void refuse(JcclException end) {
        RuntimeException why = Objects.requireNonNullElse(failure, end);
        failure = why;
        open.forEach(c -> c.fail(why, false, -1));
    }

    /**
     * Waits for threads that were in MPI when operations were refused. A thread calls MPI only
     * after it has announced its operation and then seen that it is not refused, both in volatile
     * fields, so all that may still call MPI have announced it.
     *
     * @return whether all have left
     */
    private boolean awaitIdle() {
        for (int i = 0; i < IDLE_LOOKS; i++) {
            LockSupport.parkNanos(LEAVE_NANOS);
            if (isIdle()) {
                return true;
            }
        }
        return false;
    }

    private boolean isIdle() {
        return open.stream().noneMatch(c -> c.watch().current().isInside());
    }

    /**
     * Answers the other ranks until they end too: a launcher kills them if this process is gone.
     * They may never end: if a communicator of this one has failed or was not closed, or if one of
     * them was killed and the launcher goes on.
     */
    private void awaitOthersEnd(State s) {
        long began = System.nanoTime();
        while (failure == null && !s.control.allEnd()) {
            tick(s);
            boolean orderly = isOrderly(s);
            Duration limit = orderly ? patience : LEAVE_WAIT;
            if (System.nanoTime() - began > Deadline.nanos(limit)) {
                abort(
                        ("jccl: rank %s of %s has ended %s, and other ranks have not within %s%s:"
                                        + " the job is ended")
                                .formatted(
                                        s.rank,
                                        s.size,
                                        orderly ? "in order" : why(),
                                        limit,
                                        orderly
                                                ? ", the longest timeout of its communicators"
                                                        + " (raise it if they need more time)"
                                                : ""));
            }
            LockSupport.parkNanos(LEAVE_NANOS);
        }
        if (failure == null) {
            tick(s);
        }
    }

    /**
     * Called by MPI_Finalize, which other code of this process may call, while MPI can still be
     * used. Returns when JCCL no longer does.
     */
    private void finalizing() {
        if (Thread.currentThread() == service) {
            return;
        }
        failure = finalized();
        LockSupport.unpark(service);
        Waits.await(finished, FINALIZE_WAIT.toNanos());
    }

    static JcclException finalized() {
        return new JcclException(
                "other code of this process has finalized MPI, after which nothing can use it:"
                        + " let that code call MPI_Finalize after the last use of JCCL");
    }

    private boolean isOrderly(State s) {
        return open.isEmpty() && !s.control.broken();
    }

    private String why() {
        for (MpiCommunicator c : open) {
            RuntimeException f = c.failure();
            if (f != null) {
                return "after " + f;
            }
        }
        return "without closing its communicator, or with work left in it";
    }

    private void tick(State s) {
        for (Runnable errand = errands.poll(); errand != null; errand = errands.poll()) {
            errand.run();
        }
        // A thread in blocking calls holds the lock nearly always: trying to get it slows that
        // thread down.
        if (s.turn == null || !s.blocking || ticks++ % TICKS_ALONE == 0) {
            s.control.receive(communicators);
        }
        look();
    }

    private void look() {
        long now = System.nanoTime();
        List<MpiCommunicator> all = open;
        for (int i = 0; i < all.size(); i++) {
            all.get(i).watch().look(now);
        }
    }

    /** All communicators of this process that are open. */
    List<MpiCommunicator> open() {
        return open;
    }

    /**
     * Called before an error is thrown. If operations are refused because the JVM ends, threads
     * that still run end with it rather than with the error, as on the other engines.
     */
    void pauseAtEnd() {
        if (ending && refuses()) {
            Waits.await(finished, FINALIZE_WAIT.toNanos());
            Waits.park(LAST_PAUSE_NANOS);
        }
    }

    /** Whether MPI is about to be finalized, or has been. */
    boolean refuses() {
        return failure != null;
    }

    synchronized void opened(long id, MpiCommunicator c) {
        RuntimeException f = failure;
        if (f != null) {
            throw f;
        }
        communicators.put(id, c);
        open = List.copyOf(communicators.values());
        Duration timeout = c.options().timeout();
        patience = timeout.compareTo(patience) > 0 ? timeout : patience;
    }

    synchronized void ended(long id) {
        communicators.remove(id);
        open = List.copyOf(communicators.values());
    }

    /** Makes the service thread run a task soon. */
    void errand(Runnable work) {
        errands.add(work);
        LockSupport.unpark(service);
    }

    /** Ends this process, and thus the job, with a message. */
    void abort(String story) {
        System.err.println(story);
        System.err.flush();
        State s = state();
        // If another thread is in MPI and only one may be, the launcher has to end the job.
        if (s.turn == null || s.turn.take(0)) {
            Thread.ofPlatform()
                    .daemon()
                    .name("jccl-mpi-abort")
                    .start(() -> s.mpi.MPI_Abort(s.mpi.MPI_COMM_WORLD(), ABORTED));
            try {
                Thread.sleep(ABORT_WAIT);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        Runtime.getRuntime().halt(ABORTED);
    }

    /** Called when the JVM ends: after this, MPI's launcher must not consider this process lost. */
    private void end() {
        try {
            // If the application gave up on MPI_Init_thread, that call still runs.
            if (loaded.await(FINALIZE_WAIT.toNanos(), TimeUnit.NANOSECONDS)) {
                ready.await(REGISTER_WAIT.toNanos(), TimeUnit.NANOSECONDS);
            }
            if (state == null) {
                return;
            }
            State s = state();
            ending = true;
            LockSupport.unpark(service);
            boolean done;
            do {
                done = over.await(FINALIZE_WAIT.toNanos(), TimeUnit.NANOSECONDS);
            } while (!done && isOrderly(s));
            finished.await(FINALIZE_WAIT.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
