package io.jccl.train;

import io.jccl.compute.Compute;
import io.jccl.compute.Layers;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import org.jspecify.annotations.Nullable;

/**
 * A model's computations other than products, on the memory of one device, in the order of its
 * default stream. Elements are float32 unless documented otherwise. The host and a GPU have the
 * same formulas: those of {@code io.jccl.kernel.LayerLoops} and of the kernels that are tested
 * against them.
 *
 * <p><b>Threads:</b> one at a time.
 */
interface Operations extends AutoCloseable {
    /**
     * The operations of a device.
     *
     * @param device the host or a GPU
     * @param threads that compute on the host, including the calling one: 1 to 1024
     * @param factors type that attention on a GPU is computed with; null for float32
     * @param lossRows maximum rows of {@link #crossEntropy} between two {@link #takeLoss}
     */
    static Operations of(Device device, int threads, @Nullable DataType factors, long lossRows) {
        return device.kind() == Device.Kind.CUDA
                ? new DeviceOperations(device, factors, lossRows)
                : new HostOperations(threads);
    }

    /** Causal self-attention of one shape; see {@code io.jccl.compute.Layers#attention}. */
    interface Attention {
        /** From rows of queries, keys and values to rows of outputs and the sums kept of them. */
        void forward(Buffer qkv, Buffer out, Buffer logSums);

        /** From the gradient of the outputs to that of the queries, keys and values. */
        void backward(
                Buffer qkv, Buffer out, Buffer logSums, Buffer outputGradient, Buffer gradient);
    }

    /** Attention of a micro-batch; scratch memory goes to the owner. */
    Attention attention(int sequences, int context, int heads, int keyHeads, int size, Owned owned);

    /** The kernels of the device, for operations that only some architectures have. */
    Compute compute();

    /** Those of layers. */
    default Layers layers() {
        return compute().layers();
    }

    /** Elements that {@link #norm} keeps of each row. */
    int kept();

    /**
     * Divides rows by their root mean square.
     *
     * @param kept {@link #kept} elements for each row, for the backward pass
     */
    void norm(Buffer x, int width, Buffer normed, Buffer kept);

    /** Adds the gradient of a norm's input to a gradient. */
    void normBackward(Buffer x, int width, Buffer kept, Buffer normedGradient, Buffer gradient);

    /** Adds two vectors; the sum may be one of them. */
    void add(Buffer a, Buffer b, Buffer sum);

    /** Squares elements above 0; others become 0. */
    void reluSquared(Buffer x, Buffer y);

    /** Changes the gradient of squares to that of their inputs, in place. */
    void reluSquaredBackward(Buffer x, Buffer gradient);

    /**
     * Rows of a table, or sums of a row of each of two tables.
     *
     * @param first rows
     * @param firstIndex int32, for each sum the row of the first table
     * @param second rows; null for one table
     * @param secondIndex int32, for each sum the row of the second table; null for one table
     * @param width elements of a row
     * @param sum the sums
     * @param scratch as many elements, overwritten
     */
    void lookUp(
            Buffer first,
            Buffer firstIndex,
            @Nullable Buffer second,
            @Nullable Buffer secondIndex,
            int width,
            Buffer sum,
            Buffer scratch);

    /** Adds rows to those rows of a table that an int32 index names, one after the other. */
    void scatterAdd(Buffer rows, int width, Buffer index, Buffer table);

    /** Elements from the start of a row of logits to the next, at least as many as tokens. */
    int pitch(int tokens);

    /**
     * Adds the softmax cross entropy of each row to the loss.
     *
     * @param logits rows of the pitch, replaced by the gradient times the scale
     * @param tokens elements of a row
     * @param targets int32, the right token of each row
     * @param scale factor of the gradient
     */
    void crossEntropy(Buffer logits, int tokens, Buffer targets, float scale);

    /** Waits for the sum of all losses since the last call, in nats. */
    double takeLoss();

    /** Copies float32 to bfloat16 or float32, or the other way round. */
    void convert(Buffer from, Buffer to);

    /**
     * Adds float32 times a factor to float32 or bfloat16, rounded once.
     *
     * @param from float32, overwritten
     * @param factor its multiplier
     * @param to as many elements
     * @param scratch as many float32, overwritten
     */
    void accumulate(Buffer from, float factor, Buffer to, Buffer scratch);

    /** Sets all elements to 0. */
    void zero(Buffer target);

    @Override
    void close();
}
