package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Ranks that see each other's blocks: rows are written and read where the experts have them, so
 * that each is copied once. Two meetings go around it, before anybody touches others' blocks and
 * after.
 */
final class SharedMemoryExchange extends TokenExchange {
    /** By block and rank. */
    private final MemorySegment[][] seen;

    /**
     * Rows in memory that all see.
     *
     * @param seen each block of each rank, as this rank sees it
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
