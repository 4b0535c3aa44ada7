package io.jccl.engine.host;

import io.jccl.bootstrap.ControlBlock;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;

/**
 * Ranks read each other's buffers, and write them where that is faster; small payloads are read
 * from the slots. Each block moves once, directly to its destination:
 *
 * <pre>{@code
 * allGather             allReduce: a rank reduces its share      gather: each rank
 * rank 1 reads          of all buffers, and writes it to all     writes to the root
 *
 * 0 [a] ----> [a|.|.]   0 [a0|a1|a2] --+         +-> [..|S1|..]  0 [a] ----> [a|.|.]
 * 1 [b] ----> [.|b|.]   1 [b0|b1|b2] --+- rank 1 +-> [..|S1|..]  1 [b] ------->^ ^
 * 2 [c] ----> [.|.|c]   2 [c0|c1|c2] --+         +-> [..|S1|..]  2 [c] --------- +
 * }</pre>
 *
 * <p>Callers synchronize before, so that all buffers are known, and after, so that no buffer is
 * reused while others still read it.
 */
final class DirectAlgorithm {
    private final SharedMemoryTransport fabric;
    private final ControlBlock control;
    private final MemorySegment memory;
    private final Slots slots;
    private final Reducer reducer;
    private final int rank;
    private final int n;

    DirectAlgorithm(SharedMemoryTransport fabric, Slots slots, Reducer reducer, int rank) {
        this.fabric = fabric;
        this.control = fabric.control;
        this.memory = control.memory;
        this.slots = slots;
        this.reducer = reducer;
        this.rank = rank;
        this.n = fabric.ranks;
    }

    /** Moves the data, after all ranks have synchronized. */
    void run(Request q, int parity, boolean target, int size) {
        CollectiveOp op = q.op;
        if (op.reduces()) {
            reduce(q, parity, size);
        } else if (Slots.pushes(op)) {
            copy(q, rank, q.root, parity, size);
        } else if (op.manySend() && op.manyRecv() && slots.anyInPlace(parity)) {
            for (int i = 1; i < n; i++) {
                int p = (rank + i) % n;
                // Each pair is exchanged by one of its two ranks, about as many by each.
                boolean mine = ((rank + p) % 2 == 0) == (rank < p);
                if (mine) {
                    exchange(q, rank, p, parity, size);
                }
            }
            if (!q.inPlace) {
                copy(q, rank, rank, parity, size);
            }
        } else if (target) {
            for (int i = 0; i < n; i++) {
                int p = rank + i < n ? rank + i : rank + i - n;
                boolean own = p == rank && q.inPlace;
                if (op.sends(p, q.root) && !own) {
                    copy(q, p, rank, parity, size);
                }
            }
        }
    }

    /** All payloads are in the slots: read those for this rank. */
    void takeFromSlots(Request q, int parity, long block) {
        CollectiveOp op = q.op;
        HostBuffer recv = (HostBuffer) q.recvBuffer();
        long at = ControlBlock.PAYLOAD + (op.manySend() ? rank * block : 0);
        if (op.reduces()) {
            Reducer r = reducer.begin(q.type, q.reduceOp.kind());
            for (int p = 0; p < n; p++) {
                r.addSource(memory, control.slot(p, parity) + at, slots.factor(p, parity));
            }
            r.addTarget(recv.segment(), 0);
            r.run(0, q.count);
            return;
        }
        int first = op.rootSends() ? q.root : 0;
        int last = op.rootSends() ? q.root : n - 1;
        for (int p = first; p <= last; p++) {
            MemorySegment.copy(
                    memory,
                    control.slot(p, parity) + at,
                    recv.segment(),
                    op.manyRecv() ? p * block : 0,
                    block);
        }
    }

    private void copy(Request q, int from, int to, int parity, int size) {
        if (from == to && q.inPlace) {
            return;
        }
        Reducer.copy(
                sendOf(q, from, parity),
                sendAt(from, parity) + sendDispl(q, from, to, parity) * size,
                recvOf(q, to, parity),
                recvAt(to, parity) + recvDispl(q, to, from, parity) * size,
                blockCount(q, from, to, parity) * size);
    }

