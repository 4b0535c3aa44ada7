package io.jccl.engine.mpi;

import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import java.lang.foreign.MemorySegment;

/**
 * The operations of one communicator as calls of MPI.
 *
 * <p>The calls depend only on the operation's arguments, so they are the same on all ranks: one
 * call for most operations. If there are more elements than a C int can count, a broadcast becomes
 * several calls, and blocks are sent as messages. Whether buffers are copied ({@link Staging}) is
 * decided by each rank.
 */
final class MpiCalls {
    /** Maximum elements in a call; tests set a smaller number. */
    static final long LIMIT = Long.getLong("jccl.mpi.limit", Integer.MAX_VALUE);

    private final MpiLink link;
    private final Staging staging = new Staging();
    private final MpiMessages messages;
    private final MpiCollectives collectives;
    private final MpiReductions reductions;
    private final long inPlace;
    private final int n;
    private final int rank;

    MpiCalls(MpiProcess.State process, MpiCommunicator owner) {
        this.link = new MpiLink(process, owner);
        this.messages = new MpiMessages(link);
        this.collectives = new MpiCollectives(link);
        this.reductions = new MpiReductions(link, collectives, staging);
        this.inPlace = process.mpi().inPlace();
        this.n = owner.size();
        this.rank = owner.rank();
    }

    /** MPI's communicator. */
    MpiLink link() {
        return link;
    }

    MpiMessages messages() {
        return messages;
    }

    /** Frees everything; no request may be in progress. */
    void close() {
        staging.free();
        messages.free();
        link.close();
    }

    /**
     * Abandons operations in progress after an error.
     *
     * @return whether MPI may still use the memory of operations that have not completed
     */
    boolean giveUp() {
        boolean posted = messages.giveUp();
        return posted || link.abandoned();
    }

    /** Runs an operation to completion. */
    void run(Request q) {
        runBeside(q);
        if (messages.open() > 0) {
            messages.finish();
        }
    }

    /**
     * Runs an operation; if it consists of messages, they are posted and may still be in progress.
     */
    void runBeside(Request q) {
        switch (q.op) {
            case BROADCAST -> broadcast(q);
            case SCATTER, GATHER, ALL_GATHER, ALL_TO_ALL -> uniform(q);
            case ALL_REDUCE, REDUCE -> reductions.reduce(q);
            case REDUCE_SCATTER, REDUCE_SCATTERV -> reductions.reduceScatter(q);
            case ALL_GATHERV -> allGatherv(q);
            case GATHERV, SCATTERV, ALL_TO_ALLV -> blocks(q);
            case BARRIER -> collectives.run(q, 0, 0, 0, q.type);
            case SEND, RECV -> messages.post(q);
        }
    }

    private void broadcast(Request q) {
        boolean root = rank == q.root;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        HostBuffer buffer = root ? (HostBuffer) q.sendBuffer() : target;
        long address = root ? staging.in(buffer) : staging.out(buffer);
        for (long at = 0; ; at += LIMIT) {
            int m = (int) Math.min(LIMIT, q.count - at);
            long from = address + at * q.type.size();
            collectives.run(q, from, from, m, q.type);
            if (q.count - at <= LIMIT) {
                break;
            }
        }
        if (!root) {
            staging.back(target, address);
        } else if (!q.inPlace) {
            MemorySegment.copy(buffer.segment(), 0, target.segment(), 0, buffer.byteSize());
        }
    }

    /** Blocks of equal counts. */
    private void uniform(Request q) {
        if (q.count > LIMIT) {
            blocks(q);
            return;
        }
        HostBuffer source = (HostBuffer) q.send;
        HostBuffer target = (HostBuffer) q.recv;
        // In place, the root's own block of a scatter stays where it is.
        boolean stays = q.inPlace && q.op == CollectiveOp.SCATTER;
        long send = source == null ? 0 : sent(q, source);
        long recv = target == null ? 0 : stays ? inPlace : staging.out(target);
        collectives.run(q, send, recv, (int) q.count, q.type);
        if (target != null && !stays) {
            staging.back(target, recv);
        }
    }

    /** The address of what MPI reads, or MPI_IN_PLACE. */
    private long sent(Request q, HostBuffer source) {
        if (!q.inPlace || q.op == CollectiveOp.SCATTER) {
            return staging.in(source);
        }
        // MPI requires all ranks of an all-to-all to be in place, or none.
        return q.op == CollectiveOp.ALL_TO_ALL ? staging.copyOf(source) : inPlace;
    }

