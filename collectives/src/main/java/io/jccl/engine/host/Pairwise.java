package io.jccl.engine.host;

/**
 * Each block goes directly from its source to its target. In step k a rank sends to the k-th rank
 * on its right and receives from the k-th on its left, so that no rank is the target of two at a
 * time:
 *
 * <pre>{@code
 *          0      1      2      3
 * step 1   ->1    ->2    ->3    ->0
 * step 2   ->2    ->3    ->0    ->1
 * step 3   ->3    ->0    ->1    ->2
 * }</pre>
 */
final class Pairwise extends ChunkedAlgorithm {
    Pairwise(Context context) {
        super(context);
    }

    @Override
    void run() {
        switch (q().op) {
            case ALL_TO_ALL, ALL_TO_ALLV -> allToAll();
            case ALL_GATHER, ALL_GATHERV -> allGather();
            case REDUCE_SCATTER, REDUCE_SCATTERV -> reduceScatter();
            default -> throw unserved();
        }
    }

    private void allToAll() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * size()));
        long slotBytes = chunk * size();
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            long self = clip(blockCount(rank(), rank()), c, chunk);
            storeOwn(rank() * slotBytes, recvDispl(rank()) + c, self);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank() + k);
                int from = wrap(rank() - k);
                post(to, to * slotBytes, clip(blockCount(rank(), to), c, chunk) * size());
                long m = clip(blockCount(from, rank()), c, chunk);
                store(scratch(from), take(from), recvDispl(from) + c, m);
                consumed(from);
            }
            awaitAllConsumed();
        }
    }

    private void allGather() {
        long chunk = SharedMemoryTransport.SCRATCH / size();
        long end = longest();
        for (long c = 0; c < end; c += chunk) {
            loadOwnBlock(c, chunk, 0);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank() + k);
                int from = wrap(rank() - k);
                post(to, 0, clip(blockCount(rank(), to), c, chunk) * size());
                long m = clip(blockCount(from, rank()), c, chunk);
                store(scratch(from), take(from), recvDispl(from) + c, m);
                consumed(from);
            }
            awaitAllConsumed();
        }
    }

    private void reduceScatter() {
        long chunk = Math.max(1, SharedMemoryTransport.SCRATCH / ((long) n * wideSize()));
        long slotBytes = chunk * wideSize();
        long end = longest();
        long mine = rank() * slotBytes;
        for (long c = 0; c < end; c += chunk) {
            loadAllBlocks(c, chunk, slotBytes);
            long m = clip(blockCount(rank(), rank()), c, chunk);
            for (int k = 1; k < n; k++) {
                int to = wrap(rank() + k);
                int from = wrap(rank() - k);
                post(to, to * slotBytes, clip(blockCount(rank(), to), c, chunk) * wideSize());
                combine(from, take(from), mine, m);
                consumed(from);
            }
            storeOwn(mine, c, m);
            awaitAllConsumed();
        }
    }

    /** All ranks must have read scratch memory before it is filled again. */
    private void awaitAllConsumed() {
        for (int k = 1; k < n; k++) {
            awaitConsumed(wrap(rank() + k));
        }
    }
}