    /** Exchanges blocks between a and b, either of which may be in place. */
    private void exchange(Request q, int a, int b, int parity, int size) {
        long toB = blockCount(q, a, b, parity) * size;
        long toA = blockCount(q, b, a, parity) * size;
        MemorySegment keep = fabric.scratch(rank);
        long keepAt = fabric.scratchAt(rank);
        for (long x = 0; x < Math.max(toA, toB); x += SharedMemoryTransport.SCRATCH) {
            long lengthB = Math.max(0, Math.min(SharedMemoryTransport.SCRATCH, toB - x));
            long lengthA = Math.max(0, Math.min(SharedMemoryTransport.SCRATCH, toA - x));
            MemorySegment.copy(
                    sendOf(q, a, parity),
                    sendAt(a, parity) + sendDispl(q, a, b, parity) * size + x,
                    keep,
                    keepAt,
                    lengthB);
            MemorySegment.copy(
                    sendOf(q, b, parity),
                    sendAt(b, parity) + sendDispl(q, b, a, parity) * size + x,
                    recvOf(q, a, parity),
                    recvAt(a, parity) + recvDispl(q, a, b, parity) * size + x,
                    lengthA);
            MemorySegment.copy(
                    keep,
                    keepAt,
                    recvOf(q, b, parity),
                    recvAt(b, parity) + recvDispl(q, b, a, parity) * size + x,
                    lengthB);
        }
    }

    /** Reduces this rank's share, or for reduceScatter this rank's block. */
    private void reduce(Request q, int parity, int size) {
        Reducer r = reducer.begin(q.type, q.reduceOp.kind());
        boolean own = q.op.manySend();
        for (int p = 0; p < n; p++) {
            long at = sendAt(p, parity) + (own ? sendDispl(q, p, rank, parity) * size : 0);
            r.addSource(sendOf(q, p, parity), at, slots.factor(p, parity));
        }
        if (own) {
            r.addTarget(recvOf(q, rank, parity), recvAt(rank, parity));
            r.run(0, blockCount(q, rank, rank, parity));
            r.end();
            return;
        }
        if (q.op.rootReceives()) {
            r.addTarget(recvOf(q, q.root, parity), recvAt(q.root, parity));
        } else {
            for (int i = 0; i < n; i++) {
                int p = rank + i < n ? rank + i : rank + i - n;
                r.addTarget(recvOf(q, p, parity), recvAt(p, parity));
            }
        }
        r.run(share(q.count, rank, n), share(q.count, rank + 1, n));
        r.end();
    }

    /** First element of a rank's share; shares meet on whole pairs of cache lines. */
    static long share(long count, int r, int n) {
        long each = (count + n - 1) / n;
        each = (each + 127) / 128 * 128;
        return Math.min(count, r * each);
    }

    private MemorySegment sendOf(Request q, int p, int parity) {
        if (p == rank) {
            return ((HostBuffer) q.sendBuffer()).segment();
        }
        long slot = control.slot(p, parity);
        return fabric.published(p, parity, false, control.get(slot + ControlBlock.SEND_CHUNK));
    }

    private long sendAt(int p, int parity) {
        return p == rank ? 0 : control.get(control.slot(p, parity) + ControlBlock.SEND_AT);
    }

    /** This rank's own buffer need not be mapped by others. */
    private MemorySegment recvOf(Request q, int p, int parity) {
        if (p == rank) {
            return ((HostBuffer) q.recvBuffer()).segment();
        }
        long slot = control.slot(p, parity);
        return fabric.published(p, parity, true, control.get(slot + ControlBlock.RECV_CHUNK));
    }

    private long recvAt(int p, int parity) {
        return p == rank ? 0 : control.get(control.slot(p, parity) + ControlBlock.RECV_AT);
    }

    /** Where in p's send buffer the block for rank r starts, in elements. */
    private long sendDispl(Request q, int p, int r, int parity) {
        if (q.op.vector()) {
            return slots.table(p, parity, 1, r);
        }
        return q.op.manySend() ? r * q.count : 0;
    }

    /** Where in r's receive buffer the block from rank p starts, in elements. */
    private long recvDispl(Request q, int r, int p, int parity) {
        if (q.op.vector()) {
            return slots.table(r, parity, 3, p);
        }
        return q.op.manyRecv() ? p * q.count : 0;
    }

    private long blockCount(Request q, int from, int to, int parity) {
        return q.op.vector() ? slots.table(from, parity, 0, to) : q.count;
    }
}
