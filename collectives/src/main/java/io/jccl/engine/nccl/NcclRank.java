package io.jccl.engine.nccl;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.RankFailedException;
import io.jccl.ReduceOp;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.engine.Batch;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.Request;
import io.jccl.error.JcclException;
import io.jccl.flight.CollectiveOp;
import io.jccl.flight.RankStatus;
import java.util.List;
import java.util.Objects;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * One rank of an NCCL communicator.
 *
 * <p>The calling thread passes each operation to NCCL, which enqueues it on the CUDA stream. Calls
 * that wait for other ranks run on helper threads ({@link NcclTask}), and an abort from another
 * thread ends them. Operations that NCCL lacks are groups of sends and receives.
 *
 * <p>Later errors are found by {@link Watchdog}, which polls every communicator: errors of NCCL,
 * failed ranks, operations that take too long. It measures the GPU's progress by one event that it
 * records itself, so operations have no extra cost.
 *
 * <p>This class contains the operations and the order of closing; {@link NcclHandle} owns NCCL's
 * handle, {@link Failures} the error that ends the communicator.
 */
public final class NcclRank extends EngineCommunicator
        implements NcclCommunicator, CudaStream.Source {
    private final NcclApi nccl;
    private final CudaDevice device;
    private final Membership members;
    private final CommunicatorOptions options;

    /** Freed when NCCL no longer uses any of them. */
    private final Resources resources;

    private final NcclCalls calls;
    private final InFlightOps issued;
    private final NcclMonitor watch;
    private final ChildCommunicators derivation;
    private final OneSided oneSided;
    private final OwnMemory memory;

    private final NcclHandle handle;
    private final Failures failures;
    private volatile boolean closed;

    /** Whether NCCL has revoked it, after which it may neither be used nor finalized. */
    private volatile boolean revoked;

    private @Nullable AfterClose afterClose;

    NcclRank(
            NcclApi nccl,
            CudaDevice device,
            Membership members,
            CommunicatorOptions options,
            Resources resources,
            long comm,
            boolean blocking,
            int rank,
            int size) {
        super(rank, size, true);
        this.nccl = nccl;
        this.device = device;
        this.members = members;
        this.options = options;
        this.resources = resources;
        this.handle = new NcclHandle(nccl, device, comm, blocking, members.name() + "-" + rank);
        this.calls = new NcclCalls(this, nccl, device, resources);
        this.issued = new InFlightOps(this, flight().recorder());
        this.watch = new NcclMonitor(this, members, issued, options.timeout(), resources.marker);
        this.failures = new Failures(this, nccl, members, options, handle, watch);
        this.derivation = new ChildCommunicators(this, nccl, device, members, options);
        this.oneSided = new OneSided(this, nccl, device, members, issued, resources.arena);
        this.memory = new OwnMemory(this, nccl, members.name());
        if (rank == 0) {
            members.id();
        }
        flight().open();
        Watchdog.watch(watch);
    }

    // ---- Communicator

    @Override
    public CudaDevice device() {
        return device;
    }

    @Override
    public String engine() {
        return "nccl";
    }

    @Override
    public Algorithm algorithmFor(String operation, long blockBytes) {
        CollectiveOp.ofMethod(operation);
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

    @Nullable AfterClose afterClose() {
        return afterClose;
    }

    void afterClose(@Nullable AfterClose then) {
        afterClose = then;
    }

    // ---- used by the other parts of a rank

    NcclHandle handle() {
        return handle;
    }

    /** NCCL's handle; 0 after it was destroyed. */
    long comm() {
        return handle.comm();
    }

    NcclCalls calls() {
        return calls;
    }

    InFlightOps issued() {
        return issued;
    }

    Failures failures() {
        return failures;
    }

    /** Records the error in the flight recorder. */
    void keepFailure(JcclException error) {
        flight().failed(error);
    }

    void printStandings(String table) {
        flight().logStatus(table);
    }

    /** Whether the communicator is closed or has failed. */
    boolean isOver() {
        return closed || failures.failure() != null;
    }

    void checkPeer(int peer) {
        checkRank("peer", peer);
    }

    // ---- called by EngineCommunicator

    @Override
    protected void checkUsable() {
        checkResident();
        if (revoked) {
            throw new IllegalStateException(
                    "%s was revoked: only split, shrink and close remain".formatted(this));
        }
    }

    /** As {@link #checkUsable}, but it may be revoked. */
    void checkResident() {
        checkAlive();
        memory.checkPresent();
    }

    /** As {@link #checkUsable}, but it may be revoked or suspended. */
    void checkAlive() {
        failures.throwIfFailed();
        checkOpen();
    }

    void checkOpen() {
        if (closed) {
            throw new IllegalStateException(
                    "communicator '" + members.name() + "' is closed on rank " + rank());
        }
    }

    @Override
    protected void checkBuffer(Buffer buffer, String name) {
        NcclChecks.buffer(this, buffer, name);
    }

    @Override
    protected boolean sameMemory(Buffer a, Buffer b) {
        return true;
    }

    @Override
    protected boolean runsInline(Stream stream) {
        CudaStream.of(stream, device).handle();
        return true;
    }

    @Override
    protected void enqueue(Stream stream, Runnable work) {
        throw new AssertionError("NCCL operations run inline");
    }

    @Override
    protected Stream driver() {
        throw new AssertionError("NCCL ranks run together");
    }

    @Override
    protected String communicatorId() {
        return members.id();
    }

    /** Called by the watchdog when the operations up to a number are complete. */
    void seenComplete(long number) {
        flight().recorder().complete(number);
        flight().progress(number);
    }

    /** This rank's progress, for the others. */
    RankStatus answer() {
        return flight().status();
    }

    @Override
    protected boolean runsTogether() {
        return true;
    }

    @Override
    protected void checkSupported(CollectiveOp op, @Nullable ReduceOp reduceOp, DataType type) {
        NcclChecks.supported(this, op, reduceOp, type);
    }

    // ---- operations

    @Override
    protected void execute(Request r) {
        begin(); // before it is noted: see GpuProgress.enqueued
        try {
            CudaStream stream = issued.note(r);
            handle.enqueuing(stream);
            failures.settle(calls.issue(r, comm(), stream), r.op.method());
        } finally {
            handle.leave();
        }
    }

    @Override
    protected void execute(Batch batch) {
        executeTogether(new EngineCommunicator[] {this}, new Batch[] {batch}, 1);
    }

    @Override
    protected void executeTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        NcclGroup.execute(nccl, engines, batches, n);
    }

    /** Enters for an operation; throws if the JVM ends, or this is being closed. */
    void begin() {
        enter();
        handle.checkGoesOn();
    }

    /** Delays an abort until {@link NcclHandle#leave}; throws if there was one. */
    private void enter() {
        device.claim();
        handle.enter();
        if (failures.failure() != null) {
            handle.leave();
            failures.throwIfFailed();
        }
    }

    /** Enqueues an operation that is not a collective. */
    void enqueue(String operation, CudaStream stream, IntSupplier call) {
        checkUsable();
        begin();
        try {
            handle.enqueuing(stream);
            failures.settle(call.getAsInt(), operation);
        } finally {
            handle.leave();
        }
    }

    /** Calls a function of NCCL that may wait for other ranks. */
    void call(String operation, IntSupplier call) {
        settle(start(operation, call, () -> 0), operation);
    }

    /**
     * Starts such a call; {@link #settle} waits for it.
     *
     * @param child supplies the handle of the communicator that it creates; 0 as long as there is
     *     none
     */
    NcclTask start(String operation, IntSupplier call, LongSupplier child) {
        checkAlive();
        return handle.start(operation, call, child);
    }

    void settle(NcclTask task, String operation) {
        try {
            failures.settle(task, operation);
        } finally {
            handle.leave();
        }
    }

    // ---- errors

    @Override
    public void synchronizedWith(CudaStream stream) {
        issued.synchronizedWith(stream, handle);
    }

    @Override
    public void throwIfFailed() {
        failures.throwIfFailed();
    }

    @Override
    public void abort(String reason) {
        Objects.requireNonNull(reason, "reason");
        if (closed) {
            return;
        }
        failures.fail(
                new RankFailedException(
                        "communicator '%s' was aborted by rank %s: %s"
                                .formatted(members.name(), rank(), reason)),
                true);
    }

    // ---- communicators created from this one

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
        checkUsable();
        call("ncclCommRevoke", () -> nccl.ncclCommRevoke(comm(), nccl_h.NCCL_REVOKE_DEFAULT()));
        revoked = true;
    }

    @Override
    public void suspend() {
        refuseInGroup("suspend");
        memory.suspend();
    }

    @Override
    public void resume() {
        refuseInGroup("resume");
        memory.resume();
    }

    @Override
    public long memory(MemoryStatistic statistic) {
        return memory.bytes(statistic);
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
            if (failures.failure() == null) {
                NcclChecks.noGraphs(this);
                finish();
            } else {
                // The thread that met the error may not have started it yet.
                handle.startAbort();
            }
            closed = true;
        }
        Watchdog.forget(watch);
        flight().close();
        try {
            members.leave();
        } catch (RuntimeException e) {
            // The store was closed first: no rank is left to be notified.
        }
        issued.detach();
        try {
            if (handle.awaitEnd() && watch.awaitMarking()) {
                resources.release(calls, failures.failure() != null);
            }
        } finally {
            AfterClose then = afterClose;
            if (then != null) {
                handle.awaitLook();
                then.closed();
            }
        }
    }

    /** Waits for the enqueued work, then destroys NCCL's communicator; aborts on an error. */
    private void finish() {
        try {
            handle.beginClose();
            enter();
            try {
                calls.destroyMade(comm());
            } finally {
                handle.leave();
            }
            if (!revoked && nccl.supports("ncclCommFinalize")) {
                call("ncclCommFinalize", () -> nccl.ncclCommFinalize(comm()));
            }
            handle.startDestroy();
        } catch (JcclException e) {
            // Closing is best effort: a thread that waited for the work has seen its error.
            failures.fail(e, true);
        }
    }

    @Override
    public String toString() {
        return "rank %s of %s of communicator '%s' on %s"
                .formatted(rank(), size(), members.name(), device);
    }
}
