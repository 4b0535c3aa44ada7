package io.jccl.engine.mpi;

import io.jccl.Algorithm;
import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.bindings.MpiException;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import io.jccl.engine.Batch;
import io.jccl.engine.Request;
import io.jccl.engine.host.HostRank;
import io.jccl.error.JcclException;
import io.jccl.flight.CollectiveOp;
import io.jccl.flight.RankStatus;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import io.jccl.internal.Waits;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * One rank on the MPI engine: a process of an MPI job.
 *
 * <p>Operations run on the caller's or a stream's thread, as in the host engine, and calls of MPI
 * move the data. All ranks use either MPI's blocking collectives or its non-blocking ones with
 * polling, since the two do not match each other.
 */
final class MpiCommunicator extends HostRank {
    private static final long CLOSE_PARK_NANOS = 20_000;

    /** How long close waits for an operation that another thread is in. */
    private static final long END_NANOS = 1_000_000_000;

    private static final AtomicLong OPENED = new AtomicLong();

    private final MpiProcess process;
    private final MpiProcess.State mpi;
    private final CommunicatorOptions options;

    /** The same on all ranks of this communicator, and on no other. */
    private final long id;

    /** Rank in the world, by rank in this communicator. */
    private final int[] worldRanks;

    private final MpiMonitor watch;
    private final CurrentOperation current;
    private final MpiCalls calls;
    private long splits;
    private volatile @Nullable RuntimeException failure;

    /** Whether a thread has begun to close it, so that no operation begins. */
    private volatile boolean closing;

    private volatile boolean closed;

    /** Closing or failed; checked by every operation. */
    private volatile boolean unusable;

    private MpiCommunicator(
            MpiProcess process, long id, int rank, int[] worldRanks, CommunicatorOptions options) {
        super(rank, worldRanks.length, HostDevice.local(), options.timeout());
        this.process = process;
        this.mpi = process.state();
        this.id = id;
        this.worldRanks = worldRanks;
        this.options = options;
        this.watch = new MpiMonitor(this, options.timeout());
        this.current = watch.current();
        this.calls = new MpiCalls(mpi, this);
        flight().open();
    }

    /** The communicator of all processes of the job. */
    static MpiCommunicator world(CommunicatorOptions options) {
        MpiProcess process = MpiProcess.start(options.timeout());
        MpiProcess.State s = process.state();
        int[] all = new int[s.size()];
        Arrays.setAll(all, r -> r);
        long id = OPENED.incrementAndGet();
        MpiCommunicator c = new MpiCommunicator(process, id, s.rank(), all, options);
        c.open("fromEnvironment", false, () -> c.calls.link().duplicate(s.world()));
        return c;
    }

    private void open(String what, boolean blocking, Runnable body) {
        process.opened(id, this);
        boolean done = false;
        current.enter(what, blocking);
        try {
            checkUsable();
            body.run();
            done = true;
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current.leave();
            if (!done) {
                process.ended(id);
            }
        }
    }

    // ---- methods for the service thread

    MpiMonitor watch() {
        return watch;
    }

    CommunicatorOptions options() {
        return options;
    }

    @Nullable RuntimeException failure() {
        return failure;
    }

    /** Requests the status of all others, and of this rank's messages. */
    void ask() {
        calls.messages().ask();
        for (int r : worldRanks) {
            if (r != mpi.rank()) {
                mpi.control().ask(r, id);
            }
        }
    }

    /** Whether a message to or from a rank was in progress after the last request. */
    boolean waitsFor(int rank) {
        return calls.messages().waitsFor(rank);
    }

    /** Receives the status of a rank of the world. */
    void answered(int worldRank, MpiMonitor.Answer answer) {
        for (int r = 0; r < worldRanks.length; r++) {
            if (worldRanks[r] == worldRank) {
                watch.answered(r, answer);
            }
        }
    }

    /** The status of this rank. */
    RankStatus where() {
        return flight().status();
    }

    /**
     * Makes this communicator unusable on this rank, and with {@code tell} on the others.
     *
     * @param printer the rank that prints the reason; negative if none does
     */
    void fail(RuntimeException why, boolean tell, int printer) {
        synchronized (this) {
            if (failure != null || closed) {
                return;
            }
            failure = why;
            unusable = true;
        }
        retireDriver();
        if (tell) {
            process.errand(() -> {
                for (int r : worldRanks) {
                    if (r != mpi.rank()) {
                        mpi.control().fail(r, id, why, printer);
                    }
                }
            });
        }
        if (printer == rank()) {
            flight().logStatus(String.valueOf(why.getMessage()));
        }
    }

