package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import io.jccl.device.Stream;

/**
 * Moves rows between ranks by one allToAllv per local expert, all in one group, which deliver them
 * to their final positions in the experts' blocks, so that nothing is sorted on arrival. On the
 * tokens' side rows for other ranks are staged in the order of the assignments; those of a rank's
 * own experts are not among them.
 */
final class ExpertAllToAll {
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

    private final Communicator comm;
    private final Stream stream;
    private final int features;
    private final Part[] parts;

    // State of the group in progress; fields, since a capturing lambda would be allocated per call.
    private final Runnable exchange = this::exchangeAll;
    private Buffer moved;
    private Buffer target;
    private boolean outward;

    /**
     * Creates an exchange.
     *
     * @param staged holds the rows for other ranks
     */
    ExpertAllToAll(Communicator comm, ExpertOptions options, Buffer staged) {
        this.comm = comm;
        stream = comm.device().defaultStream();
        features = options.features();
        moved = staged;
        target = staged;
        parts = new Part[options.router().experts() / comm.size()];
        for (int l = 0; l < parts.length; l++) {
            parts[l] = new Part(comm.size());
        }
    }

    /** Computes what moves in a step. */
    void layOut(ExpertRouter router, DispatchPlan plan) {
        int own = comm.rank();
        for (int e = 0; e < plan.experts; e++) {
            int r = e / plan.local;
            int mine = own * plan.local + e % plan.local;
            Part part = parts[e % plan.local];
            part.sendCounts[r] = r == own ? 0 : (long) router.count(e) * features;
            part.sendDispls[r] = (long) stagedRow(router, e) * features;
            part.recvCounts[r] = r == own ? 0 : (long) plan.count(r, mine) * features;
            part.recvDispls[r] = plan.firstOf(r, mine) * features;
        }
    }

    /** The staged row where those for an expert of another rank start. */
    int stagedRow(ExpertRouter router, int expert) {
        int first = comm.rank() * parts.length;
        int end = first + parts.length;
        int row = router.start(expert);
        return expert < end ? row : row - (router.start(end) - router.start(first));
    }

    /** Enqueues the exchange from staged rows to blocks, or from blocks to staged rows. */
    void move(Buffer from, Buffer to, boolean towardsExperts) {
        moved = from;
        target = to;
        outward = towardsExperts;
        if (comm.size() == 1) {
            return;
        }
        if (parts.length == 1) {
            exchangeAll();
        } else {
            Group.run(comm, exchange);
        }
    }

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
