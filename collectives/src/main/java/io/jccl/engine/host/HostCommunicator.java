package io.jccl.engine.host;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.Buffer;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Batch;
import io.jccl.engine.Descendants;
import io.jccl.engine.QueuedWork;
import io.jccl.engine.Request;
import io.jccl.error.JcclException;
import io.jccl.flight.CollectiveOp;
import io.jccl.flight.StatusPoller;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import io.jccl.internal.Waits;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank on the host engine.
 *
 * <p>Every collective starts in the same way: the rank writes its request into one of its two
 * slots, publishes the operation's number, and waits until every other rank has published the same
 * number. Then each rank knows all requests, and either all proceed or all throw the same error.
 * Small payloads are in the slot itself, so a small operation needs only one exchange of cache
 * lines. Slots alternate: a rank that publishes number s has seen every rank's s - 1, so no rank
 * still reads its slot of s - 2.
 *
 * <p>This class owns the number of the current collective and the error that made the communicator
 * unusable. {@link Slots} holds the published requests, {@link DirectAlgorithm} and the forwarding
 * algorithms move data, {@link Waiter} waits, {@link DesyncReport} explains timeouts.
 */
final class HostCommunicator extends HostRank {
    private static final long PARK_NANOS = 20_000;

    /** How long an aborted operation may still use the shared memory before it is closed. */
    private static final long END_NANOS = 1_000_000_000;

    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final CommunicatorOptions options;
    private final long timeoutNanos;

    private final int rank;
    private final int n;

    /** Largest payload in bytes that is sent in the slot; the same on all ranks. */
    private final long eagerLimit;

    private final Slots slots;
    private final Reducer reducer;
    private final DirectAlgorithm direct;
    private final PointToPoint messages;
    private final DesyncReport desync;
    private final Waiter waiter;

    /** For the placement of all ranks; the same on all of them. */
    private HostPlan plan = HostPlan.FLAT;

    private Algorithms algorithms;

    /** The number of the current collective, or of the next one. */
    private long sequence = 1;

    private long splits;
    private @Nullable Request current;

    /** Whether an operation is under way, which uses the shared memory. */
    private final AtomicBoolean running = new AtomicBoolean();

    /** The latest status request that this rank has answered; guarded by this. */
    private long answered;

    private final Runnable attended = this::attend;

    /** The error that made this communicator unusable. */
    private volatile @Nullable JcclException failure;

    private volatile boolean closed;

    /** Whether a thread has begun to close it; guarded by this. */
    private boolean closing;

    HostCommunicator(SharedMemoryTransport fabric, int rank, CommunicatorOptions options) {
        super(rank, fabric.ranks, fabric.device(), options.timeout());
        this.fabric = fabric;
        this.control = fabric.control;
        this.options = options;
        this.timeoutNanos = Deadline.nanos(options.timeout());
        this.rank = rank;
        this.n = fabric.ranks;
        this.eagerLimit = AlgorithmTable.eagerLimit(n);
        this.slots = new Slots(fabric, rank);
        this.reducer = new Reducer(n);
        this.direct = new DirectAlgorithm(fabric, slots, reducer, rank);
        this.messages = new PointToPoint(this, fabric, rank);
        this.desync =
                new DesyncReport(
                        this, fabric, slots, messages, rank, options.timeout(), this::attend);
        this.waiter = new Waiter(fabric, messages, desync, rank, timeoutNanos);
        this.algorithms = inOrder(IntStream.range(0, n).toArray());
        StatusPoller.attend(attended);
        flight().open();
    }

    /**
     * Sets the plan for the placement of all ranks, once all have published theirs, before the
     * first operation.
     */
    HostCommunicator plan(HostPlan made) {
        plan = made;
        if (made.order().length == n) {
            algorithms = inOrder(made.order());
        }
        return this;
    }

    private Algorithms inOrder(int[] order) {
        return new Algorithms(
                new ChunkedAlgorithm.Context(
                        fabric, messages, slots, waiter, reducer, rank, order));
    }

    // ---- methods of the base class

    @Override
    public String engine() {
        return fabric.engine();
    }

    @Override
    public Algorithm algorithmFor(String operation, long blockBytes) {
        return AlgorithmTable.choose(
                CollectiveOp.ofMethod(operation), blockBytes, n, options.algorithm(), plan);
    }

    @Override
    protected String communicatorId() {
        return fabric.id();
    }

    @Override
    protected void checkUsable() {
        if (closed) {
            throw new IllegalStateException("the communicator of rank " + rank + " is closed");
        }
        checkFailure();
    }

