package io.jccl.engine.host;

import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;

/**
 * Algorithms that pass data on from rank to rank, and the staged form of the direct one.
 *
 * <p>All work in chunks through the ranks' scratch memory, so any buffers will do, in place or not.
 * Partial results stay in the wide type ({@link Reducer#wide}), so that narrow floats are rounded
 * once. A chunk is a range [c, c + m) of every block; {@code at} and {@code slot} are bytes in
 * scratch memory.
 */
final class Algorithms {
    private static final long HALF = Fabric.SCRATCH / 4;

    private final HostCommunicator comm;
    private final PointToPoint messages;
    private final Fabric fabric;
    private final Slots slots;
    private final Reducer reducer;

    /** The rank this is. */
    private final int self;

    private final int n;

    /** Ranks in the order in which they pass data on. */
    private int[] order;

    /** Place in that order of the rank this is. Below, whoever is called a rank is such a place. */
    private int rank;

    /** Place of the root of the operation under way. */
    private int root;

    // The operation under way.
    @SuppressWarnings("NullAway.Init")
    private Request q;

    private int parity;
    private int size;
    private int wideSize;
    private long factor;
    private MemorySegment own = MemorySegment.NULL;
    private long ownAt;

    Algorithms(
            HostCommunicator comm,
            PointToPoint messages,
            Fabric fabric,
            Slots slots,
            Reducer reducer,
            int rank) {
        this.comm = comm;
        this.messages = messages;
        this.fabric = fabric;
        this.slots = slots;
        this.reducer = reducer;
        this.self = rank;
        this.n = fabric.ranks;
        this.order = new int[n];
        for (int i = 0; i < n; i++) {
            order[i] = i;
        }
        this.rank = rank;
    }

    /** Sets the order in which ranks pass data on, the same on all of them. */
    void order(int[] ranks) {
        order = ranks;
        rank = placeOf(self);
    }

    private int placeOf(int r) {
        int place = 0;
        while (order[place] != r) {
            place++;
        }
        return place;
    }

    /** The rank at a place. */
    private int at(int place) {
        return order[place];
    }

    private long take(int place) {
        return messages.take(at(place));
    }

    private void consumed(int place) {
        messages.consumed(at(place));
    }

    private void awaitConsumed(int place) {
        messages.awaitConsumed(at(place));
    }

    private void awaitConsumed(int place, long ticket) {
        messages.awaitConsumed(at(place), ticket);
    }

    private void begin(Request request, int parity) {
        this.q = request;
        this.parity = parity;
        this.size = q.type.size();
        this.wideSize = q.op.reduces() ? Reducer.wide(q.type).size() : size;
        this.factor = q.reduceOp.factorBits(q.type);
        this.root = q.op.rooted() ? placeOf(q.root) : 0;
        this.own = fabric.scratch(self);
        this.ownAt = fabric.scratchAt(self);
        if (q.op.reduces()) {
            reducer.begin(q.type, q.reduceOp.kind());
        }
    }

    // ---- blocks and chunks

    private int left() {
        return rank == 0 ? n - 1 : rank - 1;
    }

    private int right() {
        return rank == n - 1 ? 0 : rank + 1;
    }

    private int wrap(int r) {
        return r < 0 ? r + n : r >= n ? r - n : r;
    }

    /** Elements that one rank gives to another. */
    private long blockCount(int from, int to) {
        return q.op.vector() ? slots.table(at(from), parity, 0, at(to)) : q.count;
    }

