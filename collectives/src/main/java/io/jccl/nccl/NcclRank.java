package io.jccl.nccl;

import io.jccl.Algorithm;
import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclCommunicator;
import io.jccl.RankFailedException;
import io.jccl.ReduceOp;
import io.jccl.bindings.CudaApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.bindings.JcclException;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclConfig;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.nccl.ncclWaitSignalDesc_t;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.cuda.CudaBuffer;
import io.jccl.cuda.CudaDevice;
import io.jccl.cuda.CudaRuntime;
import io.jccl.cuda.CudaStream;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.engine.Batch;
import io.jccl.engine.Collective;
import io.jccl.engine.EngineCommunicator;
import io.jccl.engine.Request;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
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
    /** Operations whose names are kept for reports; a power of two. */
    private static final int REMEMBERED = 64;

    static final Duration ABORT_WAIT = Duration.ofSeconds(10);
    private static final Duration REPORT_WAIT = Duration.ofSeconds(3);
    private static final long BEAT_NANOS = 2_000_000_000L;
    private static final long SILENCE_NANOS = 15_000_000_000L;
    private static final long LEFT_NANOS = 5_000_000_000L;

    /** How long the end of a process may take to be seen after NCCL has seen it. */
    static final long BLAME_NANOS = 1_000_000_000L;

    private static final long ALIGNMENT = 4096;

    private final NcclApi nccl;
    private final CudaDevice device;
    private final Members members;
    private final CommunicatorOptions options;
    private final boolean hasAllToAll;
    private final boolean hasGather;

    /** Memory of NCCL's late results and our scratch; freed when NCCL is done with all of it. */
    private final Arena arena;

    private final MemorySegment opSlot;
    private final Buffer scalar;

    /** One element on the device, for barriers. */
    private final CudaBuffer token;

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

    // What the watchdog reads of the user's thread.
    private final Request.Description[] history = new Request.Description[REMEMBERED];
    private volatile long issued;
    private volatile @Nullable CudaStream lastStream;

    /** The last operation that a thread has seen complete by waiting for its stream. */
    private volatile long reached;

    /** Streams on which an error of this communicator surfaces. */
    private final Set<CudaStream> streams = ConcurrentHashMap.newKeySet();

    // The watchdog's own; guarded by lock, which whoever uses the handle outside the user's thread
    // holds too.
    private final ReentrantLock lock = new ReentrantLock();
    private final long marker;
    private long markedAt;
    private long marked;
    private long completed;
    private long beats;
    private long lastBeat;
    private long expiredAt;
    private long enteredWith;
    private long enteredAt;
    private long failedAt;
    private final long[] beatSeen;
    private final @Nullable String[] beatText;
    private boolean progressTold;
    private int splits;

    /** Whether the user's thread fills a group, and what it copied for operations in place. */
    private boolean grouped;

    private final List<Long> copies = new ArrayList<>();

    // The last pre-multiplied sum, which loops use again and again.
    private @Nullable ReduceOp madeOf;
    private @Nullable DataType madeFor;
    private int made = NcclCodes.MADE;

    NcclRank(
            NcclApi nccl,
            CudaDevice device,
            Members members,
            CommunicatorOptions options,
            Resources resources,
            long comm,
            int rank,
            int size) {
        super(rank, size);
        this.nccl = nccl;
        this.device = device;
        this.members = members;
        this.options = options;
        this.arena = resources.arena;
        this.token = resources.token;
        this.marker = resources.marker;
        this.comm = comm;
        this.opSlot = arena.allocate(ValueLayout.JAVA_INT);
        this.scalar = Buffer.wrap(arena.allocate(8, 8), DataType.UINT8);
        this.hasAllToAll = nccl.supports("ncclAlltoAll");
        this.hasGather = nccl.supports("ncclGather") && nccl.supports("ncclScatter");
        this.beatSeen = new long[size];
        this.beatText = new String[size];
        for (int i = 0; i < REMEMBERED; i++) {
            history[i] = new Request.Description();
        }
        Watchdog.watch(this);
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
    protected boolean runsTogether() {
        return true;
    }

    // ---- operations

    @Override
    protected void execute(Request r) {
        CudaStream stream = note(r);
        enter();
        try {
            settle(issue(r, stream), r.op.method());
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
                for (int i = 0; i < n && !failed(result); i++) {
                    NcclRank rank = (NcclRank) engines[i];
                    rank.grouped = true;
                    for (int j = 0; j < batches[i].size() && !failed(result); j++) {
                        Request r = batches[i].get(j);
                        result = rank.issue(r, rank.note(r));
                        if (failed(result)) {
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
            if (failed(result)) {
                guilty.settle(result, operation);
            }
            for (int i = 0; i < n; i++) {
                ((NcclRank) engines[i]).settle(end, "ncclGroupEnd");
            }
        } finally {
            for (int i = 0; i < n; i++) {
                NcclRank rank = (NcclRank) engines[i];
                rank.grouped = false;
                rank.freeCopies();
                rank.inside = false;
            }
        }
    }

    private static boolean failed(int result) {
        return result != nccl_h.ncclSuccess() && result != nccl_h.ncclInProgress();
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

    /** Writes down what comes next, for the watchdog. */
    private CudaStream note(Request r) {
        CudaStream stream = (CudaStream) Objects.requireNonNull(r.stream);
        follow(stream);
        long number = issued + 1;
        history[(int) number & (REMEMBERED - 1)].set(r, number);
        issued = number;
        return stream;
    }

    /** The same for an operation that is no collective. */
    private void note(String name, int peer, CudaStream stream) {
        follow(stream);
        long number = issued + 1;
        history[(int) number & (REMEMBERED - 1)].set(name, peer, number);
        issued = number;
    }

    private void follow(CudaStream stream) {
        if (stream != lastStream) {
            stream.attach(this);
            streams.add(stream);
            lastStream = stream;
        }
    }

    /** Makes a call of NCCL for this communicator, which no abort meets. */
    private void call(String operation, IntSupplier call) {
        checkUsable();
        enter();
        try {
            settle(call.getAsInt(), operation);
        } finally {
            inside = false;
        }
    }

    /** Hands an operation to NCCL. */
    private int issue(Request r, CudaStream stream) {
        long h = stream.handle();
        long c = comm;
        int type = NcclCodes.of(r.type);
        return switch (r.op) {
            case BROADCAST ->
                    nccl.ncclBroadcast(
                            at(r.root == rank() ? r.send : r.recv),
                            at(r.recv),
                            r.count,
                            type,
                            r.root,
                            c,
                            h);
            case REDUCE ->
                    nccl.ncclReduce(at(r.send), at(r.recv), r.count, type, op(r), r.root, c, h);
            case ALL_REDUCE ->
                    nccl.ncclAllReduce(at(r.send), at(r.recv), r.count, type, op(r), c, h);
            case ALL_GATHER -> nccl.ncclAllGather(at(r.send), at(r.recv), r.count, type, c, h);
            case REDUCE_SCATTER ->
                    nccl.ncclReduceScatter(at(r.send), at(r.recv), r.count, type, op(r), c, h);
            case ALL_TO_ALL, ALL_TO_ALLV ->
                    r.inPlace ? staged(r, type, c, h) : exchange(r, at(r.send), type, c, h);
            case GATHER ->
                    hasGather
                            ? nccl.ncclGather(at(r.send), at(r.recv), r.count, type, r.root, c, h)
                            : blocks(r, at(r.send), type, c, h);
            case SCATTER ->
                    hasGather
                            ? nccl.ncclScatter(at(r.send), at(r.recv), r.count, type, r.root, c, h)
                            : blocks(r, at(r.send), type, c, h);
            case GATHERV, SCATTERV, ALL_GATHERV -> blocks(r, at(r.send), type, c, h);
            case REDUCE_SCATTERV -> reduceBlocks(r, type, c, h);
            case BARRIER ->
                    nccl.ncclAllReduce(
                            token.address(),
                            token.address(),
                            1,
                            NcclCodes.of(DataType.INT32),
                            nccl_h.ncclSum(),
                            c,
                            h);
            case SEND -> nccl.ncclSend(at(r.send), r.count, type, r.root, c, h);
            case RECV -> nccl.ncclRecv(at(r.recv), r.count, type, r.root, c, h);
        };
    }

    private static long at(@Nullable Buffer buffer) {
        return buffer == null ? 0 : buffer.address();
    }

    /** Every rank's blocks to every rank. */
    private int exchange(Request r, long send, int type, long c, long h) {
        return hasAllToAll && !r.op.vector()
                ? nccl.ncclAlltoAll(send, at(r.recv), r.count, type, c, h)
                : blocks(r, send, type, c, h);
    }

    /**
     * The same in place: NCCL would read a block after another rank's has overwritten it, so a copy
     * is sent. All of it is in stream order; nobody waits.
     */
    private int staged(Request r, int type, long c, long h) {
        long bytes = r.sendBuffer().byteSize();
        if (bytes == 0) {
            return exchange(r, at(r.send), type, c, h);
        }
        // The stream may be the null stream, which is that of the current device.
        int previous = device.enter();
        try {
            return staged(r, bytes, type, c, h);
        } finally {
            device.exit(previous);
        }
    }

    private int staged(Request r, long bytes, int type, long c, long h) {
        CudaApi cuda = CudaRuntime.api();
        MemorySegment slot = CudaRuntime.slot();
        CudaRuntime.check(cuda.cudaMallocAsync(slot, bytes, h), "cudaMallocAsync");
        long copy = slot.get(ValueLayout.JAVA_LONG, 0);
        copies.add(copy);
        try {
            CudaRuntime.check(
                    cuda.cudaMemcpyAsync(
                            copy, at(r.send), bytes, cudart_h.cudaMemcpyDeviceToDevice(), h),
                    "cudaMemcpyAsync");
            int result = exchange(r, copy, type, c, h);
            if (!grouped) {
                // NCCL may enqueue later than it returns, and the copy is freed behind that.
                settle(result, r.op.method());
            }
            return result;
        } finally {
            if (!grouped) {
                freeCopies();
            }
        }
    }

    /** Gives back copies, behind the work with them; an error here follows from another. */
    private void freeCopies() {
        if (copies.isEmpty()) {
            return;
        }
        int previous = device.enter();
        try {
            for (int i = copies.size() - 1; i >= 0; i--) {
                long h = Objects.requireNonNull(lastStream).handle();
                CudaRuntime.api().cudaFreeAsync(copies.remove(i), h);
            }
        } finally {
            device.exit(previous);
        }
    }

    /** An exchange of blocks as a group of sends and receives. */
    private int blocks(Request r, long send, int type, long c, long h) {
        CudaDevice.refuseVirtualThread();
        int size = r.type.size();
        long recv = at(r.recv);
        int result = nccl.ncclGroupStart();
        boolean v = r.op.vector();
        for (int i = 0; i < size() && !failed(result); i++) {
            boolean to = r.op.sends(rank(), r.root) && r.op.receives(i, r.root);
            boolean from = r.op.sends(i, r.root) && r.op.receives(rank(), r.root);
            long sendCount = !to ? 0 : v ? r.sendCounts[i] : r.count;
            long recvCount = !from ? 0 : v ? r.recvCounts[i] : r.count;
            long sendAt = send + size * (v ? r.sendDispls[i] : r.op.manySend() ? i * r.count : 0);
            long recvAt = recv + size * (v ? r.recvDispls[i] : r.op.manyRecv() ? i * r.count : 0);
            if (i == rank() && sendAt == recvAt) {
                continue;
            }
            if (sendCount > 0) {
                result = nccl.ncclSend(sendAt, sendCount, type, i, c, h);
            }
            if (recvCount > 0 && !failed(result)) {
                result = nccl.ncclRecv(recvAt, recvCount, type, i, c, h);
            }
        }
        int end = nccl.ncclGroupEnd();
        return failed(result) ? result : end;
    }

    /** reduceScatterv: a group of reductions, one to each rank. */
    private int reduceBlocks(Request r, int type, long c, long h) {
        CudaDevice.refuseVirtualThread();
        int size = r.type.size();
        int op = op(r);
        int result = nccl.ncclGroupStart();
        for (int i = 0; i < size() && !failed(result); i++) {
            if (r.sendCounts[i] > 0) {
                long from = at(r.send) + r.sendDispls[i] * size;
                result =
                        nccl.ncclReduce(
                                from,
                                i == rank() ? at(r.recv) : 0,
                                r.sendCounts[i],
                                type,
                                op,
                                i,
                                c,
                                h);
            }
        }
        int end = nccl.ncclGroupEnd();
        return failed(result) ? result : end;
    }

    /** NCCL's number of an operation, made for its factor if need be. */
    private int op(Request r) {
        int code = NcclCodes.of(r.reduceOp);
        if (code != NcclCodes.MADE) {
            return code;
        }
        ReduceOp last = madeOf;
        if (last != null && r.reduceOp.equals(last) && r.type == madeFor) {
            return made;
        }
        destroyMade();
        try (Buffer one = Buffer.wrap(scalar.asSegment().asSlice(0, r.type.size()), r.type)) {
            if (r.type.isInteger()) {
                one.setLong(0, r.reduceOp.factorBits(r.type));
            } else {
                one.set(0, r.reduceOp.factor());
            }
        }
        settle(
                nccl.ncclRedOpCreatePreMulSum(
                        opSlot,
                        scalar.address(),
                        NcclCodes.of(r.type),
                        nccl_h.ncclScalarHostImmediate(),
                        comm),
                "ncclRedOpCreatePreMulSum");
        made = opSlot.get(ValueLayout.JAVA_INT, 0);
        madeOf = r.reduceOp;
        madeFor = r.type;
        return made;
    }

    private void destroyMade() {
        if (made != NcclCodes.MADE) {
            nccl.ncclRedOpDestroy(made, comm);
            made = NcclCodes.MADE;
            madeOf = null;
        }
    }

    // ---- results and errors

    /** Returns when NCCL is done with a call; throws what went wrong. */
    private void settle(int result, String operation) {
        if (result != nccl_h.ncclSuccess()) {
            settleSlowly(result, operation);
        }
    }

    private void settleSlowly(int result, String operation) {
        int state = result;
        if (state == nccl_h.ncclInProgress()) {
            state = Pending.await(nccl, comm, options.timeout(), () -> failure.get() != null);
            JcclException e = failure.get();
            if (e != null) {
                throw e;
            }
            if (state == nccl_h.ncclInProgress()) {
                // This process may have been stopped meanwhile, and the others have given it up.
                String broken = members.broken();
                if (broken != null) {
                    throw fail(new RankFailedException(describe(operation) + " failed: " + broken));
                }
                throw fail(
                        new CollectiveTimeoutException(
                                describe(operation)
                                        + " is still in progress after "
                                        + options.timeout()
                                        + ", though it was only to be enqueued: a rank is missing,"
                                        + " or connections cannot be made"));
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

    /**
     * An error of NCCL with the rank that brought it about, where that is known; null if it may be
     * known in a moment. NCCL itself never says who it was.
     */
    private @Nullable JcclException blamed(int result, String operation, long since) {
        String broken = members.broken();
        if (broken != null) {
            return because(explained(result, operation), operation, broken);
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

    private String describe(String operation) {
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
    private <E extends JcclException> E fail(E error) {
        fail(error, true);
        return error;
    }

    private void fail(JcclException error, boolean tell) {
        if (!failure.compareAndSet(null, error)) {
            return;
        }
        if (tell) {
            try {
                members.fail(String.valueOf(error.getMessage()));
            } catch (RuntimeException e) {
                error.addSuppressed(e);
            }
        }
        startAbort();
    }

    @Override
    public void synchronizedWith(CudaStream stream) {
        // Another stream may be behind: only who uses one alone is known to be through.
        if (streams.size() == 1 && stream == lastStream) {
            reached = issued;
        }
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

    // ---- the watchdog's look

    /** Looks for what went wrong since the last look; never throws. */
    void look(long now) {
        if (closed || failure.get() != null || !lock.tryLock()) {
            return;
        }
        try {
            if (comm == 0) {
                return;
            }
            int state = Pending.state(nccl, comm);
            if (failed(state)) {
                failedAt = failedAt == 0 ? now : failedAt;
                completed = Math.max(completed, reached);
                Request.Description next = issued > completed ? next() : null;
                JcclException e =
                        blamed(
                                state,
                                next == null ? "an operation enqueued earlier" : next.toString(),
                                failedAt);
                if (e != null) {
                    fail(e);
                }
                return;
            }
            if (isStuck(now)) {
                return;
            }
            lookAtProgress(now);
            if (now - lastBeat > BEAT_NANOS / 8 || progressTold) {
                lookAtOthers(now);
            }
        } catch (JcclException e) {
            fail(e);
        } catch (RuntimeException e) {
            fail(new JcclException(describe("watching") + " failed: " + e, e));
        } finally {
            lock.unlock();
        }
    }

    /** A thread that does not come back from NCCL: nothing was enqueued that could be marked. */
    private boolean isStuck(long now) {
        long number = issued;
        if (!inside) {
            enteredAt = 0;
            return false;
        }
        if (enteredAt == 0 || number != enteredWith) {
            enteredWith = number;
            enteredAt = now;
            return false;
        }
        if (now - enteredAt <= options.timeout().plus(REPORT_WAIT).toNanos()) {
            return false;
        }
        fail(
                new CollectiveTimeoutException(
                        "rank "
                                + rank()
                                + " of communicator '"
                                + members.name()
                                + "' ("
                                + device
                                + ") has been inside NCCL for more than "
                                + options.timeout()
                                + ", where it was only to enqueue; its last operation is "
                                + history[(int) number & (REMEMBERED - 1)]
                                + ", number "
                                + number
                                + ": look at NCCL's own log with NCCL_DEBUG=INFO"));
        return true;
    }

    private void lookAtProgress(long now) {
        CudaApi cuda = CudaRuntime.api();
        completed = Math.max(completed, reached);
        if (marked > completed) {
            int result = cuda.cudaEventQuery(marker);
            if (result == cudart_h.cudaErrorNotReady()) {
                cuda.cudaGetLastError();
                if (now - markedAt > options.timeout().toNanos()) {
                    expire(now);
                }
                return;
            }
            CudaRuntime.check(result, "cudaEventQuery");
            completed = Math.max(completed, marked);
            expiredAt = 0;
        }
        long last = issued;
        CudaStream stream = lastStream;
        if (last > completed && stream != null && stream.recordIfNotCapturing(marker)) {
            marked = last;
            markedAt = now;
        }
    }

    private String progressText() {
        long last = issued;
        if (last == completed) {
            return "has completed all " + completed + " operations that it has enqueued";
        }
        return "has completed "
                + (marked > completed + 1 ? "at least " : "")
                + completed
                + " operations of "
                + last
                + (next().number() == completed + 1 && marked <= completed + 1
                        ? "; the next is " + next()
                        : "");
    }

    /**
     * Too long: asks the others how far they are, and gives up with a report when all have answered
     * or have had the time to. It must not wait for them: they may be looked at by this very
     * thread.
     */
    private void expire(long now) {
        if (expiredAt == 0) {
            expiredAt = now;
            progressTold = true;
            members.askProgress();
            members.tellProgress(progressText());
        }
        List<@Nullable String> all = members.progress();
        if (all.contains(null) && now - expiredAt < REPORT_WAIT.toNanos()) {
            return;
        }
        StringBuilder report =
                new StringBuilder("rank ")
                        .append(rank())
                        .append(" of communicator '")
                        .append(members.name())
                        .append("' (")
                        .append(device)
                        .append(") waited longer than ")
                        .append(options.timeout())
                        .append(" for ")
                        .append(awaited())
                        .append(':');
        for (int r = 0; r < all.size(); r++) {
            String said = all.get(r);
            report.append("\n  rank ")
                    .append(r)
                    .append(said == null ? " gives no answer" : " " + said);
        }
        report.append("\nlook first at the ranks that are behind, or give no answer");
        fail(new CollectiveTimeoutException(report.toString()));
    }

    /** What the event marks that this rank waits for: one operation, or several. */
    private String awaited() {
        String first = next() + ", number " + (completed + 1);
        return marked <= completed + 1
                ? first
                : "one of "
                        + (marked - completed)
                        + " operations, from "
                        + first
                        + ", to "
                        + history[(int) marked & (REMEMBERED - 1)]
                        + ", number "
                        + marked;
    }

    /** The operation that this rank waits for, or the first of them. */
    private Request.Description next() {
        return history[(int) (completed + 1) & (REMEMBERED - 1)];
    }

    private void lookAtOthers(long now) {
        String broken = marked > completed ? members.broken() : members.failure();
        if (broken != null) {
            fail(
                    new RankFailedException(
                            "communicator '"
                                    + members.name()
                                    + "' is broken: "
                                    + broken
                                    + (marked > completed ? "; this rank waits in " + next() : "")),
                    false);
            return;
        }
        if (!progressTold && members.isProgressAsked()) {
            progressTold = true;
            members.tellProgress(progressText());
        }
        if (now - lastBeat > BEAT_NANOS) {
            lastBeat = now;
            members.beat(++beats);
            if (marked > completed) {
                lookForSilence(now);
            }
        }
    }

    /** A rank that left, or gives no sign of life, while this one waits for it. */
    private void lookForSilence(long now) {
        long waiting = now - markedAt;
        if (waiting > LEFT_NANOS) {
            List<Integer> left = members.left();
            if (!left.isEmpty()) {
                fail(
                        new RankFailedException(
                                "rank(s) "
                                        + left
                                        + " of communicator '"
                                        + members.name()
                                        + "' closed it while rank "
                                        + rank()
                                        + " waits in "
                                        + next()));
                return;
            }
        }
        for (int r = 0; r < size(); r++) {
            String beat = r == rank() ? null : members.beatOf(r);
            if (r == rank()) {
                continue;
            }
            if (beatSeen[r] == 0 || !Objects.equals(beat, beatText[r])) {
                beatSeen[r] = now;
                beatText[r] = beat;
            } else if (now - beatSeen[r] > SILENCE_NANOS) {
                fail(
                        new RankFailedException(
                                "rank "
                                        + r
                                        + " of communicator '"
                                        + members.name()
                                        + "' has given no sign of life for "
                                        + Duration.ofNanos(now - beatSeen[r]).toSeconds()
                                        + " s while rank "
                                        + rank()
                                        + " waits in "
                                        + next()
                                        + ": its process was killed, or its machine is lost"));
                return;
            }
        }
    }

    // ---- communicators made from this one

    @Override
    public @Nullable Communicator split(int colour, int key) {
        checkUsable();
        int number = ++splits;
        int c = colour < 0 ? nccl_h.NCCL_SPLIT_NOCOLOR() : colour;
        NcclRank child =
                derive(
                        "ncclCommSplit",
                        colour >= 0,
                        (slot, config) -> nccl.ncclCommSplit(comm, c, key, slot, config),
                        (rank, size) -> members.child("split" + number + "." + colour, rank, size));
        return child;
    }

    @Override
    public NcclCommunicator shrink(List<Integer> excluded, boolean abort) {
        checkUsable();
        for (int r : excluded) {
            if (r < 0 || r >= size() || r == rank()) {
                throw new IllegalArgumentException(
                        "excluded names rank "
                                + r
                                + ", expected others than "
                                + rank()
                                + ", 0 to "
                                + (size() - 1));
            }
        }
        int number = ++splits;
        int flags = abort ? nccl_h.NCCL_SHRINK_ABORT() : nccl_h.NCCL_SHRINK_DEFAULT();
        try (Arena call = Arena.ofConfined()) {
            MemorySegment list =
                    call.allocateFrom(
                            ValueLayout.JAVA_INT,
                            excluded.stream().mapToInt(Integer::intValue).toArray());
            return Objects.requireNonNull(
                    derive(
                            "ncclCommShrink",
                            true,
                            (slot, config) ->
                                    nccl.ncclCommShrink(
                                            comm, list, excluded.size(), slot, config, flags),
                            (rank, size) -> members.child("shrink" + number, rank, size)));
        }
    }

    @Override
    public NcclCommunicator grow(String name, int size) {
        checkUsable();
        if (size <= size()) {
            throw new IllegalArgumentException(
                    "size is " + size + ", expected more than " + size() + ", the ranks there are");
        }
        Members grown = members.other(name, size);
        try (Arena call = Arena.ofConfined()) {
            MemorySegment id = call.allocate(nccl_h.NCCL_UNIQUE_ID_BYTES());
            if (rank() == 0) {
                call("ncclCommGetUniqueId", () -> nccl.ncclCommGetUniqueId(comm, id));
                grown.publish("id", id.toArray(ValueLayout.JAVA_BYTE));
            }
            MemorySegment mine = rank() == 0 ? id : MemorySegment.NULL;
            return Objects.requireNonNull(
                    derive(
                            "ncclCommGrow",
                            true,
                            (slot, config) -> nccl.ncclCommGrow(comm, size, mine, -1, slot, config),
                            (rank, total) -> grown));
        }
    }

    private interface Maker {
        int make(MemorySegment slot, MemorySegment config);
    }

    private interface Naming {
        Members name(int rank, int size);
    }

    private @Nullable NcclRank derive(
            String operation, boolean member, Maker maker, Naming naming) {
        Resources resources = new Resources(device);
        MemorySegment slot = MemorySegment.NULL;
        boolean started = false;
        boolean done = false;
        try {
            MemorySegment out = resources.arena.allocate(ValueLayout.ADDRESS);
            slot = out;
            MemorySegment config = NcclWorld.config(nccl, options, resources.arena);
            started = true;
            call(operation, () -> maker.make(out, config));
            if (!member) {
                started = false;
                return null;
            }
            long made = NcclWorld.awaitHandle(nccl, slot, options.timeout(), describe(operation));
            MemorySegment number = CudaRuntime.slot();
            nccl.check(nccl.ncclCommUserRank(made, number), "ncclCommUserRank", made);
            int rank = number.get(ValueLayout.JAVA_INT, 0);
            nccl.check(nccl.ncclCommCount(made, number), "ncclCommCount", made);
            int size = number.get(ValueLayout.JAVA_INT, 0);
            NcclRank child =
                    new NcclRank(
                            nccl,
                            device,
                            naming.name(rank, size),
                            options,
                            resources,
                            made,
                            rank,
                            size);
            done = true;
            return child;
        } catch (NcclException | UnsupportedOperationException e) {
            // It has answered: nothing of it is under way.
            started = false;
            throw e;
        } finally {
            if (!done) {
                NcclWorld.abandon(nccl, resources, slot, started);
            }
        }
    }

    @Override
    public void revoke() {
        call("ncclCommRevoke", () -> nccl.ncclCommRevoke(comm, nccl_h.NCCL_REVOKE_DEFAULT()));
    }

    @Override
    public void suspend() {
        call("ncclCommSuspend", () -> nccl.ncclCommSuspend(comm, nccl_h.NCCL_SUSPEND_MEM()));
    }

    @Override
    public void resume() {
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

    /** Something that NCCL keeps for this communicator until it is closed. */
    private final class Registered implements Window {
        final long handle;
        final boolean window;

        /** Bytes of every rank's window, as far as this rank knows; 0 if it is none. */
        final long bytes;

        final AtomicBoolean open = new AtomicBoolean(true);

        Registered(long handle, long bytes) {
            this.handle = handle;
            this.window = bytes > 0;
            this.bytes = bytes;
        }

        NcclRank owner() {
            return NcclRank.this;
        }

        @Override
        public void close() {
            // The end of a communicator, good or bad, is that of all that it had registered.
            if (!open.compareAndSet(true, false) || closed || failure.get() != null) {
                return;
            }
            if (window) {
                call("ncclCommWindowDeregister", () -> nccl.ncclCommWindowDeregister(comm, handle));
            } else {
                call("ncclCommDeregister", () -> nccl.ncclCommDeregister(comm, handle));
            }
        }
    }

    @Override
    public Registration register(Buffer buffer) {
        checkUsable();
        checkBuffer(buffer, "buffer");
        MemorySegment slot = arena.allocate(ValueLayout.ADDRESS);
        call(
                "ncclCommRegister",
                () -> nccl.ncclCommRegister(comm, buffer.address(), buffer.byteSize(), slot));
        return new Registered(slot.get(ValueLayout.JAVA_LONG, 0), 0);
    }

    @Override
    public Window window(Buffer buffer, boolean symmetric) {
        checkUsable();
        checkBuffer(buffer, "buffer");
        if (buffer.address() % ALIGNMENT != 0 || buffer.byteSize() % ALIGNMENT != 0) {
            throw new IllegalArgumentException(
                    "a window begins at and spans multiples of "
                            + ALIGNMENT
                            + " bytes, but "
                            + buffer
                            + " is "
                            + buffer.byteSize()
                            + " bytes at 0x"
                            + Long.toHexString(buffer.address()));
        }
        MemorySegment slot = arena.allocate(ValueLayout.ADDRESS);
        int flags = symmetric ? nccl_h.NCCL_WIN_COLL_SYMMETRIC() : nccl_h.NCCL_WIN_DEFAULT();
        call(
                "ncclCommWindowRegister",
                () ->
                        nccl.ncclCommWindowRegister(
                                comm, buffer.address(), buffer.byteSize(), slot, flags));
        return new Registered(
                slot.get(ValueLayout.JAVA_LONG, 0), symmetric ? buffer.byteSize() : Long.MAX_VALUE);
    }

    private Registered own(Window window) {
        Objects.requireNonNull(window, "window");
        if (window instanceof Registered r && r.owner() == this && r.window && r.open.get()) {
            return r;
        }
        throw new IllegalArgumentException(
                "the window is closed, or of another communicator than '" + members.name() + "'");
    }

    @Override
    public void putSignal(Buffer source, int peer, Window window, long offsetBytes, Stream stream) {
        checkUsable();
        Objects.requireNonNull(source, "source");
        checkBuffer(source, "source");
        checkRank("peer", peer);
        Registered win = own(window);
        if (offsetBytes < 0 || offsetBytes > win.bytes - source.byteSize()) {
            throw new IllegalArgumentException(
                    "offsetBytes is "
                            + offsetBytes
                            + ", but source's "
                            + source.byteSize()
                            + " bytes have to lie within the peer's window"
                            + (win.bytes == Long.MAX_VALUE ? "" : " of " + win.bytes + " bytes"));
        }
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        note("putSignal", peer, s);
        call(
                "ncclPutSignal",
                () ->
                        nccl.ncclPutSignal(
                                source.address(),
                                source.count(),
                                NcclCodes.of(source.dataType()),
                                peer,
                                win.handle,
                                offsetBytes,
                                0,
                                0,
                                0,
                                comm,
                                h));
    }

    @Override
    public void signal(int peer, Stream stream) {
        checkUsable();
        checkRank("peer", peer);
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        note("signal", peer, s);
        call("ncclSignal", () -> nccl.ncclSignal(peer, 0, 0, 0, comm, h));
    }

    @Override
    public void waitSignal(int peer, int count, Stream stream) {
        checkUsable();
        checkRank("peer", peer);
        if (count < 1) {
            throw new IllegalArgumentException("count is " + count + ", expected 1 or more");
        }
        CudaStream s = CudaStream.of(stream, device);
        long h = s.handle();
        note("waitSignal", peer, s);
        try (Arena call = Arena.ofConfined()) {
            MemorySegment what = call.allocate(ncclWaitSignalDesc_t.layout());
            ncclWaitSignalDesc_t.opCnt(what, count);
            ncclWaitSignalDesc_t.peer(what, peer);
            call("ncclWaitSignal", () -> nccl.ncclWaitSignal(1, what, comm, h));
        }
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
        Watchdog.forget(this);
        boolean last = false;
        try {
            last = members.leave();
        } catch (RuntimeException e) {
            // The store is gone before us: nobody is left to be told.
        }
        streams.forEach(stream -> stream.detach(this));
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
            destroyMade();
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
        CudaRuntime.api().cudaEventDestroy(marker);
        try {
            token.close();
        } catch (CudaException e) {
            // A lost context has taken the memory with it, and others have said so.
            if (failure.get() == null && !(e instanceof CudaFatalException)) {
                throw e;
            }
        } finally {
            arena.close();
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
