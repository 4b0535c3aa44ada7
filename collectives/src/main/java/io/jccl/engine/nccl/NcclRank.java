package io.jccl.engine.nccl;

import io.jccl.Algorithm;
import io.jccl.CollectiveMismatchException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.RankFailedException;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Batch;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.Request;
import io.jccl.error.JcclException;
import io.jccl.flight.Collective;
import io.jccl.flight.Standing;
import io.jccl.internal.Deadline;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/**
 * One GPU's end of a communicator of NCCL.
 *
 * <p>The calling thread hands each operation to NCCL, which enqueues it on the CUDA stream. NCCL's
 * calls do not block ({@code blocking=0}): that alone lets another thread abort them. What NCCL
 * lacks is a group of sends and receives.
 *
 * <p>What goes wrong later is found by {@link Watchdog}, which looks at every communicator now and
 * then: an error of NCCL, a rank that failed, an operation that takes too long. It knows how far
 * the GPU is from one event that it records itself, so an operation pays nothing for being watched.
 */
public final class NcclRank extends EngineCommunicator
        implements NcclCommunicator, CudaStream.Source {
    static final Duration ABORT_WAIT = Duration.ofSeconds(10);

    /** How long the end of a process may take to be seen after NCCL has seen it. */
    static final long BLAME_NANOS = 1_000_000_000L;

    private final NcclApi nccl;
    private final CudaDevice device;
    private final Members members;
    private final CommunicatorOptions options;

    /** Freed when NCCL is done with all of it. */
    private final Resources resources;

    private final NcclCalls calls;
    private final Issued issued;
    private final Watch watch;
    private final Derivation derivation;
    private final OneSided oneSided;

    /** NCCL's handle; 0 when it was destroyed. */
    private volatile long comm;

    private final AtomicReference<@Nullable JcclException> failure = new AtomicReference<>();
    private final AtomicBoolean aborting = new AtomicBoolean();

    /** Open when NCCL has returned from its last call for this communicator. */
    private final CountDownLatch ended = new CountDownLatch(1);

    private volatile boolean closed;
    private @Nullable Closing closing;

    /** Whether the user's thread is inside NCCL, where an abort must not meet it. */
    private volatile boolean inside;

    /** Held by whoever uses the handle outside the user's thread. */
    private final ReentrantLock lock = new ReentrantLock();

    NcclRank(
            NcclApi nccl,
            CudaDevice device,
            Members members,
            CommunicatorOptions options,
            Resources resources,
            long comm,
            int rank,
            int size) {
        super(rank, size, true);
        this.nccl = nccl;
        this.device = device;
        this.members = members;
        this.options = options;
        this.resources = resources;
        this.comm = comm;
        this.calls = new NcclCalls(this, nccl, device, resources);
        this.issued = new Issued(this, flight());
        this.watch = new Watch(this, nccl, members, issued, options.timeout(), resources.marker);
        this.derivation = new Derivation(this, nccl, device, members, options);
        this.oneSided = new OneSided(this, nccl, device, members, issued, resources.arena);
        if (rank == 0) {
            members.id();
        }
        Watchdog.watch(watch);
    }

    // ---- Communicator

    @Override
    public Device device() {
        return device;
    }

    @Override
    public String engine() {
        return "nccl";
    }

    @Override
    public Algorithm algorithmFor(String operation, long blockBytes) {
        Collective.ofMethod(operation);
        return Algorithm.AUTO;
    }

    @Override
    public String ncclVersion() {
        return nccl.library().version().toString();
    }

    @Override
    public NcclConfig config() {
        return options.nccl();
    }

    /** What is left to do when a rank has closed its end. */
    interface Closing {
        /** Runs, given whether all other ranks had closed theirs before. */
        void closed(boolean last);
    }

    void whenClosed(Closing closing) {
        this.closing = closing;
    }

    // ---- what the other parts of a rank ask for

    /** NCCL's handle; 0 when it was destroyed. */
    long comm() {
        return comm;
    }

    ReentrantLock lock() {
        return lock;
    }

    /** Whether a thread is inside NCCL. */
    boolean isInside() {
        return inside;
    }

    /** Whether it is closed or has failed. */
    boolean isOver() {
        return closed || failure.get() != null;
    }

    void checkPeer(int peer) {
        checkRank("peer", peer);
    }

    // ---- what EngineCommunicator asks for

    @Override
    protected void checkUsable() {
        JcclException e = failure.get();
        if (e != null) {
            throw e;
        }
        if (closed) {
            throw new IllegalStateException(
                    "communicator '" + members.name() + "' is closed on rank " + rank());
        }
    }

    @Override
    protected void checkBuffer(Buffer buffer, String name) {
        if (!(buffer instanceof CudaBuffer b)) {
            throw new IllegalArgumentException(
                    name
                            + " is memory of "
                            + buffer.device()
                            + ", expected memory of "
                            + device
                            + ", this rank's device; allocate it from device(), or wrap it with"
                            + " Cuda.wrapAddress");
        }
        if (b.device() != device) {
            throw new IllegalArgumentException(
                    name
                            + " is memory of "
                            + b.device()
                            + ", but rank "
                            + rank()
                            + " is on "
                            + device);
        }
        if (!b.isOpen()) {
            throw new IllegalStateException(name + " is closed: " + buffer);
        }
    }

    @Override
    protected boolean overlap(Buffer a, Buffer b) {
        return a.address() < b.address() + b.byteSize() && b.address() < a.address() + a.byteSize();
    }

    @Override
    protected boolean samePlace(Buffer a, long aAt, Buffer b, long bAt) {
        int size = a.dataType().size();
        return a.address() + aAt * size == b.address() + bAt * size;
    }

    @Override
    protected boolean runsInline(Stream stream) {
        CudaStream.of(stream, device).handle();
        return true;
    }

    @Override
    protected void enqueue(Stream stream, Runnable work) {
        throw new AssertionError("NCCL's work runs inline");
    }

    @Override
    protected Stream driver() {
        throw new AssertionError("NCCL's ranks run together");
    }

    @Override
    protected String communicatorId() {
        return members.id();
    }

    /** The watchdog has seen that the operations up to a number are complete. */
    void seenComplete(long number) {
        flight().complete(number);
        flightProgress(number);
    }

    /** How far this rank is, for the others. */
    Standing answer() {
        return standing();
    }

    @Override
    protected boolean runsTogether() {
        return true;
    }

    // ---- operations

    @Override
    protected void execute(Request r) {
        enter(); // before it is noted: see Watch.enqueued
        try {
            CudaStream stream = issued.note(r);
            settle(calls.issue(r, comm, stream), r.op.method());
        } finally {
            inside = false;
        }
    }

    @Override
    protected void execute(Batch batch) {
        executeTogether(new EngineCommunicator[] {this}, new Batch[] {batch}, 1);
    }

    @Override
    protected void executeTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        CudaDevice.refuseVirtualThread();
        try {
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).enter();
            }
            int result = nccl.ncclGroupStart();
            settle(result, "ncclGroupStart");
            String operation = "ncclGroupEnd";
            NcclRank guilty = this;
            RuntimeException thrown = null;
            // The group is ended whatever happens: it belongs to the thread, and would swallow
            // everything that comes after it.
            try {
                for (int i = 0; i < n && !NcclCodes.isError(result); i++) {
                    NcclRank rank = (NcclRank) engines[i];
                    rank.calls.beginGroup();
                    for (int j = 0; j < batches[i].size() && !NcclCodes.isError(result); j++) {
                        Request r = batches[i].get(j);
                        CudaStream stream = rank.issued.note(r);
                        result = rank.calls.issue(r, rank.comm, stream);
                        if (NcclCodes.isError(result)) {
                            operation = r.op.method();
                            guilty = rank;
                        }
                    }
                }
            } catch (RuntimeException e) {
                thrown = e;
            }
            int end = nccl.ncclGroupEnd();
            if (thrown != null) {
                throw thrown;
            }
            if (NcclCodes.isError(result)) {
                guilty.settle(result, operation);
            }
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).settle(end, "ncclGroupEnd");
            }
        } finally {
            for (int i = 0; i < n; i++) {
                NcclRank rank = (NcclRank) engines[i];
                rank.calls.endGroup();
                rank.inside = false;
            }
        }
    }

    /** Keeps an abort out until {@link #inside} is false again. */
    private void enter() {
        inside = true;
        JcclException e = failure.get();
        if (e != null) {
            inside = false;
            throw e;
        }
    }

    /** Makes a call of NCCL for this communicator, which no abort meets. */
    void call(String operation, IntSupplier call) {
        checkUsable();
        enter();
        try {
            settle(call.getAsInt(), operation);
        } finally {
            inside = false;
        }
    }

    // ---- results and errors

    /** Returns when NCCL is done with a call; throws what went wrong. */
    void settle(int result, String operation) {
        if (result != nccl_h.ncclSuccess()) {
            settleSlowly(result, operation);
        }
    }

    private void settleSlowly(int result, String operation) {
        int state = result;
        if (state == nccl_h.ncclInProgress()) {
            long timeout = Deadline.nanos(options.timeout());
            long answering = Standing.answerNanos(timeout);
            state = awaitProgress(timeout - answering);
            if (state == nccl_h.ncclInProgress()) {
                long question = members.ask();
                state = awaitProgress(answering);
                if (state == nccl_h.ncclInProgress()) {
                    JcclException late = whyLate(operation, question);
                    throwIfFailed();
                    throw fail(late);
                }
            }
        }
        if (state != nccl_h.ncclSuccess()) {
            // NCCL refuses an invalid argument before it has done anything.
            if (state == nccl_h.ncclInvalidArgument()) {
                throw explained(state, operation);
            }
            long began = System.nanoTime();
            JcclException e = blamed(state, operation, began);
            while (e == null) {
                LockSupport.parkNanos(10_000_000);
                e = blamed(state, operation, began);
            }
            throw fail(e);
        }
    }

    private int awaitProgress(long nanos) {
        int state;
        try {
            state = Pending.await(nccl, comm, Duration.ofNanos(nanos), () -> failure.get() != null);
        } catch (JcclException e) {
            throw fail(e);
        }
        throwIfFailed();
        return state;
    }

    /** Why an operation that was only to be enqueued is still in progress. */
    private JcclException whyLate(String operation, long question) {
        JcclException told = brokenBy(operation);
        if (told != null) {
            return told;
        }
        JcclException found =
                watch.late(
                        question,
                        operation,
                        describe(operation)
                                + " is still in progress after "
                                + options.timeout()
                                + ", though it was only to be enqueued: a rank is missing, or"
                                + " connections cannot be made");
        // This process may have been stopped meanwhile, and the others have given it up.
        told = found instanceof CollectiveMismatchException ? null : brokenBy(operation);
        return told == null ? found : told;
    }

    private @Nullable JcclException brokenBy(String operation) {
        String broken = members.broken();
        CollectiveMismatchException mismatch = broken == null ? null : members.disagreement();
        return broken == null || mismatch != null
                ? mismatch
                : new RankFailedException(describe(operation) + " failed: " + broken);
    }

    /**
     * An error of NCCL with the rank that brought it about, where that is known; null if it may be
     * known in a moment. NCCL itself never says who it was.
     */
    @Nullable JcclException blamed(int result, String operation, long since) {
        String broken = members.broken();
        if (broken != null) {
            CollectiveMismatchException mismatch = members.disagreement();
            return mismatch != null
                    ? mismatch
                    : because(explained(result, operation), operation, broken);
        }
        boolean anothers = NcclCodes.mayBeAnothers(result);
        List<Integer> left = anothers ? members.left() : List.of();
        if (!left.isEmpty()) {
            return because(
                    explained(result, operation),
                    operation,
                    "rank(s) " + left + " closed the communicator while this one waits");
        }
        return anothers && members.knowsProcesses() && System.nanoTime() - since < BLAME_NANOS
                ? null
                : explained(result, operation);
    }

    private RankFailedException because(NcclException said, String operation, String reason) {
        RankFailedException e =
                new RankFailedException(
                        describe(operation)
                                + " failed: "
                                + reason
                                + "; NCCL says: "
                                + said.getMessage());
        e.initCause(said);
        return e;
    }

    /** NCCL's own text, whose communicator it is, CUDA's error, and the settings in force. */
    private NcclException explained(int result, String operation) {
        NcclException plain = NcclException.of(nccl, result, operation, comm);
        StringBuilder text = new StringBuilder(describe(operation)).append(": ");
        text.append(plain.getMessage());
        int cuda = CudaRuntime.api().cudaPeekAtLastError();
        if (cuda != 0) {
            text.append("; CUDA's last error is ")
                    .append(CudaRuntime.api().cudaGetErrorName(cuda))
                    .append(
                            CudaException.isFatal(cuda)
                                    ? ", after which this process cannot use CUDA any more"
                                    : ", which is not sticky");
        }
        text.append(Settings.inForce());
        return new NcclException(result, operation, text.toString());
    }

    String describe(String operation) {
        return operation
                + " on rank "
                + rank()
                + " of "
                + size()
                + " of communicator '"
                + members.name()
                + "' ("
                + device
                + ")";
    }

    /** Makes the communicator unusable with an error, tells the others, and ends NCCL's work. */
    <E extends JcclException> E fail(E error) {
        fail(error, true);
        return error;
    }

    void fail(JcclException error, boolean tell) {
        if (!failure.compareAndSet(null, error)) {
            return;
        }
        flightFailed(error);
        if (tell) {
            try {
                members.fail(error);
            } catch (RuntimeException e) {
                error.addSuppressed(e);
            }
        }
        printReport();
        startAbort();
    }

    /** One rank prints how far all were: the lowest that could say so. */
    private void printReport() {
        try {
            String report = members.report();
            if (report != null) {
                logStandings(report);
            }
        } catch (RuntimeException e) {
            // The error itself has it too.
        }
    }

    @Override
    public void synchronizedWith(CudaStream stream) {
        issued.synchronizedWith(stream);
    }

    @Override
    public void throwIfFailed() {
        JcclException e = failure.get();
        if (e != null) {
            throw e;
        }
    }

    @Override
    public void abort(String reason) {
        Objects.requireNonNull(reason, "reason");
        if (closed) {
            return;
        }
        fail(
                new RankFailedException(
                        "communicator '"
                                + members.name()
                                + "' was aborted by rank "
                                + rank()
                                + ": "
                                + reason),
                true);
    }

    /** Aborts on a thread of its own: NCCL may take long, or for ever. */
    private void startAbort() {
        if (!aborting.compareAndSet(false, true)) {
            return;
        }
        start("abort", this::abortNative);
    }

    /** Runs NCCL's last call for this communicator on a thread that may hang. */
    private void start(String what, Runnable last) {
        Thread.ofPlatform()
                .daemon()
                .name("jccl-" + what + "-" + members.name() + "-" + rank())
                .start(() -> {
                    last.run();
                    ended.countDown();
                });
    }

    private void destroyNative() {
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            nccl.ncclCommDestroy(c);
        } finally {
            lock.unlock();
        }
    }

    private void abortNative() {
        long deadline = System.nanoTime() + ABORT_WAIT.toNanos();
        while (inside && System.nanoTime() < deadline) {
            LockSupport.parkNanos(100_000);
        }
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            if (c != 0) {
                nccl.ncclCommAbort(c);
            }
        } finally {
            lock.unlock();
        }
    }

    // ---- communicators made from this one

    @Override
    public @Nullable Communicator split(int colour, int key) {
        refuseInGroup("split");
        return derivation.split(colour, key);
    }

    @Override
    public NcclCommunicator shrink(List<Integer> excluded, boolean abort) {
        refuseInGroup("shrink");
        return derivation.shrink(excluded, abort);
    }

    @Override
    public NcclCommunicator grow(String name, int size) {
        refuseInGroup("grow");
        return derivation.grow(name, size);
    }

    @Override
    public void revoke() {
        refuseInGroup("revoke");
        call("ncclCommRevoke", () -> nccl.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()));
    }

    @Override
    public void suspend() {
        refuseInGroup("suspend");
        call("ncclCommSuspend", () -> nccl.ncclCommSuspend(comm, nccl_h.NCCL_SUSPEND_MEM()));
    }

    @Override
    public void resume() {
        refuseInGroup("resume");
        call("ncclCommResume", () -> nccl.ncclCommResume(comm));
    }

    @Override
    public long memory(MemoryStatistic statistic) {
        MemorySegment slot = CudaRuntime.slot();
        int code =
                switch (statistic) {
                    case SUSPENDABLE -> nccl_h.ncclStatGpuMemSuspend();
                    case SUSPENDED -> nccl_h.ncclStatGpuMemSuspended();
                    case PERSISTENT -> nccl_h.ncclStatGpuMemPersist();
                    case TOTAL -> nccl_h.ncclStatGpuMemTotal();
                };
        call("ncclCommMemStats", () -> nccl.ncclCommMemStats(comm, code, slot));
        return slot.get(ValueLayout.JAVA_LONG, 0);
    }

    // ---- registration, windows, one-sided operations

    @Override
    public Registration register(Buffer buffer) {
        return oneSided.register(buffer);
    }

    @Override
    public Window window(Buffer buffer, boolean symmetric) {
        refuseInGroup("window");
        return oneSided.window(buffer, symmetric);
    }

    @Override
    public void putSignal(Buffer source, int peer, Window window, long offsetBytes, Stream stream) {
        oneSided.putSignal(source, peer, window, offsetBytes, stream);
    }

    @Override
    public void signal(int peer, Stream stream) {
        oneSided.signal(peer, stream);
    }

    @Override
    public void waitSignal(int peer, int count, Stream stream) {
        oneSided.waitSignal(peer, count, stream);
    }

    // ---- the end

    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            if (failure.get() == null) {
                finish();
            } else {
                // Whoever met the error may not have got that far.
                startAbort();
            }
            closed = true;
        }
        Watchdog.forget(watch);
        flightEnded();
        boolean last = false;
        try {
            last = members.leave();
        } catch (RuntimeException e) {
            // The store is gone before us: nobody is left to be told.
        }
        issued.detach();
        try {
            if (awaitNative()) {
                release();
            }
        } finally {
            Closing task = closing;
            if (task != null) {
                awaitLook();
                task.closed(last);
            }
        }
    }

    /** Lets the watchdog finish its last look, which may write to the store. */
    private void awaitLook() {
        boolean interrupted = Thread.interrupted();
        try {
            if (lock.tryLock(1, TimeUnit.SECONDS)) {
                lock.unlock();
            }
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Waits for the work enqueued, then lets NCCL go; an error or a timeout ends in an abort. */
    private void finish() {
        try {
            calls.destroyMade(comm);
            if (nccl.supports("ncclCommFinalize")) {
                settle(nccl.ncclCommFinalize(comm), "ncclCommFinalize");
            }
            if (aborting.compareAndSet(false, true)) {
                start("destroy", this::destroyNative);
            }
        } catch (JcclException e) {
            // Closing is best effort: whoever waited for the work has seen its error.
            fail(e, true);
        }
    }

    /** Whether NCCL is done with this communicator; waits for that, but not for ever. */
    private boolean awaitNative() {
        boolean interrupted = false;
        boolean done = false;
        long deadline = System.nanoTime() + ABORT_WAIT.toNanos();
        for (long left = 1; !done && left > 0; left = deadline - System.nanoTime()) {
            try {
                done = ended.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        // NCCL that hangs still has our memory: better to leak it.
        return done;
    }

    private void release() {
        CudaRuntime.api().cudaEventDestroy(resources.marker);
        try {
            calls.close();
            resources.token.close();
        } catch (CudaException e) {
            // A lost context has taken the memory with it, and others have said so.
            if (failure.get() == null && !(e instanceof CudaFatalException)) {
                throw e;
            }
        } finally {
            resources.arena.close();
        }
    }

    @Override
    public String toString() {
        return "rank "
                + rank()
                + " of "
                + size()
                + " of communicator '"
                + members.name()
                + "' on "
                + device;
    }
}
