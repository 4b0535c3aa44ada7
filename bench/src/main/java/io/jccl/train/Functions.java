package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.MemorySegment;

/**
 * Activation functions of a model, forward and backward, on float32 rows in the caller's memory:
 * RMSNorm (arXiv 1910.07467, without gain), squared ReLU (arXiv 2109.08668), and softmax cross
 * entropy.
 */
public final class Functions {
    private static final float EPSILON = 1e-6f;

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
        for (int r = 0; r < rows; r++) {
            long from = (long) r * width;
            float by = inverse(x, from, width);
            for (int i = 0; i < width; i++) {
                set(normed, from + i, get(x, from + i) * by);
            }
        }
    }

    private static float inverse(MemorySegment x, long from, int width) {
        float sum = 0;
        for (int i = 0; i < width; i++) {
            float v = get(x, from + i);
            sum += v * v;
        }
        return (float) (1 / Math.sqrt(sum / width + EPSILON));
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
        for (int r = 0; r < rows; r++) {
            long from = (long) r * width;
            float by = inverse(x, from, width);
            float dot = 0;
            for (int i = 0; i < width; i++) {
                dot += get(normedGradient, from + i) * get(x, from + i);
            }
            float along = dot * by * by / width;
            for (int i = 0; i < width; i++) {
                float d = by * (get(normedGradient, from + i) - along * get(x, from + i));
                set(gradient, from + i, get(gradient, from + i) + d);
            }
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
        for (long i = 0; i < count; i++) {
            float r = Math.max(get(x, i), 0);
            set(y, i, r * r);
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
        for (long i = 0; i < count; i++) {
            set(gradient, i, get(gradient, i) * 2 * Math.max(get(x, i), 0));
        }
    }

    /**
     * Softmax cross entropy, summed over rows, and its gradient.
     *
     * @param logits rows x tokens; replaced by the gradient times {@code scale}
     * @param targets target token of each row
     * @param rows number of rows
     * @param tokens elements of a row
     * @param scale factor of the gradient
     * @return the sum, in nats
     */
    public static double crossEntropy(
            MemorySegment logits, int[] targets, int rows, int tokens, float scale) {
        double loss = 0;
        for (int r = 0; r < rows; r++) {
            long row = (long) r * tokens;
            float most = Float.NEGATIVE_INFINITY;
            for (int t = 0; t < tokens; t++) {
                most = Math.max(most, get(logits, row + t));
            }
            double sum = 0;
            for (int t = 0; t < tokens; t++) {
                sum += Math.exp(get(logits, row + t) - most);
            }
            loss += Math.log(sum) - (get(logits, row + targets[r]) - most);
            for (int t = 0; t < tokens; t++) {
                double p = Math.exp(get(logits, row + t) - most) / sum;
                set(logits, row + t, (float) (t == targets[r] ? p - 1 : p) * scale);
            }
        }
        return loss;
    }

    private static float get(MemorySegment m, long index) {
        return m.getAtIndex(JAVA_FLOAT, index);
    }

    private static void set(MemorySegment m, long index, float value) {
        m.setAtIndex(JAVA_FLOAT, index, value);
    }
}
