package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.kernel.AttentionLoops;
import io.jccl.kernel.Kernel;
import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** The loops of {@link LayerLoops} and {@link AttentionLoops}; threads share rows or columns. */
final class HostLayers implements Layers {
    private static final int PIECE = HostScratch.PIECE;

    /** Columns of a table that threads take are multiples of this: two cache lines. */
    private static final int TABLE_COLUMNS = 32;

    /** Columns to sum that a thread takes at a time, at least. */
    private static final int SUM_COLUMNS = 64;

    private static final RowKernel K = RowKernel.BEST;
    private static final Kernel ADD = Kernel.of(DataType.FLOAT32, Kernel.Op.ADD);

    private final HostCompute compute;

    HostLayers(HostCompute compute) {
        this.compute = compute;
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
        compute.task(NormRows::norm)
                .put(x)
                .put(weight)
                .put(bias)
                .put(y)
                .put(statistics)
                .of(norm)
                .rows(stream, x.count() / norm.width(), norm.width());
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
        compute.task(NormRows::normBackward)
                .put(x)
                .put(weight)
                .put(statistics)
                .put(outputGradient)
                .put(gradient)
                .of(norm)
                .rows(stream, x.count() / norm.width(), norm.width());
        if (weightGradient != null) {
            HostTask sums = compute.task(NormRows::sums).of(norm);
            columnSums(sums, outputGradient, weightGradient, x, statistics, stream);
        }
        if (biasGradient != null) {
            columnSums(outputGradient, biasGradient, stream);
        }
    }

    @Override
    public void columnSums(Buffer x, Buffer target, Stream stream) {
        columnSums(compute.task(NormRows::sums), x, target, null, null, stream);
    }

    /** Sums of columns, of a norm's description multiplied with the norm of other rows. */
    private static void columnSums(
            HostTask task,
            Buffer x,
            Buffer target,
            @Nullable Buffer normed,
            @Nullable Buffer statistics,
            Stream stream) {
        long rows = x.count() / target.count();
        task.put(x)
                .put(target)
                .put(normed)
                .put(statistics)
                .put(rows)
                .put(target.count())
                .chunks(stream, target.count(), Math.max(SUM_COLUMNS, HostCompute.GRAIN / rows));
    }

    @Override
    public void activate(Activation function, Buffer x, Buffer y, Stream stream) {
        compute.task(HostLayers::activate).put(x).put(y).of(function).each(stream, x.count());
    }

    private static void activate(HostTask t, int thread, long begin, long end) {
        Activation function = (Activation) t.description();
        float[] x = t.scratch(thread).piece(0, PIECE);
        float[] scratch = t.scratch(thread).piece(1, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int count = (int) Math.min(PIECE, end - i);
            t.load(0, i, x, count);
            switch (function) {
                case GELU -> LayerLoops.gelu(x, count, scratch);
                case RELU_SQUARED -> LayerLoops.reluSquared(x, count, x);
            }
            t.store(x, 1, i, count);
        }
    }

    @Override
    public void activateBackward(Activation function, Buffer x, Buffer gradient, Stream stream) {
        compute.task(HostLayers::activateBackward)
                .put(x)
                .put(gradient)
                .of(function)
                .each(stream, x.count());
    }

    private static void activateBackward(HostTask t, int thread, long begin, long end) {
        Activation function = (Activation) t.description();
        float[] x = t.scratch(thread).piece(0, PIECE);
        float[] g = t.scratch(thread).piece(1, PIECE);
        float[] scratch = t.scratch(thread).piece(2, PIECE);
        for (long i = begin; i < end; i += PIECE) {
            int count = (int) Math.min(PIECE, end - i);
            t.load(0, i, x, count);
            t.load(1, i, g, count);
            switch (function) {
                case GELU -> LayerLoops.geluBackward(x, count, g, scratch);
                case RELU_SQUARED -> LayerLoops.reluSquaredBackward(x, count, g);
            }
            t.store(g, 1, i, count);
        }
    }

    @Override
    public void swiglu(Buffer x, int width, Buffer y, Stream stream) {
        compute.task(HostLayers::swiglu)
                .put(x)
                .put(y)
                .put(width)
                .rows(stream, y.count() / width, width);
    }

    private static void swiglu(HostTask t, int thread, long begin, long end) {
        int width = t.integer(0);
        float[] a = t.scratch(thread).piece(0, width);
        float[] b = t.scratch(thread).piece(1, width);
        float[] scratch = t.scratch(thread).piece(2, width);
        for (long r = begin; r < end; r++) {
            t.load(0, 2 * r * width, a, width);
            t.load(0, 2 * r * width + width, b, width);
            LayerLoops.swiglu(a, b, width, scratch);
            t.store(a, 1, r * width, width);
        }
    }

