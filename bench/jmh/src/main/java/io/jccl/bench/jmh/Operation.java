package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.List;

/**
 * Every operation of a communicator in a form that can be repeated indefinitely without allocation.
 * Types are float32, roots are rank 0, streams are the default.
 */
public enum Operation {
    /** Out of place. */
    BROADCAST(false, (c, s, r, t) -> () -> c.broadcast(s, r, 0, t)),
    /** In place. */
    BROADCAST_IN_PLACE(false, (c, s, r, t) -> () -> c.broadcast(s, 0, t)),
    /** Out of place. */
    SCATTER(
            false,
            (c, s, r, t) -> {
                Buffer b = own(c, r);
                return () -> c.scatter(s, b, 0, t);
            }),
    /** In place. */
    SCATTER_IN_PLACE(false, (c, s, r, t) -> () -> c.scatter(s, 0, t)),
    /** Out of place. */
    GATHER(
            false,
            (c, s, r, t) -> {
                Buffer b = own(c, s);
                return () -> c.gather(b, r, 0, t);
            }),
    /** In place. */
    GATHER_IN_PLACE(false, (c, s, r, t) -> () -> c.gather(s, 0, t)),
    /** Out of place. */
    REDUCE(true, (c, s, r, t) -> () -> c.reduce(s, r, ReduceOp.SUM, 0, t)),
    /** In place. */
    REDUCE_IN_PLACE(true, (c, s, r, t) -> () -> c.reduce(s, ReduceOp.MAX, 0, t)),
    /** Out of place. */
    ALL_REDUCE(true, (c, s, r, t) -> () -> c.allReduce(s, r, ReduceOp.SUM, t)),
    /** In place. */
    ALL_REDUCE_IN_PLACE(true, (c, s, r, t) -> () -> c.allReduce(s, ReduceOp.SUM, t)),
    /** Out of place. */
    ALL_GATHER(
            false,
            (c, s, r, t) -> {
                Buffer b = own(c, s);
                return () -> c.allGather(b, r, t);
            }),
    /** In place. */
    ALL_GATHER_IN_PLACE(false, (c, s, r, t) -> () -> c.allGather(s, t)),
    /** Out of place. */
    REDUCE_SCATTER(
            false,
            (c, s, r, t) -> {
                Buffer b = own(c, r);
                return () -> c.reduceScatter(s, b, ReduceOp.SUM, t);
            }),
    /** In place. */
    REDUCE_SCATTER_IN_PLACE(false, (c, s, r, t) -> () -> c.reduceScatter(s, ReduceOp.MAX, t)),
    /** Out of place. */
    ALL_TO_ALL(false, (c, s, r, t) -> () -> c.allToAll(s, r, t)),
    /** In place. */
    ALL_TO_ALL_IN_PLACE(false, (c, s, r, t) -> () -> c.allToAll(s, t)),
    /** Unequal blocks. */
    SCATTERV(
            false,
            (c, s, r, t) -> {
                Blocks k = Blocks.of(c, s);
                Buffer b = k.own(c, r);
                return () -> c.scatterv(s, k.counts, k.displs, b, 0, t);
            }),
    /** Unequal blocks. */
    GATHERV(
            false,
            (c, s, r, t) -> {
                Blocks k = Blocks.of(c, s);
                Buffer b = k.own(c, s);
                return () -> c.gatherv(b, r, k.counts, k.displs, 0, t);
            }),
    /** Unequal blocks. */
    ALL_GATHERV(
            false,
            (c, s, r, t) -> {
                Blocks k = Blocks.of(c, s);
                Buffer b = k.own(c, s);
                return () -> c.allGatherv(b, r, k.counts, k.displs, t);
            }),
    /** Unequal blocks. */
    REDUCE_SCATTERV(
            false,
            (c, s, r, t) -> {
                Blocks k = Blocks.of(c, s);
                Buffer b = k.own(c, r);
                return () -> c.reduceScatterv(s, b, k.counts, ReduceOp.SUM, t);
            }),
    /** Unequal blocks: what rank i sends to j is as much as j sends to i. */
    ALL_TO_ALLV(
            false,
            (c, s, r, t) -> {
                Blocks k = Blocks.symmetric(c, s);
                return () -> c.allToAllv(s, k.counts, k.displs, r, k.counts, k.displs, t);
            }),
    /** Ping-pong: rank 0 sends first. The other ranks form pairs in the same way. */
    SEND_RECV(
            false,
            (c, s, r, t) -> {
                int peer = c.rank() ^ 1;
                if (c.rank() % 2 == 0) {
                    return () -> {
                        c.send(s, peer, t);
                        c.recv(r, peer, t);
                    };
                }
                return () -> {
                    c.recv(r, peer, t);
                    c.send(s, peer, t);
                };
            }),
    /** Send and receive at once with the neighbour, in a group with a body that is created once. */
    GROUP(
            false,
            (c, s, r, t) -> {
                int next = (c.rank() + 1) % c.size();
                int previous = (c.rank() + c.size() - 1) % c.size();
                Runnable exchange =
                        () -> {
                            c.send(s, next, t);
                            c.recv(r, previous, t);
                        };
                return () -> Group.run(c, exchange);
            }),
    /** No data. */
    BARRIER(false, (c, s, r, t) -> () -> c.barrier(t));

