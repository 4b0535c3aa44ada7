package io.jccl.parallel.gemm;

import java.lang.foreign.MemorySegment;

/**
 * The innermost loops of a product, over packed panels. All memory is float arrays of the caller's:
 * unlike memory segments of several kinds they cost the same wherever the matrices lie.
 *
 * <p>A panel of width w holds for each k the w elements side by side.
 */
abstract class Tile {
    /** Whether the Vector API's incubator module was resolved when this JVM started. */
    private static final boolean VECTOR =
            ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent();

    /** Rows of the right factor that are added at a time where there are few of the left one. */
    static final int STREAM_ROWS = 8;

    /** Rows of the main tile: the width of the left factor's panels. */
    final int rows;

    /** Rows of the tile for what is left; divides {@link #rows}. */
    final int fewRows;

    /** Columns of either tile: the width of the right factor's panels. */
    final int columns;

    Tile(int rows, int fewRows, int columns) {
        this.rows = rows;
        this.fewRows = fewRows;
        this.columns = columns;
    }

    /** The fastest that this JVM has. */
    static Tile best() {
        return VECTOR ? new VectorTile() : new PlainTile();
    }

    /** {@code c[rows, columns] += a[rows, k] b[k, columns]}; rows of c follow each other. */
    abstract void multiply(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt);

    /** The same with {@link #fewRows}. */
    abstract void multiplyFew(float[] a, int aAt, float[] b, int bAt, int k, float[] c, int cAt);

    /**
     * {@code c[count] += a[depth] b[depth, count]}: one row, added in the order of k. The rows of b
     * are bStride apart. Works on whole vectors: up to {@link #columns} elements behind count are
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

    /** Columns of {@link #addNative}: as many of some as it takes. */
    int nativeColumns(int count) {
        return 0;
    }

    /**
     * The same as {@link #addRows} for {@link #STREAM_ROWS} rows of b in native memory, which need
     * not be copied first. Only {@link #nativeColumns} of the columns may be asked for.
     *
     * @param bAt where b begins, in bytes
     * @param bStride bytes from row to row
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

    /** Copies the elements of one k to the panels of the right factor: count is a multiple. */
    abstract void spread(float[] from, int count, float[] to, int at, int panelStride);

    /** {@code to[i] = factor to[i] + from[i]}. */
    abstract void scaleAdd(float[] from, int fromAt, float factor, float[] to, int at, int count);

    /** Widens bfloat16. */
    abstract void widen(short[] from, float[] to, int at, int count);

    /** Rows of length k, stride elements apart, to a panel of some width. */
    void interleave(float[] from, int stride, int width, int k, float[] to, int at) {
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
