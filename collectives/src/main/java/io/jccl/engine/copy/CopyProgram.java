package io.jccl.engine.copy;

import io.jccl.topology.Operation;
import io.jccl.topology.plan.Channel;
import java.util.List;
import java.util.Map;

/**
 * The copies of one operation of one size, in the order in which they are enqueued, and the events
 * that each of them waits for and records.
 *
 * <p>Every hop of a channel is a lane: copies of one lane run one after the other, those of
 * different lanes concurrently. {@link CopyProgramBuilder} splits the operation into copies, {@link
 * CopySchedule} orders them.
 */
final class CopyProgram {
    /** Channel number of copies within one GPU. */
    static final int LOCAL = -1;

    /** The memory of a rank that is read or written. */
    enum Place {
        SEND,
        RECV,
        /** The engine's own: blocks to be forwarded, or saved from being overwritten. */
        SCRATCH
    }

    /** One hop of a channel. */
    record Lane(int channel, int from, int to) {
        @Override
        public String toString() {
            return channel == LOCAL ? "the local copy" : "channel " + channel;
        }
    }

    /**
     * One copy.
     *
     * @param lane index in {@link #lanes}
     * @param waits events to wait for first: indices in the pool of the device of {@code waitsOn}
     * @param waitsOn ranks on whose devices these events are
     * @param record event to record afterwards, on the rank that sends; -1 for none
     */
    record Step(
            int lane,
            int from,
            int to,
            Place source,
            long sourceAt,
            Place target,
            long targetAt,
            long bytes,
            int[] waits,
            int[] waitsOn,
            int record) {}

    final Operation op;
    final int root;
    final long blockBytes;
    final boolean inPlace;
    final Lane[] lanes;
    final Step[] steps;

    /** By rank: bytes of scratch memory. */
    final long[] scratch;

    /** By rank: number of events that its device needs. */
    final int[] events;

    /** Ranks that have a lane. */
    final boolean[] used;

    /** By lane: whether it writes scratch memory of the rank that it leads to. */
    final boolean[] writesScratch;

    CopyProgram(
            Operation op,
            int root,
            long blockBytes,
            boolean inPlace,
            List<Lane> lanes,
            CopySchedule schedule,
            long[] scratch) {
        this.op = op;
        this.root = root;
        this.blockBytes = blockBytes;
        this.inPlace = inPlace;
        this.lanes = lanes.toArray(Lane[]::new);
        this.steps = schedule.steps();
        this.scratch = scratch;
        events = schedule.events();
        used = new boolean[scratch.length];
        for (Lane lane : lanes) {
            used[lane.from] = true;
            used[lane.to] = true;
        }
        writesScratch = new boolean[lanes.size()];
        for (Step s : steps) {
            writesScratch[s.lane] |= s.target == Place.SCRATCH;
        }
    }

    boolean is(Operation op, int root, long blockBytes, boolean inPlace) {
        return this.op == op
                && this.root == root
                && this.blockBytes == blockBytes
                && this.inPlace == inPlace;
    }

    /**
     * Builds the program of an operation.
     *
     * @param channels of the plan
     * @param rankOf ranks by the positions of GPUs in the topology
     * @param n number of ranks
     * @param block bytes that one rank sends to or receives from another
     * @param inPlace whether a rank's own block is already in its place
     * @param chunkBytes size of a chunk, 0 to choose it
     * @throws IllegalArgumentException if no channel leads from one rank to another that needs it
     */
    static CopyProgram of(
            Operation op,
            int root,
            List<Channel> channels,
            Map<Integer, Integer> rankOf,
            int n,
            long block,
            boolean inPlace,
            long chunkBytes) {
        return new CopyProgramBuilder(op, root, channels, rankOf, n, block, inPlace, chunkBytes)
                .build();
    }
}