    private void checkFailure() {
        RuntimeException f = failure;
        if (f != null) {
            throw f;
        }
    }

    /** Begins an operation. One that waited reports the failure also if it was closed since. */
    private void begin() {
        checkFailure();
        checkUsable();
        running.setRelease(true);
    }

    @Override
    protected void checkWaiting(QueuedWork work, long idleNanos) {
        JcclException ended = null;
        synchronized (this) {
            if (!closed && control.aborted()) {
                ended = control.ended();
            }
        }
        if (ended != null) {
            fail(ended);
        }
        checkFailure();
        super.checkWaiting(work, idleNanos);
    }

    @Override
    protected void execute(Request q) {
        begin();
        current = q;
        try {
            waiter.checkAborted();
            if (q.op.peerToPeer()) {
                messages.add(q);
                messages.finish();
            } else {
                collective(q, false);
            }
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current = null;
            running.setRelease(false);
        }
    }

    @Override
    protected void execute(Batch batch) {
        begin();
        current = batch.get(0);
        try {
            waiter.checkAborted();
            for (int i = 0; i < batch.size(); i++) {
                if (batch.get(i).op.peerToPeer()) {
                    messages.add(batch.get(i));
                }
            }
            messages.progress();
            int last = batch.size() - 1;
            while (last >= 0 && batch.get(last).op.peerToPeer()) {
                last--;
            }
            for (int i = 0; i <= last; i++) {
                current = batch.get(i);
                if (!current.op.peerToPeer()) {
                    // Messages make progress during the wait, so no order can deadlock.
                    collective(current, i < last);
                }
            }
            current = null;
            messages.finish();
        } catch (RuntimeException e) {
            throw failed(e);
        } finally {
            current = null;
            running.setRelease(false);
        }
    }

    @Override
    public MemorySegment @Nullable [] peerMemory(Buffer buffer) {
        refuseInGroup("peerMemory");
        return PeerMemory.of(this, fabric, (HostBuffer) buffer);
    }

    // ---- one collective

    /**
     * Runs one.
     *
     * @param followed whether another one of the same group follows
     */
    private void collective(Request q, boolean followed) {
        collective(q, sequence, followed);
        sequence++;
    }

    private void collective(Request q, long s, boolean followed) {
        CollectiveOp op = q.op;
        int parity = (int) (s & 1);
        int size = q.type.size();
        long block = q.count * size;
        boolean source = op.sends(rank, q.root);
        boolean target = op.receives(rank, q.root);
        Algorithm algorithm = AlgorithmTable.choose(op, block, n, options.algorithm(), plan);
        q.algorithm = algorithm;
        long payload = op.manySend() ? block * n : block;
        boolean eager = algorithm == Algorithm.DIRECT && !op.vector() && payload <= eagerLimit;
        long signature =
                slots.publish(q, s, parity, algorithm, eager ? payload : -1, source, target);
        if (!slots.meet(waiter, s, parity, signature, q.count)) {
            throw desync.mismatch(s, parity);
        }
        if (eager) {
            if (target && payload > 0) {
                direct.takeFromSlots(q, parity, block);
            }
            return;
        }
        if (op.vector()) {
            slots.checkTables(q, s, parity);
        }
        switch (algorithm) {
            case DIRECT -> {
                if (slots.anyForeign(parity)) {
                    algorithms.staged().run(q, parity);
                } else {
                    direct.run(q, parity, target, size);
                    // If ranks only read each other's buffers, the synchronization of the next
                    // operation also shows that all have finished: no rank writes to its own buffer
                    // before that.
                    if (followed && !Slots.pushes(op) && !slots.anyInPlace(parity)) {
                        waiter.announce();
                    } else {
                        waiter.barrier();
                    }
                }
            }
            case RING -> algorithms.ring().run(q, parity);
            case TREE -> algorithms.tree().run(q, parity);
            case RECURSIVE_DOUBLING -> algorithms.doubling().run(q, parity);
            default -> algorithms.pairwise().run(q, parity);
        }
    }

    // ---- for the engine's other parts

    Waiter waiter() {
        return waiter;
    }

    /** The operation under way; null outside of one, and while only messages are. */
    @Nullable Request current() {
        return current;
    }

    /** The number of the current collective, or of the next one. */
    long sequence() {
        return sequence;
    }

    // ---- progress of all ranks

    /** Answers status requests, and prints the reason of an abort if this rank has to. */
    private void attend() {
        synchronized (this) {
            if (closed) {
                return;
            }
            long asked = control.asked();
            if (asked > answered) {
                answered = asked;
                control.answer(rank, asked, flight().status().write(ControlBlock.ANSWER_ROOM));
            }
            if (control.aborted()) {
                retireDriver();
            }
        }
        printStandings();
    }

