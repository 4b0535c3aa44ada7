package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_DOUBLE_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.device.host.Codec;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.NormWork;
import io.jccl.kernel.Reducer;
import io.jccl.kernel.RowKernel;
import io.jccl.kernel.UpdateKernel;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import org.jspecify.annotations.Nullable;

/**
 * The loops of {@code io.jccl.kernel}, on threads that share an operation's elements. Tasks and
 * scratch memory are used again.
 */
final class HostCompute implements Compute {
    /** Elements that a thread takes at a time: some microseconds' worth. */
    static final int GRAIN = 1 << 14;

    /** As {@code torch.nn.utils.clip_grad_norm_} adds to a norm. */
    private static final double CLIP_EPSILON = 1e-6;

    private static final int PIECE = HostScratch.PIECE;

    private static final UpdateKernel.Rule[] RULES = UpdateKernel.Rule.values();
    private static final ReduceOp.Kind[] KINDS = ReduceOp.Kind.values();

    /** What rows that are not there are copied from. */
    private static final MemorySegment ZEROS = MemorySegment.ofArray(new byte[PIECE]);

    /** Tasks that have run; guarded by itself. */
    private final ArrayDeque<HostTask> spare = new ArrayDeque<>();

    // Guarded by this while an operation runs.
    private final Chunks team;
    private final HostScratch[] scratch;
    private final NormWork norms;
    private final UpdateWork updates = new UpdateWork();
    private boolean closed;

    private final Layers layers = new CheckedLayers(device(), new HostLayers(this));
    private final GradientCompression compression =
            new CheckedCompression(device(), new HostCompression(this));
    private final Mixture mixture = new CheckedMixture(device(), new HostMixture(this));

    HostCompute(int threads) {
        team = new Chunks(threads, "jccl-compute");
        norms = new NormWork(threads);
        scratch = new HostScratch[threads];
        for (int i = 0; i < threads; i++) {
            scratch[i] = new HostScratch();
        }
    }

    /** An operation that has no arguments yet. */
    HostTask task(HostTask.Body body) {
        HostTask task;
        synchronized (spare) {
            task = spare.pollLast();
        }
        return (task == null ? new HostTask(this) : task).begin(body);
    }

    void done(HostTask task) {
        synchronized (spare) {
            spare.addLast(task);
        }
    }

    int threads() {
        return team.threads();
    }

    /** The memory of a thread that runs a shared operation. */
    HostScratch scratch(int thread) {
        return scratch[thread];
    }

    synchronized void share(Chunks.Work work, long count, long chunk) {
        if (closed) {
            throw new IllegalStateException("the compute is closed; create a new one");
        }
        team.run(work, count, chunk);
    }

    @Override
    public void fill(Buffer target, double value, Stream stream) {
        task(HostCompute::fill).put(target).put(value).each(stream, target.count());
    }

    private static void fill(HostTask t, int thread, long begin, long end) {
        MemorySegment to = t.memory(0);
        int size = t.type(0).size();
        Codec.set(to, t.type(0), begin, t.real(0));
        // Each copy doubles what is filled, up to a source that stays in the first-level cache.
        long all = (end - begin) * size;
        long at = begin * size;
        long count;
        for (long done = size; done < all; done += count) {
            count = Math.min(Math.min(done, 2 * PIECE), all - done);
            MemorySegment.copy(to, at, to, at + done, count);
        }
    }

    @Override
    public void cast(Buffer source, Buffer target, Stream stream) {
        task(HostCompute::cast).put(source).put(target).each(stream, source.count());
    }

