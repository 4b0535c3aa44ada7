package io.jccl.engine;

import io.jccl.Communicator;
import io.jccl.FlightHistory;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.flight.CollectiveOp;
import io.jccl.flight.FlightRecorder;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The part of a communicator that does not depend on the engine: checks every argument ({@link
 * ArgumentChecks}) and turns the call into a {@link Request}, which runs in order ({@link
 * OperationQueue}) or is recorded with its group ({@link GroupRecorder}). Every call is logged
 * ({@link FlightLog}).
 *
 * <p><b>Threads:</b> as for {@link Communicator}.
 */
public abstract class EngineCommunicator implements Communicator {
    private final int rank;
    private final int size;

    private final ArgumentChecks checks;
    final OperationQueue queue;
    final GroupRecorder group;

    private final FlightLog flight;

    /** Whether operations complete after {@link #execute} returns; only the engine sees when. */
    private final boolean completesLater;

    protected EngineCommunicator(int rank, int size) {
        this(rank, size, false);
    }

    /**
     * For an engine whose operations have not completed when {@link #execute} returns.
     *
     * @param completesLater whether this is such an engine; it then calls {@link
     *     FlightRecorder#complete}
     */
    @SuppressWarnings("this-escape") // its parts keep it for later calls
    protected EngineCommunicator(int rank, int size, boolean completesLater) {
        this.rank = rank;
        this.size = size;
        this.completesLater = completesLater;
        this.flight = new FlightLog(this, completesLater);
        this.checks = new ArgumentChecks(this, rank, size);
        this.queue = new OperationQueue(this);
        this.group = new GroupRecorder(this, queue);
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

    /** Enqueues work on a stream with its own thread. */
    protected abstract void enqueue(Stream stream, Runnable work);

    /** Throws if the communicator is closed or has failed. */
    protected abstract void checkUsable();

    /** Ends the communicator on all ranks, unless it has ended; any thread may call it. */
    protected void fail(JcclException why) {
        abort(String.valueOf(why.getMessage()));
    }

    /** Throws if work must not wait longer for earlier ones, none of which has run for a time. */
    protected void checkWaiting(QueuedWork work, long idleNanos) {
        checkUsable();
    }

    /** Throws if this engine cannot use the buffer: other device, closed. */
    protected abstract void checkBuffer(Buffer buffer, String name);

    /** Throws if this rank's device or library lacks an operation on a type. */
    protected void checkSupported(CollectiveOp op, @Nullable ReduceOp reduceOp, DataType type) {}

    /** Whether the addresses of two buffers can be compared: those of Java arrays are offsets. */
    protected abstract boolean sameMemory(Buffer a, Buffer b);

    /** A stream with its own thread, which drives this rank concurrently with others in a group. */
    protected abstract Stream driver();

    /** Identifies this communicator among those of all jobs; the same on all its ranks. */
    protected abstract String communicatorId();

    /**
     * The memory of a buffer of each rank, mapped into this process: data that one rank writes is
     * visible to the others after a synchronization. All ranks call it, with buffers of {@link
     * #device}, and may use the memory as long as these are open.
     *
     * @return by rank, or null on all ranks if some buffers cannot be mapped by all
     */
    public MemorySegment @Nullable [] peerMemory(Buffer buffer) {
        return size == 1 && device().kind() == Device.Kind.HOST
                ? new MemorySegment[] {buffer.asSegment()}
                : null;
    }

    /** Channels that a library uses; 0 if it does not report them. */
    protected int channels() {
        return 0;
    }

    // ---- the flight recorder

    /** The history of this rank's calls. */
    protected final FlightLog flight() {
        return flight;
    }

    @Override
    public final FlightHistory history() {
        return flight.history();
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
        uniform(CollectiveOp.BROADCAST, send, recv, null, root, stream);
    }

    @Override
    public final void scatter(@Nullable Buffer send, Buffer recv, int root, Stream stream) {
        uniform(CollectiveOp.SCATTER, send, recv, null, root, stream);
    }

    @Override
    public final void gather(Buffer send, @Nullable Buffer recv, int root, Stream stream) {
        uniform(CollectiveOp.GATHER, send, recv, null, root, stream);
    }

    @Override
    public final void reduce(
            Buffer send, @Nullable Buffer recv, ReduceOp op, int root, Stream stream) {
        uniform(CollectiveOp.REDUCE, send, recv, Objects.requireNonNull(op, "op"), root, stream);
    }

    @Override
    public final void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
        uniform(CollectiveOp.ALL_REDUCE, send, recv, Objects.requireNonNull(op, "op"), 0, stream);
    }

    @Override
    public final void allGather(Buffer send, Buffer recv, Stream stream) {
        uniform(CollectiveOp.ALL_GATHER, send, recv, null, 0, stream);
    }

