package io.jccl.gemm;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Computes regions of a result: packs the factors by blocks of k, accumulates in its own memory,
 * and writes at the end. Used by one thread.
 *
 * <p>Sizes, for cores with 32 KiB of first-level and 512 KiB or more of second-level cache: a panel
 * of the left factor (12 KiB) stays in L1 while the block of the right factor is streamed from L2.
 * All packed data is in float arrays: matrices may be native memory or arrays on the Java heap, and
 * compiled loops over several kinds of memory are slow.
 */
final class Region {
    /** Maximum rows of a region. */
    static final int ROWS = 768;

    /** Maximum columns of a region; a multiple of all tiles' columns. */
    static final int COLUMNS = 512;

    private static final int DEPTH = Tile.DEPTH;

    /** Up to this many rows, packing the right factor does not pay off. */
    private static final int FEW = 8;

    /** The same if the right factor's columns are contiguous. */
    private static final int FEWER = 2;

    /** Maximum columns of a region with few rows; a multiple of all tiles' columns. */
    private static final int FEW_COLUMNS = 1 << 14;

    /** Columns of the right factor per step with few rows: 16 KiB, within L1. */
    private static final int PIECE = 512;

    /**
     * Steps of k that are packed together: a panel of the right factor gets as many contiguous
     * elements as these have, instead of one cache line in each panel, all in one cache set.
     */
    private static final int STEPS = 8;

    private static final int PLAIN = 4;
    private static final int NARROW = 2;

    private final Tile tile;

    // Sized by the largest product so far; afterwards nothing is allocated.
    private float[] left = {};
    private float[] right = {};
    private float[] sums = {};
    private float[] line = {};
    private short[] narrow = {};

    private @Nullable Matrix a;
    private @Nullable Matrix b;
    private @Nullable Matrix c;
    private float beta;

    Region(Tile tile) {
        this.tile = tile;
    }

    /** Sets the product to compute; rows of c must be contiguous. */
    void set(Matrix a, Matrix b, Matrix c, float beta) {
        this.a = a;
        this.b = b;
        this.c = c;
        this.beta = beta;
    }

    void clear() {
        a = null;
        b = null;
        c = null;
    }

    /**
     * Whether the right factor is streamed once without packing: the left factor has few rows, and
     * the right one is contiguous along rows or columns. The result is bitwise the same either way.
     */
    static boolean streams(Matrix b, Matrix c) {
        return (b.columnStride() == 1 && b.columns() > 1 && c.rows() <= FEW)
                || (b.rowStride() == 1 && b.rows() > 1 && c.rows() <= FEWER);
    }

    /** Maximum columns of a region. */
    static int columns(Matrix b, Matrix c) {
        return streams(b, c) ? FEW_COLUMNS : COLUMNS;
    }

    /** Computes one region of a grid of them. */
    void compute(int row, int down, int column, int across) {
        Matrix z = Objects.requireNonNull(c);
        long top = part(z.rows(), row, down, tile.rows);
        long leftEdge = part(z.columns(), column, across, tile.columns);
        int m = (int) (part(z.rows(), row + 1, down, tile.rows) - top);
        int n = (int) (part(z.columns(), column + 1, across, tile.columns) - leftEdge);
        if (m > 0 && n > 0) {
            if (streams(Objects.requireNonNull(b), z)) {
                stream(top, m, leftEdge, n);
            } else {
                compute(top, m, leftEdge, n);
            }
        }
    }

    /** Start of a part: a multiple of the unit. */
    private static long part(long all, int number, int parts, int unit) {
        long units = (all + unit - 1) / unit;
        return Math.min(all, (units / parts * number + Math.min(number, units % parts)) * unit);
    }

    private void compute(long top, int m, long leftEdge, int n) {
        Matrix x = Objects.requireNonNull(a);
        Matrix y = Objects.requireNonNull(b);
        Matrix z = Objects.requireNonNull(c);
        long k = x.columns();
        int columns = tile.columns;
        int wide = (n + columns - 1) / columns * columns;
        int high = paddedRows(m);
        boolean byColumns = (x.rowStride() == 1 && m > 1) || x.columnStride() != 1;
        // With a single block of k, a panel's sums are written before the next panel's begin.
        boolean single = k <= DEPTH;
        left = room(left, (byColumns ? high : tile.rows) * Tile.STRIDE);
        right = room(right, wide * (int) Math.min(k, DEPTH));
        sums = room(sums, (single ? tile.rows : high) * wide);
        line = room(line, Math.max(STEPS * Math.max(wide, high), columns * DEPTH));
        for (long p = 0; p == 0 || p < k; p += DEPTH) {
            int d = (int) Math.min(DEPTH, k - p);
            pack(y, p, leftEdge, y.rowStride(), y.columnStride(), d, n, columns, right, 0);
            if (byColumns) {
                packColumns(x, top, m, p, d);
            }
            for (int r = 0; r < m; ) {
                int width = width(m - r);
                int count = Math.min(width, m - r);
                int at = single ? 0 : r * wide;
                if (p == 0) {
                    Arrays.fill(sums, at, at + width * wide, 0);
                }
                if (byColumns) {
                    multiply(width, r * Tile.STRIDE, wide, d, at);
                } else {
                    packRows(x, top + r, count, p, d);
                    multiply(width, 0, wide, d, at);
                }
                if (p + DEPTH >= k) {
                    write(z, top + r, count, leftEdge, n, at, width, wide);
                }
                r += width;
            }
        }
    }

