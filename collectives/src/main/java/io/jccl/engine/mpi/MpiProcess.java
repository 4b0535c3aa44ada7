package io.jccl.engine.mpi;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.internal.MpiAttribute;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * MPI in this process: initialized once, by the thread {@code jccl-mpi}, which then monitors the
 * communicators, answers other ranks' status requests, and finalizes MPI when the JVM ends.
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

    /** Polling interval of a process that waits for the others to end. */
    private static final long LEAVE_NANOS = 5_000_000;

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
    /** Why MPI cannot be used: it was not initialized, or other code has finalized it. */
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
     * @param job the same on all ranks, and in no other job
     * @param blocking whether collectives block; the same on all ranks
     * @param turn serializes calls of MPI; null if all threads may call it
     */
    record State(
            MpiApi mpi,
            MpiAbi abi,
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
            state = initialize(System.getenv());
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
            RuntimeException f = failure;
            if (f != null) {
                open.forEach(c -> c.fail(f, false, -1));
            } else if (open.stream().noneMatch(c -> c.watch().stuck())
                    && !s.control.broken()
                    && (s.turn == null || s.turn.take())) {
                s.mpi.MPI_Finalize();
            }
        } finally {
            over.countDown();
            finished.countDown();
        }
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
        boolean interrupted = Thread.interrupted();
        try {
            finished.await(FINALIZE_WAIT.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static JcclException finalized() {
        return new JcclException(
                "other code of this process has finalized MPI, after which nothing can use it:"
                        + " let that code call MPI_Finalize after the last use of JCCL, or not at"
                        + " all, since JCCL does when the JVM ends");
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

    synchronized void opened(long id, MpiCommunicator c) {
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

    // ---- initialization, on the service thread

    private State initialize(Map<String, String> env) {
        MpiSettings settings = MpiSettings.of(env);
        MpiEnvironment.prepare(env);
        MpiApi mpi = NativeLibraries.mpi();
        MpiAbi abi = mpi.abi();
        Arena arena = Arena.global();
        MemorySegment number = arena.allocate(Long.BYTES, Long.BYTES);
        mpi.check(mpi.MPI_Finalized(number), "MPI_Finalized");
        if (number.get(ValueLayout.JAVA_INT, 0) != 0) {
            throw finalized();
        }
        mpi.check(mpi.MPI_Initialized(number), "MPI_Initialized");
        boolean initialized = number.get(ValueLayout.JAVA_INT, 0) != 0;
        int serialized = (int) abi.constant("MPI_THREAD_SERIALIZED");
        int multiple = (int) abi.constant("MPI_THREAD_MULTIPLE");
        int provided;
        if (initialized) {
            // Other code in this process did it, such as an embedded interpreter.
            mpi.check(mpi.MPI_Query_thread(number), "MPI_Query_thread");
            provided = number.get(ValueLayout.JAVA_INT, 0);
        } else {
            int wanted = settings.serialized() ? serialized : multiple;
            loaded.countDown();
            mpi.check(
                    mpi.MPI_Init_thread(MemorySegment.NULL, MemorySegment.NULL, wanted, number),
                    "MPI_Init_thread");
            provided = Math.min(wanted, number.get(ValueLayout.JAVA_INT, 0));
        }
        if (provided < serialized) {
            throw new JcclException(
                    ("%s %s thread level %s, but JCCL calls MPI from several threads and needs"
                                    + " at least MPI_THREAD_SERIALIZED (%s): %s")
                            .formatted(
                                    mpi.library(),
                                    initialized
                                            ? "was initialized by other code of this process with"
                                            : "grants",
                                    provided,
                                    serialized,
                                    initialized
                                            ? "let that code call MPI_Init_thread with"
                                                    + " MPI_THREAD_MULTIPLE, or create JCCL's"
                                                    + " communicator first"
                                            : "build or choose an MPI with thread support"));
        }
        mpi.check(
                mpi.MPI_Comm_get_errhandler(mpi.MPI_COMM_WORLD(), number),
                "MPI_Comm_get_errhandler");
        long handler = abi.handle(number, 0);
        setHandler(mpi, mpi.MPI_COMM_WORLD(), mpi.MPI_ERRORS_RETURN());
        int rank = integer(mpi, mpi.MPI_Comm_rank(mpi.MPI_COMM_WORLD(), number), number);
        int size = integer(mpi, mpi.MPI_Comm_size(mpi.MPI_COMM_WORLD(), number), number);
        MpiEnvironment.checkLauncher(env, mpi.library().toString(), size);
        try {
            new MpiHandshake(mpi, mpi.MPI_COMM_WORLD(), rank, size)
                    .answer(MpiHandshake.facts(mpi, settings));
        } catch (JcclException e) {
            if (initialized) {
                setHandler(mpi, mpi.MPI_COMM_WORLD(), handler);
            } else {
                // All ranks have the same error here: MPI can be finalized.
                mpi.MPI_Finalize();
            }
            throw e;
        }
        long world = duplicate(mpi, number);
        long control = duplicate(mpi, number);
        if (initialized) {
            // The world is that code's, and it may rely on its errors.
            setHandler(mpi, mpi.MPI_COMM_WORLD(), handler);
        }
        mpi.check(
                mpi.MPI_Comm_create_keyval(
                        MpiAttribute.notCopied(),
                        MpiAttribute.deleted(this::finalizing),
                        number,
                        MemorySegment.NULL),
                "MPI_Comm_create_keyval");
        mpi.check(
                mpi.MPI_Comm_set_attr(
                        mpi.MPI_COMM_SELF(),
                        number.get(ValueLayout.JAVA_INT, 0),
                        MemorySegment.NULL),
                "MPI_Comm_set_attr");
        // Unless serialized calls were chosen, several threads may be in collectives.
        boolean blocking =
                agree(
                        mpi,
                        world,
                        !settings.polls() && (provided >= multiple || settings.serialized()));
        SerializedLock turn = provided < multiple ? new SerializedLock() : null;
        return new State(
                mpi,
                abi,
                new MpiTypes(mpi),
                world,
                rank,
                size,
                most(mpi, world, new SecureRandom().nextLong()),
                blocking,
                turn,
                new ControlChannel(mpi, turn, control, rank, size));
    }

    /** Blocking and non-blocking collectives do not match each other, so all ranks use the same. */
    private static boolean agree(MpiApi mpi, long world, boolean blocking) {
        return most(mpi, world, blocking ? 0 : 1) == 0;
    }

    /** The maximum of all ranks' numbers. */
    private static long most(MpiApi mpi, long world, long mine) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment from = arena.allocateFrom(ValueLayout.JAVA_LONG, mine);
            MemorySegment to = arena.allocate(ValueLayout.JAVA_LONG);
            mpi.check(
                    mpi.MPI_Allreduce(
                            from.address(),
                            to.address(),
                            1,
                            mpi.MPI_INT64_T(),
                            mpi.MPI_MAX(),
                            world),
                    "MPI_Allreduce");
            return to.get(ValueLayout.JAVA_LONG, 0);
        }
    }

    private static int integer(MpiApi mpi, int code, MemorySegment number) {
        mpi.check(code, "MPI_Comm_rank or MPI_Comm_size");
        return number.get(ValueLayout.JAVA_INT, 0);
    }

    /** A separate communicator, whose messages match no others, and whose errors are returned. */
    private static long duplicate(MpiApi mpi, MemorySegment handle) {
        mpi.check(mpi.MPI_Comm_dup(mpi.MPI_COMM_WORLD(), handle), "MPI_Comm_dup");
        long made = mpi.abi().handle(handle, 0);
        setHandler(mpi, made, mpi.MPI_ERRORS_RETURN());
        return made;
    }

    private static void setHandler(MpiApi mpi, long comm, long handler) {
        mpi.check(mpi.MPI_Comm_set_errhandler(comm, handler), "MPI_Comm_set_errhandler");
    }
}
