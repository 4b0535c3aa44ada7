package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.MemorySegment;

/**
 * What a model does with activations besides products of matrices, forward and backward, on float32
 * rows in the caller's memory: the norm by the root mean square (arXiv 1910.07467, without gain),
 * the squared relu (arXiv 2109.08668), and the cross entropy of a softmax.
 */
public final class Functions {
    private static final float EPSILON = 1e-6f;

    private Functions() {}

    /**
     * Divides each row by its root mean square.
     *
     * @param x rows times width
     * @param normed as many; where they go
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
     * Adds the gradient by the rows before {@link #norm}.
     *
     * @param x rows before the norm
     * @param normedGradient gradient by the rows after it
     * @param gradient to which is added
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
     * Adds two.
     *
     * @param a one
     * @param b the other
     * @param sum where the sum goes; may be a or b
     * @param count how many
     */
    public static void sum(MemorySegment a, MemorySegment b, MemorySegment sum, long count) {
        for (long i = 0; i < count; i++) {
            set(sum, i, get(a, i) + get(b, i));
        }
    }

    /**
     * The square of what is positive, 0 for the rest.
     *
     * @param x inputs
     * @param y where the results go
     * @param count how many
     */
    public static void reluSquared(MemorySegment x, MemorySegment y, long count) {
        for (long i = 0; i < count; i++) {
            float r = Math.max(get(x, i), 0);
            set(y, i, r * r);
        }
    }

    /**
     * Turns the gradient by the results of {@link #reluSquared} into that by its inputs.
     *
     * @param x inputs
     * @param gradient gradient, changed in place
     * @param count how many
     */
    public static void reluSquaredBackward(MemorySegment x, MemorySegment gradient, long count) {
        for (long i = 0; i < count; i++) {
            set(gradient, i, get(gradient, i) * 2 * Math.max(get(x, i), 0));
        }
    }

    /**
     * Minus the logarithm of the probability that a softmax gives to the right token, summed over
     * rows; and its gradient.
     *
     * @param logits rows times tokens; replaced by the gradient times {@code scale}
     * @param targets the right token of each row
     * @param rows number of rows
     * @param tokens elements of a row
     * @param scale what the gradient is multiplied by
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