    /**
     * Few rows: adds multiples of the right factor's rows, a few at a time, to those of the result.
     */
    private void stream(long top, int m, long leftEdge, int n) {
        Matrix x = Objects.requireNonNull(a);
        Matrix y = Objects.requireNonNull(b);
        Matrix z = Objects.requireNonNull(c);
        int wide = (n + tile.columns - 1) / tile.columns * tile.columns;
        int high = (m + tile.fewRows - 1) / tile.fewRows * tile.fewRows;
        left = room(left, (high + m) * DEPTH);
        sums = room(sums, m * wide);
        line = room(line, Math.max(Tile.STREAM_ROWS * PIECE, tile.columns * DEPTH));
        Arrays.fill(sums, 0, m * wide, 0);
        for (long p = 0; p < x.columns(); p += DEPTH) {
            int d = (int) Math.min(DEPTH, x.columns() - p);
            pack(x, top, p, x.columnStride(), x.rowStride(), d, m, high, left, 0);
            long first = y.offset() + p * y.rowStride() + leftEdge * y.columnStride();
            if (y.columnStride() == 1) {
                streamRows(y, first, m, high, d, n, wide);
            } else {
                streamColumns(y, first, m, high, d, n, wide);
            }
        }
        for (int r = 0; r < m; r++) {
            long to = (z.offset() + (top + r) * z.rowStride() + leftEdge) * PLAIN;
            writeRow(z.buffer().asSegment(), to, r * wide, n);
        }
    }

    private void streamRows(Matrix y, long first, int m, int high, int d, int n, int wide) {
        MemorySegment s = y.buffer().asSegment();
        boolean direct = y.dataType() == DataType.FLOAT32 && s.isNative();
        for (int q = 0; q < d; q += Tile.STREAM_ROWS) {
            int deep = Math.min(Tile.STREAM_ROWS, d - q);
            long row = first + q * y.rowStride();
            int straight = direct && deep == Tile.STREAM_ROWS ? tile.nativeColumns(n) : 0;
            addNative(q * high, high, m, s, row, y.rowStride(), straight, wide);
            for (int j = straight; j < n; j += PIECE) {
                int count = Math.min(PIECE, n - j);
                for (int i = 0; i < deep; i++) {
                    load(s, y.dataType(), row + i * y.rowStride() + j, line, i * PIECE, count);
                }
                for (int r = 0; r < m; r++) {
                    int at = q * high + r;
                    tile.addRows(left, at, high, line, PIECE, deep, count, sums, r * wide + j);
                }
            }
        }
    }

    private void streamColumns(Matrix y, long first, int m, int high, int d, int n, int wide) {
        MemorySegment s = y.buffer().asSegment();
        for (int r = 0; r < m; r++) {
            for (int p = 0; p < d; p++) {
                left[(high + r) * DEPTH + p] = left[p * high + r];
            }
        }
        for (int j = 0; j < n; j += Tile.STREAM_COLUMNS) {
            // Columns after the last one hold stale data: those sums are discarded.
            for (int i = 0; i < Math.min(Tile.STREAM_COLUMNS, n - j); i++) {
                long from = first + (j + i) * y.columnStride();
                load(s, y.dataType(), from, line, i * DEPTH, d);
            }
            for (int r = 0; r < m; r++) {
                tile.addColumns(left, (high + r) * DEPTH, line, d, sums, r * wide + j);
            }
        }
    }

    private void addNative(
            int at, int high, int m, MemorySegment s, long row, long stride, int count, int wide) {
        for (int j = 0; j < count; j += PIECE) {
            int some = Math.min(PIECE, count - j);
            long from = (row + j) * PLAIN;
            for (int r = 0; r < m; r++) {
                int to = r * wide + j;
                tile.addNative(left, at + r, high, s, from, stride * PLAIN, some, sums, to);
            }
        }
    }

    /** Writes a row of the result from contiguous sums. */
    private void writeRow(MemorySegment s, long to, int from, int n) {
        if (beta == 0) {
            MemorySegment.copy(sums, from, s, JAVA_FLOAT_UNALIGNED, to, n);
            return;
        }
        line = room(line, n);
        MemorySegment.copy(s, JAVA_FLOAT_UNALIGNED, to, line, 0, n);
        tile.scaleAdd(sums, from, beta, line, 0, n);
        MemorySegment.copy(line, 0, s, JAVA_FLOAT_UNALIGNED, to, n);
    }

