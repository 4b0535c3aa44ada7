package io.jccl.train;

import io.jccl.compute.Activation;
import io.jccl.compute.AttentionShape;
import io.jccl.compute.Compute;
import io.jccl.compute.Layers;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A model's computations other than products, on the memory of one device, in the order of its
 * default stream. Elements are float32 unless documented otherwise. The host and a GPU have the
 * same formulas, those of {@link Compute}; nothing waits for a GPU but {@link #takeLoss}.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class Operations implements AutoCloseable {
    private final Owned owned = new Owned();
    private final Device device;
    private final @Nullable DataType factors;
    private final Compute compute;
    private final Layers layers;
    private final Stream stream;
    private final Buffer losses;
    private final Buffer answer;

    /** Parts of the losses by the number of the call. */
    private final List<Buffer> parts = new ArrayList<>();

    private int calls;
    private long lossRows;

    /**
     * The operations of a device.
     *
     * @param device the host or a GPU
     * @param threads that compute on the host, including the calling one: 1 to 1024
     * @param factors type that attention is computed with; null for float32
     * @param mostRows maximum rows of {@link #crossEntropy} between two {@link #takeLoss}
     */
    Operations(Device device, int threads, @Nullable DataType factors, long mostRows) {
        this.device = device;
        this.factors = factors;
        stream = device.defaultStream();
        boolean gpu = device.kind() == Device.Kind.CUDA;
        try {
            compute = owned.add(gpu ? Compute.of(device) : Compute.host(threads));
            layers = compute.layers();
            losses = owned.add(device.allocate(DataType.FLOAT32, mostRows));
            answer = gpu ? owned.add(Cuda.pinned(DataType.FLOAT32, mostRows)) : losses;
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
    }

    /** Causal self-attention of one shape; see {@link Layers#attention}. */
    final class Attention {
        private final AttentionShape shape;
        private final Buffer scratch;

        /** Rows of a narrower type, for rows of float32; null if they are not rounded. */
        private final @Nullable Rounded rounded;

        private Attention(AttentionShape shape, Buffer scratch, @Nullable Rounded rounded) {
            this.shape = shape;
            this.scratch = scratch;
            this.rounded = rounded;
        }

        /** From rows of queries, keys and values to rows of outputs and the sums kept of them. */
        void forward(Buffer qkv, Buffer out, Buffer logSums) {
            Rounded r = rounded;
            if (r == null) {
                layers.attention(shape, qkv, out, logSums, stream);
                return;
            }
            compute.cast(qkv, r.in, stream);
            layers.attention(shape, r.in, r.result, logSums, stream);
            compute.cast(r.result, out, stream);
        }

        /** From the gradient of the outputs to that of the queries, keys and values. */
        void backward(
                Buffer qkv, Buffer out, Buffer logSums, Buffer outputGradient, Buffer gradient) {
            Rounded r = rounded;
            if (r == null) {
                layers.attentionBackward(
                        shape, qkv, out, logSums, outputGradient, scratch, gradient, stream);
                return;
            }
            compute.cast(qkv, r.in, stream);
            compute.cast(out, r.result, stream);
            compute.cast(outputGradient, r.resultGradient, stream);
            layers.attentionBackward(
                    shape,
                    r.in,
                    r.result,
                    logSums,
                    r.resultGradient,
                    scratch,
                    r.inGradient,
                    stream);
            compute.cast(r.inGradient, gradient, stream);
        }
    }

    private record Rounded(Buffer in, Buffer result, Buffer resultGradient, Buffer inGradient) {}

    /**
     * Attention of a micro-batch.
     *
     * @param shape sizes
     * @param scratch an element for each row and head, overwritten by the backward pass
     * @param owner gets other scratch memory
     */
    Attention attention(AttentionShape shape, Buffer scratch, Owned owner) {
        DataType type = factors;
        if (type == null) {
            return new Attention(shape, scratch, null);
        }
        long in = shape.rows() * shape.rowWidth();
        long out = shape.rows() * shape.outputWidth();
        Rounded rounded =
                new Rounded(
                        owner.allocate(device, type, in),
                        owner.allocate(device, type, out),
                        owner.allocate(device, type, out),
                        owner.allocate(device, type, in));
        return new Attention(shape, scratch, rounded);
    }

    /** The kernels of the device, for operations that only some architectures have. */
    Compute compute() {
        return compute;
    }

    /** Those of layers. */
    Layers layers() {
        return layers;
    }

    /** Adds two vectors; the sum may be one of them. */
    void add(Buffer a, Buffer b, Buffer sum) {
        compute.add(a, b, sum, stream);
    }

    /** Squares elements above 0; others become 0. */
    void reluSquared(Buffer x, Buffer y) {
        layers.activate(Activation.RELU_SQUARED, x, y, stream);
    }

    /** Changes the gradient of squares to that of their inputs, in place. */
    void reluSquaredBackward(Buffer x, Buffer gradient) {
        layers.activateBackward(Activation.RELU_SQUARED, x, gradient, stream);
    }

    /** Rows of a table that an int32 index names. */
    void lookUp(Buffer table, int width, Buffer index, Buffer rows) {
        compute.gatherRows(table, width, index, rows, stream);
    }

    /** Adds rows to those rows of a table that an int32 index names, one after the other. */
    void scatterAdd(Buffer rows, int width, Buffer index, Buffer table) {
        layers.scatterAddRows(rows, width, index, table, stream);
    }

    /** Elements from the start of a row of logits to the next, at least as many as tokens. */
    int pitch(int tokens) {
        int unit = device.kind() == Device.Kind.CUDA ? RoundedMatmul.ALIGNED : 1;
        return Math.ceilDiv(tokens, unit) * unit;
    }

    /**
     * Adds the softmax cross entropy of each row to the loss.
     *
     * @param logits rows of the pitch, replaced by the gradient times the scale
     * @param tokens elements of a row
     * @param targets int32, the right token of each row
     * @param scale factor of the gradient
     */
    void crossEntropy(Buffer logits, int tokens, Buffer targets, float scale) {
        if (calls == parts.size()) {
            parts.add(losses.slice(lossRows, targets.count()));
        }
        Buffer to = parts.get(calls++);
        lossRows += targets.count();
        layers.crossEntropy(logits, pitch(tokens), tokens, targets, to, logits, scale, stream);
    }

    /** Waits for the sum of all losses since the last call, in nats. */
    double takeLoss() {
        if (lossRows == 0) {
            return 0;
        }
        if (answer != losses) {
            stream.copy(losses.slice(0, lossRows), answer.slice(0, lossRows));
            stream.synchronize();
        }
        double sum = 0;
        for (long r = 0; r < lossRows; r++) {
            sum += answer.get(r);
        }
        calls = 0;
        lossRows = 0;
        return sum;
    }

    /** Copies float32 to bfloat16 or float32, or the other way round. */
    void convert(Buffer from, Buffer to) {
        compute.cast(from, to, stream);
    }

    /**
     * Adds float32 times a factor to float32 or bfloat16, rounded once.
     *
     * @param from float32
     * @param factor its multiplier
     * @param to as many elements
     * @param scratch as many float32, overwritten
     */
    void accumulate(Buffer from, float factor, Buffer to, Buffer scratch) {
        if (to.dataType() == DataType.FLOAT32) {
            compute.axpy(factor, from, to, stream);
            return;
        }
        compute.cast(to, scratch, stream);
        compute.axpy(factor, from, scratch, stream);
        compute.cast(scratch, to, stream);
    }

    /** Sets all elements to 0. */
    void zero(Buffer target) {
        compute.fill(target, 0, stream);
    }

    @Override
    public void close() {
        owned.close();
    }
}
