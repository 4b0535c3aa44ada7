package io.jccl.examples;

import io.jccl.device.Buffer;
import java.util.List;
import java.util.Random;

/**
 * What {@link Training} needs of a framework: weights and gradients as float32 buffers, best as
 * views of the framework's own memory. The networks here all compute {@code tanh(x W1 + b1) W2 +
 * b2} and the mean squared error.
 */
interface Network extends AutoCloseable {
    /** Units between the two matrices. */
    int HIDDEN = 16;

    /** The weights, in the order of the forward computation. What is written there counts. */
    List<Buffer> weights();

    /**
     * Computes the mean loss of some examples and its gradients.
     *
     * @return the loss before the step
     */
    double backward(Regression examples);

    /** The gradient of a weight since the last {@link #backward}; the caller closes it. */
    Buffer gradient(int weight);

    @Override
    void close();

    /** Initial values, other ones for each seed: small numbers. */
    static float[] initial(int count, long seed) {
        Random random = new Random(seed);
        float[] values = new float[count];
        for (int i = 0; i < count; i++) {
            values[i] = (float) (0.2 * random.nextGaussian());
        }
        return values;
    }
}