    /**
     * Whether no other thread may call MPI while an operation of this communicator blocks in it.
     */
    boolean isAlone() {
        return mpi.blocking() && mpi.turn() != null;
    }

    /** The error if another thread has been in MPI for too long, and only one may be. */
    JcclException noTurn() {
        String others =
                process.open().stream()
                        .filter(c -> c != this && c.current.isInside())
                        .map(c -> c.watch.toString())
                        .collect(Collectors.joining(", "));
        return new JcclException(
                ("%s: another thread of this process has been in MPI for a second (%s), and with"
                                + " JCCL_MPI_THREADS=serialized only one at a time may be: two"
                                + " that wait for each other's ranks would deadlock. Use one"
                                + " stream for all communicators, or JCCL_MPI_THREADS=multiple")
                        .formatted(watch, others.isEmpty() ? "it has left by now" : others));
    }

    /** Ends the job with a message: a thread is in a call of MPI that cannot be ended. */
    void endProcess(String where) {
        RuntimeException why = Objects.requireNonNull(failure);
        process.abort(
                ("jccl: %s, and the communicator has failed: %s\njccl: a blocking call of MPI"
                                + " cannot be ended, so this job is; with JCCL_MPI_WAIT=poll the"
                                + " program would get the exception")
                        .formatted(where, why));
    }

    // ---- methods of the base class

    @Override
    public String engine() {
        return "mpi";
    }

    @Override
    public Algorithm algorithmFor(String operation, long blockBytes) {
        CollectiveOp.ofMethod(operation);
        return Algorithm.AUTO;
    }

    @Override
    protected String communicatorId() {
        return Long.toHexString(mpi.job()) + "/" + Long.toHexString(id);
    }

    @Override
    protected void checkUsable() {
        if (unusable) {
            throwUnusable();
        }
    }

    private void throwUnusable() {
        if (closing) {
            throw new IllegalStateException("the communicator of rank " + rank() + " is closed");
        }
        throwFailure();
    }

    /** Throws the error with which this communicator has failed, if it has. */
    void throwFailure() {
        RuntimeException f = failure;
        if (f != null) {
            process.pauseAtEnd();
            throw f;
        }
    }

    @Override
    protected void execute(Request q) {
        current.enter(q, mpi.blocking() && !polled(q.op));
        checkEntered();
        boolean done = false;
        try {
            calls.run(q);
            done = true;
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            if (!done && calls.giveUp()) {
                keepMemory(q);
            }
            current.leave();
        }
    }

    /**
     * {@link #checkUsable} after an operation was entered: MPI is finalized when none can be used
     * and none is entered, in this order.
     */
    private void checkEntered() {
        if (unusable) {
            current.leave();
            throwUnusable();
        }
    }

    /** Whether an operation consists of sends and receives, which are always polled. */
    static boolean polled(CollectiveOp op) {
        return op.peerToPeer()
                || op == CollectiveOp.GATHERV
                || op == CollectiveOp.SCATTERV
                || op == CollectiveOp.ALL_TO_ALLV;
    }

    @Override
    protected void execute(Batch batch) {
        current.enter("a group", false);
        checkEntered();
        boolean messages = false;
        boolean done = false;
        try {
            for (int i = 0; i < batch.size(); i++) {
                Request q = batch.get(i);
                if (q.op.peerToPeer()) {
                    current.enter(q, false);
                    messages = true;
                    calls.messages().post(q);
                }
            }
            for (int i = 0; i < batch.size(); i++) {
                Request q = batch.get(i);
                if (!q.op.peerToPeer()) {
                    current.enter(q, mpi.blocking() && !polled(q.op));
                    calls.runBeside(q);
                }
            }
            if (messages) {
                current.enter("sends and receives of a group", false);
                calls.messages().finish();
            }
            done = true;
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            if (!done && calls.giveUp()) {
                for (int i = 0; i < batch.size(); i++) {
                    keepMemory(batch.get(i));
                }
            }
            current.leave();
        }
    }

