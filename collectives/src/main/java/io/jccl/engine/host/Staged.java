package io.jccl.engine.host;

import java.lang.foreign.MemorySegment;

/**
 * The direct algorithm for buffers that other processes cannot map. Every rank copies a chunk of
 * its data into one half of its scratch memory, and after a barrier every rank reads its part from
 * there:
 *
 * <pre>{@code
 * rank   buffer        scratch             receivers
 *
 * 0 [a0 a1 a2] -> [a0| ] barrier -> all read a0 while half 0 is read,
 * 1      [b0 b1 b2] -> [b0|  ]         ->  and b0           a1 and b1 fill half 1
 * }</pre>
 *
 * <p>The halves alternate, so one barrier per chunk is enough: a rank that fills a half has passed
 * the barrier after the chunk that was in it before. Reductions to one or to all ranks need a
 * second barrier: each rank reduces its share of the chunk, and then receivers collect the shares.
 */
final class Staged extends ChunkedAlgorithm {
    Staged(Context context) {
        super(context);
    }

    @Override
    void run() {
        boolean source = q().op.sends(rank(), root());
        boolean target = q().op.receives(rank(), root());
        int blocks = q().op.manySend() ? n : 1;
        long chunk = Math.max(1, HALF / ((long) blocks * size()));
        long slotBytes = chunk * size();
        long end = longest();
        int half = 0;
        for (long c = 0; c < end; c += chunk, half ^= 1) {
            long slot = half * HALF;
            for (int b = 0; b < blocks && source; b++) {
                long m = clip(sendBlock(b), c, chunk);
                if (m > 0) {
                    long element = sendDispl(b) + c;
                    MemorySegment.copy(
                            send(),
                            element * size(),
                            own(),
                            ownAt() + slot + b * slotBytes,
                            m * size());
                }
            }
            waiter.barrier();
            long m = clip(end, c, chunk);
            if (q().op.reduces() && !q().op.manySend()) {
                reduce(slot, c, m, target);
            } else if (q().op.reduces()) {
                ownBlock(slot + rank() * slotBytes, c, clip(blockCount(rank(), rank()), c, chunk));
            } else if (target) {
                for (int i = 0; i < n; i++) {
                    int p = wrap(rank() + i);
                    long k = q().op.sends(p, root()) ? clip(blockCount(p, rank()), c, chunk) : 0;
                    if (k > 0) {
                        long at = slot + (q().op.manySend() ? rank() * slotBytes : 0);
                        store(scratch(p), scratchAt(p) + at, recvDispl(p) + c, k);
                    }
                }
            }
        }
        // The communicator may be closed next, and its scratch memory reused.
        waiter.barrier();
    }

    /** Length of block b of this rank's send buffer: that for rank b, or the only one. */
    private long sendBlock(int b) {
        if (q().op.manySend() || !q().op.vector()) {
            return blockCount(rank(), b);
        }
        return q().sendBuffer().count();
    }

    private void sources(long slot) {
        reducer.begin(q().type, q().reduceOp.kind());
        for (int p = 0; p < n; p++) {
            reducer.addSource(scratch(p), scratchAt(p) + slot, factor(p));
        }
    }

    /**
     * Each rank reduces its share of the chunk; ranks that receive the result collect the shares.
     */
    private void reduce(long slot, long c, long m, boolean target) {
        long results = slot + 2 * HALF;
        sources(slot);
        reducer.addTarget(own(), ownAt() + results);
        reducer.run(DirectAlgorithm.share(m, rank(), n), DirectAlgorithm.share(m, rank() + 1, n));
        waiter.barrier();
        for (int i = 0; i < n && target; i++) {
            int p = wrap(rank() + i);
            long from = DirectAlgorithm.share(m, p, n);
            long to = DirectAlgorithm.share(m, p + 1, n);
            if (to > from) {
                MemorySegment.copy(
                        scratch(p),
                        scratchAt(p) + results + from * size(),
                        recv(),
                        (c + from) * size(),
                        (to - from) * size());
            }
        }
    }

    private void ownBlock(long slot, long c, long m) {
        if (m > 0) {
            sources(slot);
            reducer.addTarget(recv(), c * size());
            reducer.run(0, m);
        }
    }
}