    /** Through float32, which holds all narrower floats, or through float64. */
    private static void cast(HostTask t, int thread, long begin, long end) {
        if (t.type(0) == DataType.FLOAT64 || t.type(1) == DataType.FLOAT64) {
            for (long i = begin; i < end; i++) {
                Codec.set(t.memory(1), t.type(1), i, Codec.get(t.memory(0), t.type(0), i));
            }
            return;
        }
        float[] piece = t.scratch(thread).piece(0, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int count = (int) Math.min(PIECE, end - i);
            t.load(0, i, piece, count);
            t.store(piece, 1, i, count);
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
        task(HostCompute::reduce)
                .put(a)
                .put(b)
                .put(target)
                .put(kind.ordinal())
                .put(bits(a.dataType(), factorA))
                .put(bits(a.dataType(), factorB))
                .each(stream, a.count());
    }

    private static void reduce(HostTask t, int thread, long begin, long end) {
        Reducer r = t.scratch(thread).reducer.begin(t.type(0), KINDS[t.integer(0)]);
        r.addSource(t.memory(0), 0, t.number(1));
        if (t.has(1)) {
            r.addSource(t.memory(1), 0, t.number(2));
        }
        r.addTarget(t.memory(2), 0);
        try {
            r.run(begin, end);
        } finally {
            r.end();
        }
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
    public void axpy(double alpha, Buffer x, Buffer y, Stream stream) {
        if (y.dataType() == DataType.FLOAT64) {
            reduce(stream, ReduceOp.Kind.PRE_MUL_SUM, y, 1, x, alpha, y);
        } else {
            task(HostCompute::axpy).put(x).put(y).put(alpha).each(stream, x.count());
        }
    }

    private static void axpy(HostTask t, int thread, long begin, long end) {
        float[] x = t.scratch(thread).piece(0, PIECE);
        float[] y = t.scratch(thread).piece(1, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int count = (int) Math.min(PIECE, end - i);
            t.load(0, i, x, count);
            t.load(1, i, y, count);
            RowKernel.BEST.add(x, 0, t.single(0), y, 0, count);
            t.store(y, 1, i, count);
        }
    }

    @Override
    public void divide(Buffer source, double divisor, Buffer target, Stream stream) {
        task(HostCompute::divide).put(source).put(target).put(divisor).each(stream, source.count());
    }

    private static void divide(HostTask t, int thread, long begin, long end) {
        if (t.type(0) == DataType.FLOAT64) {
            for (long i = begin; i < end; i++) {
                double x = Codec.get(t.memory(0), t.type(0), i);
                Codec.set(t.memory(1), t.type(1), i, x / t.real(0));
            }
            return;
        }
        float divisor = t.single(0);
        float[] piece = t.scratch(thread).piece(0, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int count = (int) Math.min(PIECE, end - i);
            t.load(0, i, piece, count);
            for (int k = 0; k < count; k++) {
                piece[k] /= divisor;
            }
            t.store(piece, 1, i, count);
        }
    }

    @Override
    public void sumOfSquares(Buffer x, Buffer norm, boolean add, Stream stream) {
        task(HostCompute::sumOfSquares)
                .put(x)
                .put(norm)
                .put(x.count())
                .put(add ? 1 : 0)
                .alone(stream);
    }

    private static void sumOfSquares(HostTask t, int thread, long begin, long end) {
        t.compute().sumOfSquares(t);
    }

    private synchronized void sumOfSquares(HostTask t) {
        norms.prepare(t.memory(0), t.type(0), t.number(0));
        try {
            share(norms, t.number(0), Chunks.CHUNK);
        } finally {
            norms.clear();
        }
        MemorySegment to = t.memory(1);
        double before = t.number(1) != 0 ? to.get(JAVA_DOUBLE_UNALIGNED, 0) : 0;
        to.set(JAVA_DOUBLE_UNALIGNED, 0, before + norms.total());
    }

    @Override
    public void stepControl(Buffer norm, double lossScale, double maxNorm, Stream stream) {
        task(HostCompute::stepControl).put(norm).put(lossScale).put(maxNorm).alone(stream);
    }

    private static void stepControl(HostTask t, int thread, long begin, long end) {
        MemorySegment to = t.memory(0);
        double lossScale = t.real(0);
        double unscaled = Math.sqrt(to.get(JAVA_DOUBLE_UNALIGNED, 0)) / lossScale;
        boolean fits = unscaled <= Float.MAX_VALUE;
        double clip = t.real(1) / (unscaled + CLIP_EPSILON);
        double factor = fits ? Math.min(1, clip) / lossScale : 0;
        to.setAtIndex(JAVA_DOUBLE_UNALIGNED, 1, factor);
        to.setAtIndex(JAVA_DOUBLE_UNALIGNED, 2, fits ? 0 : 1);
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
        task(HostCompute::update)
                .put(parameters)
                .put(first)
                .put(second)
                .put(gradients)
                .put(target)
                .put(norm)
                .put(update.rule().ordinal())
                .put(parameters.count())
                .put(factor)
                .put(update.decay())
                .put(update.keep1())
                .put(update.add1())
                .put(update.keep2())
                .put(update.add2())
                .put(update.rate())
                .put(update.root())
                .put(update.epsilon())
                .alone(stream);
    }

    private static void update(HostTask t, int thread, long begin, long end) {
        t.compute().update(t);
    }

    private synchronized void update(HostTask t) {
        float factor = t.single(0);
        if (t.has(5)) {
            MemorySegment control = t.memory(5);
            if (control.getAtIndex(JAVA_DOUBLE_UNALIGNED, 2) != 0) {
                return;
            }
            factor = (float) control.getAtIndex(JAVA_DOUBLE_UNALIGNED, 1);
        }
        UpdateWork w = updates;
        w.kernel(RULES[t.integer(0)], t.type(3), t.has(4) ? t.type(4) : null, 0);
        w.parameters = t.memory(0);
        w.first = t.has(1) ? t.memory(1) : UpdateWork.NONE;
        w.second = t.has(2) ? t.memory(2) : UpdateWork.NONE;
        w.gradients = t.memory(3);
        w.target = t.has(4) ? t.memory(4) : UpdateWork.NONE;
        w.factor = factor;
        w.decay = t.single(1);
        w.keep1 = t.single(2);
        w.add1 = t.single(3);
        w.keep2 = t.single(4);
        w.add2 = t.single(5);
        w.rate = t.single(6);
        w.root = t.single(7);
        w.epsilon = t.single(8);
        try {
            share(w, t.number(1), Chunks.CHUNK);
        } finally {
            w.clear();
        }
    }

    @Override
    public void gatherRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        moveRows(HostCompute::gatherRows, source, width, index, target, source, stream);
    }

    @Override
    public void scatterRows(Buffer source, long width, Buffer index, Buffer target, Stream stream) {
        moveRows(HostCompute::scatterRows, source, width, index, target, target, stream);
    }

    private void moveRows(
            HostTask.Body body,
            Buffer source,
            long width,
            Buffer index,
            Buffer target,
            Buffer named,
            Stream stream) {
        task(body)
                .put(source)
                .put(index)
                .put(target)
                .put(width * source.dataType().size())
                .put(named.count() / width)
                .rows(stream, index.count(), width);
    }

    private static void gatherRows(HostTask t, int thread, long begin, long end) {
        MemorySegment to = t.memory(2);
        long bytes = t.number(0);
        for (long r = begin; r < end; r++) {
            int i = t.memory(1).getAtIndex(JAVA_INT_UNALIGNED, r);
            if (i >= 0 && i < t.number(1)) {
                MemorySegment.copy(t.memory(0), i * bytes, to, r * bytes, bytes);
                continue;
            }
            for (long b = 0; b < bytes; b += PIECE) {
                MemorySegment.copy(ZEROS, 0, to, r * bytes + b, Math.min(PIECE, bytes - b));
            }
        }
    }

    private static void scatterRows(HostTask t, int thread, long begin, long end) {
        long bytes = t.number(0);
        for (long r = begin; r < end; r++) {
            int i = t.memory(1).getAtIndex(JAVA_INT_UNALIGNED, r);
            if (i >= 0 && i < t.number(1)) {
                MemorySegment.copy(t.memory(0), r * bytes, t.memory(2), i * bytes, bytes);
            }
        }
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
        long size = source.dataType().size();
        task(HostCompute::copyColumns)
                .put(source)
                .put(target)
                .put(sourceWidth * size)
                .put(sourceColumn * size)
                .put(targetWidth * size)
                .put(targetColumn * size)
                .put(columns * size)
                .rows(stream, source.count() / sourceWidth, columns);
    }

    private static void copyColumns(HostTask t, int thread, long begin, long end) {
        for (long r = begin; r < end; r++) {
            MemorySegment.copy(
                    t.memory(0),
                    JAVA_BYTE,
                    r * t.number(0) + t.number(1),
                    t.memory(1),
                    JAVA_BYTE,
                    r * t.number(2) + t.number(3),
                    t.number(4));
        }
    }

    @Override
    public void spin(Duration duration, Stream stream) {
        task(HostCompute::spin).put(duration.toNanos()).alone(stream);
    }

    private static void spin(HostTask t, int thread, long begin, long end) {
        long until = System.nanoTime() + t.number(0);
        while (System.nanoTime() < until) {
            Thread.onSpinWait();
        }
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
