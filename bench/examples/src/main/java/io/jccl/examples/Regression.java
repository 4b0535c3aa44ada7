package io.jccl.examples;

import java.util.Random;

/**
 * Examples of {@code y = tanh(x v)} with noise, the same on every rank.
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
        double[] v = random.doubles(features, -1, 1).toArray();
        float[] x = new float[rows * features];
        float[] y = new float[rows];
        for (int i = 0; i < rows; i++) {
            double sum = 0;
            for (int f = 0; f < features; f++) {
                x[i * features + f] = (float) random.nextGaussian();
                sum += x[i * features + f] * v[f];
            }
            y[i] = (float) (Math.tanh(sum) + 0.01 * random.nextGaussian());
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
}
