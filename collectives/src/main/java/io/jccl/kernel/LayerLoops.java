package io.jccl.kernel;

import java.util.Arrays;

/**
 * Layers of a transformer on rows of float32, in the first {@code width} elements of arrays:
 * LayerNorm, RMSNorm (arXiv 1910.07467), squared ReLU (arXiv 2109.08668), GELU in the form with
 * tanh (arXiv 1606.08415), SwiGLU (arXiv 2002.05202), and softmax cross entropy. {@link RowKernel}
 * does what a step of {@code jccl train} needs.
 */
public final class LayerLoops {
    /** Classes of rows, by the remainder, whose sums {@link #addTree} adds. */
    public static final int CLASSES = 128;

    /** sqrt(8 / pi): 0.5 (1 + tanh(u)) is logistic(2 u). */
    private static final float GELU_SLOPE = (float) 1.5957691216057308;

    private static final float GELU_CUBE = 0.044715f;

    /** Any number from 12 on, where the factor is 0 or 1 in float32, with a finite square. */
    private static final float GELU_FAR = 100;

    private static final RowKernel K = RowKernel.BEST;

    private LayerLoops() {}

    /** The mean of a row. */
    public static float mean(float[] x, int at, int width) {
        return K.sum(x, at, width) / width;
    }

    /** The sum of the products of two rows. */
    public static float dot(float[] a, float[] b, int width) {
        return K.dot(a, 0, 0, b, 0, 0, width);
    }

    /** The reciprocal of the root of the mean square of a row, after a mean is subtracted. */
    public static float inverse(float[] x, int at, int width, float mean, float epsilon) {
        float sum = K.dot(x, at, mean, x, at, mean, width);
        return (float) (1 / Math.sqrt(sum / width + epsilon));
    }

    /** {@code y = (x - mean) by}; y may be x. */
    public static void norm(float[] x, int at, int width, float mean, float by, float[] y, int to) {
        K.norm(x, at, width, mean, by, y, to);
    }

    /**
     * Adds the gradient of a norm's input.
     *
     * @param x the input
     * @param g gradient of the output of {@link #norm}
     * @param at the row's first element, in all three arrays
     * @param width elements of the row
     * @param centered whether the mean is that of the row, not just 0
     * @param mean the subtracted mean
     * @param by the factor
     * @param gradient gradient to add to
     */
    public static void normBackward(
            float[] x,
            float[] g,
            int at,
            int width,
            boolean centered,
            float mean,
            float by,
            float[] gradient) {
        float along = K.dot(g, at, 0, x, at, mean, width) * by * by / width;
        float level = centered ? K.sum(g, at, width) / width : 0;
        K.normBackward(x, at, g, at, width, mean, by, level, along, gradient, at);
    }

    /** Replaces elements by the logistic function of their negatives. */
    private static void logistic(float[] negative, int count) {
        K.exp(negative, 0, count, 0);
        for (int i = 0; i < count; i++) {
            negative[i] = 1 / (1 + negative[i]);
        }
    }

    /** Squared ReLU: the square of positive elements, 0 for others; y may be x. */
    public static void reluSquared(float[] x, int width, float[] y) {
        K.reluSquared(x, 0, width, y, 0);
    }

    /** Turns the gradient of the output of {@link #reluSquared} into that of its input. */
    public static void reluSquaredBackward(float[] x, int width, float[] gradient) {
        K.reluSquaredBackward(x, 0, width, gradient, 0);
    }

    // Loops over several arrays have one index, from 0: where they have offsets of their own, C2 of
    // JDK 25 does not vectorise them.

    /** The factor of GELU's elements. */
    private static void geluFactors(float[] x, int count, float[] to) {
        for (int i = 0; i < count; i++) {
            float v = x[i];
            to[i] = -GELU_SLOPE * (v + GELU_CUBE * v * v * v);
        }
        logistic(to, count);
    }

    /** GELU in place; the scratch has as many elements. */
    public static void gelu(float[] x, int count, float[] scratch) {
        geluFactors(x, count, scratch);
        for (int i = 0; i < count; i++) {
            x[i] *= scratch[i];
        }
    }

