package io.jccl.mpi;

import io.jccl.CollectiveMismatchException;
import io.jccl.ReduceOp;
import io.jccl.bindings.MpiAbi;
import io.jccl.bindings.MpiApi;
import io.jccl.bindings.MpiException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.engine.Collective;
import io.jccl.engine.Request;
import io.jccl.host.HostBuffer;
import io.jccl.host.Reducer;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The operations of one communicator as calls of MPI.
 *
 * <p>Java's heap has no addresses that stay, and elements that are not aligned are none in C: such
 * buffers are copied to native memory and back. That is this rank's own affair; what depends on the
 * operation's arguments alone, and so is the same on all ranks, are the calls: one for most
 * operations, and one for each piece where elements are converted first (narrow floats travel as
 * float32 and are rounded once; pre-multiplied sums are scaled), or where there are more of them
 * than a C int counts.
 */
final class MpiCalls {
    /** Elements in a call; a test sets less. */
    private static final long LIMIT = Long.getLong("jccl.mpi.limit", Integer.MAX_VALUE);

    /** Bytes of converted elements in one piece. */
    private static final long PIECE = Long.getLong("jccl.mpi.piece", 1 << 20);

    private static final int SPINS = 2000;
    private static final int YIELDS = 2000;
    private static final long PARK_NANOS = 50_000;

    private static final int TAG_USER = 1;
    private static final int TAG_OURS = 2;

    private final MpiProcess.State process;
    private final MpiApi mpi;
    private final MpiAbi abi;
    private final MpiTypes types;
    private final @Nullable ReentrantLock lock;
    private final boolean blocking;
    private final long inPlace;
    private final MemorySegment ignore;
    private final int statusBytes;
    private final MpiCommunicator owner;
    private final int n;
    private final int rank;
    private final Reducer reducer;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment request = arena.allocate(8, 8);
    private final MemorySegment flag = arena.allocate(8, 8);
    private final MemorySegment counts;
    private final MemorySegment displs;
    private final Scratch sendScratch = new Scratch();
    private final Scratch recvScratch = new Scratch();

    /** MPI's communicator. */
    private long comm;

    // Messages under way.
    private MemorySegment requests;
    private MemorySegment statuses;
    private int open;

    /** Buffers of messages that travel as copies, and whether to copy them back. */
    private final List<HostBuffer> moved = new ArrayList<>();

    private final List<Boolean> movedBack = new ArrayList<>();
    private final List<Scratch> messageScratches = new ArrayList<>();
    private long[] expected = new long[8];
    private long[] messageType = new long[8];

    MpiCalls(MpiProcess.State process, MpiCommunicator owner) {
        this.process = process;
        this.mpi = process.mpi();
        this.abi = process.abi();
        this.types = process.types();
        this.lock = process.lock();
        this.blocking = process.blocking();
        this.inPlace = mpi.inPlace();
        this.ignore = mpi.statusIgnore();
        this.statusBytes = (int) abi.constant("sizeof(MPI_Status)");
        this.owner = owner;
        this.n = owner.size();
        this.rank = owner.rank();
        this.reducer = new Reducer(n);
        this.counts = arena.allocate(4L * n, 8);
        this.displs = arena.allocate(4L * n, 8);
        this.requests = arena.allocate(8L * 8, 8);
        this.statuses = arena.allocate(8L * statusBytes, 8);
    }

    // ---- the communicator itself

    /** Makes MPI's communicator out of another. */
    void duplicate(long other) {
        MemorySegment made = arena.allocate(8, 8);
        begin();
        int code;
        try {
            code = mpi.MPI_Comm_idup(other, made, request);
        } finally {
            end();
        }
        check(code, "MPI_Comm_idup");
        poll("MPI_Comm_idup");
        adopt(abi.handle(made, 0));
    }

