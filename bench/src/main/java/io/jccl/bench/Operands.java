package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank's arguments of a {@link Collective}, and operations bound to them that need more
 * preparation than a call.
 *
 * @param comm communicator
 * @param stream where to enqueue
 * @param shape counts
 * @param send send buffer; empty in place
 * @param recv receive buffer; in place, both
 * @param op reduction, if there is one
 * @param root root, if there is one
 */
record Operands(
        Communicator comm,
        Stream stream,
        Shape shape,
        Buffer send,
        Buffer recv,
        ReduceOp op,
        int root) {
    @Nullable Buffer sendOnRoot() {
        return comm.rank() == root ? send : null;
    }

    @Nullable Buffer recvOnRoot() {
        return comm.rank() == root ? recv : null;
    }

    /** This rank's block of a buffer that is as large as the largest block. */
    private Buffer own(Buffer buffer, long[] counts) {
        return buffer.slice(0, counts[comm.rank()]);
    }

    Runnable allGatherv() {
        long[] counts = shape.unevenBlocks();
        long[] starts = Shape.displacements(counts);
        Buffer mine = own(send, counts);
        return () -> comm.allGatherv(mine, recv, counts, starts, stream);
    }

    Runnable reduceScatterv() {
        long[] counts = shape.unevenBlocks();
        Buffer mine = own(recv, counts);
        return () -> comm.reduceScatterv(send, mine, counts, op, stream);
    }

    Runnable scatterv() {
        long[] counts = shape.unevenBlocks();
        long[] starts = Shape.displacements(counts);
        Buffer mine = own(recv, counts);
        Buffer all = sendOnRoot();
        return () -> comm.scatterv(all, counts, starts, mine, root, stream);
    }

    Runnable gatherv() {
        long[] counts = shape.unevenBlocks();
        long[] starts = Shape.displacements(counts);
        Buffer mine = own(send, counts);
        Buffer all = recvOnRoot();
        return () -> comm.gatherv(mine, all, counts, starts, root, stream);
    }

    Runnable allToAllv() {
        int rank = comm.rank();
        long[] sendCounts = shape.unevenCounts(rank, true);
        long[] recvCounts = shape.unevenCounts(rank, false);
        long[] sendStarts = Shape.displacements(sendCounts);
        long[] recvStarts = Shape.displacements(recvCounts);
        return () ->
                comm.allToAllv(send, sendCounts, sendStarts, recv, recvCounts, recvStarts, stream);
    }

    Runnable sendRecv() {
        int rank = comm.rank();
        return exchange(send, (rank + 1) % comm.size(), recv, Math.floorMod(rank - 1, comm.size()));
    }

    private Runnable exchange(Buffer out, int to, Buffer in, int from) {
        Runnable both =
                () -> {
                    comm.send(out, to, stream);
                    comm.recv(in, from, stream);
                };
        return () -> Group.run(comm, both);
    }

    Runnable hypercube(boolean here) {
        int rank = comm.rank();
        long block = shape.count();
        List<Runnable> steps = new ArrayList<>();
        if (!here) {
            Buffer own = recv.slice(rank * block, block);
            steps.add(() -> stream.copy(send, own));
        }
        for (int distance = 1; distance < comm.size(); distance *= 2) {
            int partner = rank ^ distance;
            int first = rank & -distance;
            Buffer mine = recv.slice(first * block, distance * block);
            Buffer theirs = recv.slice((first ^ distance) * block, distance * block);
            steps.add(exchange(mine, partner, theirs, partner));
        }
        Runnable[] all = steps.toArray(Runnable[]::new);
        return () -> {
            for (Runnable step : all) {
                step.run();
            }
        };
    }
}
