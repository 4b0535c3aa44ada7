package io.jccl.parallel;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Which rows of the experts' blocks are whose in one step: what every rank has told all others, and
 * where blocks start.
 */
final class DispatchPlan {
    // What a rank tells the others, as int32: tokens taken from it and first choices, of each
    // expert, and these.
    private static final int TOKENS = 0;
    private static final int UNTAKEN = 1;
    private static final int SKIPPED = 2;
    private static final int BAD = 3;
    private static final int NUMBERS = 4;

    final int ranks;
    final int experts;

    /** Experts of a rank. */
    final int local;

    private final int record;
    private final MemorySegment told;

    /** Rows of a block at a fixed place, or 0 if blocks follow each other. */
    private final long fixedRows;

    /** Of every expert: the row where its block starts, on its rank. */
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

    /** Numbers that a rank tells. */
    static int record(int experts) {
        return 2 * experts + NUMBERS;
    }

    private int get(int index) {
        return told.getAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index);
    }

    private void set(int index, int value) {
        told.setAtIndex(ValueLayout.JAVA_INT_UNALIGNED, index, value);
    }

    /** Writes a rank's numbers; bad is what {@link ExpertRouter#tryRoute} returned. */
    void tell(int rank, ExpertRouter router, int bad) {
        int at = rank * record;
        for (int e = 0; e < experts; e++) {
            set(at + e, router.count(e));
            set(at + experts + e, router.firstChoices(e));
        }
        at += 2 * experts;
        set(at + TOKENS, router.tokens());
        set(at + UNTAKEN, router.untaken());
        set(at + SKIPPED, router.skipped());
        set(at + BAD, bad);
    }

    /** Once all ranks' numbers are there. */
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

    /** Tokens of a rank that an expert takes. */
    int count(int rank, int expert) {
        return get(rank * record + expert);
    }

    int firstChoices(int rank, int expert) {
        return get(rank * record + experts + expert);
    }

    int tokens(int rank) {
        return get(rank * record + 2 * experts + TOKENS);
    }

    int untaken(int rank) {
        return get(rank * record + 2 * experts + UNTAKEN);
    }

    int skipped(int rank) {
        return get(rank * record + 2 * experts + SKIPPED);
    }

    /** Position of a rank's first logit that is no number, or negative. */
    int bad(int rank) {
        return get(rank * record + 2 * experts + BAD);
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
