package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.jccl.device.DataType;
import io.jccl.kernel.Kernel;
import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;

/**
 * Functions of a model, forward and backward, on ranges of float32 rows in the caller's memory:
 * RMSNorm (arXiv 1910.07467, without gain), squared ReLU (arXiv 2109.08668), softmax cross entropy,
 * sums, and rows of tables.
 *
 * <p>A range's result does not depend on other ranges, so threads may share rows or elements.
 *
 * <p><b>Threads:</b> any; each has its own scratch memory, which is kept.
 */
public final class Functions {
    /** Value added to the mean square of a row. */
    static final float EPSILON = 1e-6f;

    /** Elements that are copied to scratch memory at a time: 16 KiB. */
    private static final int PIECE = 1 << 12;

    /** Elements that a kernel takes at a time if nothing is copied. */
    private static final int MOST = 1 << 28;

    private static final RowKernel K = RowKernel.BEST;

    /** Three pieces of each thread, so that a step allocates nothing. */
    private static final ThreadLocal<float[][]> PIECES =
            ThreadLocal.withInitial(() -> new float[3][PIECE]);

    private Functions() {}

    /**
     * Divides rows by their root mean square.
     *
     * @param x rows of the width
     * @param normed destination of the same size
     * @param begin the first row
     * @param end the row after the last
     * @param width elements of a row
     */
    public static void norm(
            MemorySegment x, MemorySegment normed, long begin, long end, int width) {
        int most = Math.max(1, PIECE / width);
        float[] piece = piece(0, width);
        for (long r = begin; r < end; r += most) {
            int count = (int) Math.min(most, end - r) * width;
            load(x, r * width, piece, count);
            for (int at = 0; at < count; at += width) {
                float by = LayerLoops.inverse(piece, at, width, 0, EPSILON);
                LayerLoops.norm(piece, at, width, 0, by, piece, at);
            }
            store(piece, normed, r * width, count);
        }
    }

    /**
     * Adds the gradient of the input of {@link #norm}.
     *
     * @param x input of the norm
     * @param normedGradient gradient of its output
     * @param gradient gradient to add to
     * @param begin the first row
     * @param end the row after the last
     * @param width elements of a row
     */
    public static void normBackward(
            MemorySegment x,
            MemorySegment normedGradient,
            MemorySegment gradient,
            long begin,
            long end,
            int width) {
        int most = Math.max(1, PIECE / width);
        float[] piece = piece(0, width);
        float[] g = piece(1, width);
        float[] sum = piece(2, width);
        for (long r = begin; r < end; r += most) {
            int count = (int) Math.min(most, end - r) * width;
            load(x, r * width, piece, count);
            load(normedGradient, r * width, g, count);
            load(gradient, r * width, sum, count);
            for (int at = 0; at < count; at += width) {
                float by = LayerLoops.inverse(piece, at, width, 0, EPSILON);
                LayerLoops.normBackward(piece, g, at, width, false, 0, by, sum);
            }
            store(sum, gradient, r * width, count);
        }
    }

    /**
     * Adds two vectors.
     *
     * @param a first vector
     * @param b second vector
     * @param sum destination; may be a or b
     * @param begin the first element
     * @param end the element after the last
     */
    public static void sum(
            MemorySegment a, MemorySegment b, MemorySegment sum, long begin, long end) {
        Kernel add = Kernel.of(DataType.FLOAT32, Kernel.Op.ADD);
        for (long i = begin; i < end; i += MOST) {
            long at = i * Float.BYTES;
            add.combine(a, at, b, at, sum, at, (int) Math.min(MOST, end - i));
        }
    }

    /**
     * Squared ReLU: the square of positive elements, 0 for others.
     *
     * @param x inputs
     * @param y destination
     * @param begin the first element
     * @param end the element after the last
     */
    public static void reluSquared(MemorySegment x, MemorySegment y, long begin, long end) {
        float[] piece = piece(0, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int n = (int) Math.min(PIECE, end - i);
            load(x, i, piece, n);
            LayerLoops.reluSquared(piece, n, piece);
            store(piece, y, i, n);
        }
    }

    /**
     * Converts the gradient of the output of {@link #reluSquared} into that of its input.
     *
     * @param x inputs
     * @param gradient gradient, changed in place
     * @param begin the first element
     * @param end the element after the last
     */
    public static void reluSquaredBackward(
            MemorySegment x, MemorySegment gradient, long begin, long end) {
        float[] piece = piece(0, PIECE);
        float[] g = piece(1, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int n = (int) Math.min(PIECE, end - i);
            load(x, i, piece, n);
            load(gradient, i, g, n);
            LayerLoops.reluSquaredBackward(piece, n, g);
            store(g, gradient, i, n);
        }
    }