    private static float[] room(float[] old, int count) {
        return old.length >= count ? old : new float[count];
    }

    /** Width of the next panel of the left factor. */
    private int width(int rowsLeft) {
        return rowsLeft > tile.rows - tile.fewRows ? tile.rows : tile.fewRows;
    }

    private int paddedRows(int m) {
        int r = 0;
        while (r < m) {
            r += width(m - r);
        }
        return r;
    }

    /** Adds the product of one panel of the left factor with all panels of the right one. */
    private void multiply(int width, int from, int wide, int d, int to) {
        int columns = tile.columns;
        for (int j = 0; j < wide; j += columns) {
            if (width == tile.fewRows) {
                tile.multiplyFew(left, from, right, j * d, d, sums, to + j * width);
            } else {
                tile.multiply(left, from, right, j * d, d, sums, to + j * width);
            }
        }
    }

    /**
     * Packs a panel of the left factor, whose rows are contiguous. Rows of the panel after the last
     * hold stale data: their sums are discarded.
     */
    private void packRows(Matrix x, long row, int count, long p, int d) {
        MemorySegment s = x.buffer().asSegment();
        long from = x.offset() + row * x.rowStride() + p;
        for (int r = 0; r < count; r++) {
            load(s, x.dataType(), from + r * x.rowStride(), left, r * Tile.STRIDE, d);
        }
    }

    /** Packs all panels of the left factor, whose columns are contiguous. */
    private void packColumns(Matrix x, long top, int m, long p, int d) {
        MemorySegment s = x.buffer().asSegment();
        long from = x.offset() + top * x.rowStride() + p * x.columnStride();
        for (int q = 0; q < d; q += STEPS) {
            int steps = Math.min(STEPS, d - q);
            for (int i = 0; i < steps; i++) {
                load(s, x.dataType(), from + (q + i) * x.columnStride(), line, i * m, m);
            }
            Tile.turn(line, steps, m, left, q);
        }
    }

    /**
     * Packs d steps of k by count elements of the other dimension into panels: those of the right
     * factor, or one of a left factor of few rows.
     */
    private void pack(
            Matrix from,
            long row,
            long column,
            long alongDepth,
            long along,
            int d,
            int count,
            int width,
            float[] to,
            int at) {
        long first = from.offset() + row * from.rowStride() + column * from.columnStride();
        MemorySegment s = from.buffer().asSegment();
        DataType type = from.dataType();
        int padded = (count + width - 1) / width * width;
        if ((along == 1 && count > 1) || alongDepth != 1) {
            for (int p = 0; p < d; p += STEPS) {
                int steps = Math.min(STEPS, d - p);
                for (int i = 0; i < steps; i++) {
                    load(s, type, first + (p + i) * alongDepth, line, i * padded, count);
                    Arrays.fill(line, i * padded + count, (i + 1) * padded, 0);
                }
                if (width == tile.columns) {
                    tile.spread(line, steps, padded, to, at + p * width, d * width);
                } else {
                    System.arraycopy(line, 0, to, at + p * width, steps * width);
                }
            }
            return;
        }
        for (int j = 0; j < padded; j += width) {
            for (int r = 0; r < width; r++) {
                if (j + r < count) {
                    load(s, type, first + (j + r) * along, line, r * d, d);
                } else {
                    Arrays.fill(line, r * d, (r + 1) * d, 0);
                }
            }
            Tile.interleave(line, d, width, d, to, at + j * d);
        }
    }

    /** Copies contiguous elements, widened. */
    private void load(MemorySegment s, DataType type, long from, float[] to, int at, int count) {
        if (type == DataType.FLOAT32) {
            MemorySegment.copy(s, JAVA_FLOAT_UNALIGNED, from * PLAIN, to, at, count);
            return;
        }
        if (narrow.length < count) {
            narrow = new short[Math.max(count, Math.max(COLUMNS, DEPTH))];
        }
        MemorySegment.copy(s, JAVA_SHORT_UNALIGNED, from * NARROW, narrow, 0, count);
        tile.widen(narrow, to, at, count);
    }

    /** Writes the rows of a panel's sums. */
    private void write(
            Matrix z, long top, int count, long leftEdge, int n, int at, int width, int wide) {
        MemorySegment s = z.buffer().asSegment();
        int columns = tile.columns;
        for (int i = 0; i < count; i++) {
            long to = (z.offset() + (top + i) * z.rowStride() + leftEdge) * PLAIN;
            int from = at + i * columns;
            if (beta == 0) {
                tile.collect(sums, from, columns * width, line, wide);
            } else {
                MemorySegment.copy(s, JAVA_FLOAT_UNALIGNED, to, line, 0, n);
                for (int j = 0; j < wide; j += columns) {
                    tile.scaleAdd(sums, from + j * width, beta, line, j, columns);
                }
            }
            MemorySegment.copy(line, 0, s, JAVA_FLOAT_UNALIGNED, to, n);
        }
    }
}