    // ---- blocks of unequal counts

    private void allGatherv(Request q) {
        HostBuffer target = (HostBuffer) q.recvBuffer();
        HostBuffer source = (HostBuffer) q.sendBuffer();
        long total = 0;
        long end = 0;
        for (int r = 0; r < n; r++) {
            total += q.recvCounts[r];
            end = Math.max(end, q.recvDispls[r] + q.recvCounts[r]);
        }
        if (n == 1) {
            // MPICH 4.0.2 writes the block of a single rank to the start, instead of to its
            // displacement.
            if (!q.inPlace) {
                Staging.copyOwn(q, source, 0, target, q.recvDispls[0], q.recvCounts[0]);
            }
            return;
        }
        // Counts are the same on all ranks; displacements need not be, and do not matter to MPI.
        if (total > LIMIT) {
            blocks(q);
            return;
        }
        if (end > LIMIT) {
            allGathervPacked(q, source, target, total);
            return;
        }
        for (int r = 0; r < n; r++) {
            collectives.setBlock(r, (int) q.recvCounts[r], (int) q.recvDispls[r]);
        }
        long send = q.inPlace ? inPlace : staging.in(source);
        long recv = staging.out(target);
        collectives.run(q, send, recv, (int) source.count(), q.type);
        staging.back(target, recv);
    }

    /** Those whose displacements exceed a C int, through a packed copy. */
    private void allGathervPacked(Request q, HostBuffer source, HostBuffer target, long total) {
        int size = q.type.size();
        MemorySegment packed = staging.recv().atLeast(total * size);
        int at = 0;
        for (int r = 0; r < n; r++) {
            int m = (int) q.recvCounts[r];
            collectives.setBlock(r, m, at);
            at += m;
        }
        int m = (int) source.count();
        collectives.run(q, staging.in(source), packed.address(), m, q.type);
        long from = 0;
        for (int r = 0; r < n; r++) {
            long bytes = q.recvCounts[r] * size;
            MemorySegment.copy(packed, from, target.segment(), q.recvDispls[r] * size, bytes);
            from += bytes;
        }
    }

    /**
     * Blocks as messages: where counts exceed a C int, and always for gatherv, scatterv and
     * allToAllv, of which a rank knows only its own counts, so ranks could not agree.
     */
    private void blocks(Request q) {
        int first = messages.open();
        int size = q.type.size();
        HostBuffer source = (HostBuffer) q.send;
        HostBuffer target = (HostBuffer) q.recv;
        boolean v = q.op.vector();
        boolean all = q.op == CollectiveOp.ALL_TO_ALL || q.op == CollectiveOp.ALL_TO_ALLV;
        boolean aside = q.inPlace && all;
        long send = source == null ? 0 : aside ? staging.copyOf(source) : staging.in(source);
        long recv = target == null ? 0 : staging.out(target);
        for (int i = 1; i < n; i++) {
            int from = (rank - i + n) % n;
            if (target != null && q.op.sends(from, q.root)) {
                messages.postRecv(
                        recv + recvAt(q, from) * size,
                        v ? q.recvCounts[from] : q.count,
                        q.type,
                        from,
                        MpiMessages.TAG_OURS);
            }
        }
        for (int i = 1; i < n; i++) {
            int to = (rank + i) % n;
            if (source != null && q.op.receives(to, q.root)) {
                messages.postSend(
                        send + sendAt(q, to) * size,
                        v ? q.sendCounts[to] : q.count,
                        q.type,
                        to,
                        MpiMessages.TAG_OURS);
            }
        }
        messages.finish(first);
        if (target != null) {
            staging.back(target, recv);
            if (source != null
                    && !q.inPlace
                    && q.op.sends(rank, q.root)
                    && q.op.receives(rank, q.root)) {
                Staging.copyOwn(
                        q,
                        source,
                        sendAt(q, rank),
                        target,
                        recvAt(q, rank),
                        v ? q.recvCounts[rank] : q.count);
            }
        }
    }

    private static long sendAt(Request q, int to) {
        return q.op.vector() ? q.sendDispls[to] : q.op.manySend() ? to * q.count : 0;
    }

    private static long recvAt(Request q, int from) {
        return q.op.vector() ? q.recvDispls[from] : q.op.manyRecv() ? from * q.count : 0;
    }
}
