package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.jccl.device.DataType;
import io.jccl.kernel.FloatRows;
import io.jccl.kernel.LayerLoops;
import java.lang.foreign.MemorySegment;

/**
 * Activation functions of a model, forward and backward, on float32 rows in the caller's memory:
 * RMSNorm (arXiv 1910.07467, without gain), squared ReLU (arXiv 2109.08668), and softmax cross
 * entropy.
 */
public final class Functions {
    /** What is added to the mean square of a row. */
    static final float EPSILON = 1e-6f;

    /** Elements at a time where there are no rows. */
    private static final int PIECE = 1 << 12;

    /** Three rows of each thread, so that a step allocates nothing. */
    private static final ThreadLocal<float[][]> ROWS =
            ThreadLocal.withInitial(() -> new float[3][0]);

    private Functions() {}

    /**
     * Divides each row by its root mean square.
     *
     * @param x rows x width
     * @param normed destination of the same size
     * @param rows number of rows
     * @param width elements of a row
     */
    public static void norm(MemorySegment x, MemorySegment normed, int rows, int width) {
        float[] row = row(0, width);
        for (int r = 0; r < rows; r++) {
            long from = (long) r * width;
            load(x, from, row, width);
            LayerLoops.norm(row, width, 0, LayerLoops.inverse(row, width, 0, EPSILON), row);
            store(row, normed, from, width);
        }
    }

    /**
     * Adds the gradient of the input of {@link #norm}.
     *
     * @param x input of the norm
     * @param normedGradient gradient of its output
     * @param gradient gradient to add to
     * @param rows number of rows
     * @param width elements of a row
     */
    public static void normBackward(
            MemorySegment x,
            MemorySegment normedGradient,
            MemorySegment gradient,
            int rows,
            int width) {
        float[] row = row(0, width);
        float[] g = row(1, width);
        float[] sum = row(2, width);
        for (int r = 0; r < rows; r++) {
            long from = (long) r * width;
            load(x, from, row, width);
            load(normedGradient, from, g, width);
            load(gradient, from, sum, width);
            float by = LayerLoops.inverse(row, width, 0, EPSILON);
            LayerLoops.normBackward(row, g, width, false, 0, by, sum);
            store(sum, gradient, from, width);
        }
    }

    /**
     * Adds two vectors.
     *
     * @param a first vector
     * @param b second vector
     * @param sum destination; may be a or b
     * @param count number of elements
     */
    public static void sum(MemorySegment a, MemorySegment b, MemorySegment sum, long count) {
        for (long i = 0; i < count; i++) {
            set(sum, i, get(a, i) + get(b, i));
        }
    }

    /**
     * Squared ReLU: the square of positive elements, 0 for others.
     *
     * @param x inputs
     * @param y destination
     * @param count number of elements
     */
    public static void reluSquared(MemorySegment x, MemorySegment y, long count) {
        float[] piece = row(0, PIECE);
        for (long i = 0; i < count; i += PIECE) {
            int n = (int) Math.min(PIECE, count - i);
            FloatRows.load(x, DataType.FLOAT32, i, piece, 0, n);
            LayerLoops.reluSquared(piece, n, piece);
            FloatRows.store(piece, 0, y, DataType.FLOAT32, i, n);
        }
    }

    /**
     * Converts the gradient of the output of {@link #reluSquared} into that of its input.
     *
     * @param x inputs
     * @param gradient gradient, changed in place
     * @param count number of elements
     */
    public static void reluSquaredBackward(MemorySegment x, MemorySegment gradient, long count) {
        float[] piece = row(0, PIECE);
        float[] g = row(1, PIECE);
        for (long i = 0; i < count; i += PIECE) {
            int n = (int) Math.min(PIECE, count - i);
            FloatRows.load(x, DataType.FLOAT32, i, piece, 0, n);
            FloatRows.load(gradient, DataType.FLOAT32, i, g, 0, n);
            LayerLoops.reluSquaredBackward(piece, n, g);
            FloatRows.store(g, 0, gradient, DataType.FLOAT32, i, n);
        }
    }

    /**
     * Softmax cross entropy, summed over rows, and its gradient.
     *
     * @param logits rows x tokens; replaced by the gradient times {@code scale}
     * @param targets int32, the target token of each row
     * @param rows number of rows
     * @param tokens elements of a row
     * @param scale factor of the gradient
     * @return the sum, in nats
     */
    public static double crossEntropy(
            MemorySegment logits, MemorySegment targets, int rows, int tokens, float scale) {
        double loss = 0;
        float[] row = row(0, tokens);
        for (int r = 0; r < rows; r++) {
            long from = (long) r * tokens;
            load(logits, from, row, tokens);
            loss += LayerLoops.crossEntropy(row, tokens, targets.getAtIndex(JAVA_INT, r), scale);
            store(row, logits, from, tokens);
        }
        return loss;
    }

    /** This thread's row of a number, with that many elements or more. */
    private static float[] row(int number, int width) {
        float[][] rows = ROWS.get();
        if (rows[number].length < width) {
            rows[number] = new float[width];
        }
        return rows[number];
    }

    private static void load(MemorySegment from, long index, float[] row, int width) {
        FloatRows.load(from, DataType.FLOAT32, index, row, 0, width);
    }

    private static void store(float[] row, MemorySegment to, long index, int width) {
        FloatRows.store(row, 0, to, DataType.FLOAT32, index, width);
    }

    private static float get(MemorySegment m, long index) {
        return m.getAtIndex(JAVA_FLOAT, index);
    }

    private static void set(MemorySegment m, long index, float value) {
        m.setAtIndex(JAVA_FLOAT, index, value);
    }
}
