package io.jccl.examples;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The network in plain Java, on arrays. */
final class PlainTraining implements Network {
    /** First matrix, first bias, second matrix, second bias, and their gradients. */
    private final float[][] values;

    private final float[][] gradients;
    private final List<Buffer> weights = new ArrayList<>();

    PlainTraining(int features, long seed) {
        int[] counts = {features * HIDDEN, HIDDEN, HIDDEN, 1};
        values = new float[counts.length][];
        gradients = new float[counts.length][];
        for (int w = 0; w < counts.length; w++) {
            values[w] = Network.initial(counts[w], seed + w);
            gradients[w] = new float[counts[w]];
            weights.add(view(values[w]));
        }
    }

    /**
     * Trains as a rank of a launcher.
     *
     * @param args none
     */
    public static void main(String[] args) {
        Comparison.run("plain Java", seed -> new PlainTraining(Training.FEATURES, seed));
    }

    private static Buffer view(float[] array) {
        return Buffer.wrap(MemorySegment.ofArray(array), DataType.FLOAT32);
    }

    @Override
    public List<Buffer> weights() {
        return weights;
    }

    @Override
    public Buffer gradient(int weight) {
        return view(gradients[weight]);
    }

    /** A copy of the weights. */
    float[][] values() {
        float[][] copy = new float[values.length][];
        for (int w = 0; w < copy.length; w++) {
            copy[w] = values[w].clone();
        }
        return copy;
    }

    /** What weights make of an example; the units between the matrices stay in the array. */
    static float predict(float[][] values, float[] x, int at, int features, float[] units) {
        float y = values[3][0];
        for (int h = 0; h < HIDDEN; h++) {
            float sum = values[1][h];
            for (int f = 0; f < features; f++) {
                sum += x[at + f] * values[0][f * HIDDEN + h];
            }
            units[h] = (float) Math.tanh(sum);
            y += units[h] * values[2][h];
        }
        return y;
    }

    @Override
    public double backward(Regression examples) {
        for (float[] g : gradients) {
            Arrays.fill(g, 0);
        }
        int features = examples.features();
        float[] units = new float[HIDDEN];
        double loss = 0;
        for (int i = 0; i < examples.rows(); i++) {
            int at = i * features;
            float error = predict(values, examples.x(), at, features, units) - examples.y()[i];
            loss += (double) error * error / examples.rows();
            float up = 2 * error / examples.rows();
            gradients[3][0] += up;
            for (int h = 0; h < HIDDEN; h++) {
                gradients[2][h] += up * units[h];
                float inner = up * values[2][h] * (1 - units[h] * units[h]);
                gradients[1][h] += inner;
                for (int f = 0; f < features; f++) {
                    gradients[0][f * HIDDEN + h] += inner * examples.x()[at + f];
                }
            }
        }
        return loss;
    }

    @Override
    public void close() {
        weights.forEach(Buffer::close);
    }
}