    @FunctionalInterface
    private interface Factory {
        Runnable bind(Communicator comm, Buffer send, Buffer recv, Stream stream);
    }

    /**
     * An operation with its buffers.
     *
     * @param body runs it once
     * @param buffers its buffers
     */
    public record Prepared(Runnable body, List<Buffer> buffers) implements AutoCloseable {
        @Override
        public void close() {
            buffers.forEach(Buffer::close);
        }
    }

    /** Consecutive blocks of unequal counts. */
    private record Blocks(long[] counts, long[] displs) {
        /** Rank 0's block is larger by half of every other rank's, where possible. */
        static Blocks of(Communicator c, Buffer all) {
            long[] counts = new long[c.size()];
            java.util.Arrays.fill(counts, all.count() / c.size());
            if (c.size() > 1 && counts[1] > 1) {
                counts[0] += counts[1] / 2;
                counts[1] -= counts[1] / 2;
            }
            return packed(counts);
        }

        /** Block sizes that depend on the sum of both ranks only. */
        static Blocks symmetric(Communicator c, Buffer all) {
            long[] counts = new long[c.size()];
            for (int r = 0; r < counts.length; r++) {
                counts[r] = all.count() / c.size() / (1 + (c.rank() + r) % 2);
            }
            return packed(counts);
        }

        private static Blocks packed(long[] counts) {
            long[] displs = new long[counts.length];
            for (int r = 1; r < counts.length; r++) {
                displs[r] = displs[r - 1] + counts[r - 1];
            }
            return new Blocks(counts, displs);
        }

        Buffer own(Communicator c, Buffer all) {
            return all.slice(displs[c.rank()], counts[c.rank()]);
        }
    }

    private final boolean whole;
    private final Factory factory;

    Operation(boolean whole, Factory factory) {
        this.whole = whole;
        this.factory = factory;
    }

    /**
     * Allocates buffers for one rank and binds the operation to them.
     *
     * <p>Values are written, so that every page is present, and sum to 0 over two ranks, so that
     * repeating a sum in place neither overflows nor slows down.
     *
     * @param comm the rank
     * @param bytes size of the larger buffer: all blocks where there are blocks
     * @return the operation; the caller closes it
     */
    public Prepared prepare(Communicator comm, long bytes) {
        long count = bytes / DataType.FLOAT32.size();
        if (count % comm.size() != 0 && !whole) {
            throw new IllegalArgumentException(
                    bytes + " bytes of float32 do not make " + comm.size() + " equal blocks");
        }
        Buffer send = comm.device().allocate(DataType.FLOAT32, count);
        Buffer recv = comm.device().allocate(DataType.FLOAT32, count);
        for (long i = 0; i < count; i++) {
            send.set(i, (double) (comm.rank() % 2 == 0 ? i % 7 : -(i % 7)));
            recv.set(i, 1);
        }
        return new Prepared(
                factory.bind(comm, send, recv, comm.device().defaultStream()), List.of(send, recv));
    }

    /** This rank's block of a buffer of one block per rank. */
    private static Buffer own(Communicator c, Buffer all) {
        long block = all.count() / c.size();
        return all.slice(c.rank() * block, block);
    }
}
