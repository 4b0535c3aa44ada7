package io.jccl.gemm;

import java.lang.foreign.MemorySegment;

/**
 * The innermost loops of a product, over packed panels. All memory is float arrays: unlike memory
 * segments of several kinds, they are equally fast wherever the matrices are stored.
 *
 * <p>A panel of the right factor stores, for each k, its {@link #columns} elements contiguously;
 * one of the left factor its rows, {@value #STRIDE} elements apart.
 */
abstract class Tile {
    /**
     * Whether the Vector API's incubator module was resolved when this JVM started. It is read from
     * here on; a clause in module-info would make javac warn everyone who requires this module.
     */
    private static final boolean VECTOR =
            ModuleLayer.boot()
                    .findModule("jdk.incubator.vector")
                    .map(vector -> Tile.class.getModule().addReads(vector))
                    .isPresent();

    /** Depth of k that is packed at a time. */
    static final int DEPTH = 256;

    /**
     * Elements from one row of a panel of the left factor to the next: a constant, so that it is
     * part of an instruction's address, and no power of two, so that rows are in different cache
     * sets.
     */
    static final int STRIDE = DEPTH + 16;

    /** Rows of the right factor that are added at a time if the left one has few rows. */
    static final int STREAM_ROWS = 8;

    /** The same for columns; divides {@link #columns}. */
    static final int STREAM_COLUMNS = 8;

    /** Rows of the main tile, and of the left factor's panels. */
    final int rows;

    /** Rows of the tile for the remainder; divides {@link #rows}. */
    final int fewRows;

    /** Columns of either tile: the width of the right factor's panels. */
    final int columns;

    Tile(int rows, int fewRows, int columns) {
        this.rows = rows;
        this.fewRows = fewRows;
        this.columns = columns;
    }

    /** The fastest implementation that this JVM supports. */
    static Tile best() {
        return VECTOR ? new VectorTile() : new PlainTile();
    }

    /** {@code c[rows, columns] += a[rows, k] b[k, columns]}; rows of c are contiguous. */
    abstract void multiply(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt);

    /** The same with {@link #fewRows}. */
    abstract void multiplyFew(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt);

    /**
     * {@code c[count] += a[depth] b[depth, count]}: one row, added in the order of k. The rows of b
     * are bStride apart. Works on whole vectors: up to {@link #columns} elements after count are
     * read and written.
     *
     * @param aStride elements from one k to the next in a
     */
    abstract void addRows(
            float[] a,
            int aAt,
            int aStride,
            float[] b,
            int bStride,
            int depth,
            int count,
            float[] c,
            int cAt);

    /** {@code a b + c} with the rounding of this tile's products. */
    abstract float add(float a, float b, float c);

    /**
     * {@code c[STREAM_COLUMNS] += a[depth] b[depth, STREAM_COLUMNS]}: one row, if the columns of b
     * are contiguous, {@link #DEPTH} apart. Element by element, since sums in vector lanes would be
     * added in another order.
     */
    final void addColumns(float[] a, int aAt, float[] b, int depth, float[] c, int at) {
        float x0 = c[at];
        float x1 = c[at + 1];
        float x2 = c[at + 2];
        float x3 = c[at + 3];
        float x4 = c[at + 4];
        float x5 = c[at + 5];
        float x6 = c[at + 6];
        float x7 = c[at + 7];
        for (int p = 0; p < depth; p++) {
            float s = a[aAt + p];
            x0 = add(s, b[p], x0);
            x1 = add(s, b[p + DEPTH], x1);
            x2 = add(s, b[p + 2 * DEPTH], x2);
            x3 = add(s, b[p + 3 * DEPTH], x3);
            x4 = add(s, b[p + 4 * DEPTH], x4);
            x5 = add(s, b[p + 5 * DEPTH], x5);
            x6 = add(s, b[p + 6 * DEPTH], x6);
            x7 = add(s, b[p + 7 * DEPTH], x7);
        }
        c[at] = x0;
        c[at + 1] = x1;
        c[at + 2] = x2;
        c[at + 3] = x3;
        c[at + 4] = x4;
        c[at + 5] = x5;
        c[at + 6] = x6;
        c[at + 7] = x7;
    }

    /** How many of a number of columns {@link #addNative} can process. */
    int nativeColumns(int count) {
        return 0;
    }

    /**
     * The same as {@link #addRows} for {@link #STREAM_ROWS} rows of b in native memory, without
     * copying it first. Supports only {@link #nativeColumns} columns.
     *
     * @param bAt start of b in bytes
     * @param bStride bytes between rows
     */
    void addNative(
            float[] a,
            int aAt,
            int aStride,
            MemorySegment b,
            long bAt,
            long bStride,
            int count,
            float[] c,
            int cAt) {
        throw new UnsupportedOperationException("addNative");
    }

    /**
     * Copies the elements of some k, each with count of them, to the panels of the right factor;
     * count is a multiple of {@link #columns}.
     */
    abstract void spread(float[] from, int steps, int count, float[] to, int at, int panelStride);

    /**
     * Copies a row of tiles, panelStride elements apart, to contiguous elements; count is a
     * multiple of {@link #columns}.
     */
    abstract void collect(float[] from, int at, int panelStride, float[] to, int count);

    /** {@code to[i] = factor to[i] + from[i]}. */
    abstract void scaleAdd(float[] from, int fromAt, float factor, float[] to, int at, int count);

    /** Widens bfloat16. */
    abstract void widen(short[] from, float[] to, int at, int count);

    /** Copies some columns of count elements each to rows that are {@link #STRIDE} apart. */
    static void turn(float[] from, int columns, int count, float[] to, int at) {
        int c = 0;
        for (; c + 4 <= columns; c += 4) {
            int x = c * count;
            int y = x + count;
            int z = y + count;
            int w = z + count;
            for (int r = 0, o = at + c; r < count; r++, o += STRIDE) {
                to[o] = from[x + r];
                to[o + 1] = from[y + r];
                to[o + 2] = from[z + r];
                to[o + 3] = from[w + r];
            }
        }
        for (; c < columns; c++) {
            for (int r = 0; r < count; r++) {
                to[at + c + r * STRIDE] = from[c * count + r];
            }
        }
    }

    /** Interleaves rows of length k, stride elements apart, into a panel of the given width. */
    static void interleave(float[] from, int stride, int width, int k, float[] to, int at) {
        for (int r = 0; r < width; r += 4) {
            int x = r * stride;
            int y = x + stride;
            int z = y + stride;
            int w = z + stride;
            for (int p = 0, o = at + r; p < k; p++, o += width) {
                to[o] = from[x + p];
                to[o + 1] = from[y + p];
                to[o + 2] = from[z + p];
                to[o + 3] = from[w + p];
            }
        }
    }
}