    /** The longest block of any pair, which says how many chunks there are. */
    private long longest() {
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

    private static long clip(long count, long c, long chunk) {
        return Math.max(0, Math.min(chunk, count - c));
    }

    private long sendDispl(int to) {
        return q.op.vector() ? q.sendDispls[at(to)] : q.op.manySend() ? at(to) * q.count : 0;
    }

    private long recvDispl(int from) {
        return q.op.vector() ? q.recvDispls[at(from)] : q.op.manyRecv() ? at(from) * q.count : 0;
    }

    private MemorySegment send() {
        return ((HostBuffer) q.sendBuffer()).segment();
    }

    private MemorySegment recv() {
        return ((HostBuffer) q.recvBuffer()).segment();
    }

    private MemorySegment scratch(int r) {
        return fabric.scratch(at(r));
    }

    /**
     * Reads m elements of the send buffer into scratch memory, as wide ones if they are reduced.
     */
    private void load(long element, long slot, long m) {
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
    private void store(MemorySegment from, long at, long element, long m) {
        if (m <= 0) {
            return;
        }
        if (q.op.reduces()) {
            reducer.store(from, at, recv(), element * size, m);
        } else {
            MemorySegment.copy(from, at, recv(), element * size, m * size);
        }
    }

    /** Combines m wide elements of a peer's scratch memory into this rank's. */
    private void combine(int peer, long at, long slot, long m) {
        if (m > 0) {
            reducer.combineWide(own, ownAt + slot, scratch(peer), at, own, ownAt + slot, m);
        }
    }

    private void copy(int peer, long at, long slot, long bytes) {
        if (bytes > 0) {
            MemorySegment.copy(scratch(peer), at, own, ownAt + slot, bytes);
        }
    }

    private long post(int peer, long slot, long bytes) {
        return messages.postScratch(at(peer), ownAt + slot, bytes);
    }

    // ---- direct, for buffers that the other processes cannot see

    /**
     * Every rank copies a chunk of what it gives into one half of its scratch memory, a barrier,
     * and every rank takes what it gets from there. The halves alternate, so one barrier a chunk is
     * enough: whoever fills a half has passed the barrier behind the chunk that was in it before.
     */
    void staged(Request request, int parity) {
        begin(request, parity);
        boolean source = q.op.sends(rank, root);
        boolean target = q.op.receives(rank, root);
        int blocks = q.op.manySend() ? n : 1;
        long chunk = Math.max(1, HALF / ((long) blocks * size));
        long slotBytes = chunk * size;
        long end = longest();
        int half = 0;
        for (long c = 0; c < end; c += chunk, half ^= 1) {
            long slot = half * HALF;
            for (int b = 0; b < blocks && source; b++) {
                long m = clip(sendBlock(b), c, chunk);
                if (m > 0) {
                    long element = sendDispl(b) + c;
                    MemorySegment.copy(
                            send(), element * size, own, ownAt + slot + b * slotBytes, m * size);
                }
            }
            comm.waiter().barrier();
            long m = clip(end, c, chunk);
            if (q.op.reduces() && !q.op.manySend()) {
                stagedReduce(slot, c, m, target);
            } else if (q.op.reduces()) {
                stagedOwnBlock(slot + rank * slotBytes, c, clip(blockCount(rank, rank), c, chunk));
            } else if (target) {
                for (int i = 0; i < n; i++) {
                    int p = wrap(rank + i);
                    long k = q.op.sends(p, root) ? clip(blockCount(p, rank), c, chunk) : 0;
                    if (k > 0) {
                        long at = slot + (q.op.manySend() ? rank * slotBytes : 0);
                        store(scratch(p), fabric.scratchAt(at(p)) + at, recvDispl(p) + c, k);
                    }
                }
            }
        }
        // The communicator may be closed next, and its scratch memory used for something else.
        comm.waiter().barrier();
    }

    /** Length of block b of this rank's send buffer: that for rank b, or the only one. */
    private long sendBlock(int b) {
        if (q.op.manySend() || !q.op.vector()) {
            return blockCount(rank, b);
        }
        return q.sendBuffer().count();
    }

    private void stagedSources(long slot) {
        reducer.begin(q.type, q.reduceOp.kind());
        for (int p = 0; p < n; p++) {
            reducer.addSource(
                    scratch(p), fabric.scratchAt(at(p)) + slot, slots.factor(at(p), parity));
        }
    }

    /** Each rank reduces its share of the chunk; those who want the result collect the shares. */
    private void stagedReduce(long slot, long c, long m, boolean target) {
        long results = slot + 2 * HALF;
        stagedSources(slot);
        reducer.addTarget(own, ownAt + results);
        reducer.run(DirectAlgorithm.share(m, rank, n), DirectAlgorithm.share(m, rank + 1, n));
        comm.waiter().barrier();
        for (int i = 0; i < n && target; i++) {
            int p = wrap(rank + i);
            long from = DirectAlgorithm.share(m, p, n);
            long to = DirectAlgorithm.share(m, p + 1, n);
            if (to > from) {
                MemorySegment.copy(
                        scratch(p),
                        fabric.scratchAt(at(p)) + results + from * size,
                        recv(),
                        (c + from) * size,
                        (to - from) * size);
            }
        }
    }

    private void stagedOwnBlock(long slot, long c, long m) {
        if (m > 0) {
            stagedSources(slot);
            reducer.addTarget(recv(), c * size);
            reducer.run(0, m);
        }
    }

    // ---- ring

    void ring(Request request, int parity) {
        begin(request, parity);
        switch (q.op) {
            case BROADCAST -> ringBroadcast();
            case REDUCE -> ringReduce();
            case ALL_REDUCE -> ringAllReduce();
            case ALL_GATHER, ALL_GATHERV -> ringAllGather();
            case REDUCE_SCATTER, REDUCE_SCATTERV -> ringReduceScatter();
            default -> throw unserved("ring");
        }
    }

    private IllegalStateException unserved(String name) {
        return new IllegalStateException(name + " does not serve " + q.op);
    }

    /**
     * A chain from the root around to its left neighbour; chunks follow each other in two halves.
     */
    private void ringBroadcast() {
        boolean last = right() == root;
        long chunk = HALF / size;
        int half = 0;
        long[] tickets = twoTickets;
        tickets[0] = 0;
        tickets[1] = 0;
        for (long c = 0; c < q.count; c += chunk, half ^= 1) {
            long m = clip(q.count, c, chunk);
            long slot = half * HALF;
            awaitConsumed(right(), tickets[half]);
            if (rank == root) {
                load(c, slot, m);
            } else {
                long at = take(left());
                copy(left(), at, slot, m * size);
                consumed(left());
            }
            if (!last) {
                tickets[half] = post(right(), slot, m * size);
            }
            if (!(rank == root && q.inPlace)) {
                store(own, ownAt + slot, c, m);
            }
        }
        if (!last) {
            awaitConsumed(right());
        }
    }

    private final long[] twoTickets = new long[2];

    /** A chain that ends at the root; each rank adds its own to what comes from the left. */
    private void ringReduce() {
        boolean first = left() == root;
        long chunk = HALF / wideSize;
        int half = 0;
        long[] tickets = twoTickets;
        tickets[0] = 0;
        tickets[1] = 0;
        for (long c = 0; c < q.count; c += chunk, half ^= 1) {
            long m = clip(q.count, c, chunk);
            long slot = half * HALF;
            awaitConsumed(right(), tickets[half]);
            load(c, slot, m);
            if (n > 1 && !first) {
                combine(left(), take(left()), slot, m);
                consumed(left());
            }
            if (rank == root) {
                store(own, ownAt + slot, c, m);
            } else {
                tickets[half] = post(right(), slot, m * wideSize);
            }
        }
        if (rank != root) {
            awaitConsumed(right());
        }
    }

    /** Reduce-scatter around the ring, then all-gather around it. */
    private void ringAllReduce() {
        long chunk = 4 * HALF / wideSize;
        for (long c = 0; c < q.count; c += chunk) {
            long m = clip(q.count, c, chunk);
            load(c, 0, m);
            for (int k = 0; k < n - 1; k++) {
                postPart(wrap(rank - k), m);
                int part = wrap(rank - k - 1);
                long at = take(left());
                combine(left(), at, part(m, part) * wideSize, part(m, part + 1) - part(m, part));
                consumed(left());
            }
            for (int k = 0; k < n - 1; k++) {
                postPart(wrap(rank + 1 - k), m);
                int part = wrap(rank - k);
                long from = part(m, part) * wideSize;
                long at = take(left());
                copy(left(), at, from, part(m, part + 1) * wideSize - from);
                consumed(left());
            }
            awaitConsumed(right());
            store(own, ownAt, c, m);
        }
    }

    /** First element of part i of a chunk of m elements, in n parts. */
    private long part(long m, int i) {
        return m * i / n;
    }

    private void postPart(int part, long m) {
        long from = part(m, part) * wideSize;
        post(right(), from, part(m, part + 1) * wideSize - from);
    }

    private void ringAllGather() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * size));
        long slotBytes = chunk * size;
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadOwnBlock(c, chunk, rank * slotBytes);
            for (int k = 0; k < n - 1; k++) {
                int give = wrap(rank - k);
                post(right(), give * slotBytes, clip(blockCount(give, rank), c, chunk) * size);
                int get = wrap(rank - k - 1);
                long m = clip(blockCount(get, rank), c, chunk);
                long at = take(left());
                copy(left(), at, get * slotBytes, m * size);
                consumed(left());
                store(own, ownAt + get * slotBytes, recvDispl(get) + c, m);
            }
            awaitConsumed(right());
        }
    }

    /** This rank's own block of an allGather: into scratch memory, and into its place. */
    private void loadOwnBlock(long c, long chunk, long slot) {
        long m = clip(blockCount(rank, rank), c, chunk);
        load(c, slot, m);
        if (!q.inPlace) {
            store(own, ownAt + slot, recvDispl(rank) + c, m);
        }
    }

    private void ringReduceScatter() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * wideSize));
        long slotBytes = chunk * wideSize;
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            for (int k = 0; k < n - 1; k++) {
                int give = wrap(rank - k - 1);
                post(right(), give * slotBytes, clip(blockCount(rank, give), c, chunk) * wideSize);
                int get = (rank - k - 2 + 2 * n) % n;
                long m = clip(blockCount(rank, get), c, chunk);
                combine(left(), take(left()), get * slotBytes, m);
                consumed(left());
            }
            awaitConsumed(right());
            store(own, ownAt + rank * slotBytes, c, clip(blockCount(rank, rank), c, chunk));
        }
    }

    private void loadAllBlocks(long c, long chunk, long slotBytes) {
        for (int b = 0; b < n; b++) {
            load(sendDispl(b) + c, b * slotBytes, clip(blockCount(rank, b), c, chunk));
        }
    }

    // ---- binomial tree; ranks are counted from the root

    void tree(Request request, int parity) {
        begin(request, parity);
        switch (q.op) {
            case BROADCAST -> treeChunks(false, true);
            case REDUCE -> treeChunks(true, false);
            case ALL_REDUCE -> treeChunks(true, true);
            case BARRIER -> {
                treeUp(0, 0);
                treeDown(0);
            }
            case SCATTER, SCATTERV -> treeScatter();
            case GATHER, GATHERV -> treeGather();
            default -> throw unserved("tree");
        }
    }

    private int fromRoot(int r) {
        return wrap(r - root);
    }

    private int ofRoot(int v) {
        return wrap(v + root);
    }

    /** The distance at which this rank's parent is: its lowest set bit; beyond n for the root. */
    private int parentBit() {
        int v = fromRoot(rank);
        int bit = 1;
        while (bit < n && (v & bit) == 0) {
            bit <<= 1;
        }
        return bit;
    }

    private void treeChunks(boolean up, boolean down) {
        long chunk = Fabric.SCRATCH / wideSize;
        for (long c = 0; c < q.count; c += chunk) {
            long m = clip(q.count, c, chunk);
            if (q.op.sends(rank, root)) {
                load(c, 0, m);
            }
            if (up) {
                treeUp(m, m * wideSize);
            }
            if (down) {
                treeDown(m * wideSize);
            }
            boolean unchanged = !up && rank == root && q.inPlace;
            if (q.op.receives(rank, root) && !unchanged) {
                store(own, ownAt, c, m);
            }
        }
    }

    private void treeUp(long m, long bytes) {
        int v = fromRoot(rank);
        int parent = parentBit();
        for (int bit = 1; bit < parent && v + bit < n; bit <<= 1) {
            int child = ofRoot(v + bit);
            combine(child, take(child), 0, m);
            consumed(child);
        }
        if (v != 0) {
            int to = ofRoot(v - parent);
            post(to, 0, bytes);
            awaitConsumed(to);
        }
    }

    private void treeDown(long bytes) {
        int v = fromRoot(rank);
        int parent = parentBit();
        if (v != 0) {
            int from = ofRoot(v - parent);
            copy(from, take(from), 0, bytes);
            consumed(from);
        }
        for (int bit = parent >> 1; bit > 0; bit >>= 1) {
            if (v + bit < n) {
                post(ofRoot(v + bit), 0, bytes);
            }
        }
        for (int bit = parent >> 1; bit > 0; bit >>= 1) {
            if (v + bit < n) {
                awaitConsumed(ofRoot(v + bit));
            }
        }
    }

    /**
     * Each rank gets the blocks of its subtree, in order from the root, and hands parts of it on.
     */
    private void treeScatter() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * size));
        long slotBytes = chunk * size;
        long end = longest();
        int v = fromRoot(rank);
        int parent = parentBit();
        int span = Math.min(parent, n - v);
        for (long c = 0; c < end; c += chunk) {
            if (v == 0) {
                for (int i = 0; i < n; i++) {
                    int to = ofRoot(i);
                    load(sendDispl(to) + c, i * slotBytes, clip(blockCount(rank, to), c, chunk));
                }
            } else {
                int from = ofRoot(v - parent);
                copy(from, take(from), 0, span * slotBytes);
                consumed(from);
            }
            for (int bit = parent >> 1; bit > 0; bit >>= 1) {
                if (v + bit < n) {
                    post(ofRoot(v + bit), bit * slotBytes, Math.min(bit, n - v - bit) * slotBytes);
                }
            }
            if (!(v == 0 && q.inPlace)) {
                store(own, ownAt, c, clip(blockCount(root, rank), c, chunk));
            }
            for (int bit = parent >> 1; bit > 0; bit >>= 1) {
                if (v + bit < n) {
                    awaitConsumed(ofRoot(v + bit));
                }
            }
        }
    }

    private void treeGather() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * size));
        long slotBytes = chunk * size;
        long end = longest();
        int v = fromRoot(rank);
        int parent = parentBit();
        for (long c = 0; c < end; c += chunk) {
            load(c, 0, clip(blockCount(rank, root), c, chunk));
            for (int bit = 1; bit < parent && v + bit < n; bit <<= 1) {
                int child = ofRoot(v + bit);
                copy(child, take(child), bit * slotBytes, Math.min(bit, n - v - bit) * slotBytes);
                consumed(child);
            }
            if (v != 0) {
                int to = ofRoot(v - parent);
                post(to, 0, Math.min(parent, n - v) * slotBytes);
                awaitConsumed(to);
                continue;
            }
            for (int i = q.inPlace ? 1 : 0; i < n; i++) {
                int from = ofRoot(i);
                long m = clip(blockCount(from, rank), c, chunk);
                store(own, ownAt + i * slotBytes, recvDispl(from) + c, m);
            }
        }
    }

    // ---- partners at distance 1, 2, 4, ...

    void doubling(Request request) {
        begin(request, 0);
        switch (q.op) {
            case ALL_REDUCE -> doublingAllReduce();
            case ALL_GATHER -> doublingAllGather();
            case REDUCE_SCATTER -> halvingReduceScatter();
            case BARRIER -> dissemination();
            default -> throw unserved("recursive doubling");
        }
    }

    private void dissemination() {
        for (int d = 1; d < n; d <<= 1) {
            int to = (rank + d) % n;
            post(to, 0, 0);
            int from = (rank - d % n + n) % n;
            take(from);
            consumed(from);
        }
    }

    /**
     * Ranks beyond the largest power of two give theirs to a partner first and get the result last.
     * Two halves of scratch memory alternate: the partner may still read the one before.
     */
    private void doublingAllReduce() {
        int powerOfTwo = Integer.highestOneBit(n);
        int extra = n - powerOfTwo;
        long area = Fabric.SCRATCH / 2;
        long chunk = area / wideSize;
        for (long c = 0; c < q.count; c += chunk) {
            long m = clip(q.count, c, chunk);
            long bytes = m * wideSize;
            load(c, 0, m);
            if (rank >= powerOfTwo) {
                int partner = rank - powerOfTwo;
                post(partner, 0, bytes);
                store(scratch(partner), take(partner), c, m);
                consumed(partner);
                continue;
            }
            int helped = rank < extra ? rank + powerOfTwo : -1;
            if (helped >= 0) {
                combine(helped, take(helped), 0, m);
                consumed(helped);
            }
            long slot = 0;
            for (int d = 1; d < powerOfTwo; d <<= 1) {
                int partner = rank ^ d;
                post(partner, slot, bytes);
                long at = take(partner);
                long next = area - slot;
                // The lower rank's elements come first on both sides: equal bits on all ranks.
                boolean lower = rank < partner;
                MemorySegment peer = scratch(partner);
                reducer.combineWide(
                        lower ? own : peer,
                        lower ? ownAt + slot : at,
                        lower ? peer : own,
                        lower ? at : ownAt + slot,
                        own,
                        ownAt + next,
                        m);
                consumed(partner);
                awaitConsumed(partner);
                slot = next;
            }
            if (helped >= 0) {
                post(helped, slot, bytes);
            }
            store(own, ownAt + slot, c, m);
            if (helped >= 0) {
                awaitConsumed(helped);
            }
        }
    }

    /** Blocks in order from this rank on; each step doubles how many there are (Bruck's order). */
    private void doublingAllGather() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * size));
        long slotBytes = chunk * size;
        for (long c = 0; c < q.count; c += chunk) {
            loadOwnBlock(c, chunk, 0);
            for (int d = 1; d < n; d <<= 1) {
                int blocks = Math.min(d, n - d);
                int to = wrap(rank - d);
                int from = wrap(rank + d);
                post(to, 0, blocks * slotBytes);
                copy(from, take(from), d * slotBytes, blocks * slotBytes);
                consumed(from);
                awaitConsumed(to);
            }
            long m = clip(q.count, c, chunk);
            for (int i = 1; i < n; i++) {
                int from = wrap(rank + i);
                store(own, ownAt + i * slotBytes, recvDispl(from) + c, m);
            }
        }
    }

    /**
     * Recursive halving over the largest power of two of the ranks; rank g of them stands for
     * blocks g and, if there is such a rank, g + power, which lie side by side in scratch memory.
     */
    private void halvingReduceScatter() {
        int powerOfTwo = Integer.highestOneBit(n);
        int extra = n - powerOfTwo;
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * wideSize));
        long slotBytes = chunk * wideSize;
        for (long c = 0; c < q.count; c += chunk) {
            long m = clip(q.count, c, chunk);
            for (int b = 0; b < n; b++) {
                load(at(b) * q.count + c, place(b, powerOfTwo, extra) * slotBytes, m);
            }
            if (rank >= powerOfTwo) {
                int partner = rank - powerOfTwo;
                post(partner, 0, n * slotBytes);
                store(scratch(partner), take(partner), c, m);
                consumed(partner);
                continue;
            }
            if (rank < extra) {
                int helped = rank + powerOfTwo;
                combine(helped, take(helped), 0, n * chunk);
                consumed(helped);
            }
            int low = 0;
            int high = powerOfTwo;
            for (int d = powerOfTwo >> 1; d > 0; d >>= 1) {
                int partner = rank ^ d;
                int middle = low + d;
                boolean keepLow = rank < middle;
                int giveFrom = first(keepLow ? middle : low, extra);
                int giveTo = first(keepLow ? high : middle, extra);
                post(partner, giveFrom * slotBytes, (giveTo - giveFrom) * slotBytes);
                low = keepLow ? low : middle;
                high = keepLow ? middle : high;
                int keep = first(low, extra);
                combine(
                        partner,
                        take(partner),
                        keep * slotBytes,
                        (first(high, extra) - keep) * chunk);
                consumed(partner);
                awaitConsumed(partner);
            }
            long mine = first(rank, extra) * slotBytes;
            store(own, ownAt + mine, c, m);
            if (rank < extra) {
                post(rank + powerOfTwo, mine + slotBytes, slotBytes);
                awaitConsumed(rank + powerOfTwo);
            }
        }
    }

    /** Place of the first block of group g when the first groups have two blocks. */
    private static int first(int g, int extra) {
        return g + Math.min(g, extra);
    }

    private static int place(int block, int powerOfTwo, int extra) {
        return block < powerOfTwo ? first(block, extra) : first(block - powerOfTwo, extra) + 1;
    }

    // ---- pairwise

    void pairwise(Request request, int parity) {
        begin(request, parity);
        switch (q.op) {
            case ALL_TO_ALL, ALL_TO_ALLV -> pairwiseAllToAll();
            case ALL_GATHER, ALL_GATHERV -> pairwiseAllGather();
            case REDUCE_SCATTER, REDUCE_SCATTERV -> pairwiseReduceScatter();
            default -> throw unserved("pairwise");
        }
    }

    private void pairwiseAllToAll() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * size));
        long slotBytes = chunk * size;
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            long self = clip(blockCount(rank, rank), c, chunk);
            store(own, ownAt + rank * slotBytes, recvDispl(rank) + c, self);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank + k);
                int from = wrap(rank - k);
                post(to, to * slotBytes, clip(blockCount(rank, to), c, chunk) * size);
                long m = clip(blockCount(from, rank), c, chunk);
                store(scratch(from), take(from), recvDispl(from) + c, m);
                consumed(from);
            }
            awaitAllConsumed();
        }
    }

    private void pairwiseAllGather() {
        long chunk = Fabric.SCRATCH / size;
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadOwnBlock(c, chunk, 0);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank + k);
                int from = wrap(rank - k);
                post(to, 0, clip(blockCount(rank, to), c, chunk) * size);
                long m = clip(blockCount(from, rank), c, chunk);
                store(scratch(from), take(from), recvDispl(from) + c, m);
                consumed(from);
            }
            awaitAllConsumed();
        }
    }

    private void pairwiseReduceScatter() {
        long chunk = Math.max(1, Fabric.SCRATCH / ((long) n * wideSize));
        long slotBytes = chunk * wideSize;
        long end = longest();
        long mine = rank * slotBytes;
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            long m = clip(blockCount(rank, rank), c, chunk);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank + k);
                int from = wrap(rank - k);
                post(to, to * slotBytes, clip(blockCount(rank, to), c, chunk) * wideSize);
                combine(from, take(from), mine, m);
                consumed(from);
            }
            store(own, ownAt + mine, c, m);
            awaitAllConsumed();
        }
    }

    /** Before scratch memory is filled again, everybody must have read it. */
    private void awaitAllConsumed() {
        for (int k = 1; k < n; k++) {
            awaitConsumed(wrap(rank + k));
        }
    }
}