    /** Takes over MPI's communicator. */
    void adopt(long handle) {
        comm = handle;
        check(
                mpi.MPI_Comm_set_errhandler(handle, mpi.MPI_ERRORS_RETURN()),
                "MPI_Comm_set_errhandler");
    }

    /** Splits MPI's communicator; ranks of a negative colour get none. */
    long split(int colour, int key) {
        MemorySegment made = arena.allocate(8, 8);
        int c = colour < 0 ? (int) abi.constant("MPI_UNDEFINED") : colour;
        begin();
        try {
            check(mpi.MPI_Comm_split(comm, c, key, made), "MPI_Comm_split");
        } finally {
            end();
        }
        return abi.handle(made, 0);
    }

    /** Frees everything; no request may be under way. */
    void close() {
        begin();
        try {
            abi.setHandle(request, 0, comm);
            mpi.MPI_Comm_free(request);
        } finally {
            end();
        }
        sendScratch.free();
        recvScratch.free();
        messageScratches.forEach(Scratch::free);
        arena.close();
    }

    int errorClass(int code) {
        try (Arena own = Arena.ofConfined()) {
            MemorySegment result = own.allocate(ValueLayout.JAVA_INT);
            return mpi.MPI_Error_class(code, result) == 0
                    ? result.get(ValueLayout.JAVA_INT, 0)
                    : -1;
        }
    }

    // ---- one operation

    /** Runs an operation to completion. */
    void run(Request q) {
        runBeside(q);
        if (open > 0) {
            finish();
        }
    }

    /** Runs an operation; if it is made of messages they are posted and may go on. */
    void runBeside(Request q) {
        switch (q.op) {
            case BROADCAST -> broadcast(q);
            case SCATTER -> scatter(q);
            case GATHER -> gather(q);
            case ALL_GATHER -> allGather(q);
            case ALL_TO_ALL -> allToAll(q);
            case ALL_REDUCE, REDUCE -> reduce(q);
            case REDUCE_SCATTER, REDUCE_SCATTERV -> reduceScatter(q);
            case ALL_GATHERV -> allGatherv(q);
            case GATHERV, SCATTERV, ALL_TO_ALLV -> blocks(q);
            case BARRIER -> barrier();
            case SEND, RECV -> post(q);
        }
    }

    private void barrier() {
        begin();
        int code;
        try {
            code = blocking ? mpi.MPI_Barrier(comm) : mpi.MPI_Ibarrier(comm, request);
        } finally {
            end();
        }
        complete(code, "MPI_Barrier");
    }

    private void broadcast(Request q) {
        boolean root = rank == q.root;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        HostBuffer buffer = root ? (HostBuffer) q.sendBuffer() : target;
        long address = root ? in(buffer) : out(buffer);
        long type = types.type(q.type);
        for (long at = 0, m; at == 0 || at < q.count; at += m) {
            m = Math.min(LIMIT, q.count - at);
            long from = address + at * q.type.size();
            begin();
            int code;
            try {
                code =
                        blocking
                                ? mpi.MPI_Bcast(from, (int) m, type, q.root, comm)
                                : mpi.MPI_Ibcast(from, (int) m, type, q.root, comm, request);
            } finally {
                end();
            }
            complete(code, "MPI_Bcast");
            if (q.count == 0) {
                break;
            }
        }
        if (!root) {
            back(target, address);
        } else if (!q.inPlace) {
            MemorySegment.copy(buffer.segment(), 0, target.segment(), 0, buffer.byteSize());
        }
    }

