package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.host.Codec;
import io.jccl.internal.Bfloat16;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.NormWork;
import io.jccl.kernel.Reducer;
import io.jccl.kernel.UpdateKernel;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The loops of {@code io.jccl.kernel}, on threads that share an operation's elements. */
final class HostCompute implements Compute {
    /** As {@code torch.nn.utils.clip_grad_norm_} adds to a norm. */
    private static final double CLIP_EPSILON = 1e-6;

    private static final UpdateKernel.Rule[] RULES = UpdateKernel.Rule.values();

    private final Chunks team;
    private final Layers layers = new CheckedLayers(device(), new HostLayers(this));
    private final GradientCompression compression =
            new CheckedCompression(device(), new HostCompression());
    private final Mixture mixture = new CheckedMixture(device(), new HostMixture());
    private boolean closed;

    HostCompute(int threads) {
        team = new Chunks(threads, "jccl-compute");
    }

    /** What is done to elements from begin to before end. */
    interface Range {
        void run(long begin, long end);
    }

    static void enqueue(Stream stream, Runnable work) {
        if (stream.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "the stream belongs to " + stream.device() + ", expected one of the host");
        }
        stream.launchHostFunction(work);
    }

    void each(Stream stream, long count, Range range) {
        run(stream, count, Chunks.CHUNK, range);
    }

    /**
     * Shares units of some work each, such as rows of a width; a thread takes several at a time if
     * they are small.
     */
    void rows(Stream stream, long units, long work, Range range) {
        run(stream, units, Math.max(1, Chunks.CHUNK / Math.max(1, work)), range);
    }

    private void run(Stream stream, long count, long chunk, Range range) {
        Chunks.Work work =
                new Chunks.Work() {
                    @Override
                    public void run(int thread, long begin, long end) {
                        range.run(begin, end);
                    }
                };
        enqueue(stream, () -> share(work, count, chunk));
    }

    private synchronized void share(Chunks.Work work, long count, long chunk) {
        if (closed) {
            throw new IllegalStateException("the compute is closed; create a new one");
        }
        team.run(work, count, chunk);
    }

    @Override
    public void fill(Buffer target, double value, Stream stream) {
        MemorySegment to = target.asSegment();
        DataType type = target.dataType();
        int size = type.size();
        each(
                stream,
                target.count(),
                (begin, end) -> {
                    Codec.set(to, type, begin, value);
                    // Each copy doubles what is filled.
                    long all = (end - begin) * size;
                    long at = begin * size;
                    for (long done = size; done < all; done *= 2) {
                        MemorySegment.copy(to, at, to, at + done, Math.min(done, all - done));
                    }
                });
    }

    @Override
    public void cast(Buffer source, Buffer target, Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment to = target.asSegment();
        DataType a = source.dataType();
        DataType b = target.dataType();
        each(stream, source.count(), (begin, end) -> cast(from, a, to, b, begin, end));
    }

    /** Dedicated loops for the casts of training; the others go through float64, which is exact. */
    private static void cast(
            MemorySegment from,
            DataType fromType,
            MemorySegment to,
            DataType toType,
            long begin,
            long end) {
        if (fromType == DataType.FLOAT32 && toType == DataType.BFLOAT16) {
            for (long i = begin; i < end; i++) {
                short bits = Bfloat16.of(from.getAtIndex(JAVA_FLOAT_UNALIGNED, i));
                to.setAtIndex(JAVA_SHORT_UNALIGNED, i, bits);
            }
        } else if (fromType == DataType.BFLOAT16 && toType == DataType.FLOAT32) {
            for (long i = begin; i < end; i++) {
                float value = Bfloat16.toFloat(from.getAtIndex(JAVA_SHORT_UNALIGNED, i));
                to.setAtIndex(JAVA_FLOAT_UNALIGNED, i, value);
            }
        } else {
            for (long i = begin; i < end; i++) {
                Codec.set(to, toType, i, Codec.get(from, fromType, i));
            }
        }
    }

    /** One or two sources, scaled or not, into a target: what reductions do. */
    private void reduce(
            Stream stream,
            ReduceOp.Kind kind,
            Buffer a,
            double factorA,
            @Nullable Buffer b,
            double factorB,
            Buffer target) {
        MemorySegment first = a.asSegment();
        MemorySegment second = b == null ? null : b.asSegment();
        MemorySegment to = target.asSegment();
        DataType type = a.dataType();
        each(
                stream,
                a.count(),
                (begin, end) -> {
                    Reducer r = new Reducer(2).begin(type, kind);
                    r.addSource(first, 0, bits(type, factorA));
                    if (second != null) {
                        r.addSource(second, 0, bits(type, factorB));
                    }
                    r.addTarget(to, 0);
                    r.run(begin, end);
                });
    }

    private static long bits(DataType type, double factor) {
        return type == DataType.FLOAT64
                ? Double.doubleToRawLongBits(factor)
                : Float.floatToRawIntBits((float) factor);
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer target, Stream stream) {
        reduce(stream, ReduceOp.Kind.SUM, a, 1, b, 1, target);
    }

    @Override
    public void scale(Buffer source, double factor, Buffer target, Stream stream) {
        reduce(stream, ReduceOp.Kind.PRE_MUL_SUM, source, factor, null, 1, target);
    }

    @Override
    public void divide(Buffer source, double divisor, Buffer target, Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment to = target.asSegment();
        DataType type = source.dataType();
        float single = (float) divisor;
        each(
                stream,
                source.count(),
                (begin, end) -> {
                    for (long i = begin; i < end; i++) {
                        double x = Codec.get(from, type, i);
                        double value = type == DataType.FLOAT64 ? x / divisor : (float) x / single;
                        Codec.set(to, type, i, value);
                    }
                });
    }

    @Override
    public void axpy(double alpha, Buffer x, Buffer y, Stream stream) {
        reduce(stream, ReduceOp.Kind.PRE_MUL_SUM, y, 1, x, alpha, y);
    }

    @Override
    public void sumOfSquares(Buffer x, Buffer norm, boolean add, Stream stream) {
        MemorySegment elements = x.asSegment();
        MemorySegment to = norm.asSegment();
        DataType type = x.dataType();
        long count = x.count();
        enqueue(
                stream,
                () -> {
                    NormWork work = new NormWork(team.threads());
                    work.prepare(elements, type, count);
                    share(work, count, Chunks.CHUNK);
                    double before = add ? to.get(JAVA_DOUBLE_UNALIGNED, 0) : 0;
                    to.set(JAVA_DOUBLE_UNALIGNED, 0, before + work.total());
                });
    }

    @Override
    public void stepControl(Buffer norm, double lossScale, double maxNorm, Stream stream) {
        MemorySegment to = norm.asSegment();
        enqueue(
                stream,
                () -> {
                    double unscaled = Math.sqrt(to.get(JAVA_DOUBLE_UNALIGNED, 0)) / lossScale;
                    boolean fits = unscaled <= Float.MAX_VALUE;
                    double clip = maxNorm / (unscaled + CLIP_EPSILON);
                    double factor = fits ? Math.min(1, clip) / lossScale : 0;
                    to.setAtIndex(JAVA_DOUBLE_UNALIGNED, 1, factor);
                    to.setAtIndex(JAVA_DOUBLE_UNALIGNED, 2, fits ? 0 : 1);
                });
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
        UpdateWork w = new UpdateWork();
        w.kernel(
                RULES[update.rule().ordinal()],
                gradients.dataType(),
                target == null ? null : target.dataType(),
                0);
        w.parameters = parameters.asSegment();
        w.first = first == null ? UpdateWork.NONE : first.asSegment();
        w.second = second == null ? UpdateWork.NONE : second.asSegment();
        w.gradients = gradients.asSegment();
        w.target = target == null ? UpdateWork.NONE : target.asSegment();
        w.factor = (float) factor;
        w.decay = update.decay();
        w.keep1 = update.keep1();
        w.add1 = update.add1();
        w.keep2 = update.keep2();
        w.add2 = update.add2();
        w.rate = update.rate();
        w.root = update.root();
        w.epsilon = update.epsilon();
        MemorySegment control = norm == null ? null : norm.asSegment();
        long count = parameters.count();
        enqueue(
                stream,
                () -> {
                    if (control != null) {
                        if (control.getAtIndex(JAVA_DOUBLE_UNALIGNED, 2) != 0) {
                            return;
                        }
                        w.factor = (float) control.getAtIndex(JAVA_DOUBLE_UNALIGNED, 1);
                    }
                    share(w, count, Chunks.CHUNK);
                });
    }

    @Override
    public void gatherRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment which = index.asSegment();
        MemorySegment to = target.asSegment();
        long bytes = width * source.dataType().size();
        long rows = source.count() / width;
        enqueue(
                stream,
                () -> {
                    for (long r = 0; r < to.byteSize() / bytes; r++) {
                        int i = which.getAtIndex(JAVA_INT_UNALIGNED, r);
                        if (i >= 0 && i < rows) {
                            MemorySegment.copy(from, i * bytes, to, r * bytes, bytes);
                        } else {
                            to.asSlice(r * bytes, bytes).fill((byte) 0);
                        }
                    }
                });
    }

    @Override
    public void scatterRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        MemorySegment from = source.asSegment();
        MemorySegment which = index.asSegment();
        MemorySegment to = target.asSegment();
        long bytes = width * source.dataType().size();
        long rows = target.count() / width;
        enqueue(
                stream,
                () -> {
                    for (long r = 0; r < from.byteSize() / bytes; r++) {
                        int i = which.getAtIndex(JAVA_INT_UNALIGNED, r);
                        if (i >= 0 && i < rows) {
                            MemorySegment.copy(from, r * bytes, to, i * bytes, bytes);
                        }
                    }
                });
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
        MemorySegment from = source.asSegment();
        MemorySegment to = target.asSegment();
        long size = source.dataType().size();
        enqueue(
                stream,
                () -> {
                    for (long r = 0; r < rows; r++) {
                        MemorySegment.copy(
                                from,
                                JAVA_BYTE,
                                (r * sourceWidth + sourceColumn) * size,
                                to,
                                JAVA_BYTE,
                                (r * targetWidth + targetColumn) * size,
                                columns * size);
                    }
                });
    }

    @Override
    public void spin(Duration duration, Stream stream) {
        long nanos = duration.toNanos();
        enqueue(
                stream,
                () -> {
                    long end = System.nanoTime() + nanos;
                    while (System.nanoTime() < end) {
                        Thread.onSpinWait();
                    }
                });
    }

    @Override
    public Device device() {
        return Device.host();
    }

    @Override
    public Layers layers() {
        return layers;
    }

    @Override
    public GradientCompression compression() {
        return compression;
    }

    @Override
    public Mixture mixture() {
        return mixture;
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            team.close();
        }
    }
}
