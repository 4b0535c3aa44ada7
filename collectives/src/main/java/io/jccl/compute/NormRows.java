package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;

/** Norms of rows on the host, their gradients, and sums of columns. */
final class NormRows {
    private static final RowKernel K = RowKernel.BEST;

    private NormRows() {}

    /** Buffers: x, weight, bias, y, statistics. */
    static void norm(HostTask t, int thread, long begin, long end) {
        Norm norm = (Norm) t.description();
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        int width = norm.width();
        HostScratch s = t.scratch(thread);
        float[] w = s.row(t, 1, 0, width);
        float[] b = s.row(t, 2, 1, width);
        float[] rows = s.piece(2, width);
        MemorySegment kept = t.memory(4);
        int count;
        for (long first = begin; first < end; first += count) {
            count = HostScratch.batch(first, end, width);
            t.load(0, first * width, rows, count * width);
            for (int i = 0; i < count; i++) {
                int at = i * width;
                float mean = layer ? LayerLoops.mean(rows, at, width) : 0;
                float by = LayerLoops.inverse(rows, at, width, mean, norm.epsilon());
                LayerLoops.norm(rows, at, width, mean, by, rows, at);
                if (w != null) {
                    multiply(rows, at, w, width);
                }
                if (b != null) {
                    K.add(b, 0, 1, rows, at, width);
                }
                long r = first + i;
                if (layer) {
                    kept.setAtIndex(JAVA_FLOAT_UNALIGNED, 2 * r, mean);
                }
                kept.setAtIndex(JAVA_FLOAT_UNALIGNED, layer ? 2 * r + 1 : r, by);
            }
            t.store(rows, 3, first * width, count * width);
        }
    }

    private static void multiply(float[] x, int at, float[] by, int count) {
        for (int i = 0; i < count; i++) {
            x[at + i] *= by[i];
        }
    }

    private static float mean(MemorySegment statistics, boolean layer, long row) {
        return layer ? statistics.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row) : 0;
    }

    private static float by(MemorySegment statistics, boolean layer, long row) {
        return statistics.getAtIndex(JAVA_FLOAT_UNALIGNED, layer ? 2 * row + 1 : row);
    }

    /** Buffers: x, weight, statistics, gradient of the output, gradient. */
    static void normBackward(HostTask t, int thread, long begin, long end) {
        Norm norm = (Norm) t.description();
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        int width = norm.width();
        HostScratch s = t.scratch(thread);
        float[] w = s.row(t, 1, 0, width);
        float[] rows = s.piece(1, width);
        float[] g = s.piece(2, width);
        float[] sums = s.piece(3, width);
        MemorySegment kept = t.memory(2);
        int count;
        for (long first = begin; first < end; first += count) {
            count = HostScratch.batch(first, end, width);
            t.load(0, first * width, rows, count * width);
            t.load(3, first * width, g, count * width);
            t.load(4, first * width, sums, count * width);
            for (int i = 0; i < count; i++) {
                int at = i * width;
                if (w != null) {
                    multiply(g, at, w, width);
                }
                float mean = mean(kept, layer, first + i);
                float by = by(kept, layer, first + i);
                LayerLoops.normBackward(rows, g, at, width, layer, mean, by, sums);
            }
            t.store(sums, 4, first * width, count * width);
        }
    }

    /**
     * Sums of columns; with a norm, of products with normed rows. Buffers: rows, target, and with a
     * norm its x and statistics.
     */
    static void sums(HostTask t, int thread, long begin, long end) {
        Norm norm = (Norm) t.descriptionOrNull();
        HostScratch s = t.scratch(thread);
        float[] row = s.piece(0, HostScratch.COLUMNS);
        float[] x = s.piece(1, HostScratch.COLUMNS);
        long rows = t.number(0);
        long width = t.number(1);
        for (long from = begin; from < end; from += HostScratch.COLUMNS) {
            int count = (int) Math.min(HostScratch.COLUMNS, end - from);
            int used = (int) Math.min(rows, LayerLoops.CLASSES);
            float[][] classes = s.classes(used);
            for (long r = 0; r < rows; r++) {
                t.load(0, r * width + from, row, count);
                if (norm != null) {
                    boolean layer = norm.kind() == Norm.Kind.LAYER;
                    float mean = mean(t.memory(3), layer, r);
                    float by = by(t.memory(3), layer, r);
                    t.load(2, r * width + from, x, count);
                    LayerLoops.norm(x, 0, count, mean, by, x, 0);
                    multiply(row, 0, x, count);
                }
                K.add(row, 0, 1, classes[(int) (r % LayerLoops.CLASSES)], 0, count);
            }
            t.load(1, from, row, count);
            LayerLoops.addTree(classes, used, row, count);
            t.store(row, 1, from, count);
        }
    }
}
