package io.jccl.engine.host;

import java.lang.foreign.MemorySegment;

/**
 * Partners at distance 1, 2, 4, ...: log2(n) steps.
 *
 * <pre>{@code
 * allReduce: pairs exchange all they have      allGather: blocks double (Bruck's order)
 *
 *          0     1     2     3                 0       1       2       3
 * step 1   <----->     <----->                 a<-b    b<-c    c<-d    d<-a
 * step 2   <----------->                       ab<-cd  bc<-da  cd<-ab  da<-bc
 *                <----------->
 *
 * reduceScatter: halving; each step sends away one half of the remaining blocks
 *
 *          0     1     2     3
 * step 1   <----------->                       0 and 1 keep ab, 2 and 3 keep cd
 *                <----------->
 * step 2   <----->     <----->                 0 keeps a, 1 b, 2 c, 3 d
 * }</pre>
 *
 * <p>If n is not a power of two, in allReduce and reduceScatter each rank beyond the largest one
 * first sends its data to a partner and receives its result last. The barrier sends an empty
 * message to the rank at each distance (dissemination), which works for any n.
 */
final class RecursiveDoubling extends ChunkedAlgorithm {
    RecursiveDoubling(Context context) {
        super(context);
    }

    @Override
    void run() {
        switch (q().op) {
            case ALL_REDUCE -> allReduce();
            case ALL_GATHER -> allGather();
            case REDUCE_SCATTER -> reduceScatter();
            case BARRIER -> dissemination();
            default -> throw unserved();
        }
    }

    private void dissemination() {
        for (int d = 1; d < n; d <<= 1) {
            int to = (rank() + d) % n;
            post(to, 0, 0);
            int from = (rank() - d % n + n) % n;
            take(from);
            consumed(from);
        }
    }

    /**
     * Ranks beyond the largest power of two first send their data to a partner and receive the
     * result last. Two halves of scratch memory alternate, since the partner may still read the
     * previous one.
     */
    private void allReduce() {
        int powerOfTwo = Integer.highestOneBit(n);
        int extra = n - powerOfTwo;
        long area = SharedMemoryTransport.SCRATCH / 2;
        long chunk = area / wideSize();
        for (long c = 0; c < q().count; c += chunk) {
            long m = clip(q().count, c, chunk);
            long bytes = m * wideSize();
            load(c, 0, m);
            if (rank() >= powerOfTwo) {
                int partner = rank() - powerOfTwo;
                post(partner, 0, bytes);
                store(scratch(partner), take(partner), c, m);
                consumed(partner);
                continue;
            }
            int helped = rank() < extra ? rank() + powerOfTwo : -1;
            if (helped >= 0) {
                combine(helped, take(helped), 0, m);
                consumed(helped);
            }
            long slot = 0;
            for (int d = 1; d < powerOfTwo; d <<= 1) {
                int partner = rank() ^ d;
                post(partner, slot, bytes);
                long at = take(partner);
                long next = area - slot;
                // The lower rank's elements come first on both sides: equal bits on all ranks.
                boolean lower = rank() < partner;
                MemorySegment peer = scratch(partner);
                reducer.combineWide(
                        lower ? own() : peer,
                        lower ? ownAt() + slot : at,
                        lower ? peer : own(),
                        lower ? at : ownAt() + slot,
                        own(),
                        ownAt() + next,
                        m);
                consumed(partner);
                awaitConsumed(partner);
                slot = next;
            }
            if (helped >= 0) {
                post(helped, slot, bytes);
            }
            storeOwn(slot, c, m);
            if (helped >= 0) {
                awaitConsumed(helped);
            }
        }
    }

    /** Blocks in order from this rank on; each step doubles their number (Bruck's order). */
    private void allGather() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * size()));
        long slotBytes = chunk * size();
        for (long c = 0; c < q().count; c += chunk) {
            loadOwnBlock(c, chunk, 0);
            for (int d = 1; d < n; d <<= 1) {
                int blocks = Math.min(d, n - d);
                int to = wrap(rank() - d);
                int from = wrap(rank() + d);
                post(to, 0, blocks * slotBytes);
                copy(from, take(from), d * slotBytes, blocks * slotBytes);
                consumed(from);
                awaitConsumed(to);
            }
            long m = clip(q().count, c, chunk);
            for (int i = 1; i < n; i++) {
                int from = wrap(rank() + i);
                storeOwn(i * slotBytes, recvDispl(from) + c, m);
            }
        }
    }

    /**
     * Recursive halving over the largest power of two of the ranks; rank g of them represents
     * blocks g and, if there is such a rank, g + power, which lie side by side in scratch memory.
     */
    private void reduceScatter() {
        int powerOfTwo = Integer.highestOneBit(n);
        int extra = n - powerOfTwo;
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * wideSize()));
        long slotBytes = chunk * wideSize();
        for (long c = 0; c < q().count; c += chunk) {
            long m = clip(q().count, c, chunk);
            for (int b = 0; b < n; b++) {
                load(at(b) * q().count + c, place(b, powerOfTwo, extra) * slotBytes, m);
            }
            if (rank() >= powerOfTwo) {
                int partner = rank() - powerOfTwo;
                post(partner, 0, n * slotBytes);
                store(scratch(partner), take(partner), c, m);
                consumed(partner);
                continue;
            }
            if (rank() < extra) {
                int helped = rank() + powerOfTwo;
                combine(helped, take(helped), 0, n * chunk);
                consumed(helped);
            }
            int low = 0;
            int high = powerOfTwo;
            for (int d = powerOfTwo >> 1; d > 0; d >>= 1) {
                int partner = rank() ^ d;
                int middle = low + d;
                boolean keepLow = rank() < middle;
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
            long mine = first(rank(), extra) * slotBytes;
            storeOwn(mine, c, m);
            if (rank() < extra) {
                post(rank() + powerOfTwo, mine + slotBytes, slotBytes);
                awaitConsumed(rank() + powerOfTwo);
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
}