    /** Collectives cannot be cancelled: later calls of MPI may continue an abandoned one. */
    private static void keepMemory(Request q) {
        if (q.send instanceof HostBuffer b) {
            b.keep();
        }
        if (q.recv instanceof HostBuffer b) {
            b.keep();
        }
    }

    /**
     * Records the first error, reports it to the other ranks, and returns the exception to throw.
     */
    private RuntimeException failed(RuntimeException e) {
        JcclException f =
                switch (e) {
                    case MpiException m -> translated(m);
                    case JcclException j -> j;
                    default -> new JcclException("rank " + rank() + " failed: " + e, e);
                };
        fail(f);
        return Objects.requireNonNullElse(failure, f);
    }

    @Override
    protected void fail(JcclException why) {
        fail(why, true, -1);
        flight().failed(why);
    }

    private JcclException translated(MpiException e) {
        String text = String.valueOf(e.getMessage());
        int errorClass = calls.link().errorClass(e.code());
        if (errorClass == mpi.abi().constant("MPI_ERR_TRUNCATE")) {
            return new CollectiveMismatchException(
                    watch + ": another rank sent more than this one expects: " + text);
        }
        if (text.contains("PROC_FAILED") || text.contains("rocess fail")) {
            return new RankFailedException(watch + ": another rank's process has ended: " + text);
        }
        return e;
    }

    @Override
    public void abort(String reason) {
        Objects.requireNonNull(reason, "reason");
        fail(new RankFailedException("rank " + rank() + " aborted: " + reason), true, -1);
    }

    @Override
    public @Nullable Communicator split(int colour, int key) {
        // Here missing ranks are also noticed, before the blocking call of MPI.
        int[] members = members(colour, key);
        int own = 0;
        int[] world = new int[members.length];
        for (int i = 0; i < world.length; i++) {
            world[i] = worldRanks[members[i]];
            own = members[i] == rank() ? i : own;
        }
        long child = childId(id, ++splits, colour);
        MpiCommunicator made =
                colour < 0 ? null : new MpiCommunicator(process, child, own, world, options);
        current.enter("split", true);
        checkEntered();
        try {
            long handle = calls.link().split(colour, own);
            if (made != null) {
                made.calls.link().adopt(handle);
                process.opened(child, made);
            }
            return made;
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current.leave();
        }
    }

    /**
     * The id of a communicator made by split, the same on all members. It is negative, as no other
     * one is; a factor of 64 bits keeps the numbers of different parents and splits apart.
     */
    static long childId(long parent, long split, int colour) {
        long factor = 0x9E3779B97F4A7C15L;
        return ((parent * factor + split) * factor + colour) | Long.MIN_VALUE;
    }

    @Override
    public void close() {
        if (closing) {
            return;
        }
        long deadline = System.nanoTime() + Deadline.nanos(options.timeout());
        long interrupted = 0;
        for (long now = System.nanoTime();
                failure == null && pending() > 0 && now < deadline;
                now = System.nanoTime()) {
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                abort("it was interrupted while it closed its communicator, with work left");
            }
            LockSupport.parkNanos(CLOSE_PARK_NANOS);
        }
        Interrupts.restore(interrupted);
        synchronized (this) {
            if (closing) {
                return;
            }
            closing = true;
            unusable = true;
        }
        endRest();
        synchronized (this) {
            closed = true;
        }
        closeDriver();
        flight().close();
        watch.closed(id);
        if (failure == null && pending() == 0) {
            current.enter("close", false);
            try {
                if (!process.refuses()) {
                    calls.close();
                }
            } finally {
                current.leave();
                process.ended(id);
            }
        } else if (!process.refuses()) {
            // MPI may still have requests that use its memory. Once the JVM ends it has none.
            mpi.control().setBroken();
        }
    }

    /** Waits for an operation of another thread, and aborts it if it does not end soon. */
    private void endRest() {
        long deadline = System.nanoTime() + END_NANOS;
        while (failure == null && current.isInside()) {
            if (System.nanoTime() - deadline > 0) {
                abort("it closed its communicator with work left");
            }
            Waits.park(CLOSE_PARK_NANOS);
        }
    }

    @Override
    public String toString() {
        return "Communicator[rank " + rank() + " of " + size() + ", " + engine() + "]";
    }
}
