package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** A sparse matrix in compressed rows on the host, and the rows that its entries name. */
final class SparseRows {
    private final @Nullable MemorySegment start;
    private final MemorySegment index;
    private final long count;
    private final Floats source;
    private final long sourceRows;
    private final int width;

    SparseRows(@Nullable Buffer start, Buffer index, Buffer source, int width) {
        this.start = start == null ? null : start.asSegment();
        this.index = index.asSegment();
        this.count = index.count();
        this.source = Floats.of(source);
        this.sourceRows = source.count() / width;
        this.width = width;
    }

    /** The first entry of a row; that of the next is the row's end. */
    private long start(long row) {
        long at = start == null ? row : start.getAtIndex(JAVA_INT_UNALIGNED, row);
        return Math.clamp(at, 0, count);
    }

    /** Reads the row that an entry names; false if there is none. */
    private boolean load(long entry, float[] row) {
        long from = index.getAtIndex(JAVA_INT_UNALIGNED, entry);
        boolean there = from >= 0 && from < sourceRows;
        if (there) {
            source.load(from * width, row, width);
        }
        return there;
    }

    /** Sums the weighted rows of the entries of rows begin to before end. */
    void combine(long begin, long end, @Nullable MemorySegment weights, Floats target) {
        float[] sum = new float[width];
        float[] row = new float[width];
        for (long r = begin; r < end; r++) {
            Arrays.fill(sum, 0);
            for (long k = start(r); k < start(r + 1); k++) {
                if (load(k, row)) {
                    float w = weights == null ? 1 : weights.getAtIndex(JAVA_FLOAT_UNALIGNED, k);
                    RowKernel.BEST.add(row, 0, w, sum, 0, width);
                }
            }
            target.store(sum, r * width, width);
        }
    }

    /** Multiplies rows begin to before end with those of their entries. */
    void dots(long begin, long end, Floats x, MemorySegment dots) {
        float[] one = new float[width];
        float[] other = new float[width];
        for (long r = begin; r < end; r++) {
            x.load(r * width, one, width);
            for (long k = start(r); k < start(r + 1); k++) {
                float dot = load(k, other) ? LayerLoops.dot(one, other, width) : 0;
                dots.setAtIndex(JAVA_FLOAT_UNALIGNED, k, dot);
            }
        }
    }
}
