package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * Exchange between ranks without shared memory: rows for other ranks are staged in the order of the
 * assignments, and one allToAllv per local expert, all in one group, delivers them to their final
 * positions, so that nothing is sorted on arrival. Rows for a rank's own experts are copied once.
 */
final class AllToAllExchange extends TokenExchange {
    private static final int HERE = 0;
    private static final int AWAY = 1;

    /** Rows to send to other ranks, or returned by them, in the order of assignments. */
    private final Buffer staged;

    /** Outputs of other ranks' experts for this rank's tokens, kept for the backward pass. */
    private final Buffer returned;

    /** The rows of one expert of each rank, in elements. */
    private static final class Part {
        final long[] sendCounts;
        final long[] sendDispls;
        final long[] recvCounts;
        final long[] recvDispls;

        Part(int ranks) {
            sendCounts = new long[ranks];
            sendDispls = new long[ranks];
            recvCounts = new long[ranks];
            recvDispls = new long[ranks];
        }
    }

    private final Part[] parts;

    /** By block: the memory of this rank's experts, then the staging buffer. */
    private final MemorySegment[][] out;

    private final MemorySegment[][] in;

    // State of the group in progress; fields, since a capturing lambda would be allocated per call.
    private final Runnable exchange = this::exchangeAll;
    private Buffer moved;
    private Buffer target;
    private boolean outward;

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
        moved = staged;
        target = staged;
        parts = new Part[options.router().experts() / comm.size()];
        for (int l = 0; l < parts.length; l++) {
            parts[l] = new Part(comm.size());
        }
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
        int own = comm.rank();
        for (int e = 0; e < plan.experts; e++) {
            int r = e / plan.local;
            int mine = own * plan.local + e % plan.local;
            Part part = parts[e % plan.local];
            part.sendCounts[r] = r == own ? 0 : (long) router.count(e) * features;
            part.sendDispls[r] = (long) router.start(e) * features;
            part.recvCounts[r] = r == own ? 0 : (long) plan.count(r, mine) * features;
            part.recvDispls[r] = plan.firstOf(r, mine) * features;
            long row = r == own ? plan.firstOf(own, e) : router.start(e);
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
        moved = from;
        target = to;
        outward = towardsExperts;
        if (parts.length == 1) {
            exchangeAll();
        } else {
            Group.run(comm, exchange);
        }
        stream.synchronize();
    }

    /** One exchange per local expert delivers the rows of all ranks to their final positions. */
    private void exchangeAll() {
        for (Part p : parts) {
            if (outward) {
                comm.allToAllv(
                        moved,
                        p.sendCounts,
                        p.sendDispls,
                        target,
                        p.recvCounts,
                        p.recvDispls,
                        stream);
            } else {
                comm.allToAllv(
                        moved,
                        p.recvCounts,
                        p.recvDispls,
                        target,
                        p.sendCounts,
                        p.sendDispls,
                        stream);
            }
        }
    }
}
