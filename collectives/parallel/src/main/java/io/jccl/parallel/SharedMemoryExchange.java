package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Exchange between ranks with shared memory: rows are written to and read from the experts' blocks
 * directly, so each is copied once. A barrier before and one after protect access to the blocks of
 * other ranks.
 */
final class SharedMemoryExchange extends TokenExchange {
    /** Indexed by block and rank. */
    private final MemorySegment[][] seen;

    /**
     * Creates an exchange.
     *
     * @param seen each block of each rank, as mapped by this rank
     */
    SharedMemoryExchange(
            Communicator comm, ExpertOptions options, List<Buffer> blocks, MemorySegment[][] seen) {
        super(comm, options, blocks);
        this.seen = seen;
    }

    private void meet() {
        if (comm.size() > 1) {
            comm.barrier(stream);
            stream.synchronize();
        }
    }

    @Override
    void layOut(ExpertRouter router, DispatchPlan plan) {
        for (int e = 0; e < plan.experts; e++) {
            int rank = e / plan.local;
            long row = plan.firstOf(comm.rank(), e);
            for (int i = router.start(e); i < router.start(e + 1); i++) {
                place[i] = row++;
                memory[i] = rank;
            }
        }
    }

    @Override
    MemorySegment[] outgoing(int block) {
        meet();
        return seen[block];
    }

    @Override
    void send(int block) {
        meet();
    }

    @Override
    MemorySegment[] incoming(int block) {
        meet();
        return seen[block];
    }

    @Override
    void release() {
        meet();
    }

    @Override
    MemorySegment[] results() {
        return seen[OUTPUTS];
    }
}
