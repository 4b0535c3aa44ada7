package io.jccl.parallel;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * The layout of the experts' blocks in one step: the counts of all ranks and the start of each
 * block.
 */
final class DispatchPlan {
    // The int32 values that a rank sends to the others: its accepted tokens per expert, then these.
    private static final int TOKENS = 0;
    private static final int DROPPED = 1;
    private static final int UNSAMPLED = 2;
    private static final int BAD = 3;
    private static final int NUMBERS = 4;

    final int ranks;
    final int experts;

    /** Experts per rank. */
    final int local;

    private final int record;
    private final MemorySegment told;

    /** Rows of a block of fixed size, or 0 if blocks are contiguous. */
    private final long fixedRows;

    /** For each expert, the row on its rank where its block starts. */
    private final long[] first;

    private final long[] rows;

    DispatchPlan(int ranks, int experts, long fixedRows, Buffer counts) {
        this.ranks = ranks;
        this.experts = experts;
        this.fixedRows = fixedRows;
        local = experts / ranks;
        record = record(experts);
        told = counts.asSegment();
        first = new long[experts];
        rows = new long[experts];
        layOut();
    }

    /** Number of values that a rank sends. */
    static int record(int experts) {
        return experts + NUMBERS;
    }

    private int get(int index) {
        return told.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index);
    }

    private void set(int index, int value) {
        told.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index, value);
    }

    /** Writes a rank's values; bad is the result of {@link ExpertRouter#tryRoute}. */
    void tell(int rank, ExpertRouter router, int bad) {
        int at = rank * record;
        for (int e = 0; e < experts; e++) {
            set(at + e, router.count(e));
        }
        at += experts;
        set(at + TOKENS, router.tokens());
        set(at + DROPPED, router.droppedTokens());
        set(at + UNSAMPLED, router.unsampled());
        set(at + BAD, bad);
    }

    /** All ranks have the numbers of all, so all of them throw. */
    void checkLogits(ExpertRouter router) {
        for (int r = 0; r < ranks; r++) {
            if (bad(r) >= 0) {
                throw new IllegalArgumentException("on rank " + r + " " + router.badLogit(bad(r)));
            }
        }
    }

    /** All ranks have the counts of all, so all of them throw. */
    void checkRows(ExpertStatistics statistics, long maxRows) {
        for (int to = 0; to < ranks; to++) {
            long sum = 0;
            for (int e = to * local; e < (to + 1) * local; e++) {
                sum += statistics.taken(e);
            }
            if (sum > maxRows) {
                throw new IllegalStateException(
                        ("the experts of rank %s would get %s tokens, more than the"
                                        + " maxRows of %s; make the ExpertDispatch with at least as"
                                        + " many, or 0 for the worst case, or limit experts by a"
                                        + " capacity")
                                .formatted(to, sum, maxRows));
            }
        }
    }

    /** Computes the layout from the values of all ranks. */
    void layOut() {
        for (int e = 0; e < experts; e++) {
            rows[e] = 0;
            for (int r = 0; r < ranks; r++) {
                rows[e] += count(r, e);
            }
            boolean firstOfRank = e % local == 0;
            first[e] = fixedRows > 0 ? e % local * fixedRows : firstOfRank ? 0 : end(e - 1);
        }
    }

    /** Tokens of a rank that an expert accepts. */
    int count(int rank, int expert) {
        return get(rank * record + expert);
    }

    int tokens(int rank) {
        return get(rank * record + experts + TOKENS);
    }

    int droppedTokens(int rank) {
        return get(rank * record + experts + DROPPED);
    }

    int unsampled(int rank) {
        return get(rank * record + experts + UNSAMPLED);
    }

    /** Position of a rank's first invalid logit, or negative. */
    private int bad(int rank) {
        return get(rank * record + experts + BAD);
    }

    /** The row where an expert's block starts. */
    long first(int expert) {
        return first[expert];
    }

    /** Rows of an expert in this step. */
    long rows(int expert) {
        return rows[expert];
    }

    private long end(int expert) {
        return first[expert] + rows[expert];
    }

    /** The row of an expert's block where a rank's tokens start. */
    long firstOf(int rank, int expert) {
        long at = first[expert];
        for (int r = 0; r < rank; r++) {
            at += count(r, expert);
        }
        return at;
    }
}
