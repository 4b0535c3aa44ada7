package io.jccl.compute;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaKernel;
import io.jccl.device.cuda.CudaStream;
import io.jccl.device.cuda.KernelLaunch;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Launches the kernels of layers.h, loss.h, experts.h, attention.h and tensor.h. */
final class CudaLayers implements Layers {
    /** Bytes of a row in the columns that a block sums, as in layers.h. */
    private static final int SUMMED = 32;

    /** Rows that a block of attention.h works on. */
    private static final int TILE = 16;

    /** Rows that a block of tensor.h works on, and the head sizes that its loops are made for. */
    private static final int STRIPS = 128;

    private static final int[] HEAD_SIZES = {32, 64, 128};

    /** Elements and bytes that tensor.h loads at a time. */
    private static final int LOADED = 8;

    private static final int LOADED_BYTES = 16;

    private static final int TYPES = DataType.values().length;

    private final CudaCompute compute;
    private final @Nullable CudaKernel[] norm = new CudaKernel[2 * TYPES];
    private final @Nullable CudaKernel[] normBackward = new CudaKernel[2 * TYPES];
    private final @Nullable CudaKernel[] normWeight = new CudaKernel[2 * TYPES];
    private final @Nullable CudaKernel[] activation = new CudaKernel[2 * TYPES];
    private final @Nullable CudaKernel[] activationBackward = new CudaKernel[2 * TYPES];
    private final @Nullable CudaKernel[] swiglu = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] swigluBackward = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] rotary = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] bias = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] columnSums = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] scatterAdd = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] topK = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] combineRows = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] rowDots = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] crossEntropy = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] attentionDots = new CudaKernel[TYPES];
    private final @Nullable Attention[] attention = new Attention[TYPES];

    /** By head size and type; none on devices without tensor cores. */
    private final @Nullable Attention[] tensorAttention = new Attention[HEAD_SIZES.length * TYPES];

    /** Kernels of one way to compute attention, and the rows that a block works on. */
    private record Attention(
            CudaKernel forward, CudaKernel queries, CudaKernel keys, int rowsOfBlock) {
        long units(AttentionShape shape, int heads) {
            long tiles = (shape.context() + rowsOfBlock - 1L) / rowsOfBlock;
            return shape.sequences() * tiles * heads;
        }
    }

    CudaLayers(CudaCompute compute) {
        this.compute = compute;
        for (DataType type :
                new DataType[] {DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT16}) {
            int i = type.ordinal();
            for (Norm.Kind kind : Norm.Kind.values()) {
                int at = kind.ordinal() * TYPES + i;
                String name = kind.name().toLowerCase(Locale.ROOT);
                norm[at] = kernel(name, type);
                normBackward[at] = kernel(name + "_backward", type);
                normWeight[at] = kernel(name + "_weight", type);
            }
            for (Activation function : Activation.values()) {
                int at = function.ordinal() * TYPES + i;
                String name = function.name().toLowerCase(Locale.ROOT);
                activation[at] = kernel(name, type);
                activationBackward[at] = kernel(name + "_backward", type);
            }
            swiglu[i] = kernel("swiglu", type);
            swigluBackward[i] = kernel("swiglu_backward", type);
            rotary[i] = kernel("rotary", type);
            bias[i] = kernel("bias", type);
            columnSums[i] = kernel("column_sums", type);
            scatterAdd[i] = kernel("scatter_add", type);
            topK[i] = kernel("top_k", type);
            combineRows[i] = kernel("combine_rows", type);
            rowDots[i] = kernel("row_dots", type);
            crossEntropy[i] = kernel("cross_entropy", type);
            attentionDots[i] = kernel("attention_dots", type);
            attention[i] =
                    new Attention(
                            kernel("attention", type),
                            kernel("attention_queries", type),
                            kernel("attention_keys", type),
                            TILE);
        }
        CudaDevice device = CudaDevice.of(compute.device());
        if (CudaKernel.Image.TENSOR.runsOn(device)) {
            for (DataType type : new DataType[] {DataType.BFLOAT16, DataType.FLOAT16}) {
                for (int n = 0; n < HEAD_SIZES.length; n++) {
                    String suffix = "_" + CudaCompute.name(type) + "_" + HEAD_SIZES[n];
                    tensorAttention[n * TYPES + type.ordinal()] =
                            new Attention(
                                    tensor("attention_tensor" + suffix, device),
                                    tensor("attention_tensor_queries" + suffix, device),
                                    tensor("attention_tensor_keys" + suffix, device),
                                    STRIPS);
                }
            }
        }
    }

    private CudaKernel kernel(String name, DataType type) {
        return compute.kernel(name + "_" + CudaCompute.name(type));
    }

    private static CudaKernel tensor(String name, CudaDevice device) {
        return CudaKernel.of(CudaKernel.Image.TENSOR, name, device);
    }

    /**
     * The kernels for a shape and its buffers: those for tensor cores load 16 bytes at a time,
     * which a slice may not be aligned for, and count rows of heads in 32 bits.
     */
    private Attention kernels(AttentionShape shape, Buffer qkv, Buffer out, Buffer gradient) {
        int type = qkv.dataType().ordinal();
        long addresses = qkv.address() | out.address() | gradient.address();
        boolean counted = shape.rows() * shape.heads() <= Integer.MAX_VALUE;
        if (shape.size() % LOADED == 0 && addresses % LOADED_BYTES == 0 && counted) {
            for (int n = 0; n < HEAD_SIZES.length; n++) {
                Attention found = tensorAttention[n * TYPES + type];
                if (shape.size() <= HEAD_SIZES[n] && found != null) {
                    return found;
                }
            }
        }
        return Objects.requireNonNull(attention[type]);
    }

    private static KernelLaunch launch(@Nullable CudaKernel[] kernels, Buffer x) {
        return launch(kernels, 0, x);
    }

    private static KernelLaunch launch(@Nullable CudaKernel[] kernels, int kind, Buffer x) {
        return Objects.requireNonNull(kernels[kind * TYPES + x.dataType().ordinal()]).launch();
    }

    private CudaStream on(Stream stream) {
        return compute.on(stream);
    }

    private int blocks(long elements) {
        return compute.blocks(elements);
    }

    /** A thread for each unit, as far as they run at once. */
    private int blocksOfThreads(long units) {
        return compute.blocksOf((units + CudaKernel.BLOCK - 1) / CudaKernel.BLOCK);
    }

    private int blocksOfSums(Buffer x, long width) {
        int columns = SUMMED / x.dataType().size();
        return compute.blocksOf((width + columns - 1) / columns);
    }

    @Override
    public void norm(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            @Nullable Buffer bias,
            Buffer y,
            Buffer statistics,
            Stream stream) {
        long rows = x.count() / norm.width();
        launch(this.norm, norm.kind().ordinal(), x)
                .put(x)
                .put(rows)
                .put((long) norm.width())
                .put(weight)
                .put(bias)
                .put(norm.epsilon())
                .put(y)
                .put(statistics)
                .run(on(stream), compute.blocksOf(rows));
    }

    @Override
    public void normBackward(
            Norm norm,
            Buffer x,
            @Nullable Buffer weight,
            Buffer statistics,
            Buffer outputGradient,
            Buffer gradient,
            @Nullable Buffer weightGradient,
            @Nullable Buffer biasGradient,
            Stream stream) {
        long rows = x.count() / norm.width();
        launch(normBackward, norm.kind().ordinal(), x)
                .put(x)
                .put(rows)
                .put((long) norm.width())
                .put(weight)
                .put(statistics)
                .put(outputGradient)
                .put(gradient)
                .run(on(stream), compute.blocksOf(rows));
        if (weightGradient != null) {
            normWeight(norm, x, statistics, outputGradient, weightGradient, stream);
        }
        if (biasGradient != null) {
            columnSums(outputGradient, biasGradient, stream);
        }
    }

    private void normWeight(
            Norm norm,
            Buffer x,
            Buffer statistics,
            Buffer outputGradient,
            Buffer gradient,
            Stream stream) {
        launch(normWeight, norm.kind().ordinal(), x)
                .put(x)
                .put(x.count() / norm.width())
                .put((long) norm.width())
                .put(statistics)
                .put(outputGradient)
                .put(gradient)
                .run(on(stream), blocksOfSums(x, norm.width()));
    }

    @Override
    public void activate(Activation function, Buffer x, Buffer y, Stream stream) {
        launch(activation, function.ordinal(), x)
                .put(x)
                .put(y)
                .put(x.count())
                .run(on(stream), blocks(x.count()));
    }

    @Override
    public void activateBackward(Activation function, Buffer x, Buffer gradient, Stream stream) {
        launch(activationBackward, function.ordinal(), x)
                .put(x)
                .put(gradient)
                .put(x.count())
                .run(on(stream), blocks(x.count()));
    }

    @Override
    public void swiglu(Buffer x, int width, Buffer y, Stream stream) {
        launch(swiglu, x)
                .put(x)
                .put((long) width)
                .put(y)
                .put(y.count())
                .run(on(stream), blocks(y.count()));
    }

    @Override
    public void swigluBackward(
            Buffer x, int width, Buffer outputGradient, Buffer gradient, Stream stream) {
        long count = outputGradient.count();
        launch(swigluBackward, x)
                .put(x)
                .put((long) width)
                .put(outputGradient)
                .put(gradient)
                .put(count)
                .run(on(stream), blocks(count));
    }

    @Override
    public void rotate(Rotary rotary, Buffer x, Buffer angles, boolean backward, Stream stream) {
        long rows = x.count() / rotary.rowWidth();
        launch(this.rotary, x)
                .put(x)
                .put(rows)
                .put(rotary.rowWidth())
                .put(rotary.heads())
                .put(rotary.size())
                .put(rotary.context())
                .put(angles)
                .put(backward ? -1f : 1f)
                .run(on(stream), blocks(rows * rotary.heads() * (rotary.size() / 2)));
    }

    @Override
    public void addBias(Buffer x, Buffer bias, Stream stream) {
        launch(this.bias, x)
                .put(x)
                .put(bias)
                .put(bias.count())
                .put(x.count())
                .run(on(stream), blocks(x.count()));
    }

    @Override
    public void columnSums(Buffer x, Buffer target, Stream stream) {
        launch(columnSums, x)
                .put(x)
                .put(x.count() / target.count())
                .put(target.count())
                .put(target)
                .run(on(stream), blocksOfSums(x, target.count()));
    }

    @Override
    public void scatterAddRows(
            Buffer source, int width, Buffer index, Buffer target, Stream stream) {
        long rows = target.count() / width;
        long parts = (width + CudaKernel.BLOCK - 1L) / CudaKernel.BLOCK;
        launch(scatterAdd, source)
                .put(source)
                .put(index)
                .put(index.count())
                .put((long) width)
                .put(target)
                .put(rows)
                .run(on(stream), compute.blocksOf(rows * parts));
    }

    @Override
    public void topK(Buffer x, int width, int k, Buffer values, Buffer indices, Stream stream) {
        long rows = x.count() / width;
        launch(topK, x)
                .put(x)
                .put(rows)
                .put(width)
                .put(k)
                .put(values)
                .put(indices)
                .run(on(stream), blocksOfThreads(rows));
    }

    @Override
    public void combineRows(
            Buffer source,
            int width,
            @Nullable Buffer start,
            Buffer index,
            @Nullable Buffer weight,
            Buffer target,
            Stream stream) {
        launch(combineRows, source)
                .put(source)
                .put(source.count() / width)
                .put((long) width)
                .put(start)
                .put(index)
                .put(weight)
                .put(index.count())
                .put(target)
                .put(target.count() / width)
                .run(on(stream), blocks(target.count()));
    }

    @Override
    public void rowDots(
            Buffer x,
            int width,
            @Nullable Buffer start,
            Buffer index,
            Buffer source,
            Buffer dots,
            Stream stream) {
        long rows = x.count() / width;
        launch(rowDots, x)
                .put(x)
                .put(rows)
                .put((long) width)
                .put(start)
                .put(index)
                .put(index.count())
                .put(source)
                .put(source.count() / width)
                .put(dots)
                .run(on(stream), compute.blocksOf(rows));
    }

    @Override
    public void crossEntropy(
            Buffer logits,
            int pitch,
            int tokens,
            Buffer labels,
            Buffer losses,
            @Nullable Buffer gradient,
            float scale,
            Stream stream) {
        launch(crossEntropy, logits)
                .put(logits)
                .put(labels.count())
                .put((long) pitch)
                .put((long) tokens)
                .put(labels)
                .put(losses)
                .put(gradient)
                .put(scale)
                .run(on(stream), compute.blocksOf(labels.count()));
    }

    private static KernelLaunch shape(KernelLaunch launch, AttentionShape shape) {
        return launch.put((long) shape.sequences())
                .put(shape.context())
                .put(shape.heads())
                .put(shape.keyHeads())
                .put(shape.size())
                .put(shape.scale());
    }

    @Override
    public void attention(
            AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums, Stream stream) {
        Attention kernels = kernels(shape, qkv, out, out);
        shape(kernels.forward().launch().put(qkv), shape)
                .put(out)
                .put(logSums)
                .run(on(stream), compute.blocksOf(kernels.units(shape, shape.heads())));
    }

    @Override
    public void attentionBackward(
            AttentionShape shape,
            Buffer qkv,
            Buffer out,
            Buffer logSums,
            Buffer outputGradient,
            Buffer scratch,
            Buffer gradient,
            Stream stream) {
        CudaStream s = on(stream);
        launch(attentionDots, qkv)
                .put(out)
                .put(outputGradient)
                .put(scratch.count())
                .put(shape.size())
                .put(scratch)
                .run(s, blocksOfThreads(scratch.count()));
        Attention kernels = kernels(shape, qkv, outputGradient, gradient);
        shape(kernels.queries().launch().put(qkv), shape)
                .put(outputGradient)
                .put(logSums)
                .put(scratch)
                .put(gradient)
                .run(s, compute.blocksOf(kernels.units(shape, shape.heads())));
        shape(kernels.keys().launch().put(qkv), shape)
                .put(outputGradient)
                .put(logSums)
                .put(scratch)
                .put(gradient)
                .run(s, compute.blocksOf(kernels.units(shape, shape.keyHeads())));
    }
}
