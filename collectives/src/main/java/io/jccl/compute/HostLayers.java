package io.jccl.compute;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.kernel.AttentionLoops;
import io.jccl.kernel.LayerLoops;
import io.jccl.kernel.RowKernel;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** The loops of {@link LayerLoops} and {@link AttentionLoops}; threads share rows or columns. */
final class HostLayers implements Layers {
    /** Elements of a piece of work that has no rows. */
    private static final int PIECE = 1 << 12;

    private final HostCompute compute;

    HostLayers(HostCompute compute) {
        this.compute = compute;
    }

    private static float @Nullable [] all(@Nullable Buffer row) {
        return row == null ? null : Floats.of(row).load(0, Math.toIntExact(row.count()));
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
        int width = norm.width();
        Floats from = Floats.of(x);
        Floats to = Floats.of(y);
        MemorySegment kept = statistics.asSegment();
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        compute.rows(
                stream,
                x.count() / width,
                width,
                (begin, end) -> {
                    float[] w = all(weight);
                    float[] b = all(bias);
                    float[] row = new float[width];
                    for (long r = begin; r < end; r++) {
                        from.load(r * width, row, width);
                        float mean = layer ? LayerLoops.mean(row, 0, width) : 0;
                        float by = LayerLoops.inverse(row, 0, width, mean, norm.epsilon());
                        LayerLoops.norm(row, 0, width, mean, by, row, 0);
                        for (int i = 0; i < width; i++) {
                            float v = w == null ? row[i] : row[i] * w[i];
                            row[i] = b == null ? v : v + b[i];
                        }
                        to.store(row, r * width, width);
                        if (layer) {
                            kept.setAtIndex(JAVA_FLOAT_UNALIGNED, 2 * r, mean);
                        }
                        kept.setAtIndex(JAVA_FLOAT_UNALIGNED, layer ? 2 * r + 1 : r, by);
                    }
                });
    }

    private static float mean(MemorySegment statistics, boolean layer, long row) {
        return layer ? statistics.getAtIndex(JAVA_FLOAT_UNALIGNED, 2 * row) : 0;
    }

    private static float by(MemorySegment statistics, boolean layer, long row) {
        return statistics.getAtIndex(JAVA_FLOAT_UNALIGNED, layer ? 2 * row + 1 : row);
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
        int width = norm.width();
        Floats from = Floats.of(x);
        Floats out = Floats.of(outputGradient);
        Floats to = Floats.of(gradient);
        MemorySegment kept = statistics.asSegment();
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        compute.rows(
                stream,
                x.count() / width,
                width,
                (begin, end) -> {
                    float[] w = all(weight);
                    float[] row = new float[width];
                    float[] g = new float[width];
                    float[] sum = new float[width];
                    for (long r = begin; r < end; r++) {
                        from.load(r * width, row, width);
                        out.load(r * width, g, width);
                        to.load(r * width, sum, width);
                        for (int i = 0; w != null && i < width; i++) {
                            g[i] *= w[i];
                        }
                        float mean = mean(kept, layer, r);
                        float by = by(kept, layer, r);
                        LayerLoops.normBackward(row, g, 0, width, layer, mean, by, sum);
                        to.store(sum, r * width, width);
                    }
                });
        if (weightGradient != null) {
            normWeight(norm, x, statistics, outputGradient, weightGradient, stream);
        }
        if (biasGradient != null) {
            columnSums(outputGradient, biasGradient, stream);
        }
    }

    /** What a row contributes to sums of columns. */
    private interface Contribution {
        void of(long row, long column, float[] to, int count);
    }

    private void sums(Stream stream, long rows, Buffer target, Contribution row) {
        Floats to = Floats.of(target);
        compute.rows(
                stream,
                target.count(),
                rows,
                (begin, end) -> {
                    int count = Math.toIntExact(end - begin);
                    float[] one = new float[count];
                    int used = (int) Math.min(rows, LayerLoops.CLASSES);
                    float[][] classes = new float[used][count];
                    for (long r = 0; r < rows; r++) {
                        row.of(r, begin, one, count);
                        float[] sum = classes[(int) (r % LayerLoops.CLASSES)];
                        RowKernel.BEST.add(one, 0, 1, sum, 0, count);
                    }
                    to.load(begin, one, count);
                    LayerLoops.addTree(classes, one, count);
                    to.store(one, begin, count);
                });
    }

