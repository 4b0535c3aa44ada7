package io.jccl.interop;

import java.util.Random;

/**
 * A linear regression whose examples are the same whoever makes them: {@code y = X v} with noise.
 *
 * @param rows number of examples
 * @param features number of inputs
 * @param x rows x features, row after row
 * @param y one number for each example
 */
record Regression(int rows, int features, float[] x, float[] y) {
    /** Examples that follow from the seed. */
    static Regression of(int rows, int features, long seed) {
        Random random = new Random(seed);
        float[] v = new float[features];
        for (int f = 0; f < features; f++) {
            v[f] = (float) random.nextGaussian();
        }
        float[] x = new float[rows * features];
        float[] y = new float[rows];
        for (int i = 0; i < rows; i++) {
            for (int f = 0; f < features; f++) {
                x[i * features + f] = (float) random.nextGaussian();
                y[i] += x[i * features + f] * v[f];
            }
            y[i] += (float) (0.01 * random.nextGaussian());
        }
        return new Regression(rows, features, x, y);
    }

    /** The share of a rank: as many examples as every other gets. */
    Regression share(int rank, int ranks) {
        int n = rows / ranks;
        float[] ownX = new float[n * features];
        float[] ownY = new float[n];
        System.arraycopy(x, rank * n * features, ownX, 0, ownX.length);
        System.arraycopy(y, rank * n, ownY, 0, n);
        return new Regression(n, features, ownX, ownY);
    }

    /** Throws unless two gradients are equal but for the order of their sums. */
    static void requireNear(float[] expected, float[] found, String what) {
        float most = 0;
        for (float v : expected) {
            most = Math.max(most, Math.abs(v));
        }
        for (int f = 0; f < expected.length; f++) {
            if (!(Math.abs(expected[f] - found[f]) <= 1e-5f * most)) {
                throw new IllegalStateException(
                        what
                                + " differs from that of a single process: element "
                                + f
                                + " is "
                                + found[f]
                                + ", expected "
                                + expected[f]);
            }
        }
    }
}
