package io.jccl.train;

import io.jccl.compute.Activation;
import io.jccl.compute.AttentionShape;
import io.jccl.compute.Compute;
import io.jccl.compute.Layers;
import io.jccl.compute.Norm;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Kernels of a GPU; nothing waits for them but {@link #takeLoss}. */
final class DeviceOperations implements Operations {
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

    private Norm norm = new Norm(Norm.Kind.RMS, 1, Functions.EPSILON);
    private int calls;
    private long lossRows;

    DeviceOperations(Device device, @Nullable DataType factors, long mostRows) {
        this.device = device;
        this.factors = factors;
        stream = device.defaultStream();
        try {
            compute = owned.add(Compute.of(device));
            layers = compute.layers();
            losses = owned.add(device.allocate(DataType.FLOAT32, mostRows));
            answer = owned.add(Cuda.pinned(DataType.FLOAT32, mostRows));
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
    }

    @Override
    public Attention attention(
            int sequences, int context, int heads, int keyHeads, int size, Owned owner) {
        AttentionShape shape = new AttentionShape(sequences, context, heads, keyHeads, size);
        Buffer scratch = owner.floats(device, shape.rows() * heads);
        Attention attention =
                new Attention() {
                    @Override
                    public void forward(Buffer qkv, Buffer out, Buffer logSums) {
                        layers.attention(shape, qkv, out, logSums, stream);
                    }

                    @Override
                    public void backward(
                            Buffer qkv,
                            Buffer out,
                            Buffer logSums,
                            Buffer outputGradient,
                            Buffer gradient) {
                        layers.attentionBackward(
                                shape,
                                qkv,
                                out,
                                logSums,
                                outputGradient,
                                scratch,
                                gradient,
                                stream);
                    }
                };
        return factors == null ? attention : rounded(attention, shape, factors, owner);
    }

    /** Attention on rows of a narrower type, for rows of float32. */
    private Attention rounded(
            Attention attention, AttentionShape shape, DataType type, Owned owner) {
        Buffer in = owner.allocate(device, type, shape.rows() * shape.rowWidth());
        Buffer result = owner.allocate(device, type, shape.rows() * shape.outputWidth());
        Buffer resultGradient = owner.allocate(device, type, result.count());
        Buffer inGradient = owner.allocate(device, type, in.count());
        return new Attention() {
            @Override
            public void forward(Buffer qkv, Buffer out, Buffer logSums) {
                compute.cast(qkv, in, stream);
                attention.forward(in, result, logSums);
                compute.cast(result, out, stream);
            }

            @Override
            public void backward(
                    Buffer qkv,
                    Buffer out,
                    Buffer logSums,
                    Buffer outputGradient,
                    Buffer gradient) {
                compute.cast(qkv, in, stream);
                compute.cast(out, result, stream);
                compute.cast(outputGradient, resultGradient, stream);
                attention.backward(in, result, logSums, resultGradient, inGradient);
                compute.cast(inGradient, gradient, stream);
            }
        };
    }

    @Override
    public Compute compute() {
        return compute;
    }

    @Override
    public int kept() {
        return 1;
    }

    private Norm rms(int width) {
        if (norm.width() != width) {
            norm = new Norm(Norm.Kind.RMS, width, Functions.EPSILON);
        }
        return norm;
    }

    @Override
    public void norm(Buffer x, int width, Buffer normed, Buffer kept) {
        layers.norm(rms(width), x, null, null, normed, kept, stream);
    }

    @Override
    public void normBackward(
            Buffer x, int width, Buffer kept, Buffer normedGradient, Buffer gradient) {
        layers.normBackward(
                rms(width), x, null, kept, normedGradient, gradient, null, null, stream);
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer sum) {
        compute.add(a, b, sum, stream);
    }

    @Override
    public void reluSquared(Buffer x, Buffer y) {
        layers.activate(Activation.RELU_SQUARED, x, y, stream);
    }

    @Override
    public void reluSquaredBackward(Buffer x, Buffer gradient) {
        layers.activateBackward(Activation.RELU_SQUARED, x, gradient, stream);
    }

    @Override
    public void lookUp(
            Buffer first,
            Buffer firstIndex,
            @Nullable Buffer second,
            @Nullable Buffer secondIndex,
            int width,
            Buffer sum,
            Buffer scratch) {
        compute.gatherRows(first, width, firstIndex, sum, stream);
        if (second != null && secondIndex != null) {
            compute.gatherRows(second, width, secondIndex, scratch, stream);
            compute.add(sum, scratch, sum, stream);
        }
    }

    @Override
    public void scatterAdd(Buffer rows, int width, Buffer index, Buffer table) {
        layers.scatterAddRows(rows, width, index, table, stream);
    }

    @Override
    public int pitch(int tokens) {
        return Math.ceilDiv(tokens, RoundedMatmul.ALIGNED) * RoundedMatmul.ALIGNED;
    }

    @Override
    public void crossEntropy(Buffer logits, int tokens, Buffer targets, float scale) {
        if (calls == parts.size()) {
            parts.add(losses.slice(lossRows, targets.count()));
        }
        Buffer to = parts.get(calls++);
        lossRows += targets.count();
        layers.crossEntropy(logits, pitch(tokens), tokens, targets, to, logits, scale, stream);
    }

    @Override
    public double takeLoss() {
        if (lossRows == 0) {
            return 0;
        }
        stream.copy(losses.slice(0, lossRows), answer.slice(0, lossRows));
        stream.synchronize();
        double sum = 0;
        for (long r = 0; r < lossRows; r++) {
            sum += answer.get(r);
        }
        calls = 0;
        lossRows = 0;
        return sum;
    }

    @Override
    public void convert(Buffer from, Buffer to) {
        compute.cast(from, to, stream);
    }

    @Override
    public void accumulate(Buffer from, float factor, Buffer to, Buffer scratch) {
        if (to.dataType() == DataType.FLOAT32) {
            compute.axpy(factor, from, to, stream);
            return;
        }
        compute.cast(to, scratch, stream);
        compute.axpy(factor, from, scratch, stream);
        compute.cast(scratch, to, stream);
    }

    @Override
    public void zero(Buffer target) {
        compute.fill(target, 0, stream);
    }

    @Override
    public void close() {
        owned.close();
    }
}
