package io.jccl.compute;

import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaKernel;
import io.jccl.device.cuda.CudaStream;
import io.jccl.device.cuda.KernelLaunch;
import io.jccl.device.host.HostBuffer;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Launches the kernels of collectives/src/main/cuda. */
final class CudaCompute implements Compute {
    /** Elements for each thread, as far as the blocks that run at once allow. */
    private static final long UNROLL = 4;

    private static final int TYPES = DataType.values().length;

    /** The logarithm of eight bytes. */
    private static final int LONG_LOG = 3;

    /** Where in a norm the partial sums begin. */
    private static final int PARTIAL = 4;

    private final Device where;
    private final CudaDevice device;
    private final int mostBlocks;

    /** Kernels by the logarithm of a unit's size. */
    private final CudaKernel[] fill;

    private final CudaKernel[] gather;
    private final CudaKernel[] scatter;
    private final CudaKernel[] columns;

    /** Kernels by the ordinal of a type, for {@link #cast} of two and for updates of a rule. */
    private final @Nullable CudaKernel[] cast = new CudaKernel[TYPES * TYPES];

    private final @Nullable CudaKernel[] add = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] scale = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] divide = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] axpy = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] squares = new CudaKernel[TYPES];
    private final @Nullable CudaKernel[] updates =
            new CudaKernel[Update.Rule.values().length * TYPES];
    private final CudaKernel sum;
    private final CudaKernel control;
    private final CudaKernel spin;

    /** Where a value is converted to the bits that fill a buffer; guarded by itself. */
    private final MemorySegment one = MemorySegment.ofArray(new long[1]);

    /** Loaded when they are asked for; guarded by this. */
    private @Nullable Layers layers;

    private @Nullable GradientCompression compression;
    private @Nullable Mixture mixture;

    private final @Nullable Buffer[] ones = new Buffer[TYPES];

    CudaCompute(Device where) {
        this.where = where;
        device = CudaDevice.of(where);
        mostBlocks =
                device.attribute(cudart_h.cudaDevAttrMultiProcessorCount())
                        * device.attribute(cudart_h.cudaDevAttrMaxThreadsPerMultiProcessor())
                        / CudaKernel.BLOCK;
        fill = bySize("fill_u");
        gather = bySize("gather_u");
        scatter = bySize("scatter_u");
        columns = bySize("columns_u");
        for (DataType t : DataType.values()) {
            if (Arguments.isFloat(t)) {
                load(t);
            }
        }
        sum = kernel("sum_f64");
        control = kernel("control");
        spin = kernel("spin");
    }

    private void load(DataType type) {
        int i = type.ordinal();
        String name = name(type);
        for (DataType to : DataType.values()) {
            if (Arguments.isFloat(to) && type != to) {
                cast[i * TYPES + to.ordinal()] = kernel("cast_" + name + "_" + name(to));
            }
        }
        add[i] = kernel("add_" + name);
        scale[i] = kernel("scale_" + name);
        divide[i] = kernel("divide_" + name);
        axpy[i] = kernel("axpy_" + name);
        if (type != DataType.FLOAT64) {
            squares[i] = kernel("squares_" + name);
            for (Update.Rule rule : Update.Rule.values()) {
                updates[rule.ordinal() * TYPES + i] =
                        kernel(rule.name().toLowerCase(Locale.ROOT) + "_" + name);
            }
        }
    }

    /** A type's name in the kernels' sources. */
    static String name(DataType type) {
        return switch (type) {
            case FLOAT32 -> "f32";
            case FLOAT64 -> "f64";
            case BFLOAT16 -> "bf16";
            case FLOAT16 -> "f16";
            default -> throw new IllegalArgumentException("no kernels for " + type.label());
        };
    }

    CudaKernel kernel(String name) {
        return CudaKernel.of(CudaKernel.Image.KERNELS, name, device);
    }

    private CudaKernel[] bySize(String prefix) {
        CudaKernel[] kernels = new CudaKernel[LONG_LOG + 1];
        for (int log = 0; log <= LONG_LOG; log++) {
            kernels[log] = kernel(prefix + (Byte.SIZE << log));
        }
        return kernels;
    }

    private static KernelLaunch launch(@Nullable CudaKernel kernel) {
        return Objects.requireNonNull(kernel).launch();
    }

    CudaStream on(Stream stream) {
        return CudaStream.of(stream, device);
    }

    /** A block for each unit, as far as they run at once. */
    int blocksOf(long units) {
        return (int) Math.min(units, mostBlocks);
    }

    int blocks(long elements) {
        return blocksOf((elements + UNROLL * CudaKernel.BLOCK - 1) / (UNROLL * CudaKernel.BLOCK));
    }

    @Override
    public void fill(Buffer target, double value, Stream stream) {
        int log = Integer.numberOfTrailingZeros(target.dataType().size());
        launch(fill[log])
                .put(target)
                .put(bits(target.dataType(), value))
                .put(target.count())
                .run(on(stream), blocks(target.count()));
    }

    /** The bits of a value as an element, converted as the host does. */
    private long bits(DataType type, double value) {
        synchronized (one) {
            Buffer element = ones[type.ordinal()];
            if (element == null) {
                element = HostBuffer.wrap(one.asSlice(0, type.size()), type);
                ones[type.ordinal()] = element;
            }
            element.set(0, value);
            return one.get(ValueLayout.JAVA_LONG_UNALIGNED, 0);
        }
    }

    @Override
    public void cast(Buffer source, Buffer target, Stream stream) {
        launch(cast[source.dataType().ordinal() * TYPES + target.dataType().ordinal()])
                .put(source)
                .put(target)
                .put(source.count())
                .run(on(stream), blocks(source.count()));
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer target, Stream stream) {
        launch(add[a.dataType().ordinal()])
                .put(a)
                .put(b)
                .put(target)
                .put(a.count())
                .run(on(stream), blocks(a.count()));
    }

    @Override
    public void scale(Buffer source, double factor, Buffer target, Stream stream) {
        byNumber(scale, source, factor, target, stream);
    }

    @Override
    public void divide(Buffer source, double divisor, Buffer target, Stream stream) {
        byNumber(divide, source, divisor, target, stream);
    }

    private void byNumber(
            @Nullable CudaKernel[] kernels,
            Buffer source,
            double number,
            Buffer target,
            Stream stream) {
        launch(kernels[source.dataType().ordinal()])
                .put(source)
                .put(number)
                .put(target)
                .put(source.count())
                .run(on(stream), blocks(source.count()));
    }

    @Override
    public void axpy(double alpha, Buffer x, Buffer y, Stream stream) {
        launch(axpy[x.dataType().ordinal()])
                .put(alpha)
                .put(x)
                .put(y)
                .put(x.count())
                .run(on(stream), blocks(x.count()));
    }

    @Override
    public void sumOfSquares(Buffer x, Buffer norm, boolean add, Stream stream) {
        // Blocks are not bounded by what the device runs at once: the order of the sum depends on
        // the count alone, on every GPU.
        long wanted = (x.count() + UNROLL * CudaKernel.BLOCK - 1) / (UNROLL * CudaKernel.BLOCK);
        int blocks = Math.clamp(wanted, 1, NORM_COUNT - PARTIAL);
        long partial = norm.address() + PARTIAL * Double.BYTES;
        CudaStream s = on(stream);
        launch(squares[x.dataType().ordinal()]).put(x).put(x.count()).put(partial).run(s, blocks);
        launch(sum).put(partial).put(blocks).put(add ? 1 : 0).put(norm).run(s, 1);
    }

    @Override
    public void stepControl(Buffer norm, double lossScale, double maxNorm, Stream stream) {
        launch(control)
                .put(norm)
                .put(lossScale)
                .put(maxNorm)
                .put(norm.address() + Double.BYTES)
                .run(on(stream), 1);
    }

    @Override
    public void update(
            UpdateFormula update,
            Buffer parameters,
            @Nullable Buffer first,
            @Nullable Buffer second,
            Buffer gradients,
            @Nullable Buffer target,
            double factor,
            @Nullable Buffer norm,
            Stream stream) {
        launch(updates[update.rule().ordinal() * TYPES + gradients.dataType().ordinal()])
                .put(parameters)
                .put(first)
                .put(second)
                .put(gradients)
                .put(target)
                .put(target == null ? 0 : targetCode(target.dataType()))
                .put(norm == null ? 0 : norm.address() + Double.BYTES)
                .put(parameters.count())
                .put((float) factor)
                .put(update.decay())
                .put(update.keep1())
                .put(update.add1())
                .put(update.keep2())
                .put(update.add2())
                .put(update.rate())
                .put(update.root())
                .put(update.epsilon())
                .run(on(stream), blocks(parameters.count()));
    }

    /** The enum of update.h. */
    private static int targetCode(DataType type) {
        return switch (type) {
            case FLOAT32 -> 1;
            case BFLOAT16 -> 2;
            default -> 3;
        };
    }

    /** The logarithm of the widest unit that divides addresses and lengths in bytes. */
    private static int unit(long bits) {
        return Math.min(LONG_LOG, Long.numberOfTrailingZeros(bits));
    }

    @Override
    public void gatherRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        long bytes = width * source.dataType().size();
        int log = unit(bytes | source.address() | target.address());
        launch(gather[log])
                .put(source)
                .put(source.count() / width)
                .put(index)
                .put(index.count())
                .put(bytes >> log)
                .put(target)
                .run(on(stream), blocks(target.byteSize() >> log));
    }

    @Override
    public void scatterRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        long bytes = width * source.dataType().size();
        int log = unit(bytes | source.address() | target.address());
        launch(scatter[log])
                .put(source)
                .put(index)
                .put(index.count())
                .put(bytes >> log)
                .put(target)
                .put(target.count() / width)
                .run(on(stream), blocks(source.byteSize() >> log));
    }

    @Override
    public void copyColumns(
            Buffer source,
            long sourceWidth,
            long sourceColumn,
            Buffer target,
            long targetWidth,
            long targetColumn,
            long columns,
            Stream stream) {
        long rows = source.count() / sourceWidth;
        long size = source.dataType().size();
        long from = source.address() + sourceColumn * size;
        long to = target.address() + targetColumn * size;
        int log = unit(from | to | sourceWidth * size | targetWidth * size | columns * size);
        launch(this.columns[log])
                .put(from)
                .put((sourceWidth * size) >> log)
                .put(to)
                .put((targetWidth * size) >> log)
                .put(rows)
                .put((columns * size) >> log)
                .run(on(stream), blocks(rows * ((columns * size) >> log)));
    }

    @Override
    public void spin(Duration duration, Stream stream) {
        launch(spin).put(duration.toNanos()).run(on(stream), 1);
    }

    @Override
    public Device device() {
        return where;
    }

    @Override
    public synchronized Layers layers() {
        Layers known = layers;
        if (known == null) {
            known = new CheckedLayers(where, new CudaLayers(this));
            layers = known;
        }
        return known;
    }

    @Override
    public synchronized GradientCompression compression() {
        GradientCompression known = compression;
        if (known == null) {
            known = new CheckedCompression(where, new CudaCompression(this));
            compression = known;
        }
        return known;
    }

    @Override
    public synchronized Mixture mixture() {
        Mixture known = mixture;
        if (known == null) {
            known = new CheckedMixture(where, new CudaMixture(this));
            mixture = known;
        }
        return known;
    }

    @Override
    public void close() {}
}
