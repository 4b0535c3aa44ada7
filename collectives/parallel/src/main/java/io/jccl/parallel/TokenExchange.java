package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import io.jccl.engine.EngineCommunicator;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.function.LongFunction;

/**
 * Token exchange: locates the rows of a rank's assignments and moves them to the experts of other
 * ranks and back. {@link #memory} of an assignment is an index into the arrays that {@link
 * #outgoing}, {@link #incoming} and {@link #results} return, and {@link #place} its row there.
 *
 * <p>A block of rows is one of {@link #INPUTS} and the constants below.
 */
abstract sealed class TokenExchange permits SharedMemoryExchange, AllToAllExchange {
    static final int INPUTS = 0;
    static final int OUTPUTS = 1;
    static final int OUTPUT_GRADIENTS = 2;
    static final int INPUT_GRADIENTS = 3;

    final Communicator comm;
    final Stream stream;
    final int features;

    /** The blocks of the local experts, as many as are used. */
    final List<Buffer> blocks;

    final long[] place;
    final int[] memory;

    TokenExchange(Communicator comm, ExpertOptions options, List<Buffer> blocks) {
        this.comm = comm;
        this.blocks = List.copyOf(blocks);
        stream = comm.device().defaultStream();
        features = options.features();
        int assignments = options.router().maxAssignments();
        place = new long[assignments];
        memory = new int[assignments];
    }

    /**
     * Chooses the exchange: by shared memory if the ranks can map each other's blocks.
     *
     * @param rows allocates a number of rows, if they are needed
     */
    static TokenExchange of(
            Communicator comm,
            ExpertOptions options,
            List<Buffer> blocks,
            LongFunction<Buffer> rows) {
        MemorySegment[][] seen = new MemorySegment[blocks.size()][];
        boolean all = true;
        for (int b = 0; b < seen.length; b++) {
            MemorySegment[] one = EngineCommunicator.of(comm).peerMemory(blocks.get(b));
            all &= one != null;
            seen[b] = one == null ? new MemorySegment[0] : one;
        }
        if (all) {
            return new SharedMemoryExchange(comm, options, blocks, seen);
        }
        int most = options.router().maxAssignments();
        Buffer staged = rows.apply(most);
        Buffer returned = options.backward() ? rows.apply(most) : staged;
        return new AllToAllExchange(comm, options, blocks, staged, returned);
    }

    /**
     * Computes the layout of a step once its counts are known.
     *
     * @param router this rank's router
     * @param plan counts of all ranks
     */
    abstract void layOut(ExpertRouter router, DispatchPlan plan);

    /** Begins writing: the memory for rows of the experts' block. */
    abstract MemorySegment[] outgoing(int block);

    /** Ends writing; on return the rows of all ranks have arrived. */
    abstract void send(int block);

    /** Makes the rows of the block readable on this rank. */
    abstract MemorySegment[] incoming(int block);

    /** Ends reading; the experts may write to the block again. */
    abstract void release();

    /** The rows of {@link #OUTPUTS} received last. */
    abstract MemorySegment[] results();
}
