package io.jccl.engine.host;

import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;

/**
 * An algorithm that moves data in chunks through the ranks' scratch memory, so that it works with
 * any buffers, in place or not.
 *
 * <p>Partial results have the wide type ({@link Reducer#wide}), so narrow floats are rounded once.
 * A chunk is a range [c, c + m) of every block; {@code at} and {@code slot} are bytes in scratch
 * memory. A rank here is a position in the order in which ranks forward data.
 */
abstract class ChunkedAlgorithm {
    static final long HALF = SharedMemoryTransport.SCRATCH / 4;

    /**
     * The resources of algorithms.
     *
     * @param rank this rank
     * @param order ranks in the order in which they forward data, the same on all of them
     */
    record Context(
            SharedMemoryTransport fabric,
            PointToPoint messages,
            Slots slots,
            Waiter waiter,
            Reducer reducer,
            int rank,
            int[] order) {}

    final int n;
    final Waiter waiter;
    final Reducer reducer;
    private final PointToPoint messages;
    private final SharedMemoryTransport fabric;
    private final Slots slots;
    private final int[] order;
    private final int rank;

    // The operation under way.
    @SuppressWarnings("NullAway.Init")
    private Request q;

    private int root;
    private int parity;
    private int size;
    private int wideSize;
    private long factor;
    private MemorySegment own = MemorySegment.NULL;
    private long ownAt;

    ChunkedAlgorithm(Context context) {
        this.messages = context.messages;
        this.fabric = context.fabric;
        this.slots = context.slots;
        this.waiter = context.waiter;
        this.reducer = context.reducer;
        this.order = context.order;
        this.n = fabric.ranks;
        this.rank = placeOf(context.rank);
    }

    /** Runs one operation, whose slots have this parity. */
    final void run(Request request, int parity) {
        this.q = request;
        this.parity = parity;
        this.size = q.type.size();
        this.wideSize = q.op.reduces() ? Reducer.wide(q.type).size() : size;
        this.factor = q.reduceOp.factorBits(q.type);
        this.root = q.op.rooted() ? placeOf(q.root) : 0;
        this.own = scratch(rank);
        this.ownAt = scratchAt(rank);
        if (q.op.reduces()) {
            reducer.begin(q.type, q.reduceOp.kind());
        }
        run();
    }

    /** Runs the operation that {@link #q} is. */
    abstract void run();

    /** The error for an operation for which {@link AlgorithmTable} should not have chosen it. */
    final IllegalStateException unserved() {
        return new IllegalStateException(getClass().getSimpleName() + " does not serve " + q.op);
    }

    // ---- the operation under way

    final Request q() {
        return q;
    }

    /** Place of the root. */
    final int root() {
        return root;
    }

    /** Place of this rank. */
    final int rank() {
        return rank;
    }

    /** Bytes of an element. */
    final int size() {
        return size;
    }

    /** Bytes of an element in scratch memory. */
    final int wideSize() {
        return wideSize;
    }

    // ---- places

    private int placeOf(int r) {
        int place = 0;
        while (order[place] != r) {
            place++;
        }
        return place;
    }

    /** The rank at a place. */
    final int at(int place) {
        return order[place];
    }

    /** The rank before this one; the first follows the last. */
    final int left() {
        return rank == 0 ? n - 1 : rank - 1;
    }

    final int right() {
        return rank == n - 1 ? 0 : rank + 1;
    }

    final int wrap(int r) {
        return r < 0 ? r + n : r >= n ? r - n : r;
    }

    /** Elements that one rank sends to another. */
    final long blockCount(int from, int to) {
        return q.op.vector() ? slots.table(at(from), parity, 0, at(to)) : q.count;
    }

    /** The longest block of any pair, which determines the number of chunks. */
    final long longest() {
        if (!q.op.vector()) {
            return q.count;
        }
        long max = 0;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                max = Math.max(max, blockCount(i, j));
            }
        }
        return max;
    }

    static long clip(long count, long c, long chunk) {
        return Math.max(0, Math.min(chunk, count - c));
    }

    final long sendDispl(int to) {
        return q.op.vector() ? q.sendDispls[at(to)] : q.op.manySend() ? at(to) * q.count : 0;
    }

    final long recvDispl(int from) {
        return q.op.vector() ? q.recvDispls[at(from)] : q.op.manyRecv() ? at(from) * q.count : 0;
    }

    final MemorySegment send() {
        return ((HostBuffer) q.sendBuffer()).segment();
    }

    final MemorySegment recv() {
        return ((HostBuffer) q.recvBuffer()).segment();
    }

    // ---- scratch memory

    /** This rank's. */
    final MemorySegment own() {
        return own;
    }

    final long ownAt() {
        return ownAt;
    }

    final MemorySegment scratch(int r) {
        return fabric.scratch(at(r));
    }

    final long scratchAt(int r) {
        return fabric.scratchAt(at(r));
    }

    /** The factor that a rank multiplies its elements by. */
    final long factor(int r) {
        return slots.factor(at(r), parity);
    }

    /**
     * Reads m elements of the send buffer into scratch memory, as wide ones if they are reduced.
     */
    final void load(long element, long slot, long m) {
        if (m <= 0) {
            return;
        }
        if (q.op.reduces()) {
            reducer.load(send(), element * size, factor, own, ownAt + slot, m);
        } else {
            MemorySegment.copy(send(), element * size, own, ownAt + slot, m * size);
        }
    }

    /** Writes m elements of scratch memory, finished, into the receive buffer. */
    final void store(MemorySegment from, long at, long element, long m) {
        if (m <= 0) {
            return;
        }
        if (q.op.reduces()) {
            reducer.store(from, at, recv(), element * size, m);
        } else {
            MemorySegment.copy(from, at, recv(), element * size, m * size);
        }
    }

    final void storeOwn(long slot, long element, long m) {
        store(own, ownAt + slot, element, m);
    }

    /** Combines m wide elements of a peer's scratch memory into this rank's. */
    final void combine(int peer, long at, long slot, long m) {
        if (m > 0) {
            reducer.combineWide(own, ownAt + slot, scratch(peer), at, own, ownAt + slot, m);
        }
    }

    final void copy(int peer, long at, long slot, long bytes) {
        if (bytes > 0) {
            MemorySegment.copy(scratch(peer), at, own, ownAt + slot, bytes);
        }
    }

    /** This rank's own block of an allGather: into scratch memory, and into its place. */
    final void loadOwnBlock(long c, long chunk, long slot) {
        long m = clip(blockCount(rank, rank), c, chunk);
        load(c, slot, m);
        if (!q.inPlace) {
            storeOwn(slot, recvDispl(rank) + c, m);
        }
    }

    final void loadAllBlocks(long c, long chunk, long slotBytes) {
        for (int b = 0; b < n; b++) {
            load(sendDispl(b) + c, b * slotBytes, clip(blockCount(rank, b), c, chunk));
        }
    }

    // ---- messages

    final long post(int peer, long slot, long bytes) {
        return messages.postScratch(at(peer), ownAt + slot, bytes);
    }

    final long take(int place) {
        return messages.take(at(place));
    }

    final void consumed(int place) {
        messages.consumed(at(place));
    }

    final void awaitConsumed(int place) {
        messages.awaitConsumed(at(place));
    }

    final void awaitConsumed(int place, long ticket) {
        messages.awaitConsumed(at(place), ticket);
    }
}
