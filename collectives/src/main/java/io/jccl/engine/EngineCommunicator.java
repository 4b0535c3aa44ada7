package io.jccl.engine;

import io.jccl.Communicator;
import io.jccl.FlightHistory;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.flight.Collective;
import io.jccl.flight.FlightAttendant;
import io.jccl.flight.FlightDump;
import io.jccl.flight.FlightEvents;
import io.jccl.flight.FlightRing;
import io.jccl.flight.FlightSettings;
import io.jccl.flight.Standing;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The part of a communicator that does not depend on the engine: checks every argument, turns the
 * call into a {@link Request} and records groups.
 *
 * <p><b>Threads:</b> as {@link Communicator} says.
 */
public abstract class EngineCommunicator implements Communicator {
    private static final System.Logger LOG = System.getLogger("io.jccl");
    private static final int MAX_POOLED = 1024;
    private static final int TURN_SPINS = 1000;
    private static final long TURN_PARK_NANOS = 20_000;

    private final int rank;
    private final int size;

    /** The request of operations that run on the caller; free again when the call returns. */
    private final Request inline;

    /** Requests and batches not in use; shared with stream threads, guarded by itself. */
    private final ArrayDeque<Request> freeRequests = new ArrayDeque<>();

    private final ArrayDeque<Batch> freeBatches = new ArrayDeque<>();

    /** Operations called and completed; those that run on the caller alone are not counted. */
    private volatile long issued;

    private final AtomicLong executed = new AtomicLong();

    private int groupDepth;
    private @Nullable Batch recording;
    private @Nullable Stream recordingStream;
    private boolean poisoned;

    /** What is always written down. */
    private final FlightRing flight = new FlightRing(FlightSettings.capacity());

    /** Whether operations complete after they were executed, as only the engine can see. */
    private final boolean completesLater;

    private final AtomicBoolean historyLeft = new AtomicBoolean();
    private final AtomicBoolean standingsLogged = new AtomicBoolean();

    protected EngineCommunicator(int rank, int size) {
        this(rank, size, false);
    }

    /**
     * For an engine whose operations have not completed when {@link #execute} returns.
     *
     * @param completesLater whether that is so; the engine then calls {@link FlightRing#complete}
     */
    protected EngineCommunicator(int rank, int size, boolean completesLater) {
        this.rank = rank;
        this.size = size;
        this.completesLater = completesLater;
        this.inline = new Request(this, size);
    }

    /** The engine behind a communicator. */
    public static EngineCommunicator of(Communicator communicator) {
        if (communicator instanceof EngineCommunicator e) {
            return e;
        }
        throw new IllegalArgumentException(
                "communicator is a "
                        + Objects.requireNonNull(communicator, "communicator").getClass().getName()
                        + ", expected one made by Communicator's own factory methods");
    }

    // ---- what an engine provides

    /** Runs one operation to completion on the calling thread. */
    protected abstract void execute(Request request);

    /** Runs the operations of a group to completion on the calling thread. */
    protected abstract void execute(Batch batch);

