package io.jccl.offload.optim;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Consecutive elements that an {@link Optimizer#apply optimizer's kernel} updates. Indices count
 * from the first of them.
 *
 * <p><b>Threads:</b> one at a time; valid until the kernel returns.
 */
public final class Slice {
    /** Elements at most. */
    static final int MOST = Chunks.CHUNK;

    /** Room for the decoded blocks of two tensors. */
    final float[] scratch = new float[2 * Quantized.BLOCK];

    final double[] sums = new double[Optimizer.MOST_SUMS];
    final MemorySegment[] tensors = new MemorySegment[Optimizer.MOST_STATE];
    MemorySegment parameters = UpdateWork.NONE;
    MemorySegment gradients = UpdateWork.NONE;
    DataType type = DataType.FLOAT32;
    long from;
    long gradientFrom;
    int count;
    int pass;
    long step;
    double learningRate;
    float factor;

    Slice() {
        Arrays.fill(tensors, UpdateWork.NONE);
    }

    /**
     * Number of elements.
     *
     * @return 0 to 65536
     */
    public int count() {
        return count;
    }

    /**
     * Which pass over the elements this is; see {@link Optimizer#sums}.
     *
     * @return 0; 1 in the second pass of a rule with sums
     */
    public int pass() {
        return pass;
    }

    /**
     * The number of the step.
     *
     * @return 1 or more
     */
    public long step() {
        return step;
    }

    /**
     * The learning rate.
     *
     * @return 0 or more
     */
    public double learningRate() {
        return learningRate;
    }

    /**
     * A gradient, unscaled and clipped.
     *
     * @param i its index
     * @return the gradient in float32
     */
    public float gradient(int i) {
        long at = gradientFrom + i;
        return factor
                * switch (type) {
                    case FLOAT32 -> gradients.get(JAVA_FLOAT_UNALIGNED, at * Float.BYTES);
                    case BFLOAT16 ->
                            Bfloat16.toFloat(gradients.get(JAVA_SHORT_UNALIGNED, at * Short.BYTES));
                    default ->
                            Float.float16ToFloat(
                                    gradients.get(JAVA_SHORT_UNALIGNED, at * Short.BYTES));
                };
    }

    /**
     * A parameter.
     *
     * @param i its index
     * @return its value
     */
    public float parameter(int i) {
        return parameters.get(JAVA_FLOAT_UNALIGNED, (from + i) * Float.BYTES);
    }

    /**
     * Sets a parameter.
     *
     * @param i its index
     * @param value its new value
     */
    public void setParameter(int i, float value) {
        parameters.set(JAVA_FLOAT_UNALIGNED, (from + i) * Float.BYTES, value);
    }

    /**
     * A value of a float32 tensor.
     *
     * @param tensor its index in {@link Optimizer#state}
     * @param i index of the element
     * @return the value
     */
    public float state(int tensor, int i) {
        return tensors[tensor].get(JAVA_FLOAT_UNALIGNED, (from + i) * Float.BYTES);
    }

    /**
     * Sets a value of a float32 tensor.
     *
     * @param tensor its index in {@link Optimizer#state}
     * @param i index of the element
     * @param value the new value
     */
    public void setState(int tensor, int i, float value) {
        tensors[tensor].set(JAVA_FLOAT_UNALIGNED, (from + i) * Float.BYTES, value);
    }

    /**
     * Adds to a sum over the whole tensor, in the first pass.
     *
     * @param index its index, less than {@link Optimizer#sums}
     * @param value what is added
     */
    public void add(int index, double value) {
        sums[index] += value;
    }

    /**
     * A sum over the whole tensor, in the second pass.
     *
     * @param index its index, less than {@link Optimizer#sums}
     * @return the sum over all slices and all ranks
     */
    public double sum(int index) {
        return sums[index];
    }
}
