package io.jccl.engine.mpi;

import io.jccl.bindings.MpiApi;
import io.jccl.device.DataType;
import io.jccl.engine.Request;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** The collectives of one of MPI's communicators: blocking, or started and awaited. */
final class MpiCollectives {
    private final MpiLink link;
    private final MpiApi mpi;
    private final MpiTypes types;
    private final boolean blocking;
    private final MemorySegment request;

    /** Counts and positions of the blocks of the next call of a v-variant. */
    private final MemorySegment counts;

    private final MemorySegment displs;

    MpiCollectives(MpiLink link) {
        this.link = link;
        this.mpi = link.process().mpi();
        this.types = link.process().types();
        this.blocking = link.process().blocking();
        this.request = link.request();
        this.counts = link.allocate(4L * link.owner().size());
        this.displs = link.allocate(4L * link.owner().size());
    }

    /** Sets a rank's block for the next call of a v-variant. */
    void setBlock(int rank, int count, int displ) {
        counts.setAtIndex(ValueLayout.JAVA_INT, rank, count);
        displs.setAtIndex(ValueLayout.JAVA_INT, rank, displ);
    }

    /**
     * Runs a request's operation, or a part of it.
     *
     * @param send address of what is sent, and of a broadcast's buffer; 0 for nothing
     * @param recv address for the result; 0 for none
     * @param m elements in one block; for allGatherv, in this rank's
     * @param type of those elements, which may have been converted
     */
    void run(Request q, long send, long recv, int m, DataType type) {
        long t = types.type(type);
        long op = types.op(q.reduceOp.kind(), type);
        link.begin();
        int code;
        try {
            code = blocking ? call(q, send, recv, m, t, op) : start(q, send, recv, m, t, op);
        } finally {
            link.end();
        }
        link.complete(code, name(q));
    }

    private int call(Request q, long send, long recv, int m, long t, long op) {
        long comm = link.comm();
        int root = q.root;
        return switch (q.op) {
            case BROADCAST -> mpi.MPI_Bcast(send, m, t, root, comm);
            case SCATTER -> mpi.MPI_Scatter(send, m, t, recv, m, t, root, comm);
            case GATHER -> mpi.MPI_Gather(send, m, t, recv, m, t, root, comm);
            case REDUCE -> mpi.MPI_Reduce(send, recv, m, t, op, root, comm);
            case ALL_REDUCE -> mpi.MPI_Allreduce(send, recv, m, t, op, comm);
            case ALL_GATHER -> mpi.MPI_Allgather(send, m, t, recv, m, t, comm);
            case ALL_GATHERV -> mpi.MPI_Allgatherv(send, m, t, recv, counts, displs, t, comm);
            case ALL_TO_ALL -> mpi.MPI_Alltoall(send, m, t, recv, m, t, comm);
            case REDUCE_SCATTER -> mpi.MPI_Reduce_scatter_block(send, recv, m, t, op, comm);
            case REDUCE_SCATTERV -> mpi.MPI_Reduce_scatter(send, recv, counts, t, op, comm);
            case BARRIER -> mpi.MPI_Barrier(comm);
            default -> throw unserved(q);
        };
    }

    private int start(Request q, long send, long recv, int m, long t, long op) {
        long comm = link.comm();
        int root = q.root;
        MemorySegment r = request;
        return switch (q.op) {
            case BROADCAST -> mpi.MPI_Ibcast(send, m, t, root, comm, r);
            case SCATTER -> mpi.MPI_Iscatter(send, m, t, recv, m, t, root, comm, r);
            case GATHER -> mpi.MPI_Igather(send, m, t, recv, m, t, root, comm, r);
            case REDUCE -> mpi.MPI_Ireduce(send, recv, m, t, op, root, comm, r);
            case ALL_REDUCE -> mpi.MPI_Iallreduce(send, recv, m, t, op, comm, r);
            case ALL_GATHER -> mpi.MPI_Iallgather(send, m, t, recv, m, t, comm, r);
            case ALL_GATHERV -> mpi.MPI_Iallgatherv(send, m, t, recv, counts, displs, t, comm, r);
            case ALL_TO_ALL -> mpi.MPI_Ialltoall(send, m, t, recv, m, t, comm, r);
            case REDUCE_SCATTER -> mpi.MPI_Ireduce_scatter_block(send, recv, m, t, op, comm, r);
            case REDUCE_SCATTERV -> mpi.MPI_Ireduce_scatter(send, recv, counts, t, op, comm, r);
            case BARRIER -> mpi.MPI_Ibarrier(comm, r);
            default -> throw unserved(q);
        };
    }

    private static String name(Request q) {
        return switch (q.op) {
            case BROADCAST -> "MPI_Bcast";
            case SCATTER -> "MPI_Scatter";
            case GATHER -> "MPI_Gather";
            case REDUCE -> "MPI_Reduce";
            case ALL_REDUCE -> "MPI_Allreduce";
            case ALL_GATHER -> "MPI_Allgather";
            case ALL_GATHERV -> "MPI_Allgatherv";
            case ALL_TO_ALL -> "MPI_Alltoall";
            case REDUCE_SCATTER -> "MPI_Reduce_scatter_block";
            case REDUCE_SCATTERV -> "MPI_Reduce_scatter";
            case BARRIER -> "MPI_Barrier";
            default -> throw unserved(q);
        };
    }

    private static IllegalStateException unserved(Request q) {
        return new IllegalStateException(q.op + " is not a collective of MPI");
    }
}
