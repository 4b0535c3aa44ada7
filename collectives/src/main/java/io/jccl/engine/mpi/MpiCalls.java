package io.jccl.engine.mpi;

import io.jccl.bindings.MpiApi;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

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
    private final MpiReductions reductions;
    private final MpiApi mpi;
    private final MpiTypes types;
    private final boolean blocking;
    private final long inPlace;
    private final int n;
    private final int rank;
    private final MemorySegment counts;
    private final MemorySegment displs;

    MpiCalls(MpiProcess.State process, MpiCommunicator owner) {
        this.link = new MpiLink(process, owner);
        this.messages = new MpiMessages(link);
        this.reductions = new MpiReductions(link, staging);
        this.mpi = process.mpi();
        this.types = process.types();
        this.blocking = process.blocking();
        this.inPlace = mpi.inPlace();
        this.n = owner.size();
        this.rank = owner.rank();
        this.counts = link.allocate(4L * n);
        this.displs = link.allocate(4L * n);
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
            case SCATTER -> scatter(q);
            case GATHER -> gather(q);
            case ALL_GATHER -> allGather(q);
            case ALL_TO_ALL -> allToAll(q);
            case ALL_REDUCE, REDUCE -> reductions.reduce(q);
            case REDUCE_SCATTER, REDUCE_SCATTERV -> reductions.reduceScatter(q);
            case ALL_GATHERV -> allGatherv(q);
            case GATHERV, SCATTERV, ALL_TO_ALLV -> blocks(q);
            case BARRIER -> barrier();
            case SEND, RECV -> messages.post(q);
        }
    }

    private void barrier() {
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Barrier(link.comm())
                            : mpi.MPI_Ibarrier(link.comm(), link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Barrier");
    }

    private void broadcast(Request q) {
        boolean root = rank == q.root;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        HostBuffer buffer = root ? (HostBuffer) q.sendBuffer() : target;
        long address = root ? staging.in(buffer) : staging.out(buffer);
        long type = types.type(q.type);
        for (long at = 0, m; at == 0 || at < q.count; at += m) {
            m = Math.min(LIMIT, q.count - at);
            long from = address + at * q.type.size();
            link.begin();
            int code;
            try {
                code =
                        blocking
                                ? mpi.MPI_Bcast(from, (int) m, type, q.root, link.comm())
                                : mpi.MPI_Ibcast(
                                        from, (int) m, type, q.root, link.comm(), link.request());
            } finally {
                link.end();
            }
            link.complete(code, "MPI_Bcast");
            if (q.count == 0) {
                break;
            }
        }
        if (!root) {
            staging.back(target, address);
        } else if (!q.inPlace) {
            MemorySegment.copy(buffer.segment(), 0, target.segment(), 0, buffer.byteSize());
        }
    }

    private void scatter(Request q) {
        if (q.count > LIMIT) {
            blocks(q);
            return;
        }
        boolean root = rank == q.root;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long send = root ? staging.in((HostBuffer) q.sendBuffer()) : 0;
        boolean own = root && q.inPlace;
        long recv = own ? inPlace : staging.out(target);
        int m = (int) q.count;
        long type = types.type(q.type);
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Scatter(send, m, type, recv, m, type, q.root, link.comm())
                            : mpi.MPI_Iscatter(
                                    send,
                                    m,
                                    type,
                                    recv,
                                    m,
                                    type,
                                    q.root,
                                    link.comm(),
                                    link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Scatter");
        if (!own) {
            staging.back(target, recv);
        }
    }

    private void gather(Request q) {
        if (q.count > LIMIT) {
            blocks(q);
            return;
        }
        boolean root = rank == q.root;
        boolean own = root && q.inPlace;
        long send = own ? inPlace : staging.in((HostBuffer) q.sendBuffer());
        long recv = root ? staging.out((HostBuffer) q.recvBuffer()) : 0;
        int m = (int) q.count;
        long type = types.type(q.type);
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Gather(send, m, type, recv, m, type, q.root, link.comm())
                            : mpi.MPI_Igather(
                                    send,
                                    m,
                                    type,
                                    recv,
                                    m,
                                    type,
                                    q.root,
                                    link.comm(),
                                    link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Gather");
        if (root) {
            staging.back((HostBuffer) q.recvBuffer(), recv);
        }
    }

    private void allGather(Request q) {
        if (q.count > LIMIT) {
            blocks(q);
            return;
        }
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long send = q.inPlace ? inPlace : staging.in((HostBuffer) q.sendBuffer());
        long recv = staging.out(target);
        int m = (int) q.count;
        long type = types.type(q.type);
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Allgather(send, m, type, recv, m, type, link.comm())
                            : mpi.MPI_Iallgather(
                                    send, m, type, recv, m, type, link.comm(), link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Allgather");
        staging.back(target, recv);
    }

    private void allToAll(Request q) {
        if (q.count > LIMIT) {
            blocks(q);
            return;
        }
        HostBuffer target = (HostBuffer) q.recvBuffer();
        // MPI requires all ranks to be in place, or none.
        long send =
                q.inPlace
                        ? staging.copyOf((HostBuffer) q.sendBuffer())
                        : staging.in((HostBuffer) q.sendBuffer());
        long recv = staging.out(target);
        int m = (int) q.count;
        long type = types.type(q.type);
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Alltoall(send, m, type, recv, m, type, link.comm())
                            : mpi.MPI_Ialltoall(
                                    send, m, type, recv, m, type, link.comm(), link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Alltoall");
        staging.back(target, recv);
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
            counts.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvCounts[r]);
            displs.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvDispls[r]);
        }
        long send = q.inPlace ? inPlace : staging.in(source);
        long recv = staging.out(target);
        gatherAll(q, send, recv, (int) source.count());
        staging.back(target, recv);
    }

    private void gatherAll(Request q, long send, long recv, int m) {
        long type = types.type(q.type);
        link.begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Allgatherv(
                                    send, m, type, recv, counts, displs, type, link.comm())
                            : mpi.MPI_Iallgatherv(
                                    send,
                                    m,
                                    type,
                                    recv,
                                    counts,
                                    displs,
                                    type,
                                    link.comm(),
                                    link.request());
        } finally {
            link.end();
        }
        link.complete(code, "MPI_Allgatherv");
    }

    /** Those whose displacements exceed a C int, through a packed copy. */
    private void allGathervPacked(Request q, HostBuffer source, HostBuffer target, long total) {
        int size = q.type.size();
        MemorySegment packed = staging.recv().atLeast(total * size);
        int at = 0;
        for (int r = 0; r < n; r++) {
            counts.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvCounts[r]);
            displs.setAtIndex(ValueLayout.JAVA_INT, r, at);
            at += (int) q.recvCounts[r];
        }
        gatherAll(q, staging.in(source), packed.address(), (int) source.count());
        for (int r = 0; r < n; r++) {
            MemorySegment.copy(
                    packed,
                    (long) displs.getAtIndex(ValueLayout.JAVA_INT, r) * size,
                    target.segment(),
                    q.recvDispls[r] * size,
                    q.recvCounts[r] * size);
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
