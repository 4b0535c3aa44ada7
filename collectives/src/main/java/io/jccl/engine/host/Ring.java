package io.jccl.engine.host;

/**
 * Each rank receives from its left neighbour and sends to its right one.
 *
 * <pre>{@code
 * broadcast, reduce: a chain; while a chunk is on its way, the next follows
 *
 *   root -> 1 -> 2 -> 3            1 -> 2 -> 3 -> root
 *    c2     c1   c0                c2   +c1  +c0
 *
 * allReduce of four ranks: a chunk in parts a b c d; + is a part with other ranks' data added
 *
 *            rank 0     rank 1     rank 2     rank 3
 * step 1     a ->       b ->       c ->       d ->
 * step 2     +d ->      +a ->      +b ->      +c ->
 * step 3     +c ->      +d ->      +a ->      +b ->
 * now whole  b          c          d          a
 * steps 4-6 each forwards what it received last, as in allGather
 * }</pre>
 *
 * <p>ReduceScatter is the first half, one part earlier, so that rank i ends with block i. Every
 * rank sends and receives 2 (n - 1) / n of the data of an allReduce, whatever n is.
 */
final class Ring extends ChunkedAlgorithm {
    private final long[] twoTickets = new long[2];

    Ring(Context context) {
        super(context);
    }

    @Override
    void run() {
        switch (q().op) {
            case BROADCAST -> broadcast();
            case REDUCE -> reduce();
            case ALL_REDUCE -> allReduce();
            case ALL_GATHER, ALL_GATHERV -> allGather();
            case REDUCE_SCATTER, REDUCE_SCATTERV -> reduceScatter();
            default -> throw unserved();
        }
    }

    /**
     * A chain from the root around to its left neighbour; chunks follow each other in two halves.
     */
    private void broadcast() {
        boolean last = right() == root();
        long chunk = HALF / size();
        int half = 0;
        long[] tickets = twoTickets;
        tickets[0] = 0;
        tickets[1] = 0;
        for (long c = 0; c < q().count; c += chunk, half ^= 1) {
            long m = clip(q().count, c, chunk);
            long slot = half * HALF;
            awaitConsumed(right(), tickets[half]);
            if (rank() == root()) {
                load(c, slot, m);
            } else {
                long at = take(left());
                copy(left(), at, slot, m * size());
                consumed(left());
            }
            if (!last) {
                tickets[half] = post(right(), slot, m * size());
            }
            if (!(rank() == root() && q().inPlace)) {
                storeOwn(slot, c, m);
            }
        }
        if (!last) {
            awaitConsumed(right());
        }
    }

    /** A chain that ends at the root; each rank adds its data to what it receives from the left. */
    private void reduce() {
        boolean first = left() == root();
        long chunk = HALF / wideSize();
        int half = 0;
        long[] tickets = twoTickets;
        tickets[0] = 0;
        tickets[1] = 0;
        for (long c = 0; c < q().count; c += chunk, half ^= 1) {
            long m = clip(q().count, c, chunk);
            long slot = half * HALF;
            awaitConsumed(right(), tickets[half]);
            load(c, slot, m);
            if (n > 1 && !first) {
                combine(left(), take(left()), slot, m);
                consumed(left());
            }
            if (rank() == root()) {
                storeOwn(slot, c, m);
            } else {
                tickets[half] = post(right(), slot, m * wideSize());
            }
        }
        if (rank() != root()) {
            awaitConsumed(right());
        }
    }

    /** Reduce-scatter around the ring, then all-gather around it. */
    private void allReduce() {
        long chunk = 4 * HALF / wideSize();
        for (long c = 0; c < q().count; c += chunk) {
            long m = clip(q().count, c, chunk);
            load(c, 0, m);
            for (int k = 0; k < n - 1; k++) {
                postPart(wrap(rank() - k), m);
                int part = wrap(rank() - k - 1);
                long at = take(left());
                combine(left(), at, part(m, part) * wideSize(), part(m, part + 1) - part(m, part));
                consumed(left());
            }
            for (int k = 0; k < n - 1; k++) {
                postPart(wrap(rank() + 1 - k), m);
                int part = wrap(rank() - k);
                long from = part(m, part) * wideSize();
                long at = take(left());
                copy(left(), at, from, part(m, part + 1) * wideSize() - from);
                consumed(left());
            }
            awaitConsumed(right());
            storeOwn(0, c, m);
        }
    }

    /** First element of part i of a chunk of m elements, in n parts. */
    private long part(long m, int i) {
        return m * i / n;
    }

    private void postPart(int part, long m) {
        long from = part(m, part) * wideSize();
        post(right(), from, part(m, part + 1) * wideSize() - from);
    }

    private void allGather() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * size()));
        long slotBytes = chunk * size();
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadOwnBlock(c, chunk, rank() * slotBytes);
            for (int k = 0; k < n - 1; k++) {
                int give = wrap(rank() - k);
                post(right(), give * slotBytes, clip(blockCount(give, rank()), c, chunk) * size());
                int get = wrap(rank() - k - 1);
                long m = clip(blockCount(get, rank()), c, chunk);
                long at = take(left());
                copy(left(), at, get * slotBytes, m * size());
                consumed(left());
                storeOwn(get * slotBytes, recvDispl(get) + c, m);
            }
            awaitConsumed(right());
        }
    }

    private void reduceScatter() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * wideSize()));
        long slotBytes = chunk * wideSize();
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            for (int k = 0; k < n - 1; k++) {
                int give = wrap(rank() - k - 1);
                post(
                        right(),
                        give * slotBytes,
                        clip(blockCount(rank(), give), c, chunk) * wideSize());
                int get = (rank() - k - 2 + 2 * n) % n;
                long m = clip(blockCount(rank(), get), c, chunk);
                combine(left(), take(left()), get * slotBytes, m);
                consumed(left());
            }
            awaitConsumed(right());
            storeOwn(rank() * slotBytes, c, clip(blockCount(rank(), rank()), c, chunk));
        }
    }
}