    @Override
    public final void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
        uniform(
                CollectiveOp.REDUCE_SCATTER,
                send,
                recv,
                Objects.requireNonNull(op, "op"),
                0,
                stream);
    }

    @Override
    public final void allToAll(Buffer send, Buffer recv, Stream stream) {
        uniform(CollectiveOp.ALL_TO_ALL, send, recv, null, 0, stream);
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
        r.set(CollectiveOp.BARRIER, null, null, null, 0, 0);
        submit(r, stream);
    }

    @Override
    public final void send(Buffer buffer, int peer, Stream stream) {
        pointToPoint(CollectiveOp.SEND, buffer, peer, stream);
    }

    @Override
    public final void recv(Buffer buffer, int peer, Stream stream) {
        pointToPoint(CollectiveOp.RECV, buffer, peer, stream);
    }

    @Override
    public final void gatherv(
            Buffer send,
            @Nullable Buffer recv,
            long @Nullable [] recvCounts,
            long @Nullable [] recvDispls,
            int root,
            Stream stream) {
        checks.rank("root", root);
        Objects.requireNonNull(send, "send");
        if (rank == root) {
            Objects.requireNonNull(recvCounts, "recvCounts");
            Objects.requireNonNull(recvDispls, "recvDispls");
        }
        vector(
                CollectiveOp.GATHERV,
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
        checks.rank("root", root);
        Objects.requireNonNull(recv, "recv");
        if (rank == root) {
            Objects.requireNonNull(sendCounts, "sendCounts");
            Objects.requireNonNull(sendDispls, "sendDispls");
        }
        vector(
                CollectiveOp.SCATTERV,
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
                CollectiveOp.ALL_GATHERV,
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
        vector(CollectiveOp.REDUCE_SCATTERV, send, counts, null, recv, null, null, op, 0, stream);
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
                CollectiveOp.ALL_TO_ALLV,
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

    // ---- from a call to a request

    private void uniform(
            CollectiveOp op,
            @Nullable Buffer send,
            @Nullable Buffer recv,
            @Nullable ReduceOp reduceOp,
            int root,
            Stream stream) {
        checkUsable();
        if (op.rooted()) {
            checks.rank("root", root);
        }
        Buffer s = op.sends(rank, root) ? checks.present(send, "send") : null;
        Buffer r = op.receives(rank, root) ? checks.present(recv, "recv") : null;
        long block = checks.uniform(op, s, r);
        boolean inPlace = checks.inPlace(op, s, r, block);
        checkSupported(op, reduceOp, Objects.requireNonNull(s != null ? s : r).dataType());
        Request q = begin(stream);
        q.set(op, s, r, reduceOp, block, root);
        q.inPlace = inPlace;
        submit(q, stream);
    }

    private void vector(
            CollectiveOp op,
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
        Buffer s = op.sends(rank, root) ? checks.present(send, "send") : null;
        Buffer r = op.receives(rank, root) ? checks.present(recv, "recv") : null;
        checks.vector(op, s, sendCounts, sendDispls, r, recvCounts, recvDispls);
        checkSupported(op, reduceOp, Objects.requireNonNull(s != null ? s : r).dataType());
        Request q = begin(stream);
        q.set(op, s, r, reduceOp, 0, root);
        q.setTables(sendCounts, sendDispls, recvCounts, recvDispls);
        q.inPlace = s != null && r != null && checks.overlap(s, r);
        if (q.inPlace) {
            try {
                checks.vectorInPlace(q, Objects.requireNonNull(s), Objects.requireNonNull(r));
            } catch (IllegalArgumentException e) {
                queue.free(q);
                throw e;
            }
        }
        submit(q, stream);
    }

    private void pointToPoint(CollectiveOp op, Buffer buffer, int peer, Stream stream) {
        checkUsable();
        checks.rank("peer", peer);
        checks.present(buffer, "buffer");
        if (peer == rank && !group.isRecording()) {
            throw new IllegalArgumentException(
                    ("%s: peer %s is this rank itself, which would wait for itself; put the send"
                                    + " and the recv in one Group")
                            .formatted(op.method(), peer));
        }
        Request q = begin(stream);
        boolean sends = op == CollectiveOp.SEND;
        q.set(op, sends ? buffer : null, sends ? null : buffer, null, buffer.count(), peer);
        submit(q, stream);
    }

    /** This rank's block of an in-place buffer; the buffer caches the view. */
    private Buffer ownBlock(Buffer buffer) {
        Objects.requireNonNull(buffer, "buffer");
        long block = checks.block(buffer, "an in-place buffer", true);
        return buffer.slice(rank * block, block);
    }

    private Request begin(Stream stream) {
        Objects.requireNonNull(stream, "stream");
        queue.checkWhole();
        boolean runsInline = runsInline(stream);
        boolean recording = group.isRecording();
        if (recording) {
            group.checkStream(stream);
        }
        Request r = queue.take(runsInline && !recording);
        r.stream = stream;
        return r;
    }

    private void submit(Request request, Stream stream) {
        if (group.isRecording()) {
            group.record(request);
        } else {
            queue.submit(request, stream);
        }
    }

    // ---- for engines

    /** Number of operations and groups enqueued and not yet completed. */
    protected final long pending() {
        return queue.pending();
    }

    /** Throws unless a number is a rank. */
    protected final void checkRank(String name, int value) {
        checks.rank(name, value);
    }

    /**
     * Throws within a group: the operation's calls would be recorded, but it needs their results.
     */
    protected final void refuseInGroup(String operation) {
        group.refuse(operation);
    }

    final boolean completesLater() {
        return completesLater;
    }

    // ---- groups

    /** See {@link io.jccl.Group#run(Communicator, Runnable)}. */
    public static void group(Communicator communicator, Runnable body) {
        of(communicator).group.run(body);
    }

    /** See {@link io.jccl.Group#run(List, Runnable)}. */
    public static void group(List<? extends Communicator> communicators, Runnable body) {
        GroupRecorder.run(
                communicators.stream()
                        .map(EngineCommunicator::of)
                        .toArray(EngineCommunicator[]::new),
                body);
    }
}