    private void normWeight(
            Norm norm,
            Buffer x,
            Buffer statistics,
            Buffer outputGradient,
            Buffer gradient,
            Stream stream) {
        int width = norm.width();
        Floats from = Floats.of(x);
        Floats out = Floats.of(outputGradient);
        MemorySegment kept = statistics.asSegment();
        boolean layer = norm.kind() == Norm.Kind.LAYER;
        sums(
                stream,
                x.count() / width,
                gradient,
                (r, column, to, count) -> {
                    float[] g = out.load(r * width + column, count);
                    from.load(r * width + column, to, count);
                    LayerLoops.norm(to, 0, count, mean(kept, layer, r), by(kept, layer, r), to, 0);
                    for (int i = 0; i < count; i++) {
                        to[i] = g[i] * to[i];
                    }
                });
    }

    @Override
    public void columnSums(Buffer x, Buffer target, Stream stream) {
        long width = target.count();
        Floats from = Floats.of(x);
        sums(
                stream,
                x.count() / width,
                target,
                (r, column, to, count) -> from.load(r * width + column, to, count));
    }

    /** A function of some elements of two arrays. */
    private interface Pieces {
        void run(float[] a, int count, float[] b);
    }

    private void pieces(Stream stream, Buffer a, Buffer b, Pieces work) {
        Floats from = Floats.of(a);
        Floats to = Floats.of(b);
        compute.each(
                stream,
                a.count(),
                (begin, end) -> {
                    float[] x = new float[PIECE];
                    float[] y = new float[PIECE];
                    for (long i = begin; i < end; i += PIECE) {
                        int count = (int) Math.min(PIECE, end - i);
                        from.load(i, x, count);
                        to.load(i, y, count);
                        work.run(x, count, y);
                        to.store(y, i, count);
                    }
                });
    }

    @Override
    public void activate(Activation function, Buffer x, Buffer y, Stream stream) {
        pieces(
                stream,
                x,
                y,
                switch (function) {
                    case GELU -> LayerLoops::gelu;
                    case RELU_SQUARED -> LayerLoops::reluSquared;
                });
    }

    @Override
    public void activateBackward(Activation function, Buffer x, Buffer gradient, Stream stream) {
        pieces(
                stream,
                x,
                gradient,
                switch (function) {
                    case GELU -> LayerLoops::geluBackward;
                    case RELU_SQUARED -> LayerLoops::reluSquaredBackward;
                });
    }

    @Override
    public void swiglu(Buffer x, int width, Buffer y, Stream stream) {
        Floats from = Floats.of(x);
        Floats to = Floats.of(y);
        compute.rows(
                stream,
                y.count() / width,
                width,
                (begin, end) -> {
                    float[] row = new float[2 * width];
                    for (long r = begin; r < end; r++) {
                        from.load(2 * r * width, row, 2 * width);
                        LayerLoops.swiglu(row, width, row);
                        to.store(row, r * width, width);
                    }
                });
    }

    @Override
    public void swigluBackward(
            Buffer x, int width, Buffer outputGradient, Buffer gradient, Stream stream) {
        Floats from = Floats.of(x);
        Floats out = Floats.of(outputGradient);
        Floats to = Floats.of(gradient);
        compute.rows(
                stream,
                outputGradient.count() / width,
                width,
                (begin, end) -> {
                    float[] row = new float[2 * width];
                    float[] g = new float[width];
                    for (long r = begin; r < end; r++) {
                        from.load(2 * r * width, row, 2 * width);
                        out.load(r * width, g, width);
                        LayerLoops.swigluBackward(row, width, g);
                        to.store(row, 2 * r * width, 2 * width);
                    }
                });
    }

    @Override
    public void rotate(Rotary rotary, Buffer x, Buffer angles, boolean backward, Stream stream) {
        Floats rows = Floats.of(x);
        Floats table = Floats.of(angles);
        int size = rotary.size();
        int turned = rotary.heads() * size;
        float sign = backward ? -1 : 1;
        compute.rows(
                stream,
                x.count() / rotary.rowWidth(),
                turned,
                (begin, end) -> {
                    float[] row = new float[turned];
                    float[] turn = new float[size];
                    for (long r = begin; r < end; r++) {
                        rows.load(r * rotary.rowWidth(), row, turned);
                        table.load(r % rotary.context() * size, turn, size);
                        for (int at = 0; at < turned; at += size) {
                            LayerLoops.rotate(row, at, size, turn, sign);
                        }
                        rows.store(row, r * rotary.rowWidth(), turned);
                    }
                });
    }

    @Override
    public void addBias(Buffer x, Buffer bias, Stream stream) {
        Floats rows = Floats.of(x);
        Floats added = Floats.of(bias);
        int width = Math.toIntExact(bias.count());
        compute.rows(
                stream,
                x.count() / width,
                width,
                (begin, end) -> {
                    float[] b = added.load(0, width);
                    float[] row = new float[width];
                    for (long r = begin; r < end; r++) {
                        rows.load(r * width, row, width);
                        RowKernel.BEST.add(b, 0, 1, row, 0, width);
                        rows.store(row, r * width, width);
                    }
                });
    }

