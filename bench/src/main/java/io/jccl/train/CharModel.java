package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.MemorySegment;
import java.util.SplittableRandom;

/**
 * Predicts the next character: the last few characters' embeddings, one tanh layer, a softmax.
 *
 * <p>Parameters and gradients are flat runs of float32 in memory that the caller provides, one
 * layer behind the other, so that the buffers of a communicator can be worked on directly.
 *
 * <p>Everything runs in a fixed order and uses {@link StrictMath}, so that the same inputs give the
 * same bits.
 *
 * <p><b>Threads:</b> one thread at a time.
 */
public final class CharModel {
    /** How many characters a prediction sees. */
    public static final int CONTEXT = 8;

    private static final int TOKENS = Grammar.ALPHABET.length();
    private static final int EMBEDDING = 8;
    private static final int INPUTS = CONTEXT * EMBEDDING;

    private final int hidden;
    private final MemorySegment parameters;
    private final MemorySegment gradients;

    /** Where each layer starts; embeddings start at 0. Weights are stored a row per input. */
    private final int hiddenWeights = TOKENS * EMBEDDING;

    private final int hiddenBias;
    private final int outputWeights;
    private final int outputBias;

    private final float[] input = new float[INPUTS];
    private final float[] activation;
    private final float[] probability = new float[TOKENS];
    private final float[] error;

    /**
     * Creates a model over existing memory.
     *
     * @param hidden width of the tanh layer
     * @param parameters room for {@link #size} float32
     * @param gradients as much again
     */
    public CharModel(int hidden, MemorySegment parameters, MemorySegment gradients) {
        this.hidden = hidden;
        this.parameters = parameters;
        this.gradients = gradients;
        this.hiddenBias = hiddenWeights + INPUTS * hidden;
        this.outputWeights = hiddenBias + hidden;
        this.outputBias = outputWeights + hidden * TOKENS;
        this.activation = new float[hidden];
        this.error = new float[hidden];
    }

    /**
     * Number of parameters.
     *
     * @param hidden width of the tanh layer
     * @return their number
     */
    public static int size(int hidden) {
        return TOKENS * EMBEDDING + (INPUTS + 1) * hidden + (hidden + 1) * TOKENS;
    }

    /**
     * Sets the parameters to small random values, biases to 0.
     *
     * @param seed chooses them
     */
    public void initialize(long seed) {
        SplittableRandom random = new SplittableRandom(seed);
        parameters.fill((byte) 0);
        uniform(random, 0, hiddenWeights, 1);
        uniform(random, hiddenWeights, hiddenBias, 1 / StrictMath.sqrt(INPUTS));
        uniform(random, outputWeights, outputBias, 1 / StrictMath.sqrt(hidden));
    }

    private void uniform(SplittableRandom random, int from, int to, double bound) {
        for (int i = from; i < to; i++) {
            set(parameters, i, (float) random.nextDouble(-bound, bound));
        }
    }

    /**
     * Adds the gradient of one prediction's loss.
     *
     * @param text the text
     * @param at which token to predict, {@link #CONTEXT} or more
     * @return its loss: minus the logarithm of the probability given to it
     */
    public double addGradient(byte[] text, int at) {
        forward(text, at);
        int target = text[at];
        double loss = -StrictMath.log(Math.max(probability[target], Float.MIN_NORMAL));
        probability[target] -= 1; // now the derivative by the softmax's inputs

        for (int v = 0; v < TOKENS; v++) {
            add(gradients, outputBias + v, probability[v]);
        }
        for (int j = 0; j < hidden; j++) {
            int row = outputWeights + j * TOKENS;
            float a = activation[j];
            float sum = 0;
            for (int v = 0; v < TOKENS; v++) {
                sum += probability[v] * get(parameters, row + v);
                add(gradients, row + v, a * probability[v]);
            }
            error[j] = sum * (1 - a * a);
            add(gradients, hiddenBias + j, error[j]);
        }
        for (int i = 0; i < INPUTS; i++) {
            int row = hiddenWeights + i * hidden;
            float x = input[i];
            float sum = 0;
            for (int j = 0; j < hidden; j++) {
                sum += error[j] * get(parameters, row + j);
                add(gradients, row + j, x * error[j]);
            }
            add(gradients, embedding(text, at, i), sum);
        }
        return loss;
    }

    /** Leaves the probabilities of all tokens at a place in {@link #probability}. */
    private void forward(byte[] text, int at) {
        for (int i = 0; i < INPUTS; i++) {
            input[i] = get(parameters, embedding(text, at, i));
        }
        for (int j = 0; j < hidden; j++) {
            activation[j] = get(parameters, hiddenBias + j);
        }
        for (int i = 0; i < INPUTS; i++) {
            int row = hiddenWeights + i * hidden;
            for (int j = 0; j < hidden; j++) {
                activation[j] += input[i] * get(parameters, row + j);
            }
        }
        for (int v = 0; v < TOKENS; v++) {
            probability[v] = get(parameters, outputBias + v);
        }
        for (int j = 0; j < hidden; j++) {
            activation[j] = (float) StrictMath.tanh(activation[j]);
            int row = outputWeights + j * TOKENS;
            for (int v = 0; v < TOKENS; v++) {
                probability[v] += activation[j] * get(parameters, row + v);
            }
        }
        float max = Float.NEGATIVE_INFINITY;
        for (float z : probability) {
            max = Math.max(max, z); // keeps exp from overflowing
        }
        float sum = 0;
        for (int v = 0; v < TOKENS; v++) {
            probability[v] = (float) StrictMath.exp(probability[v] - max);
            sum += probability[v];
        }
        for (int v = 0; v < TOKENS; v++) {
            probability[v] /= sum;
        }
    }

    private static int embedding(byte[] text, int at, int input) {
        return text[at - CONTEXT + input / EMBEDDING] * EMBEDDING + input % EMBEDDING;
    }

    /**
     * Continues a text.
     *
     * @param start at least {@link #CONTEXT} tokens
     * @param count how many to add
     * @param seed chooses among likely characters
     * @return what was added
     */
    public String sample(byte[] start, int count, long seed) {
        SplittableRandom random = new SplittableRandom(seed);
        byte[] text = new byte[CONTEXT + count];
        System.arraycopy(start, 0, text, 0, CONTEXT);
        StringBuilder added = new StringBuilder(count);
        for (int at = CONTEXT; at < text.length; at++) {
            forward(text, at);
            double left = random.nextDouble();
            byte token = 0;
            while (token < TOKENS - 1 && (left -= probability[token]) >= 0) {
                token++;
            }
            text[at] = token;
            added.append(Grammar.ALPHABET.charAt(token));
        }
        return added.toString();
    }

    private static float get(MemorySegment m, int index) {
        return m.getAtIndex(JAVA_FLOAT, index);
    }

    private static void set(MemorySegment m, int index, float value) {
        m.setAtIndex(JAVA_FLOAT, index, value);
    }

    private static void add(MemorySegment m, int index, float value) {
        m.setAtIndex(JAVA_FLOAT, index, m.getAtIndex(JAVA_FLOAT, index) + value);
    }
}