    /**
     * Runs the groups of several communicators of this engine together, from the calling thread.
     * Called only if {@link #runsTogether}.
     */
    protected void executeTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        throw new UnsupportedOperationException();
    }

    /** Whether one thread can drive several ranks of this engine at once. */
    protected boolean runsTogether() {
        return false;
    }

    /**
     * Whether work for the stream runs on the calling thread. Throws if this engine cannot use the
     * stream.
     */
    protected abstract boolean runsInline(Stream stream);

    /** Enqueues work on a stream of its own thread. */
    protected abstract void enqueue(Stream stream, Runnable work);

    /** Throws if the communicator is closed or has failed. */
    protected abstract void checkUsable();

    /** Throws if this engine cannot use the buffer: other device, closed. */
    protected abstract void checkBuffer(Buffer buffer, String name);

    /** Whether two buffers share memory. */
    protected abstract boolean overlap(Buffer a, Buffer b);

    /** Whether element aAt of a is element bAt of b. */
    protected abstract boolean samePlace(Buffer a, long aAt, Buffer b, long bAt);

    /** A stream with a thread of its own that drives this rank beside others in a group. */
    protected abstract Stream driver();

    /** Tells this communicator from all others, of all jobs; the same on all its ranks. */
    protected abstract String communicatorId();

    /**
     * The memory of a buffer of each rank, as this rank sees it: what one writes there, others read
     * once they have met. All ranks call it, with buffers of {@link #device}, and use it as long as
     * these are open.
     *
     * @return by rank, or null on all ranks if some buffers cannot be seen by all
     */
    public MemorySegment @Nullable [] peerMemory(Buffer buffer) {
        return size == 1 && device().kind() == Device.Kind.HOST
                ? new MemorySegment[] {buffer.asSegment()}
                : null;
    }

    /** Channels that a library uses; 0 if it does not say. */
    protected int channels() {
        return 0;
    }

    // ---- the flight recorder

    /** What was called last. */
    protected final FlightRing flight() {
        return flight;
    }

    @Override
    public final FlightHistory history() {
        long last = flight.last();
        long completed = Math.min(last, flight.completed());
        return new FlightHistory(
                communicatorId(),
                engine(),
                rank,
                size,
                FlightDump.HOST,
                ProcessHandle.current().pid(),
                last,
                completed,
                flight.site(),
                FlightAttendant.epochNanos(System.nanoTime()),
                flight.all(last, completed));
    }

    /** How far this rank is. */
    protected final Standing standing() {
        return Standing.of(rank, flight);
    }

    /**
     * The engine has failed: keeps where, and leaves the history where {@code JCCL_FLIGHT_DIR}
     * says. Only the first call counts.
     *
     * @param error thrown on this thread
     */
    protected final void flightFailed(Throwable error) {
        flight.failed(error);
        if (historyLeft.compareAndSet(false, true)) {
            FlightDump.leave(rank, this::history);
        }
    }

    /** Prints how far all ranks were, once. */
    protected final void logStandings(String table) {
        if (standingsLogged.compareAndSet(false, true)) {
            LOG.log(
                    System.Logger.Level.ERROR,
                    "communicator " + communicatorId() + " (" + engine() + "): " + table);
        }
    }

    private String flightName() {
        return engine() + ":" + communicatorId();
    }

    /** An engine that completes operations later has seen that all up to this one are complete. */
    protected final void flightProgress(long completed) {
        if (FlightEvents.progressOn()) {
            FlightEvents.progress(flightName(), rank, completed);
        }
    }

    /** The communicator is closed: its history ends. */
    protected final void flightEnded() {
        FlightAttendant.stopClock(flight);
    }

    final void note(Request request, boolean queued, boolean grouped) {
        request.word =
                FlightRing.word(
                        request.op,
                        request.type,
                        request.reduceOp.kind(),
                        request.root,
                        queued,
                        grouped,
                        request.inPlace);
        request.order = flight.nextOrder(request.op);
        request.sequence = flight.note(request.word, request.elements(), request.order);
        if (FlightEvents.on()) {
            FlightEvents.Kept event = request.event;
            if (event == null) {
                event = FlightEvents.make(flightName(), rank, size);
                request.event = event;
            }
            request.traced = true;
            FlightEvents.begin(event);
        }
    }

    final void ended(QueuedWork work, boolean done) {
        if (done && !completesLater) {
            flight.complete(work.lastSequence());
        }
        work.ended(
                !done
                        ? FlightEvents.State.FAILED
                        : completesLater
                                ? FlightEvents.State.ENQUEUED
                                : FlightEvents.State.COMPLETED);
    }

    // ---- Communicator

    @Override
    public final int rank() {
        return rank;
    }

    @Override
    public final int size() {
        return size;
    }

    @Override
    public final void broadcast(@Nullable Buffer send, Buffer recv, int root, Stream stream) {
        uniform(Collective.BROADCAST, send, recv, null, root, stream);
    }

    @Override
    public final void scatter(@Nullable Buffer send, Buffer recv, int root, Stream stream) {
        uniform(Collective.SCATTER, send, recv, null, root, stream);
    }

    @Override
    public final void gather(Buffer send, @Nullable Buffer recv, int root, Stream stream) {
        uniform(Collective.GATHER, send, recv, null, root, stream);
    }

    @Override
    public final void reduce(
            Buffer send, @Nullable Buffer recv, ReduceOp op, int root, Stream stream) {
        uniform(Collective.REDUCE, send, recv, Objects.requireNonNull(op, "op"), root, stream);
    }

    @Override
    public final void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
        uniform(Collective.ALL_REDUCE, send, recv, Objects.requireNonNull(op, "op"), 0, stream);
    }

    @Override
    public final void allGather(Buffer send, Buffer recv, Stream stream) {
        uniform(Collective.ALL_GATHER, send, recv, null, 0, stream);
    }

    @Override
    public final void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
        uniform(Collective.REDUCE_SCATTER, send, recv, Objects.requireNonNull(op, "op"), 0, stream);
    }

    @Override
    public final void allToAll(Buffer send, Buffer recv, Stream stream) {
        uniform(Collective.ALL_TO_ALL, send, recv, null, 0, stream);
    }

    @Override
    public final void scatter(Buffer buffer, int root, Stream stream) {
        scatter(rank == root ? buffer : null, ownBlock(buffer), root, stream);
    }

    @Override
    public final void gather(Buffer buffer, int root, Stream stream) {
        gather(ownBlock(buffer), rank == root ? buffer : null, root, stream);
    }

    @Override
    public final void allGather(Buffer buffer, Stream stream) {
        allGather(ownBlock(buffer), buffer, stream);
    }

    @Override
    public final void reduceScatter(Buffer buffer, ReduceOp op, Stream stream) {
        reduceScatter(buffer, ownBlock(buffer), op, stream);
    }

    @Override
    public final void barrier(Stream stream) {
        checkUsable();
        Request r = begin(stream);
        r.op = Collective.BARRIER;
        r.type = DataType.INT8;
        r.reduceOp = ReduceOp.SUM;
        r.count = 0;
        r.root = 0;
        r.inPlace = false;
        submit(r, stream);
    }

    @Override
    public final void send(Buffer buffer, int peer, Stream stream) {
        pointToPoint(Collective.SEND, buffer, peer, stream);
    }

    @Override
    public final void recv(Buffer buffer, int peer, Stream stream) {
        pointToPoint(Collective.RECV, buffer, peer, stream);
    }

    @Override
    public final void gatherv(
            Buffer send,
            @Nullable Buffer recv,
            long @Nullable [] recvCounts,
            long @Nullable [] recvDispls,
            int root,
            Stream stream) {
        checkRank("root", root);
        Objects.requireNonNull(send, "send");
        if (rank == root) {
            Objects.requireNonNull(recvCounts, "recvCounts");
            Objects.requireNonNull(recvDispls, "recvDispls");
        }
        vector(
                Collective.GATHERV,
                send,
                null,
                null,
                recv,
                rank == root ? recvCounts : null,
                recvDispls,
                null,
                root,
                stream);
    }

    @Override
    public final void scatterv(
            @Nullable Buffer send,
            long @Nullable [] sendCounts,
            long @Nullable [] sendDispls,
            Buffer recv,
            int root,
            Stream stream) {
        checkRank("root", root);
        Objects.requireNonNull(recv, "recv");
        if (rank == root) {
            Objects.requireNonNull(sendCounts, "sendCounts");
            Objects.requireNonNull(sendDispls, "sendDispls");
        }
        vector(
                Collective.SCATTERV,
                send,
                rank == root ? sendCounts : null,
                sendDispls,
                recv,
                null,
                null,
                null,
                root,
                stream);
    }

    @Override
    public final void allGatherv(
            Buffer send, Buffer recv, long[] recvCounts, long[] recvDispls, Stream stream) {
        Objects.requireNonNull(recvCounts, "recvCounts");
        Objects.requireNonNull(recvDispls, "recvDispls");
        vector(
                Collective.ALL_GATHERV,
                send,
                null,
                null,
                recv,
                recvCounts,
                recvDispls,
                null,
                0,
                stream);
    }

    @Override
    public final void reduceScatterv(
            Buffer send, Buffer recv, long[] counts, ReduceOp op, Stream stream) {
        Objects.requireNonNull(counts, "counts");
        Objects.requireNonNull(op, "op");
        vector(Collective.REDUCE_SCATTERV, send, counts, null, recv, null, null, op, 0, stream);
    }

    @Override
    public final void allToAllv(
            Buffer send,
            long[] sendCounts,
            long[] sendDispls,
            Buffer recv,
            long[] recvCounts,
            long[] recvDispls,
            Stream stream) {
        Objects.requireNonNull(sendCounts, "sendCounts");
        Objects.requireNonNull(sendDispls, "sendDispls");
        Objects.requireNonNull(recvCounts, "recvCounts");
        Objects.requireNonNull(recvDispls, "recvDispls");
        vector(
                Collective.ALL_TO_ALLV,
                send,
                sendCounts,
                sendDispls,
                recv,
                recvCounts,
                recvDispls,
                null,
                0,
                stream);
    }

    // ---- checks

    private void uniform(
            Collective op,
            @Nullable Buffer send,
            @Nullable Buffer recv,
            @Nullable ReduceOp reduceOp,
            int root,
            Stream stream) {
        checkUsable();
        if (op.rooted()) {
            checkRank("root", root);
        }
        Buffer s = op.sends(rank, root) ? present(send, "send") : null;
        Buffer r = op.receives(rank, root) ? present(recv, "recv") : null;
        Buffer any = s != null ? s : Objects.requireNonNull(r);
        if (s != null && r != null) {
            checkSameType(s, r);
        }
        long block = -1;
        if (s != null) {
            block = blockOf(s, "send", op.manySend());
        }
        if (r != null) {
            long recvBlock = blockOf(r, "recv", op.manyRecv());
            if (s != null && recvBlock != block) {
                throw otherBlocks(op, s, block, r, recvBlock);
            }
            block = recvBlock;
        }
        boolean inPlace = false;
        if (s != null && r != null && overlap(s, r)) {
            long sendAt = op.manySend() && !op.manyRecv() ? rank * block : 0;
            long recvAt = op.manyRecv() && !op.manySend() ? rank * block : 0;
            if (!samePlace(s, sendAt, r, recvAt)) {
                throw overlapping(op, s, r);
            }
            inPlace = true;
        }
        Request q = begin(stream);
        q.op = op;
        q.send = s;
        q.recv = r;
        q.type = any.dataType();
        q.reduceOp = reduceOp == null ? ReduceOp.SUM : reduceOp;
        q.count = block;
        q.root = root;
        q.inPlace = inPlace;
        submit(q, stream);
    }

    private void vector(
            Collective op,
            @Nullable Buffer send,
            long @Nullable [] sendCounts,
            long @Nullable [] sendDispls,
            @Nullable Buffer recv,
            long @Nullable [] recvCounts,
            long @Nullable [] recvDispls,
            @Nullable ReduceOp reduceOp,
            int root,
            Stream stream) {
        checkUsable();
        Buffer s = op.sends(rank, root) ? present(send, "send") : null;
        Buffer r = op.receives(rank, root) ? present(recv, "recv") : null;
        Buffer any = s != null ? s : Objects.requireNonNull(r);
        if (s != null && r != null) {
            checkSameType(s, r);
        }
        if (sendCounts != null) {
            checkBlocks(op, "send", Objects.requireNonNull(s), sendCounts, sendDispls);
        }
        if (recvCounts != null) {
            checkBlocks(op, "recv", Objects.requireNonNull(r), recvCounts, recvDispls);
            checkDisjoint(op, recvCounts, Objects.requireNonNull(recvDispls));
        }
        if (recvCounts != null && op != Collective.ALL_TO_ALLV) {
            long own = recvCounts[rank];
            if (s != null && s.count() != own) {
                throw new IllegalArgumentException(
                        op.method()
                                + ": send's count is "
                                + s.count()
                                + ", but recvCounts["
                                + rank
                                + "] for this rank is "
                                + own);
            }
        }
        if (sendCounts != null && op != Collective.ALL_TO_ALLV && r != null) {
            long own = sendCounts[rank];
            if (r.count() != own) {
                throw new IllegalArgumentException(
                        op.method()
                                + ": recv's count is "
                                + r.count()
                                + ", but counts["
                                + rank
                                + "] for this rank is "
                                + own);
            }
        }
        Request q = begin(stream);
        q.op = op;
        q.send = s;
        q.recv = r;
        q.type = any.dataType();
        q.reduceOp = reduceOp == null ? ReduceOp.SUM : reduceOp;
        q.count = 0;
        q.root = root;
        long prefix = 0;
        for (int i = 0; i < size; i++) {
            boolean to = op.receives(i, root);
            boolean from = op.sends(i, root);
            q.sendCounts[i] = s == null || !to ? 0 : sendCounts != null ? sendCounts[i] : s.count();
            q.sendDispls[i] =
                    sendDispls != null && sendCounts != null
                            ? sendDispls[i]
                            : sendCounts != null ? prefix : 0;
            q.recvCounts[i] =
                    r == null || !from ? 0 : recvCounts != null ? recvCounts[i] : r.count();
            q.recvDispls[i] = recvDispls != null && recvCounts != null ? recvDispls[i] : 0;
            prefix += q.sendCounts[i];
        }
        q.inPlace = s != null && r != null && overlap(s, r);
        if (q.inPlace) {
            try {
                checkVectorInPlace(q, Objects.requireNonNull(s), Objects.requireNonNull(r));
            } catch (IllegalArgumentException e) {
                if (q != inline) {
                    free(q);
                }
                throw e;
            }
        }
        submit(q, stream);
    }

    /** Buffers overlap: throws unless exactly as the in-place form of the operation says. */
    private void checkVectorInPlace(Request q, Buffer s, Buffer r) {
        Collective op = q.op;
        boolean same;
        if (op == Collective.ALL_TO_ALLV) {
            same =
                    samePlace(s, 0, r, 0)
                            && Arrays.equals(q.sendCounts, q.recvCounts)
                            && Arrays.equals(q.sendDispls, q.recvDispls);
        } else {
            same =
                    samePlace(
                            s,
                            op.manySend() ? q.sendDispls[rank] : 0,
                            r,
                            op.manyRecv() ? q.recvDispls[rank] : 0);
        }
        if (!same) {
            throw overlapping(op, s, r);
        }
    }

    private void pointToPoint(Collective op, Buffer buffer, int peer, Stream stream) {
        checkUsable();
        checkRank("peer", peer);
        present(buffer, "buffer");
        if (peer == rank && groupDepth == 0) {
            throw new IllegalArgumentException(
                    op.method()
                            + ": peer "
                            + peer
                            + " is this rank itself, which would wait for itself; put the send and"
                            + " the recv in one Group");
        }
        Request q = begin(stream);
        q.op = op;
        q.send = op == Collective.SEND ? buffer : null;
        q.recv = op == Collective.RECV ? buffer : null;
        q.type = buffer.dataType();
        q.reduceOp = ReduceOp.SUM;
        q.count = buffer.count();
        q.root = peer;
        q.inPlace = false;
        submit(q, stream);
    }

    private Buffer present(@Nullable Buffer buffer, String name) {
        if (buffer == null) {
            throw new NullPointerException(name + " is null on rank " + rank + ", which uses it");
        }
        checkBuffer(buffer, name);
        return buffer;
    }

    /** Throws unless a number is a rank's. */
    protected final void checkRank(String name, int value) {
        if (value < 0 || value >= size) {
            throw new IllegalArgumentException(
                    name + " is " + value + ", expected 0 to " + (size - 1) + ", a rank");
        }
    }

    private static void checkSameType(Buffer s, Buffer r) {
        if (s.dataType() != r.dataType()) {
            throw new IllegalArgumentException(
                    "send holds "
                            + s.dataType().label()
                            + ", recv "
                            + r.dataType().label()
                            + "; both must hold the same type");
        }
    }

    private long blockOf(Buffer buffer, String name, boolean many) {
        if (!many) {
            return buffer.count();
        }
        long block = buffer.count() / size;
        if (block * size != buffer.count()) {
            throw new IllegalArgumentException(
                    name
                            + " holds one block for each of "
                            + size
                            + " ranks, but its count "
                            + buffer.count()
                            + " is no multiple of "
                            + size);
        }
        return block;
    }

    private IllegalArgumentException otherBlocks(
            Collective op, Buffer s, long block, Buffer r, long recvBlock) {
        return new IllegalArgumentException(
                op.method()
                        + ": send's count "
                        + s.count()
                        + " makes a block of "
                        + block
                        + " elements, recv's count "
                        + r.count()
                        + " one of "
                        + recvBlock
                        + "; with "
                        + size
                        + " ranks "
                        + shape(op));
    }

    private String shape(Collective op) {
        String one = "the same count as the other buffer";
        String many = size + " times the other's count";
        return "send needs "
                + (op.manySend() && !op.manyRecv() ? many : one)
                + " and recv "
                + (op.manyRecv() && !op.manySend() ? many : one);
    }

    private void checkBlocks(
            Collective op, String name, Buffer buffer, long[] counts, long @Nullable [] displs) {
        if (counts.length != size || (displs != null && displs.length != size)) {
            throw new IllegalArgumentException(
                    op.method()
                            + ": "
                            + name
                            + "'s counts have length "
                            + counts.length
                            + (displs == null ? "" : " and its displacements " + displs.length)
                            + ", expected "
                            + size
                            + ", one for each rank");
        }
        long at = 0;
        for (int i = 0; i < size; i++) {
            long from = displs == null ? at : displs[i];
            if (counts[i] < 0 || from < 0 || from > buffer.count() - counts[i]) {
                throw new IllegalArgumentException(
                        op.method()
                                + ": block "
                                + i
                                + " is "
                                + counts[i]
                                + " elements from "
                                + from
                                + ", which does not lie within "
                                + name
                                + "'s "
                                + buffer.count()
                                + " elements");
            }
            at = from + counts[i];
        }
    }

    /** Blocks received must not overlap each other: which one would stay is undefined. */
    private void checkDisjoint(Collective op, long[] counts, long[] displs) {
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < i; j++) {
                if (counts[i] > 0
                        && counts[j] > 0
                        && displs[i] < displs[j] + counts[j]
                        && displs[j] < displs[i] + counts[i]) {
                    throw new IllegalArgumentException(
                            op.method()
                                    + ": recv's blocks "
                                    + j
                                    + " ("
                                    + counts[j]
                                    + " elements from "
                                    + displs[j]
                                    + ") and "
                                    + i
                                    + " ("
                                    + counts[i]
                                    + " from "
                                    + displs[i]
                                    + ") overlap");
                }
            }
        }
    }

    private IllegalArgumentException overlapping(Collective op, Buffer s, Buffer r) {
        return new IllegalArgumentException(
                op.method()
                        + ": send ("
                        + s.count()
                        + " elements at 0x"
                        + Long.toHexString(s.address())
                        + ") and recv ("
                        + r.count()
                        + " at 0x"
                        + Long.toHexString(r.address())
                        + ") overlap, but not as this operation's in-place form does; use separate"
                        + " memory or the in-place overload");
    }

    /** This rank's block of an in-place buffer, which keeps the view for the next call. */
    private Buffer ownBlock(Buffer buffer) {
        Objects.requireNonNull(buffer, "buffer");
        long block = blockOf(buffer, "an in-place buffer", true);
        return buffer.slice(rank * block, block);
    }

    // ---- submission and groups

    private Request begin(Stream stream) {
        Objects.requireNonNull(stream, "stream");
        boolean runsInline = runsInline(stream);
        if (groupDepth == 0) {
            Request r = runsInline ? inline : takeRequest();
            r.stream = stream;
            return r;
        }
        if (recordingStream == null) {
            recordingStream = stream;
        } else if (recordingStream != stream) {
            throw new IllegalArgumentException(
                    "a group's operations on one communicator go to one stream, but this one names"
                            + " another than the first; use two groups");
        }
        Request r = takeRequest();
        r.stream = stream;
        return r;
    }

    private void submit(Request request, Stream stream) {
        if (recording != null) {
            recording.requests.add(request);
        } else if (request == inline) {
            note(request, completesLater, false);
            awaitTurn(issued);
            boolean done = false;
            try {
                execute(request);
                done = true;
            } finally {
                ended(request, done);
                request.clear();
            }
        } else {
            enqueueCounted(stream, request);
        }
    }

    /** Number of operations and groups enqueued and not yet completed. */
    protected final long pending() {
        return issued - executed.get();
    }

    /** Waits until everything called before has completed, on whatever stream. */
    final void awaitTurn(long ticket) {
        boolean interrupted = false;
        for (int i = 0; executed.get() != ticket; i++) {
            if (i < TURN_SPINS) {
                Thread.onSpinWait();
            } else {
                interrupted |= Thread.interrupted();
                LockSupport.parkNanos(TURN_PARK_NANOS);
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    final void nextTurn() {
        // Only the one whose turn it is writes.
        executed.setRelease(executed.get() + 1);
    }

    private <W extends QueuedWork> W ticketed(W work, boolean queued) {
        work.note(queued);
        work.ticket = issued;
        issued = work.ticket + 1;
        return work;
    }

    private void enqueueCounted(Stream stream, QueuedWork work) {
        boolean accepted = false;
        try {
            enqueue(stream, ticketed(work, true));
            accepted = true;
        } finally {
            if (!accepted) {
                work.drop();
            }
        }
    }

    /**
     * Throws within a group: what the operation calls would be recorded, but it needs the result.
     */
    protected final void refuseInGroup(String operation) {
        if (groupDepth > 0) {
            throw new IllegalStateException(
                    operation
                            + " inside Group.run: a group only records, but "
                            + operation
                            + " waits for the other ranks at once; call it before or after the"
                            + " group");
        }
    }

    /** Starts recording; calls nest. */
    private void groupStart() {
        checkUsable();
        if (groupDepth++ == 0) {
            synchronized (freeRequests) {
                recording = freeBatches.isEmpty() ? new Batch(this) : freeBatches.pop();
            }
        }
    }

    /** Ends recording after an error; nothing of the whole group will run. */
    private void groupDiscard() {
        Batch batch = Objects.requireNonNull(recording);
        for (Request r : batch.requests) {
            free(r);
        }
        batch.requests.clear();
        poisoned = true;
        if (--groupDepth == 0) {
            finishRecording(batch);
        }
    }

    /** See {@link io.jccl.Group#run(Communicator, Runnable)}. */
    public static void group(Communicator communicator, Runnable body) {
        EngineCommunicator engine = of(communicator);
        engine.groupStart();
        boolean recorded = false;
        try {
            body.run();
            recorded = true;
        } finally {
            if (!recorded) {
                engine.groupDiscard();
            }
        }
        engine.groupEnd();
    }

    /** See {@link io.jccl.Group#run(List, Runnable)}. */
    public static void group(List<? extends Communicator> communicators, Runnable body) {
        EngineCommunicator[] engines =
                communicators.stream()
                        .map(EngineCommunicator::of)
                        .toArray(EngineCommunicator[]::new);
        int started = 0;
        boolean recorded = false;
        try {
            for (EngineCommunicator e : engines) {
                e.groupStart();
                started++;
            }
            body.run();
            recorded = true;
        } finally {
            for (int i = 0; !recorded && i < started; i++) {
                engines[i].groupDiscard();
            }
        }
        groupEnd(engines);
    }

    /** Ends recording and runs what was recorded. */
    private void groupEnd() {
        Stream stream = recordingStream;
        Batch batch = endRecording();
        if (batch != null) {
            start(batch, Objects.requireNonNull(stream));
        }
    }

    /** Ends recording on several communicators and runs what was recorded, all at once. */
    private static void groupEnd(EngineCommunicator[] engines) {
        @Nullable Batch[] batches = new Batch[engines.length];
        @Nullable Stream[] streams = new Stream[engines.length];
        RuntimeException first = null;
        // All recordings end before anything runs, so that an error leaves none of them open.
        for (int i = 0; i < engines.length; i++) {
            streams[i] = engines[i].recordingStream;
            try {
                batches[i] = engines[i].endRecording();
            } catch (IllegalStateException e) {
                first = first == null ? e : first;
            }
        }
        if (first != null) {
            for (int i = 0; i < engines.length; i++) {
                Batch batch = batches[i];
                if (batch != null) {
                    engines[i].free(batch);
                }
            }
            throw first;
        }
        EngineCommunicator[] inlineEngines = new EngineCommunicator[engines.length];
        Batch[] inlineBatches = new Batch[engines.length];
        int n = 0;
        for (int i = 0; i < engines.length; i++) {
            EngineCommunicator e = engines[i];
            Stream stream = streams[i];
            Batch batch = batches[i];
            if (batch == null || stream == null) {
                continue;
            }
            if (e.runsInline(stream)) {
                inlineEngines[n] = e;
                inlineBatches[n++] = batch;
            } else {
                e.enqueueCounted(stream, batch);
            }
        }
        if (n == 1) {
            inlineEngines[0].start(inlineBatches[0], null);
        } else if (n > 1 && inlineEngines[0].runsTogether()) {
            runTogether(inlineEngines, inlineBatches, n);
        } else if (n > 1) {
            startTogether(inlineEngines, inlineBatches, n);
        }
    }

    private static void runTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        for (int i = 0; i < n; i++) {
            engines[i].ticketed(batches[i], true);
        }
        boolean done = false;
        try {
            engines[0].executeTogether(engines, batches, n);
            done = true;
        } finally {
            for (int i = 0; i < n; i++) {
                if (done) {
                    engines[i].ended(batches[i], true);
                }
                batches[i].drop();
            }
        }
    }

    private static void startTogether(EngineCommunicator[] engines, Batch[] batches, int n) {
        for (int i = 1; i < n; i++) {
            engines[i].enqueueCounted(engines[i].driver(), batches[i]);
        }
        RuntimeException first = null;
        try {
            engines[0].start(batches[0], null);
        } catch (RuntimeException e) {
            first = e;
        }
        for (int i = 1; i < n; i++) {
            try {
                engines[i].driver().synchronize();
            } catch (RuntimeException e) {
                if (first == null) {
                    first = e;
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }

    private void start(Batch batch, @Nullable Stream stream) {
        if (stream != null && !runsInline(stream)) {
            enqueueCounted(stream, batch);
            return;
        }
        ticketed(batch, completesLater).run();
    }

    private @Nullable Batch endRecording() {
        if (--groupDepth > 0) {
            return null;
        }
        Batch batch = Objects.requireNonNull(recording);
        boolean failed = poisoned;
        boolean empty = batch.requests.isEmpty();
        if (empty || failed) {
            finishRecording(batch);
        } else {
            recording = null;
            recordingStream = null;
        }
        if (failed) {
            throw new IllegalStateException(
                    "a nested group ended with an exception, so nothing of this group was run");
        }
        return empty ? null : batch;
    }

    private void finishRecording(Batch batch) {
        recording = null;
        recordingStream = null;
        poisoned = false;
        free(batch);
    }

    private Request takeRequest() {
        synchronized (freeRequests) {
            return freeRequests.isEmpty() ? new Request(this, size) : freeRequests.pop();
        }
    }

    final void free(Request request) {
        request.clear();
        synchronized (freeRequests) {
            if (freeRequests.size() < MAX_POOLED) {
                freeRequests.push(request);
            }
        }
    }

    final void free(Batch batch) {
        for (int i = 0; i < batch.requests.size(); i++) {
            free(batch.requests.get(i));
        }
        batch.requests.clear();
        synchronized (freeRequests) {
            if (freeBatches.size() < MAX_POOLED) {
                freeBatches.push(batch);
            }
        }
    }
}
