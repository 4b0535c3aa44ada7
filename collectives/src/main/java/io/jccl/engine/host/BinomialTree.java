package io.jccl.engine.host;

/**
 * A binomial tree, in which ranks are counted from the root: a rank's parent is that number without
 * its lowest set bit.
 *
 * <pre>{@code
 * down, eight ranks (broadcast, scatter)      up (reduce, gather): the same arrows backward
 *
 * step 1   0 ------------------> 4
 * step 2   0 ------> 2           4 ------> 6
 * step 3   0 -> 1    2 -> 3      4 -> 5    6 -> 7
 * }</pre>
 *
 * <p>Broadcast sends the whole chunk along each arrow, scatter the blocks of the subtree that
 * begins there; reduce adds the incoming data, gather concatenates it. AllReduce and barrier go up,
 * then down: 2 log2(n) steps.
 */
final class BinomialTree extends ChunkedAlgorithm {
    BinomialTree(Context context) {
        super(context);
    }

    @Override
    void run() {
        switch (q().op) {
            case BROADCAST -> chunks(false, true);
            case REDUCE -> chunks(true, false);
            case ALL_REDUCE -> chunks(true, true);
            case BARRIER -> {
                up(0, 0);
                down(0);
            }
            case SCATTER, SCATTERV -> scatter();
            case GATHER, GATHERV -> gather();
            default -> throw unserved();
        }
    }

    private int fromRoot(int r) {
        return wrap(r - root());
    }

    private int ofRoot(int v) {
        return wrap(v + root());
    }

    /** The distance to this rank's parent: its lowest set bit; beyond n for the root. */
    private int parentBit() {
        int v = fromRoot(rank());
        int bit = 1;
        while (bit < n && (v & bit) == 0) {
            bit <<= 1;
        }
        return bit;
    }

    private void chunks(boolean up, boolean down) {
        long chunk = SharedMemoryTransport.SCRATCH / wideSize();
        for (long c = 0; c < q().count; c += chunk) {
            long m = clip(q().count, c, chunk);
            if (q().op.sends(rank(), root())) {
                load(c, 0, m);
            }
            if (up) {
                up(m, m * wideSize());
            }
            if (down) {
                down(m * wideSize());
            }
            boolean unchanged = !up && rank() == root() && q().inPlace;
            if (q().op.receives(rank(), root()) && !unchanged) {
                storeOwn(0, c, m);
            }
        }
    }

    private void up(long m, long bytes) {
        int v = fromRoot(rank());
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

    private void down(long bytes) {
        int v = fromRoot(rank());
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
     * Each rank receives the blocks of its subtree, in order from the root, and forwards parts of
     * them.
     */
    private void scatter() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * size()));
        long slotBytes = chunk * size();
        long end = longest();
        int v = fromRoot(rank());
        int parent = parentBit();
        int span = Math.min(parent, n - v);
        for (long c = 0; c < end; c += chunk) {
            if (v == 0) {
                for (int i = 0; i < n; i++) {
                    int to = ofRoot(i);
                    load(sendDispl(to) + c, i * slotBytes, clip(blockCount(rank(), to), c, chunk));
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
            if (!(v == 0 && q().inPlace)) {
                storeOwn(0, c, clip(blockCount(root(), rank()), c, chunk));
            }
            for (int bit = parent >> 1; bit > 0; bit >>= 1) {
                if (v + bit < n) {
                    awaitConsumed(ofRoot(v + bit));
                }
            }
        }
    }

    private void gather() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * size()));
        long slotBytes = chunk * size();
        long end = longest();
        int v = fromRoot(rank());
        int parent = parentBit();
        for (long c = 0; c < end; c += chunk) {
            load(c, 0, clip(blockCount(rank(), root()), c, chunk));
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
            for (int i = q().inPlace ? 1 : 0; i < n; i++) {
                int from = ofRoot(i);
                long m = clip(blockCount(from, rank()), c, chunk);
                storeOwn(i * slotBytes, recvDispl(from) + c, m);
            }
        }
    }
}