    private void scatter(Request q) {
        int first = open;
        boolean root = rank == q.root;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long send = root ? in((HostBuffer) q.sendBuffer()) : 0;
        boolean own = root && q.inPlace;
        long recv = own ? inPlace : out(target);
        if (q.count > LIMIT) {
            for (int r = 0; root && r < n; r++) {
                if (r != rank) {
                    postSend(send + r * q.count * q.type.size(), q.count, q.type, r, TAG_OURS);
                } else if (!own) {
                    copyOwn(q, q.sendBuffer(), rank * q.count, target, 0, q.count);
                }
            }
            if (!root) {
                postRecv(recv, q.count, q.type, q.root, TAG_OURS);
            }
            finish(first);
        } else {
            int m = (int) q.count;
            long type = types.type(q.type);
            begin();
            int code;
            try {
                code =
                        blocking
                                ? mpi.MPI_Scatter(send, m, type, recv, m, type, q.root, comm)
                                : mpi.MPI_Iscatter(
                                        send, m, type, recv, m, type, q.root, comm, request);
            } finally {
                end();
            }
            complete(code, "MPI_Scatter");
        }
        if (!own && !(root && q.count > LIMIT)) {
            back(target, recv);
        }
    }

    private void gather(Request q) {
        int first = open;
        boolean root = rank == q.root;
        boolean own = root && q.inPlace;
        HostBuffer source = (HostBuffer) q.sendBuffer();
        long send = own ? inPlace : in(source);
        long recv = root ? out((HostBuffer) q.recvBuffer()) : 0;
        if (q.count > LIMIT) {
            for (int r = 0; root && r < n; r++) {
                if (r != rank) {
                    postRecv(recv + r * q.count * q.type.size(), q.count, q.type, r, TAG_OURS);
                }
            }
            if (!root) {
                postSend(send, q.count, q.type, q.root, TAG_OURS);
            }
            finish(first);
        } else {
            int m = (int) q.count;
            long type = types.type(q.type);
            begin();
            int code;
            try {
                code =
                        blocking
                                ? mpi.MPI_Gather(send, m, type, recv, m, type, q.root, comm)
                                : mpi.MPI_Igather(
                                        send, m, type, recv, m, type, q.root, comm, request);
            } finally {
                end();
            }
            complete(code, "MPI_Gather");
        }
        if (root) {
            back((HostBuffer) q.recvBuffer(), recv);
            if (q.count > LIMIT && !own) {
                copyOwn(q, source, 0, q.recvBuffer(), rank * q.count, q.count);
            }
        }
    }