    private synchronized void printStandings() {
        if (!closed && control.aborted() && control.abortPrinter() == rank) {
            flight().logStatus(control.abortText());
        }
    }

    // ---- ending

    /** Records the first error, reports it to the others, and returns the exception to throw. */
    private JcclException failed(RuntimeException e) {
        JcclException f = named(e);
        messages.clear();
        fail(f);
        printStandings();
        return f;
    }

    @Override
    protected void fail(JcclException why) {
        if (!closed) {
            // May write a file: before others hear of it, and not while they wait for this.
            flight().failed(why);
        }
        synchronized (this) {
            if (failure == null && !closed) {
                String text = Objects.requireNonNullElse(why.getMessage(), why.toString());
                control.abort(rank, ControlBlock.AbortKind.of(why), text);
                failure = why;
            }
        }
    }

    private synchronized JcclException named(RuntimeException e) {
        if (e instanceof JcclException j) {
            return j;
        }
        if (!closed) {
            return desync.failure(e);
        }
        // The shared memory is closed, and an access to it is all that e reports.
        String what = "rank " + rank + " was closed while in " + desync.here();
        return Objects.requireNonNullElseGet(failure, () -> new JcclException(what, e));
    }

    @Override
    public void abort(String reason) {
        Objects.requireNonNull(reason, "reason");
        synchronized (this) {
            if (closed) {
                return;
            }
            control.abort(rank, ControlBlock.AbortKind.FAILED, reason);
            if (failure == null) {
                failure = new RankFailedException("rank " + rank + " aborted: " + reason);
            }
        }
    }

    @Override
    public @Nullable Communicator split(int colour, int key) {
        int[] ranks = members(colour, key);
        long number = ++splits;
        Runnable barrier = () -> barrier(device().defaultStream());
        if (colour < 0) {
            barrier.run();
            barrier.run();
            return null;
        }
        int own = 0;
        while (ranks[own] != rank) {
            own++;
        }
        try {
            SharedMemoryTransport child = fabric.split(rank, number, colour, ranks, barrier);
            return made(child, own);
        } catch (RuntimeException e) {
            throw failed(e);
        }
    }

    @Override
    public Communicator shrink(List<Integer> excluded, boolean abort) {
        int[] left = remaining(excluded);
        if (closed || !abort) {
            checkUsable();
        }
        if (abort) {
            abort("ranks " + Arrays.toString(left) + " continue in their own communicator");
        } else {
            refuseWhilePending("shrink");
        }
        try {
            int own = Arrays.binarySearch(left, rank);
            return made(fabric.shrink(rank, left, own, options.timeout()), own);
        } catch (IllegalStateException e) {
            throw closed ? named(e) : e; // another thread has closed it, with its memory
        }
    }

    private HostCommunicator made(SharedMemoryTransport child, int own) {
        return Descendants.add(this, new HostCommunicator(child, own, options).plan(child.plan()));
    }

    @Override
    public void close() {
        synchronized (this) {
            if (closing) {
                return;
            }
            closing = true;
        }
        // Other ranks may still have to read what this rank has sent, and streams may have work.
        long deadline = System.nanoTime() + timeoutNanos;
        long interrupted = 0;
        for (long now = System.nanoTime();
                failure == null
                        && !control.aborted()
                        && (pending() > 0 || messages.unfetched())
                        && now < deadline;
                now = System.nanoTime()) {
            interrupted = Interrupts.notice(interrupted, now);
            if (Interrupts.overdue(interrupted, now)) {
                abort("it was interrupted while it closed its communicator, with work left");
            }
            LockSupport.parkNanos(PARK_NANOS);
        }
        Interrupts.restore(interrupted);
        endRest();
        StatusPoller.leave(attended);
        attend();
        flight().close();
        synchronized (this) {
            closed = true;
        }
        closeDriver();
        control.release(control.state(rank) + ControlBlock.CLOSED, 1);
        messages.close();
        fabric.leave(rank);
    }

    /** Aborts what has not completed, and waits until it no longer uses the shared memory. */
    private void endRest() {
        if (failure == null && !control.aborted() && (running.getAcquire() || pending() > 0)) {
            abort("it closed its communicator with work left");
        }
        long deadline = System.nanoTime() + END_NANOS;
        while (running.getAcquire() && System.nanoTime() - deadline < 0) {
            Waits.park(PARK_NANOS);
        }
    }

    @Override
    public String toString() {
        return "Communicator[rank " + rank + " of " + n + ", " + engine() + "]";
    }
}
