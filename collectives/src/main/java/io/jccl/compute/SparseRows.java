package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * A sparse matrix in compressed rows on the host, and the rows that its entries name: the first
 * buffers and numbers of a task.
 */
final class SparseRows {
    // Buffers.
    private static final int START = 0;
    private static final int INDEX = 1;
    private static final int SOURCE = 2;
    private static final int TARGET = 3;

    /** The weights, or what the rows are multiplied with. */
    private static final int OTHER = 4;

    // Numbers.
    private static final int ENTRIES = 0;
    private static final int SOURCE_ROWS = 1;
    private static final int WIDTH = 2;

    private SparseRows() {}

    /** The first entry of a row; that of the next is the row's end. */
    private static long start(HostTask t, long row) {
        MemorySegment start = t.memoryOrNull(START);
        long at = start == null ? row : start.getAtIndex(JAVA_INT_UNALIGNED, row);
        return Math.clamp(at, 0, t.number(ENTRIES));
    }

    /** Reads the row that an entry names; false if there is none. */
    private static boolean load(HostTask t, long entry, float[] row, int width) {
        long from = t.memory(INDEX).getAtIndex(JAVA_INT_UNALIGNED, entry);
        boolean there = from >= 0 && from < t.number(SOURCE_ROWS);
        if (there) {
            t.load(SOURCE, from * width, row, width);
        }
        return there;
    }

    /** Sums the weighted rows of the entries of rows begin to before end. */
    static void combine(HostTask t, int thread, long begin, long end) {
        int width = t.integer(WIDTH);
        float[] sum = t.scratch(thread).piece(0, width);
        float[] row = t.scratch(thread).piece(1, width);
        MemorySegment weights = t.memoryOrNull(OTHER);
        for (long r = begin; r < end; r++) {
            Arrays.fill(sum, 0, width, 0);
            long last = start(t, r + 1);
            for (long k = start(t, r); k < last; k++) {
                if (load(t, k, row, width)) {
                    float w = weights == null ? 1 : weights.getAtIndex(JAVA_FLOAT_UNALIGNED, k);
                    RowKernel.BEST.add(row, 0, w, sum, 0, width);
                }
            }
            t.store(sum, TARGET, r * width, width);
        }
    }

    /** Multiplies rows begin to before end with those of their entries. */
    static void dots(HostTask t, int thread, long begin, long end) {
        int width = t.integer(WIDTH);
        float[] one = t.scratch(thread).piece(0, width);
        float[] other = t.scratch(thread).piece(1, width);
        MemorySegment dots = t.memory(TARGET);
        for (long r = begin; r < end; r++) {
            t.load(OTHER, r * width, one, width);
            long last = start(t, r + 1);
            for (long k = start(t, r); k < last; k++) {
                float dot = load(t, k, other, width) ? LayerLoops.dot(one, other, width) : 0;
                dots.setAtIndex(JAVA_FLOAT_UNALIGNED, k, dot);
            }
        }
    }
}
