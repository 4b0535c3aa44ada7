package io.jccl.engine.mpi;

import io.jccl.ReduceOp;
import io.jccl.bindings.MpiAbi;
import io.jccl.device.DataType;
import io.jccl.device.host.HostBuffer;
import io.jccl.engine.Request;
import io.jccl.flight.CollectiveOp;
import io.jccl.kernel.Reducer;
import java.lang.foreign.MemorySegment;

/**
 * Reductions as calls of MPI: one for each operation, or one for each piece if elements are
 * converted first (narrow floats are sent as float32 and rounded once; pre-multiplied sums are
 * scaled) or if there are more elements than a C int can count.
 */
final class MpiReductions {
    private static final long LIMIT = MpiCalls.LIMIT;

    /** Bytes of converted elements in one piece. */
    private static final long PIECE = Long.getLong("jccl.mpi.piece", 1 << 20);

    private final MpiCollectives collectives;
    private final Staging staging;
    private final MpiAbi abi;
    private final long inPlace;
    private final int n;
    private final int rank;
    private final Reducer reducer;

    MpiReductions(MpiLink link, MpiCollectives collectives, Staging staging) {
        this.collectives = collectives;
        this.staging = staging;
        this.abi = link.process().abi();
        this.inPlace = link.process().mpi().inPlace();
        this.n = link.owner().size();
        this.rank = link.owner().rank();
        this.reducer = new Reducer(n);
    }

    private static boolean converts(Request q) {
        return q.type.isNarrowFloat() || q.reduceOp.kind() == ReduceOp.Kind.PRE_MUL_SUM;
    }

    /**
     * MPICH 4.0.2 reads from MPI_IN_PLACE if the root is not the first rank of its machine. A
     * library with the standard binary interface may also be MPICH.
     */
    private boolean avoids(Request q) {
        return abi != MpiAbi.OPEN_MPI && q.op == CollectiveOp.REDUCE && q.root != 0;
    }

    void reduce(Request q) {
        if (converts(q)) {
            reducePieces(q);
            return;
        }
        boolean target = q.op == CollectiveOp.ALL_REDUCE || rank == q.root;
        HostBuffer source = (HostBuffer) q.sendBuffer();
        HostBuffer result = target ? (HostBuffer) q.recvBuffer() : source;
        boolean own = target && q.inPlace && !avoids(q);
        long send =
                own ? inPlace : target && q.inPlace ? staging.copyOf(source) : staging.in(source);
        long recv = target ? staging.out(result) : 0;
        int size = q.type.size();
        for (long at = 0; ; at += LIMIT) {
            int m = (int) Math.min(LIMIT, q.count - at);
            long from = own ? inPlace : send + at * size;
            collectives.run(q, from, target ? recv + at * size : 0, m, q.type);
            if (q.count - at <= LIMIT) {
                break;
            }
        }
        if (target) {
            staging.back(result, recv);
            if (q.reduceOp.kind() == ReduceOp.Kind.AVG) {
                reducer.begin(q.type, ReduceOp.Kind.AVG)
                        .store(result.segment(), 0, result.segment(), 0, q.count);
            }
        }
    }

    /** Piece by piece: converted to the wide type, reduced in place, and converted back. */
    private void reducePieces(Request q) {
        DataType wide = Reducer.wide(q.type);
        boolean target = q.op == CollectiveOp.ALL_REDUCE || rank == q.root;
        long most = Math.min(LIMIT, Math.max(1, PIECE / wide.size()));
        MemorySegment piece = staging.send().atLeast(Math.min(most, q.count) * wide.size());
        boolean own = target && !avoids(q);
        MemorySegment result = own ? piece : staging.recv().atLeast(piece.byteSize());
        MemorySegment source = ((HostBuffer) q.sendBuffer()).segment();
        long factor = q.reduceOp.factorBits(q.type);
        reducer.begin(q.type, q.reduceOp.kind());
        int size = q.type.size();
        for (long at = 0; at == 0 || at < q.count; at += most) {
            int m = (int) Math.min(most, q.count - at);
            reducer.load(source, at * size, factor, piece, 0, m);
            long from = own ? inPlace : piece.address();
            collectives.run(q, from, target ? result.address() : 0, m, wide);
            if (target) {
                reducer.store(result, 0, ((HostBuffer) q.recvBuffer()).segment(), at * size, m);
            }
        }
    }

    void reduceScatter(Request q) {
        boolean vector = q.op == CollectiveOp.REDUCE_SCATTERV;
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
        long send = staging.in((HostBuffer) q.sendBuffer());
        // MPI's in-place form puts the result elsewhere.
        // So does an empty block in place, which overlaps nothing but has the same address.
        boolean aside = q.inPlace || !target.isPlain() || target.byteSize() == 0;
        long recv = aside ? staging.recv().atLeast(target.byteSize()).address() : target.address();
        if (vector) {
            for (int r = 0; r < n; r++) {
                collectives.setBlock(r, (int) q.sendCounts[r], 0);
            }
        }
        collectives.run(q, send, recv, (int) q.count, q.type);
        if (aside) {
            MemorySegment.copy(
                    staging.recv().atLeast(0), 0, target.segment(), 0, target.byteSize());
        }
        if (q.reduceOp.kind() == ReduceOp.Kind.AVG) {
            reducer.begin(q.type, ReduceOp.Kind.AVG)
                    .store(target.segment(), 0, target.segment(), 0, target.count());
        }
    }

    /** Pieces of all blocks at once, packed contiguously. */
    private void reduceScatterPieces(Request q, boolean vector, long longest) {
        DataType wide = Reducer.wide(q.type);
        int size = q.type.size();
        long most = Math.max(1, Math.min(LIMIT, PIECE / wide.size()) / n);
        long room = Math.min(most, longest) * wide.size();
        MemorySegment piece = staging.send().atLeast(n * room);
        MemorySegment result = staging.recv().atLeast(room);
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
                collectives.setBlock(r, m, 0);
                own = r == rank ? m : own;
            }
            collectives.run(q, piece.address(), result.address(), own, wide);
            reducer.store(result, 0, target.segment(), at * size, own);
        }
    }
}