    /** Turns the gradient of the output of {@link #gelu} into that of its input. */
    public static void geluBackward(float[] x, int count, float[] gradient, float[] scratch) {
        geluFactors(x, count, scratch);
        for (int i = 0; i < count; i++) {
            // Where the slope's square would overflow, s (1 - s) has long been 0.
            float v = Math.max(-GELU_FAR, Math.min(GELU_FAR, x[i]));
            float s = scratch[i];
            float bend = s * (1 - s);
            gradient[i] *= s + v * bend * (GELU_SLOPE * (1 + 3 * GELU_CUBE * v * v));
        }
    }

    /** The logistic function of some elements. */
    private static void logistic(float[] x, int count, float[] to) {
        for (int i = 0; i < count; i++) {
            to[i] = -x[i];
        }
        logistic(to, count);
    }

    /** SwiGLU: {@code a = a logistic(a) b}; the scratch has as many elements. */
    public static void swiglu(float[] a, float[] b, int count, float[] scratch) {
        logistic(a, count, scratch);
        for (int i = 0; i < count; i++) {
            a[i] = a[i] * scratch[i] * b[i];
        }
    }

    /** Replaces the inputs of {@link #swiglu} by their gradients. */
    public static void swigluBackward(
            float[] a, float[] b, int count, float[] gradient, float[] scratch) {
        logistic(a, count, scratch);
        for (int i = 0; i < count; i++) {
            float v = a[i];
            float s = scratch[i];
            a[i] = gradient[i] * b[i] * (s * (1 + v * (1 - s)));
            b[i] = gradient[i] * (v * s);
        }
    }

    /**
     * Rotates the pairs (i, i + size / 2) of a head by the angles of a position, cosines first.
     *
     * @param sign -1 to rotate back
     */
    public static void rotate(float[] x, int at, int size, float[] angles, float sign) {
        int half = size / 2;
        for (int i = 0; i < half; i++) {
            float c = angles[i];
            float s = angles[half + i] * sign;
            float a = x[at + i];
            float b = x[at + half + i];
            x[at + i] = a * c - b * s;
            x[at + half + i] = a * s + b * c;
        }
    }

    /**
     * Adds sums of columns by class of rows, as a tree, to a target.
     *
     * @param used how many of the classes have rows: the first ones
     */
    public static void addTree(float[][] classes, int used, float[] target, int width) {
        for (int half = CLASSES / 2; half > 0; half /= 2) {
            for (int k = 0; k < Math.min(half, used - half); k++) {
                for (int i = 0; i < width; i++) {
                    classes[k][i] += classes[k + half][i];
                }
            }
        }
        for (int i = 0; i < width; i++) {
            target[i] += classes[0][i];
        }
    }

    /**
     * Softmax cross entropy of a row.
     *
     * @param logits replaced by the gradient times {@code scale}
     * @param at the row's first element
     * @param tokens elements of the row
     * @param label the correct token; if it is not a token, loss and gradient are 0
     * @param scale factor of the gradient
     * @return the loss, in nats
     */
    public static double crossEntropy(float[] logits, int at, int tokens, int label, float scale) {
        if (label < 0 || label >= tokens) {
            Arrays.fill(logits, at, at + tokens, 0);
            return 0;
        }
        float most = K.max(logits, at, tokens);
        float right = logits[at + label];
        K.exp(logits, at, tokens, most);
        double sum = RowKernel.total(logits, at, tokens);
        double p = logits[at + label] / sum;
        K.scale(logits, at, tokens, (float) (scale / sum));
        logits[at + label] = (float) ((p - 1) * scale);
        return Math.log(sum) - ((double) right - most);
    }

    /** The k largest of a row, the largest first; of equal ones the first; NaN last. */
    public static void topK(float[] x, int width, int k, int[] indices) {
        for (int n = 0; n < k; n++) {
            int best = -1;
            for (int i = 0; i < width; i++) {
                boolean left = true;
                for (int m = 0; m < n; m++) {
                    left &= indices[m] != i;
                }
                if (left
                        && (best < 0
                                || x[i] > x[best]
                                || (Float.isNaN(x[best]) && !Float.isNaN(x[i])))) {
                    best = i;
                }
            }
            indices[n] = best;
        }
    }
}
