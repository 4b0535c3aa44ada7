package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Where the rows of a rank's assignments are, and how they get to the experts of other ranks and
 * back. {@link #memory} of an assignment is an index into what {@link #outgoing}, {@link #incoming}
 * and {@link #results} return, and {@link #place} its row there.
 *
 * <p>A block of rows is one of {@link #INPUTS} and what follows.
 */
abstract sealed class TokenExchange permits SharedMemoryExchange, AllToAllExchange {
    static final int INPUTS = 0;
    static final int OUTPUTS = 1;
    static final int OUTPUT_GRADIENTS = 2;
    static final int INPUT_GRADIENTS = 3;

    final Communicator comm;
    final Stream stream;
    final int features;

    /** What the local experts work on, as many as are used. */
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
     * The step's counts are known.
     *
     * @param router this rank's
     * @param plan of all ranks
     */
    abstract void layOut(ExpertRouter router, DispatchPlan plan);

    /** Where to write rows for the experts' block, from now on. */
    abstract MemorySegment[] outgoing(int block);

    /** All rows for the block are written; afterwards all of all ranks have arrived. */
    abstract void send(int block);

    /** Brings rows of the block to where they can be read. */
    abstract MemorySegment[] incoming(int block);

    /** Rows that came in have been read; the experts may write to the block again. */
    abstract void release();

    /** The rows of {@link #OUTPUTS} that came in last, once more. */
    abstract MemorySegment[] results();
}