    @Override
    public void scatterAddRows(
            Buffer source, int width, Buffer index, Buffer target, Stream stream) {
        Floats from = Floats.of(source);
        Floats to = Floats.of(target);
        MemorySegment which = index.asSegment();
        long rows = index.count();
        long targetRows = target.count() / width;
        HostCompute.enqueue(
                stream,
                () -> {
                    float[] row = new float[width];
                    float[] sum = new float[width];
                    for (long r = 0; r < rows; r++) {
                        long t = which.getAtIndex(JAVA_INT_UNALIGNED, r);
                        if (t >= 0 && t < targetRows) {
                            from.load(r * width, row, width);
                            to.load(t * width, sum, width);
                            RowKernel.BEST.add(row, 0, 1, sum, 0, width);
                            to.store(sum, t * width, width);
                        }
                    }
                });
    }

    @Override
    public void topK(Buffer x, int width, int k, Buffer values, Buffer indices, Stream stream) {
        Floats from = Floats.of(x);
        Floats best = Floats.of(values);
        MemorySegment which = indices.asSegment();
        compute.rows(
                stream,
                x.count() / width,
                (long) width * k,
                (begin, end) -> {
                    float[] row = new float[width];
                    float[] chosen = new float[k];
                    int[] at = new int[k];
                    for (long r = begin; r < end; r++) {
                        from.load(r * width, row, width);
                        LayerLoops.topK(row, width, k, at);
                        for (int i = 0; i < k; i++) {
                            chosen[i] = row[at[i]];
                            which.setAtIndex(JAVA_INT_UNALIGNED, r * k + i, at[i]);
                        }
                        best.store(chosen, r * k, k);
                    }
                });
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
        SparseRows matrix = new SparseRows(start, index, source, width);
        MemorySegment weights = weight == null ? null : weight.asSegment();
        Floats to = Floats.of(target);
        compute.rows(
                stream,
                target.count() / width,
                width,
                (begin, end) -> matrix.combine(begin, end, weights, to));
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
        SparseRows matrix = new SparseRows(start, index, source, width);
        Floats rows = Floats.of(x);
        MemorySegment to = dots.asSegment();
        compute.rows(
                stream,
                x.count() / width,
                width,
                (begin, end) -> matrix.dots(begin, end, rows, to));
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
        Floats from = Floats.of(logits);
        Floats to = gradient == null ? null : Floats.of(gradient);
        MemorySegment which = labels.asSegment();
        MemorySegment results = losses.asSegment();
        compute.rows(
                stream,
                labels.count(),
                tokens,
                (begin, end) -> {
                    float[] row = new float[tokens];
                    for (long r = begin; r < end; r++) {
                        from.load(r * pitch, row, tokens);
                        int label = which.getAtIndex(JAVA_INT_UNALIGNED, r);
                        double loss = LayerLoops.crossEntropy(row, 0, tokens, label, scale);
                        results.setAtIndex(JAVA_FLOAT_UNALIGNED, r, (float) loss);
                        if (to != null) {
                            to.store(row, r * pitch, tokens);
                        }
                    }
                });
    }

    private static AttentionLoops loops(AttentionShape s, DataType type) {
        return new AttentionLoops(s.context(), s.heads(), s.keyHeads(), s.size(), type);
    }

    private static long work(AttentionShape s) {
        return s.rows() / s.sequences() * s.context() * s.size() * (s.heads() / s.keyHeads());
    }

    @Override
    public void attention(
            AttentionShape shape, Buffer qkv, Buffer out, Buffer logSums, Stream stream) {
        MemorySegment from = qkv.asSegment();
        MemorySegment to = out.asSegment();
        MemorySegment sums = logSums.asSegment();
        DataType type = qkv.dataType();
        compute.rows(
                stream,
                (long) shape.sequences() * shape.keyHeads(),
                work(shape),
                (begin, end) -> {
                    AttentionLoops loops = loops(shape, type);
                    for (long u = begin; u < end; u++) {
                        loops.forward(from, to, sums, Math.toIntExact(u));
                    }
                });
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
        MemorySegment from = qkv.asSegment();
        MemorySegment result = out.asSegment();
        MemorySegment sums = logSums.asSegment();
        MemorySegment out2 = outputGradient.asSegment();
        MemorySegment to = gradient.asSegment();
        DataType type = qkv.dataType();
        compute.rows(
                stream,
                (long) shape.sequences() * shape.keyHeads(),
                work(shape),
                (begin, end) -> {
                    AttentionLoops loops = loops(shape, type);
                    for (long u = begin; u < end; u++) {
                        loops.backward(from, result, sums, out2, to, Math.toIntExact(u));
                    }
                });
    }
}
