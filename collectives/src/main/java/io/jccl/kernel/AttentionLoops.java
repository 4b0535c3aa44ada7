package io.jccl.kernel;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Causal self-attention, forward and backward. A row of queries, keys and values holds those of all
 * heads of each kind side by side; {@code heads / keyHeads} heads share a key head, and form a unit
 * of work with it.
 *
 * <p>Scores are computed in tiles of {@value #BLOCK} rows by as many keys, as small products of
 * matrices. The forward pass keeps the largest score and the sum of exponentials of each row and
 * scales the output when a tile has a larger one (arXiv 1805.02867); the backward pass recomputes
 * probabilities from each row's log-sum-exp instead of keeping them (arXiv 2205.14135).
 *
 * <p>Tiles are visited, and each sum is added, in an order that depends on the shape alone, so a
 * unit's result does not depend on what else is computed. A sum over keys stops at the row itself,
 * and one over rows begins at the key: a NaN in a later row stays there.
 *
 * <p><b>Threads:</b> one at a time; units are independent of each other, so several threads may
 * share them, each with its own loops.
 */
public final class AttentionLoops {
    /** Rows, and keys, of a tile: its scores and its factors fit in 512 KiB of cache. */
    private static final int BLOCK = 64;

    /** Rows of a tile that are multiplied together. */
    private static final int ROWS = 4;

    private final RowKernel kernel;
    private final int context;
    private final int heads;
    private final int keyHeads;
    private final int size;

    /** Elements of a row of scratch memory: zeros follow those of a head. */
    private final int wide;

    private final int stride;
    private final DataType type;
    private final float scale;

    // A block of rows or keys each.
    private final float[] queries;
    private final float[] keys;
    private final float[] values;
    private final float[] outputs;
    private final float[] outputGradients;

    /** Keys side by side: size x BLOCK. The same for values. */
    private final float[] keysAcross;

    private final float[] valuesAcross;
    private final float[] scores;
    private final float[] slopes;
    private final float[] most;
    private final double[] sums;
    private final float[] logs;
    private final float[] dots;

    // Of a whole sequence, and empty until the first backward pass.
    private float[] queryGradients = {};
    private float[] keyGradients = {};
    private float[] valueGradients = {};

    /**
     * Allocates scratch memory.
     *
     * @param context rows of a sequence
     * @param heads heads of queries
     * @param keyHeads heads of keys and of values, a divisor of the heads
     * @param size width of a head
     * @param type of all elements but the sums: float32, bfloat16 or float16
     */
    public AttentionLoops(int context, int heads, int keyHeads, int size, DataType type) {
        this(context, heads, keyHeads, size, type, RowKernel.BEST);
    }

    /** The same with a kernel. */
    public AttentionLoops(
            int context, int heads, int keyHeads, int size, DataType type, RowKernel kernel) {
        this.kernel = kernel;
        this.context = context;
        this.heads = heads;
        this.keyHeads = keyHeads;
        this.size = size;
        this.wide = (size + kernel.columns() - 1) / kernel.columns() * kernel.columns();
        this.stride = (heads + 2 * keyHeads) * size;
        this.type = type;
        this.scale = (float) (1 / Math.sqrt(size));
        int block = BLOCK * wide;
        queries = new float[block];
        keys = new float[block];
        values = new float[block];
        outputs = new float[block];
        outputGradients = new float[block];
        keysAcross = new float[block];
        valuesAcross = new float[block];
        scores = new float[BLOCK * BLOCK];
        slopes = new float[BLOCK * BLOCK];
        most = new float[BLOCK];
        sums = new double[BLOCK];
        logs = new float[BLOCK];
        dots = new float[BLOCK];
    }

    /**
     * Forward pass of the heads that share a key head.
     *
     * @param qkv rows of queries, keys and values, all heads of each side by side
     * @param out rows of the heads' outputs
     * @param logSums log-sum-exp of each row and head, kept for the backward pass
     * @param unit sequence x key heads + key head
     */
    public void forward(MemorySegment qkv, MemorySegment out, MemorySegment logSums, int unit) {
        int s = unit / keyHeads;
        int keyHead = unit % keyHeads;
        int group = heads / keyHeads;
        for (int h = keyHead * group; h < (keyHead + 1) * group; h++) {
            for (int row = 0; row < context; row += BLOCK) {
                int rows = Math.min(BLOCK, context - row);
                readQueries(qkv, s, row, rows, h);
                Arrays.fill(outputs, 0, rows * wide, 0);
                for (int key = 0; key <= row; key += BLOCK) {
                    int count = Math.min(BLOCK, context - key);
                    read(qkv, s, key, count, stride, heads + keyHead, keys);
                    read(qkv, s, key, count, stride, heads + keyHeads + keyHead, values);
                    across(keys, count, keysAcross);
                    boolean diagonal = key == row;
                    products(queries, keysAcross, rows, count, diagonal, scores);
                    exponentials(rows, count, diagonal, key == 0);
                    addRows(scores, values, rows, count, diagonal, outputs, 0);
                }
                for (int i = 0; i < rows; i++) {
                    kernel.scale(outputs, i * wide, size, (float) (1 / sums[i]));
                    float log = (float) (most[i] + Math.log(sums[i]));
                    logSums.setAtIndex(JAVA_FLOAT_UNALIGNED, at(s, row + i) * heads + h, log);
                }
                write(outputs, out, s, row, rows, heads * size, h);
            }
        }
    }

    /** Scores become exponentials of their distance from the largest of the row so far. */
    private void exponentials(int rows, int count, boolean diagonal, boolean first) {
        for (int i = 0; i < rows; i++) {
            int n = diagonal ? i + 1 : count;
            int at = i * BLOCK;
            int whole = whole(n);
            Arrays.fill(scores, at + n, at + whole, Float.NEGATIVE_INFINITY);
            float before = first ? Float.NEGATIVE_INFINITY : most[i];
            float now = Math.max(before, kernel.max(scores, at, whole));
            // Where all scores are -infinity, so that differences are not NaN.
            float level = now == Float.NEGATIVE_INFINITY ? 0 : now;
            kernel.exp(scores, at, whole, level);
            double sum = RowKernel.total(scores, at, n);
            if (!first && now != before) {
                float by = RowKernel.exp(before - level);
                kernel.scale(outputs, i * wide, size, by);
                sums[i] *= by;
            }
            sums[i] = first ? sum : sums[i] + sum;
            most[i] = now;
        }
    }

    /**
     * Backward pass of the heads that share a key head.
     *
     * @param qkv argument of {@link #forward}
     * @param out result of {@link #forward}
     * @param logSums result of {@link #forward}
     * @param outGradient gradient of the outputs
     * @param qkvGradient destination of the gradient of queries, keys and values
     * @param unit as in {@link #forward}
     */
    public void backward(
            MemorySegment qkv,
            MemorySegment out,
            MemorySegment logSums,
            MemorySegment outGradient,
            MemorySegment qkvGradient,
            int unit) {
        if (queryGradients.length == 0) {
            queryGradients = new float[context * wide];
            keyGradients = new float[context * wide];
            valueGradients = new float[context * wide];
        }
        int s = unit / keyHeads;
        int keyHead = unit % keyHeads;
        Arrays.fill(keyGradients, 0);
        Arrays.fill(valueGradients, 0);
        int group = heads / keyHeads;
        for (int h = keyHead * group; h < (keyHead + 1) * group; h++) {
            Arrays.fill(queryGradients, 0);
            for (int row = 0; row < context; row += BLOCK) {
                int rows = Math.min(BLOCK, context - row);
                readRows(qkv, out, logSums, outGradient, s, row, rows, h);
                for (int key = 0; key <= row; key += BLOCK) {
                    int count = Math.min(BLOCK, context - key);
                    read(qkv, s, key, count, stride, heads + keyHead, keys);
                    read(qkv, s, key, count, stride, heads + keyHeads + keyHead, values);
                    across(keys, count, keysAcross);
                    across(values, count, valuesAcross);
                    backwardTile(row, rows, key, count);
                }
            }
            kernel.scale(queryGradients, 0, queryGradients.length, scale);
            write(queryGradients, qkvGradient, s, 0, context, stride, h);
        }
        write(keyGradients, qkvGradient, s, 0, context, stride, heads + keyHead);
        write(valueGradients, qkvGradient, s, 0, context, stride, heads + keyHeads + keyHead);
    }

    private void readRows(
            MemorySegment qkv,
            MemorySegment out,
            MemorySegment logSums,
            MemorySegment outGradient,
            int s,
            int row,
            int rows,
            int head) {
        readQueries(qkv, s, row, rows, head);
        read(out, s, row, rows, heads * size, head, outputs);
        read(outGradient, s, row, rows, heads * size, head, outputGradients);
        for (int i = 0; i < rows; i++) {
            int at = i * wide;
            dots[i] = kernel.dot(outputGradients, at, 0, outputs, at, 0, size);
            logs[i] = logSums.getAtIndex(JAVA_FLOAT_UNALIGNED, at(s, row + i) * heads + head);
        }
    }

    /** The slopes of scores lack the scale: the queries have it, their gradient gets it. */
    private void backwardTile(int row, int rows, int key, int count) {
        boolean diagonal = key == row;
        products(queries, keysAcross, rows, count, diagonal, scores);
        products(outputGradients, valuesAcross, rows, count, diagonal, slopes);
        for (int i = 0; i < rows; i++) {
            // Elements after the diagonal are not read.
            int n = whole(diagonal ? i + 1 : count);
            kernel.exp(scores, i * BLOCK, n, logs[i]);
            kernel.slopes(scores, i * BLOCK, slopes, i * BLOCK, n, dots[i]);
        }
        addColumns(scores, outputGradients, rows, count, diagonal, valueGradients, key * wide);
        addColumns(slopes, queries, rows, count, diagonal, keyGradients, key * wide);
        addRows(slopes, keys, rows, count, diagonal, queryGradients, row * wide);
    }

    /** A number of keys rounded up to whole vectors, which {@link #products} computes. */
    private int whole(int count) {
        int unit = kernel.columns();
        return (count + unit - 1) / unit * unit;
    }

    /** A tile's products of rows with columns; of the diagonal one, those up to the diagonal. */
    private void products(
            float[] a, float[] across, int rows, int count, boolean diagonal, float[] tile) {
        for (int i = 0; i < rows; i += ROWS) {
            int n = Math.min(ROWS, rows - i);
            int most = whole(Math.min(count, diagonal ? i + n : count));
            for (int r = i; r < i + n; r++) {
                Arrays.fill(tile, r * BLOCK, r * BLOCK + most, 0);
            }
            kernel.addProduct(
                    a, i * wide, wide, 1, across, 0, BLOCK, size, tile, i * BLOCK, BLOCK, n, most);
        }
    }

    /**
     * {@code c[row] += tile[row, key] b[key]} for all keys, on the diagonal only those up to the
     * row.
     */
    private void addRows(
            float[] tile, float[] b, int rows, int count, boolean diagonal, float[] c, int to) {
        for (int i = 0; i < rows; i += ROWS) {
            int n = Math.min(ROWS, rows - i);
            int common = diagonal ? i + 1 : count;
            kernel.addProduct(
                    tile, i * BLOCK, BLOCK, 1, b, 0, wide, common, c, to + i * wide, wide, n, wide);
            for (int r = 1; diagonal && r < n; r++) {
                int from = (i + r) * BLOCK + common;
                int at = to + (i + r) * wide;
                kernel.addProduct(
                        tile, from, 0, 1, b, common * wide, wide, r, c, at, wide, 1, wide);
            }
        }
    }

    /**
     * {@code c[key] += tile[row, key] b[row]} for all rows, on the diagonal only those from the
     * key.
     */
    private void addColumns(
            float[] tile, float[] b, int rows, int count, boolean diagonal, float[] c, int to) {
        for (int j = 0; j < count; j += ROWS) {
            int n = Math.min(ROWS, count - j);
            int first = diagonal ? j + n - 1 : 0;
            for (int r = 0; diagonal && r < n - 1; r++) {
                int from = (j + r) * BLOCK + j + r;
                int at = to + (j + r) * wide;
                kernel.addProduct(
                        tile,
                        from,
                        0,
                        BLOCK,
                        b,
                        (j + r) * wide,
                        wide,
                        n - 1 - r,
                        c,
                        at,
                        wide,
                        1,
                        wide);
            }
            int from = first * BLOCK + j;
            int depth = rows - first;
            kernel.addProduct(
                    tile,
                    from,
                    1,
                    BLOCK,
                    b,
                    first * wide,
                    wide,
                    depth,
                    c,
                    to + j * wide,
                    wide,
                    n,
                    wide);
        }
    }

    /** Rows side by side. */
    private void across(float[] rows, int count, float[] columns) {
        int i = 0;
        for (; i + ROWS <= count; i += ROWS) {
            int at = i * wide;
            for (int d = 0; d < size; d++) {
                int to = d * BLOCK + i;
                columns[to] = rows[at + d];
                columns[to + 1] = rows[at + wide + d];
                columns[to + 2] = rows[at + 2 * wide + d];
                columns[to + 3] = rows[at + 3 * wide + d];
            }
        }
        for (; i < count; i++) {
            for (int d = 0; d < size; d++) {
                columns[d * BLOCK + i] = rows[i * wide + d];
            }
        }
    }

    private long at(int sequence, int row) {
        return (long) sequence * context + row;
    }

    private void readQueries(MemorySegment qkv, int sequence, int row, int rows, int head) {
        read(qkv, sequence, row, rows, stride, head, queries);
        kernel.scale(queries, 0, rows * wide, scale);
    }

    private void read(
            MemorySegment from, int sequence, int row, int rows, int width, int head, float[] to) {
        for (int i = 0; i < rows; i++) {
            long place = at(sequence, row + i) * width + (long) head * size;
            kernel.load(from, type, place, to, i * wide, size);
        }
    }

    private void write(
            float[] from, MemorySegment to, int sequence, int row, int rows, int width, int head) {
        for (int i = 0; i < rows; i++) {
            long place = at(sequence, row + i) * width + (long) head * size;
            kernel.store(from, i * wide, to, type, place, size);
        }
    }
}
