package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Exchange between ranks without shared memory: rows for other ranks are staged, and travel by
 * {@link ExpertAllToAll}. Rows for a rank's own experts are copied once.
 */
final class AllToAllExchange extends TokenExchange {
    private static final int HERE = 0;
    private static final int AWAY = 1;

    /** Rows to send to other ranks, or returned by them, in the order of assignments. */
    private final Buffer staged;

    /** Outputs of other ranks' experts for this rank's tokens, kept for the backward pass. */
    private final Buffer returned;

    private final ExpertAllToAll exchange;

    /** By block: the memory of this rank's experts, then the staging buffer. */
    private final MemorySegment[][] out;

    private final MemorySegment[][] in;

    /**
     * Creates an exchange.
     *
     * @param staged as many rows as the maximum number of assignments
     * @param returned a buffer of the same size; the same buffer if there is no backward pass
     */
    AllToAllExchange(
            Communicator comm,
            ExpertOptions options,
            List<Buffer> blocks,
            Buffer staged,
            Buffer returned) {
        super(comm, options, blocks);
        this.staged = staged;
        this.returned = returned;
        exchange = new ExpertAllToAll(comm, options, staged);
        out = new MemorySegment[blocks.size()][];
        in = new MemorySegment[blocks.size()][];
        for (int b = 0; b < blocks.size(); b++) {
            MemorySegment here = blocks.get(b).asSegment();
            out[b] = new MemorySegment[] {here, staged.asSegment()};
            in[b] = new MemorySegment[] {here, backFrom(b).asSegment()};
        }
    }

    private Buffer backFrom(int block) {
        return block == OUTPUTS ? returned : staged;
    }

    @Override
    void layOut(ExpertRouter router, DispatchPlan plan) {
        exchange.layOut(router, plan);
        int own = comm.rank();
        for (int e = 0; e < plan.experts; e++) {
            int r = e / plan.local;
            long row = r == own ? plan.firstOf(own, e) : exchange.stagedRow(router, e);
            for (int i = router.start(e); i < router.start(e + 1); i++) {
                place[i] = row++;
                memory[i] = r == own ? HERE : AWAY;
            }
        }
    }

    @Override
    MemorySegment[] outgoing(int block) {
        return out[block];
    }

    @Override
    void send(int block) {
        move(staged, blocks.get(block), true);
    }

    @Override
    MemorySegment[] incoming(int block) {
        move(blocks.get(block), backFrom(block), false);
        return in[block];
    }

    @Override
    void release() {
        // Other ranks work on their own copies.
    }

    @Override
    MemorySegment[] results() {
        return in[OUTPUTS];
    }

    private void move(Buffer from, Buffer to, boolean towardsExperts) {
        exchange.move(from, to, towardsExperts);
        stream.synchronize();
    }
}