    /**
     * Softmax cross entropy and its gradient.
     *
     * @param logits rows of tokens; replaced by the gradient times {@code scale}
     * @param targets int32, the target token of each row
     * @param begin the first row
     * @param end the row after the last
     * @param tokens elements of a row
     * @param scale factor of the gradient
     * @param losses destination of each row's loss, in nats
     */
    public static void crossEntropy(
            MemorySegment logits,
            MemorySegment targets,
            long begin,
            long end,
            int tokens,
            float scale,
            double[] losses) {
        int most = Math.max(1, PIECE / tokens);
        float[] piece = piece(0, tokens);
        for (long r = begin; r < end; r += most) {
            int rows = (int) Math.min(most, end - r);
            load(logits, r * tokens, piece, rows * tokens);
            for (int i = 0; i < rows; i++) {
                int target = targets.getAtIndex(JAVA_INT, r + i);
                losses[(int) r + i] =
                        LayerLoops.crossEntropy(piece, i * tokens, tokens, target, scale);
            }
            store(piece, logits, r * tokens, rows * tokens);
        }
    }

    /**
     * Rows of a table, or sums of a row of each of two tables.
     *
     * @param a rows of the width
     * @param aIndex int32, for each sum the row of the first table
     * @param b rows of the width; empty for one table
     * @param bIndex int32, for each sum the row of the second table
     * @param sums destination
     * @param begin the first sum
     * @param end the sum after the last
     * @param width elements of a row
     */
    static void lookUp(
            MemorySegment a,
            MemorySegment aIndex,
            MemorySegment b,
            MemorySegment bIndex,
            MemorySegment sums,
            long begin,
            long end,
            int width) {
        Kernel add = Kernel.of(DataType.FLOAT32, Kernel.Op.ADD);
        long bytes = (long) width * Float.BYTES;
        for (long r = begin; r < end; r++) {
            long i = aIndex.getAtIndex(JAVA_INT, r) * bytes;
            if (b.byteSize() == 0) {
                MemorySegment.copy(a, i, sums, r * bytes, bytes);
                continue;
            }
            long j = bIndex.getAtIndex(JAVA_INT, r) * bytes;
            add.combine(a, i, b, j, sums, r * bytes, width);
        }
    }

    /**
     * Adds some columns of rows to those of a table's rows, one row after the other.
     *
     * @param rows rows of the width
     * @param index int32, for each row that of the table
     * @param count number of rows
     * @param table destination
     * @param begin the first column
     * @param end the column after the last
     * @param width elements of a row
     */
    static void scatterAdd(
            MemorySegment rows,
            MemorySegment index,
            long count,
            MemorySegment table,
            long begin,
            long end,
            int width) {
        Kernel add = Kernel.of(DataType.FLOAT32, Kernel.Op.ADD);
        int columns = (int) (end - begin);
        for (long r = 0; r < count; r++) {
            long from = (r * width + begin) * Float.BYTES;
            long to = ((long) index.getAtIndex(JAVA_INT, r) * width + begin) * Float.BYTES;
            add.combine(table, to, rows, from, table, to, columns);
        }
    }

    /**
     * Copies elements between float32 and bfloat16.
     *
     * @param from elements
     * @param fromType their type
     * @param to destination
     * @param toType its type
     * @param begin the first element
     * @param end the element after the last
     */
    static void convert(
            MemorySegment from,
            DataType fromType,
            MemorySegment to,
            DataType toType,
            long begin,
            long end) {
        float[] piece = piece(0, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int n = (int) Math.min(PIECE, end - i);
            K.load(from, fromType, i, piece, 0, n);
            K.store(piece, 0, to, toType, i, n);
        }
    }

    /**
     * Adds float32 times a factor to float32 or bfloat16, rounded once.
     *
     * @param from float32
     * @param factor its multiplier
     * @param to destination
     * @param type its type
     * @param begin the first element
     * @param end the element after the last
     */
    static void accumulate(
            MemorySegment from,
            float factor,
            MemorySegment to,
            DataType type,
            long begin,
            long end) {
        float[] piece = piece(0, PIECE);
        float[] sum = piece(1, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int n = (int) Math.min(PIECE, end - i);
            load(from, i, piece, n);
            K.load(to, type, i, sum, 0, n);
            K.add(piece, 0, factor, sum, 0, n);
            K.store(sum, 0, to, type, i, n);
        }
    }

    /** This thread's piece of a number, with that many elements or more. */
    private static float[] piece(int number, int width) {
        float[][] pieces = PIECES.get();
        if (pieces[number].length < width) {
            pieces[number] = new float[width];
        }
        return pieces[number];
    }

    private static void load(MemorySegment from, long index, float[] piece, int count) {
        K.load(from, DataType.FLOAT32, index, piece, 0, count);
    }

    private static void store(float[] piece, MemorySegment to, long index, int count) {
        K.store(piece, 0, to, DataType.FLOAT32, index, count);
    }
}