    private void allGather(Request q) {
        int first = open;
        HostBuffer source = (HostBuffer) q.sendBuffer();
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long send = q.inPlace ? inPlace : in(source);
        long recv = out(target);
        if (q.count > LIMIT) {
            long block = q.count * q.type.size();
            for (int i = 1; i < n; i++) {
                int r = (rank + i) % n;
                postRecv(recv + r * block, q.count, q.type, r, TAG_OURS);
                postSend(q.inPlace ? recv + rank * block : send, q.count, q.type, r, TAG_OURS);
            }
            finish(first);
            back(target, recv);
            if (!q.inPlace) {
                copyOwn(q, source, 0, target, rank * q.count, q.count);
            }
            return;
        }
        int m = (int) q.count;
        long type = types.type(q.type);
        begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Allgather(send, m, type, recv, m, type, comm)
                            : mpi.MPI_Iallgather(send, m, type, recv, m, type, comm, request);
        } finally {
            end();
        }
        complete(code, "MPI_Allgather");
        back(target, recv);
    }

    private void allToAll(Request q) {
        int first = open;
        HostBuffer target = (HostBuffer) q.recvBuffer();
        // MPI wants all ranks to be in place or none.
        long send =
                q.inPlace ? copyOf((HostBuffer) q.sendBuffer()) : in((HostBuffer) q.sendBuffer());
        long recv = out(target);
        if (q.count > LIMIT) {
            long block = q.count * q.type.size();
            for (int i = 1; i < n; i++) {
                int to = (rank + i) % n;
                int from = (rank - i + n) % n;
                postRecv(recv + from * block, q.count, q.type, from, TAG_OURS);
                postSend(send + to * block, q.count, q.type, to, TAG_OURS);
            }
            finish(first);
            back(target, recv);
            if (!q.inPlace) {
                copyOwn(q, q.sendBuffer(), rank * q.count, target, rank * q.count, q.count);
            }
            return;
        }
        int m = (int) q.count;
        long type = types.type(q.type);
        begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Alltoall(send, m, type, recv, m, type, comm)
                            : mpi.MPI_Ialltoall(send, m, type, recv, m, type, comm, request);
        } finally {
            end();
        }
        complete(code, "MPI_Alltoall");
        back(target, recv);
    }

    private static void copyOwn(Request q, Buffer from, long at, Buffer to, long toAt, long count) {
        int size = q.type.size();
        MemorySegment.copy(
                ((HostBuffer) from).segment(),
                at * size,
                ((HostBuffer) to).segment(),
                toAt * size,
                count * size);
    }

    // ---- reductions

    private static boolean converts(Request q) {
        return q.type.isNarrowFloat() || q.reduceOp.kind() == ReduceOp.Kind.PRE_MUL_SUM;
    }

    /**
     * MPICH 4.0.2 reads from MPI_IN_PLACE where the root is not the first rank of its machine. It
     * may also be what has the standard binary interface.
     */
    private boolean avoids(Request q) {
        return abi != MpiAbi.OPEN_MPI && q.op == Collective.REDUCE && q.root != 0;
    }

    private void reduce(Request q) {
        if (converts(q)) {
            reducePieces(q);
            return;
        }
        boolean target = q.op == Collective.ALL_REDUCE || rank == q.root;
        HostBuffer source = (HostBuffer) q.sendBuffer();
        HostBuffer result = target ? (HostBuffer) q.recvBuffer() : source;
        boolean own = target && q.inPlace && !avoids(q);
        long send = own ? inPlace : target && q.inPlace ? copyOf(source) : in(source);
        long recv = target ? out(result) : 0;
        int size = q.type.size();
        for (long at = 0; ; at += LIMIT) {
            int m = (int) Math.min(LIMIT, q.count - at);
            combine(q, own ? send : send + at * size, target ? recv + at * size : 0, m, q.type);
            if (q.count - at <= LIMIT) {
                break;
            }
        }
        if (target) {
            back(result, recv);
            if (q.reduceOp.kind() == ReduceOp.Kind.AVG) {
                reducer.begin(q.type, ReduceOp.Kind.AVG)
                        .store(result.segment(), 0, result.segment(), 0, q.count);
            }
        }
    }

    private void combine(Request q, long send, long recv, int m, DataType type) {
        long mpiType = types.type(type);
        long op = types.op(q.reduceOp.kind(), type);
        boolean all = q.op == Collective.ALL_REDUCE;
        begin();
        int code;
        try {
            if (blocking) {
                code =
                        all
                                ? mpi.MPI_Allreduce(send, recv, m, mpiType, op, comm)
                                : mpi.MPI_Reduce(send, recv, m, mpiType, op, q.root, comm);
            } else {
                code =
                        all
                                ? mpi.MPI_Iallreduce(send, recv, m, mpiType, op, comm, request)
                                : mpi.MPI_Ireduce(
                                        send, recv, m, mpiType, op, q.root, comm, request);
            }
        } finally {
            end();
        }
        complete(code, all ? "MPI_Allreduce" : "MPI_Reduce");
    }

    /** Piece by piece: to the type that is reduced in, reduced in place, and back. */
    private void reducePieces(Request q) {
        DataType wide = Reducer.wide(q.type);
        boolean target = q.op == Collective.ALL_REDUCE || rank == q.root;
        long most = Math.min(LIMIT, Math.max(1, PIECE / wide.size()));
        MemorySegment piece = sendScratch.atLeast(Math.min(most, q.count) * wide.size());
        boolean own = target && !avoids(q);
        MemorySegment result = own ? piece : recvScratch.atLeast(piece.byteSize());
        MemorySegment source = ((HostBuffer) q.sendBuffer()).segment();
        long factor = q.reduceOp.factorBits(q.type);
        reducer.begin(q.type, q.reduceOp.kind());
        int size = q.type.size();
        for (long at = 0; at == 0 || at < q.count; at += most) {
            int m = (int) Math.min(most, q.count - at);
            reducer.load(source, at * size, factor, piece, 0, m);
            combine(q, own ? inPlace : piece.address(), target ? result.address() : 0, m, wide);
            if (target) {
                reducer.store(result, 0, ((HostBuffer) q.recvBuffer()).segment(), at * size, m);
            }
        }
    }

    private void reduceScatter(Request q) {
        boolean vector = q.op == Collective.REDUCE_SCATTERV;
        long longest = q.count;
        long total = n * q.count;
        if (vector) {
            total = 0;
            for (int r = 0; r < n; r++) {
                longest = Math.max(longest, q.sendCounts[r]);
                total += q.sendCounts[r];
            }
        }
        if (converts(q) || total > LIMIT) {
            reduceScatterPieces(q, vector, longest);
            return;
        }
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long send = in((HostBuffer) q.sendBuffer());
        // MPI's form in place puts the result somewhere else.
        // So does an empty block in place, which overlaps nothing but has the same address.
        boolean aside = q.inPlace || !usable(target) || target.byteSize() == 0;
        long recv = aside ? recvScratch.atLeast(target.byteSize()).address() : target.address();
        if (vector) {
            for (int r = 0; r < n; r++) {
                counts.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.sendCounts[r]);
            }
        }
        scatterReduced(q, vector, send, recv, (int) q.count, q.type);
        if (aside) {
            MemorySegment.copy(recvScratch.atLeast(0), 0, target.segment(), 0, target.byteSize());
        }
        if (q.reduceOp.kind() == ReduceOp.Kind.AVG) {
            reducer.begin(q.type, ReduceOp.Kind.AVG)
                    .store(target.segment(), 0, target.segment(), 0, target.count());
        }
    }

    private void scatterReduced(
            Request q, boolean vector, long send, long recv, int m, DataType type) {
        long mpiType = types.type(type);
        long op = types.op(q.reduceOp.kind(), type);
        begin();
        int code;
        try {
            if (vector) {
                code =
                        blocking
                                ? mpi.MPI_Reduce_scatter(send, recv, counts, mpiType, op, comm)
                                : mpi.MPI_Ireduce_scatter(
                                        send, recv, counts, mpiType, op, comm, request);
            } else {
                code =
                        blocking
                                ? mpi.MPI_Reduce_scatter_block(send, recv, m, mpiType, op, comm)
                                : mpi.MPI_Ireduce_scatter_block(
                                        send, recv, m, mpiType, op, comm, request);
            }
        } finally {
            end();
        }
        complete(code, vector ? "MPI_Reduce_scatter" : "MPI_Reduce_scatter_block");
    }

    /** Pieces of all blocks at once, packed one behind the other. */
    private void reduceScatterPieces(Request q, boolean vector, long longest) {
        DataType wide = Reducer.wide(q.type);
        int size = q.type.size();
        long most = Math.max(1, Math.min(LIMIT, PIECE / wide.size()) / n);
        long room = Math.min(most, longest) * wide.size();
        MemorySegment piece = sendScratch.atLeast(n * room);
        MemorySegment result = recvScratch.atLeast(room);
        MemorySegment source = ((HostBuffer) q.sendBuffer()).segment();
        HostBuffer target = (HostBuffer) q.recvBuffer();
        long factor = q.reduceOp.factorBits(q.type);
        reducer.begin(q.type, q.reduceOp.kind());
        for (long at = 0; at == 0 || at < longest; at += most) {
            long packed = 0;
            int own = 0;
            for (int r = 0; r < n; r++) {
                long count = vector ? q.sendCounts[r] : q.count;
                long from = vector ? q.sendDispls[r] : r * q.count;
                int m = (int) Math.max(0, Math.min(most, count - at));
                reducer.load(source, (from + at) * size, factor, piece, packed * wide.size(), m);
                packed += m;
                counts.setAtIndex(ValueLayout.JAVA_INT, r, m);
                own = r == rank ? m : own;
            }
            scatterReduced(q, vector, piece.address(), result.address(), own, wide);
            reducer.store(result, 0, target.segment(), at * size, own);
        }
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
            // MPICH 4.0.2 puts the block of a single rank at the start, wherever it belongs.
            if (!q.inPlace) {
                copyOwn(q, source, 0, target, q.recvDispls[0], q.recvCounts[0]);
            }
            return;
        }
        if (total > LIMIT || end > LIMIT) {
            // Counts are the same on all ranks, places need not be: those decide nothing in MPI.
            allGathervSpread(q, source, target, total);
            return;
        }
        for (int r = 0; r < n; r++) {
            counts.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvCounts[r]);
            displs.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvDispls[r]);
        }
        long send = q.inPlace ? inPlace : in(source);
        long recv = out(target);
        gatherAll(q, send, recv, (int) source.count());
        back(target, recv);
    }

    private void gatherAll(Request q, long send, long recv, int m) {
        long type = types.type(q.type);
        begin();
        int code;
        try {
            code =
                    blocking
                            ? mpi.MPI_Allgatherv(send, m, type, recv, counts, displs, type, comm)
                            : mpi.MPI_Iallgatherv(
                                    send, m, type, recv, counts, displs, type, comm, request);
        } finally {
            end();
        }
        complete(code, "MPI_Allgatherv");
    }

    private void allGathervSpread(Request q, HostBuffer source, HostBuffer target, long total) {
        int first = open;
        int size = q.type.size();
        if (total > LIMIT) {
            long send = in(source);
            long recv = out(target);
            for (int i = 1; i < n; i++) {
                int r = (rank + i) % n;
                postRecv(recv + q.recvDispls[r] * size, q.recvCounts[r], q.type, r, TAG_OURS);
                postSend(send, source.count(), q.type, r, TAG_OURS);
            }
            finish(first);
            back(target, recv);
            if (!q.inPlace) {
                copyOwn(q, source, 0, target, q.recvDispls[rank], source.count());
            }
            return;
        }
        MemorySegment packed = recvScratch.atLeast(total * size);
        int at = 0;
        for (int r = 0; r < n; r++) {
            counts.setAtIndex(ValueLayout.JAVA_INT, r, (int) q.recvCounts[r]);
            displs.setAtIndex(ValueLayout.JAVA_INT, r, at);
            at += (int) q.recvCounts[r];
        }
        gatherAll(q, in(source), packed.address(), (int) source.count());
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
     * gatherv, scatterv and allToAllv as messages. A rank knows its own counts only, so ranks could
     * not agree on what to do with those that a C int does not hold.
     */
    private void blocks(Request q) {
        int first = open;
        int size = q.type.size();
        HostBuffer source = (HostBuffer) q.send;
        HostBuffer target = (HostBuffer) q.recv;
        boolean aside = q.inPlace && q.op == Collective.ALL_TO_ALLV;
        long send = source == null ? 0 : aside ? copyOf(source) : in(source);
        long recv = target == null ? 0 : out(target);
        for (int i = 1; i < n; i++) {
            int from = (rank - i + n) % n;
            if (target != null && q.op.sends(from, q.root)) {
                postRecv(
                        recv + q.recvDispls[from] * size,
                        q.recvCounts[from],
                        q.type,
                        from,
                        TAG_OURS);
            }
        }
        for (int i = 1; i < n; i++) {
            int to = (rank + i) % n;
            if (source != null && q.op.receives(to, q.root)) {
                postSend(send + q.sendDispls[to] * size, q.sendCounts[to], q.type, to, TAG_OURS);
            }
        }
        finish(first);
        if (target != null) {
            back(target, recv);
            if (source != null
                    && !q.inPlace
                    && q.op.sends(rank, q.root)
                    && q.op.receives(rank, q.root)) {
                copyOwn(
                        q,
                        source,
                        q.sendDispls[rank],
                        target,
                        q.recvDispls[rank],
                        q.recvCounts[rank]);
            }
        }
    }

    // ---- messages

    /** Starts a send or receive of the user's. */
    void post(Request q) {
        boolean sends = q.op == Collective.SEND;
        HostBuffer b = (HostBuffer) (sends ? q.sendBuffer() : q.recvBuffer());
        long address = b.address();
        if (!usable(b)) {
            Scratch own = messageScratch(moved.size());
            MemorySegment copy = own.atLeast(b.byteSize());
            MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
            address = copy.address();
            moved.add(b);
            movedBack.add(!sends);
        }
        if (sends) {
            postSend(address, q.count, q.type, q.root, TAG_USER);
        } else {
            postRecv(address, q.count, q.type, q.root, TAG_USER);
        }
    }

    private Scratch messageScratch(int i) {
        if (i == messageScratches.size()) {
            messageScratches.add(new Scratch());
        }
        return messageScratches.get(i);
    }

    private void postSend(long at, long count, DataType type, int to, int tag) {
        for (long done = 0; ; done += LIMIT) {
            long m = Math.min(LIMIT, count - done);
            int slot = slot(-1, type);
            begin();
            int code;
            try {
                code =
                        mpi.MPI_Isend(
                                at + done * type.size(),
                                (int) m,
                                types.type(type),
                                to,
                                tag,
                                comm,
                                requests.asSlice((long) slot * abi.handleBytes()));
            } finally {
                end();
            }
            check(code, "MPI_Isend");
            open++;
            if (count - done <= LIMIT) {
                return;
            }
        }
    }

    private void postRecv(long at, long count, DataType type, int from, int tag) {
        for (long done = 0; ; done += LIMIT) {
            long m = Math.min(LIMIT, count - done);
            int slot = slot(m, type);
            begin();
            int code;
            try {
                code =
                        mpi.MPI_Irecv(
                                at + done * type.size(),
                                (int) m,
                                types.type(type),
                                from,
                                tag,
                                comm,
                                requests.asSlice((long) slot * abi.handleBytes()));
            } finally {
                end();
            }
            check(code, "MPI_Irecv");
            open++;
            if (count - done <= LIMIT) {
                return;
            }
        }
    }

    private int slot(long count, DataType type) {
        if (open == expected.length) {
            int room = 2 * open;
            MemorySegment more = arena.allocate(8L * room, 8);
            MemorySegment.copy(requests, 0, more, 0, requests.byteSize());
            requests = more;
            statuses = arena.allocate((long) room * statusBytes, 8);
            expected = Arrays.copyOf(expected, room);
            messageType = Arrays.copyOf(messageType, room);
        }
        expected[open] = count;
        messageType[open] = types.type(type);
        return open;
    }

    /** Completes all messages. */
    void finish() {
        finish(0);
        for (int i = 0; i < moved.size(); i++) {
            if (movedBack.get(i)) {
                HostBuffer b = moved.get(i);
                MemorySegment.copy(messageScratch(i).atLeast(0), 0, b.segment(), 0, b.byteSize());
            }
        }
        moved.clear();
        movedBack.clear();
    }

    /** Completes the messages from one on. */
    private void finish(int first) {
        int many = open - first;
        if (many == 0) {
            return;
        }
        MemorySegment own = requests.asSlice((long) first * abi.handleBytes());
        for (int i = 0; ; i++) {
            begin();
            int code;
            try {
                code = mpi.MPI_Testall(many, own, flag, statuses);
            } finally {
                end();
            }
            if (code != 0) {
                throw messageError(code, many);
            }
            if (flag.get(ValueLayout.JAVA_INT, 0) != 0) {
                break;
            }
            pause(i);
        }
        open = first;
        for (int i = 0; i < many; i++) {
            if (expected[first + i] >= 0) {
                checkReceived(i, first + i);
            }
        }
    }

    private void checkReceived(int status, int i) {
        int code =
                mpi.MPI_Get_count(
                        statuses.asSlice((long) status * statusBytes), messageType[i], flag);
        check(code, "MPI_Get_count");
        int got = flag.get(ValueLayout.JAVA_INT, 0);
        if (got != expected[i]) {
            throw new CollectiveMismatchException(
                    owner.watch()
                            + ": a rank sent "
                            + (got < 0 ? "part of an element more than some" : got)
                            + " elements, but this one receives "
                            + expected[i]);
        }
    }

    private RuntimeException messageError(int code, int many) {
        int errorClass = errorClass(code);
        int at = (int) abi.constant("offsetof(MPI_Status,MPI_ERROR)");
        int pending = (int) abi.constant("MPI_ERR_PENDING");
        for (int i = 0; errorClass == abi.constant("MPI_ERR_IN_STATUS") && i < many; i++) {
            int one = statuses.get(ValueLayout.JAVA_INT, (long) i * statusBytes + at);
            if (one != 0 && errorClass(one) != pending) {
                code = one;
                break;
            }
        }
        return MpiException.of(mpi, code, "MPI_Testall");
    }

    /** After an error: messages under way will not be waited for. */
    void giveUp() {
        if (open > 0) {
            process.control().setBroken();
            for (int i = 0; i < open; i++) {
                if (expected[i] >= 0) {
                    // So that nothing is written any more to memory that may be freed.
                    mpi.MPI_Cancel(requests.asSlice((long) i * abi.handleBytes()));
                }
            }
            open = 0;
        }
        moved.clear();
        movedBack.clear();
    }

    // ---- waiting

    private void begin() {
        if (lock != null) {
            lock.lock();
        }
    }

    private void end() {
        if (lock != null) {
            lock.unlock();
        }
    }

    private void check(int code, String operation) {
        mpi.check(code, operation);
    }

    private void complete(int code, String operation) {
        check(code, operation);
        if (!blocking) {
            poll(operation);
        }
    }

    /** Waits for {@link #request}. */
    private void poll(String operation) {
        for (int i = 0; ; i++) {
            begin();
            int code;
            try {
                code = mpi.MPI_Test(request, flag, ignore);
            } finally {
                end();
            }
            check(code, operation);
            if (flag.get(ValueLayout.JAVA_INT, 0) != 0) {
                return;
            }
            try {
                pause(i);
            } catch (RuntimeException e) {
                process.control().setBroken();
                throw e;
            }
        }
    }

    private void pause(int round) {
        RuntimeException failure = owner.failure();
        if (failure != null) {
            throw failure;
        }
        if (round < SPINS) {
            Thread.onSpinWait();
        } else if (round < SPINS + YIELDS) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(PARK_NANOS);
        }
    }

    // ---- places

    private static boolean usable(HostBuffer b) {
        return b.base() == null && (b.address() & (b.dataType().size() - 1)) == 0;
    }

    /** The address of elements to read. */
    private long in(HostBuffer b) {
        return usable(b) ? b.address() : copyOf(b);
    }

    private long copyOf(HostBuffer b) {
        MemorySegment copy = sendScratch.atLeast(b.byteSize());
        MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
        return copy.address();
    }

    /**
     * The address of elements to write, with those in it that may stay; then comes {@link #back}.
     */
    private long out(HostBuffer b) {
        if (usable(b)) {
            return b.address();
        }
        MemorySegment copy = recvScratch.atLeast(b.byteSize());
        MemorySegment.copy(b.segment(), 0, copy, 0, b.byteSize());
        return copy.address();
    }

    private void back(HostBuffer b, long address) {
        if (address != b.address()) {
            MemorySegment.copy(recvScratch.atLeast(0), 0, b.segment(), 0, b.byteSize());
        }
    }
}