    @Override
    public void swigluBackward(
            Buffer x, int width, Buffer outputGradient, Buffer gradient, Stream stream) {
        compute.task(HostLayers::swigluBackward)
                .put(x)
                .put(outputGradient)
                .put(gradient)
                .put(width)
                .rows(stream, outputGradient.count() / width, width);
    }

    private static void swigluBackward(HostTask t, int thread, long begin, long end) {
        int width = t.integer(0);
        float[] a = t.scratch(thread).piece(0, width);
        float[] b = t.scratch(thread).piece(1, width);
        float[] g = t.scratch(thread).piece(2, width);
        float[] scratch = t.scratch(thread).piece(3, width);
        for (long r = begin; r < end; r++) {
            t.load(0, 2 * r * width, a, width);
            t.load(0, 2 * r * width + width, b, width);
            t.load(1, r * width, g, width);
            LayerLoops.swigluBackward(a, b, width, g, scratch);
            t.store(a, 2, 2 * r * width, width);
            t.store(b, 2, 2 * r * width + width, width);
        }
    }

    @Override
    public void rotate(Rotary rotary, Buffer x, Buffer angles, boolean backward, Stream stream) {
        compute.task(HostLayers::rotate)
                .put(x)
                .put(angles)
                .put(backward ? -1.0 : 1.0)
                .of(rotary)
                .rows(stream, x.count() / rotary.rowWidth(), (long) rotary.heads() * rotary.size());
    }

    private static void rotate(HostTask t, int thread, long begin, long end) {
        Rotary rotary = (Rotary) t.description();
        int size = rotary.size();
        int turned = rotary.heads() * size;
        float sign = t.single(0);
        float[] row = t.scratch(thread).piece(0, turned);
        float[] turn = t.scratch(thread).piece(1, size);
        for (long r = begin; r < end; r++) {
            t.load(0, r * rotary.rowWidth(), row, turned);
            t.load(1, r % rotary.context() * size, turn, size);
            for (int at = 0; at < turned; at += size) {
                LayerLoops.rotate(row, at, size, turn, sign);
            }
            t.store(row, 0, r * rotary.rowWidth(), turned);
        }
    }

    @Override
    public void addBias(Buffer x, Buffer bias, Stream stream) {
        int width = Math.toIntExact(bias.count());
        compute.task(HostLayers::addBias)
                .put(x)
                .put(bias)
                .put(width)
                .rows(stream, x.count() / width, width);
    }

    private static void addBias(HostTask t, int thread, long begin, long end) {
        int width = t.integer(0);
        float[] b = t.scratch(thread).piece(0, width);
        float[] rows = t.scratch(thread).piece(1, width);
        t.load(1, 0, b, width);
        int count;
        for (long r = begin; r < end; r += count) {
            count = HostScratch.batch(r, end, width);
            t.load(0, r * width, rows, count * width);
            for (int i = 0; i < count; i++) {
                K.add(b, 0, 1, rows, i * width, width);
            }
            t.store(rows, 0, r * width, count * width);
        }
    }

    /** Threads share columns, so that rows are added in their order. */
    @Override
    public void scatterAddRows(
            Buffer source, int width, Buffer index, Buffer target, Stream stream) {
        boolean small = source.count() < 2 * HostCompute.GRAIN;
        int share = Math.ceilDiv(width, compute.threads() * TABLE_COLUMNS) * TABLE_COLUMNS;
        compute.task(HostLayers::scatterAddRows)
                .put(source)
                .put(index)
                .put(target)
                .put(index.count())
                .put(width)
                .put(target.count() / width)
                .chunks(stream, width, small ? width : share);
    }

    private static void scatterAddRows(HostTask t, int thread, long begin, long end) {
        MemorySegment index = t.memory(1);
        int width = t.integer(1);
        int columns = (int) (end - begin);
        boolean single = t.type(0) == DataType.FLOAT32;
        for (long r = 0; r < t.number(0); r++) {
            long to = index.getAtIndex(JAVA_INT_UNALIGNED, r);
            if (to < 0 || to >= t.number(2)) {
                continue;
            }
            long from = r * width + begin;
            long at = to * width + begin;
            if (single) {
                long target = at * Float.BYTES;
                MemorySegment sums = t.memory(2);
                ADD.combine(sums, target, t.memory(0), from * Float.BYTES, sums, target, columns);
                continue;
            }
            float[] row = t.scratch(thread).piece(0, columns);
            float[] sum = t.scratch(thread).piece(1, columns);
            t.load(0, from, row, columns);
            t.load(2, at, sum, columns);
            K.add(row, 0, 1, sum, 0, columns);
            t.store(sum, 2, at, columns);
        }
    }

    @Override
    public void topK(Buffer x, int width, int k, Buffer values, Buffer indices, Stream stream) {
        compute.task(HostLayers::topK)
                .put(x)
                .put(values)
                .put(indices)
                .put(width)
                .put(k)
                .rows(stream, x.count() / width, (long) width * k);
    }

    private static void topK(HostTask t, int thread, long begin, long end) {
        int width = t.integer(0);
        int k = t.integer(1);
        HostScratch s = t.scratch(thread);
        float[] row = s.piece(0, width);
        float[] chosen = s.piece(1, k);
        int[] at = s.indices(k);
        for (long r = begin; r < end; r++) {
            t.load(0, r * width, row, width);
            LayerLoops.topK(row, width, k, at);
            for (int i = 0; i < k; i++) {
                chosen[i] = row[at[i]];
                t.memory(2).setAtIndex(JAVA_INT_UNALIGNED, r * k + i, at[i]);
            }
            t.store(chosen, 1, r * k, k);
        }
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
        sparse(SparseRows::combine, start, index, source, width, target)
                .put(weight)
                .rows(stream, target.count() / width, width);
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
        sparse(SparseRows::dots, start, index, source, width, dots)
                .put(x)
                .rows(stream, x.count() / width, width);
    }

    private HostTask sparse(
            HostTask.Body body,
            @Nullable Buffer start,
            Buffer index,
            Buffer source,
            int width,
            Buffer target) {
        return compute.task(body)
                .put(start)
                .put(index)
                .put(source)
                .put(target)
                .put(index.count())
                .put(source.count() / width)
                .put(width);
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
        compute.task(HostLayers::crossEntropy)
                .put(logits)
                .put(labels)
                .put(losses)
                .put(gradient)
                .put(pitch)
                .put(tokens)
                .put(scale)
                .rows(stream, labels.count(), tokens);
    }

    private static void crossEntropy(HostTask t, int thread, long begin, long end) {
        int pitch = t.integer(0);
        int tokens = t.integer(1);
        float[] rows = t.scratch(thread).piece(0, tokens);
        int count;
        for (long r = begin; r < end; r += count) {
            count = pitch == tokens ? HostScratch.batch(r, end, tokens) : 1;
            t.load(0, r * pitch, rows, count * tokens);
            for (int i = 0; i < count; i++) {
                int label = t.memory(1).getAtIndex(JAVA_INT_UNALIGNED, r + i);
                double loss = LayerLoops.crossEntropy(rows, i * tokens, tokens, label, t.single(0));
                t.memory(2).setAtIndex(JAVA_FLOAT_UNALIGNED, r + i, (float) loss);
            }
            if (t.has(3)) {
                t.store(rows, 3, r * pitch, count * tokens);
            }
        }
    }

    private static void attention(HostTask task, AttentionShape s, Stream stream) {
        long rows = s.rows() / s.sequences();
        long work = rows * s.context() * s.size() * (s.heads() / s.keyHeads());
        task.of(s).rows(stream, (long) s.sequences() * s.keyHeads(), work);
    }

    @Override
    public void attention(
            AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums, Stream stream) {
        HostTask task = compute.task(HostLayers::attention).put(qkv).put(out).put(logSums);
        attention(task, shape, stream);
    }

    private static void attention(HostTask t, int thread, long begin, long end) {
        AttentionShape shape = (AttentionShape) t.description();
        AttentionLoops loops = t.scratch(thread).attention(shape, t.type(0));
        for (long u = begin; u < end; u++) {
            loops.forward(t.memory(0), t.memory(1), t.memory(2), Math.toIntExact(u));
        }
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
        HostTask task =
                compute.task(HostLayers::attentionBackward)
                        .put(qkv)
                        .put(out)
                        .put(logSums)
                        .put(outputGradient)
                        .put(gradient);
        attention(task, shape, stream);
    }

    private static void attentionBackward(HostTask t, int thread, long begin, long end) {
        AttentionShape shape = (AttentionShape) t.description();
        AttentionLoops loops = t.scratch(thread).attention(shape, t.type(0));
        for (long u = begin; u < end; u++) {
            loops.backward(
                    t.memory(0),
                    t.memory(1),
                    t.memory(2),
                    t.memory(3),
                    t.memory(4),
                    Math.toIntExact(u));
        }
    }
}
