package io.jccl.train;

import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.kernel.AttentionLoops;
import io.jccl.kernel.Chunks;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * {@link Functions} and {@link AttentionLoops} on threads that share rows, elements, columns of a
 * table, or heads of sequences. One thread adds up each sum, in its order, so results do not depend
 * on the number of threads. Nothing is allocated once scratch memory is large enough.
 */
final class HostOperations implements Operations {
    /** Elements that a thread takes at a time: some microseconds' worth. */
    private static final int GRAIN = 1 << 14;

    /** Columns of a table that a thread takes at a time: two cache lines. */
    private static final int COLUMNS = 32;

    private final Chunks team;
    private final Work work = new Work();
    private double[] losses = {};

    /** For operations that only some architectures have. */
    private @Nullable Compute compute;

    private double loss;

    HostOperations(int threads) {
        team = new Chunks(threads, "jccl-train");
    }

    private enum Kind {
        NORM,
        NORM_BACKWARD,
        SUM,
        RELU_SQUARED,
        RELU_SQUARED_BACKWARD,
        LOOK_UP,
        SCATTER_ADD,
        CROSS_ENTROPY,
        CONVERT,
        ACCUMULATE
    }

    /** The operation in progress on up to five pieces of memory; reused. */
    private final class Work extends Chunks.Work {
        private Kind kind = Kind.SUM;
        private final MemorySegment[] memory = new MemorySegment[5];
        private DataType from = DataType.FLOAT32;
        private DataType to = DataType.FLOAT32;
        private int width = 1;
        private float factor;
        private long rows;

        @Override
        public void run(int thread, long begin, long end) {
            MemorySegment a = memory[0];
            MemorySegment b = memory[1];
            MemorySegment c = memory[2];
            switch (kind) {
                case NORM -> Functions.norm(a, b, begin, end, width);
                case NORM_BACKWARD -> Functions.normBackward(a, b, c, begin, end, width);
                case SUM -> Functions.sum(a, b, c, begin, end);
                case RELU_SQUARED -> Functions.reluSquared(a, b, begin, end);
                case RELU_SQUARED_BACKWARD -> Functions.reluSquaredBackward(a, b, begin, end);
                case LOOK_UP -> Functions.lookUp(a, b, c, memory[3], memory[4], begin, end, width);
                case SCATTER_ADD -> Functions.scatterAdd(a, b, rows, c, begin, end, width);
                case CROSS_ENTROPY ->
                        Functions.crossEntropy(a, b, begin, end, width, factor, losses);
                case CONVERT -> Functions.convert(a, from, b, to, begin, end);
                case ACCUMULATE -> Functions.accumulate(a, factor, b, to, begin, end);
            }
        }
    }

    private void run(Kind kind, long count, int grain, Buffer a, Buffer b) {
        work.kind = kind;
        work.memory[0] = a.asSegment();
        work.memory[1] = b.asSegment();
        team.run(work, count, grain);
    }

    /** Rows of a width. */
    private void rows(Kind kind, long count, int width, Buffer a, Buffer b) {
        work.width = width;
        run(kind, count, Math.max(1, GRAIN / width), a, b);
    }

    @Override
    public Attention attention(
            int sequences, int context, int heads, int keyHeads, int size, Owned owned) {
        AttentionLoops[] loops = new AttentionLoops[team.threads()];
        for (int i = 0; i < loops.length; i++) {
            loops[i] = new AttentionLoops(context, heads, keyHeads, size, DataType.FLOAT32);
        }
        return new HeadWork(loops, loops[0].units(sequences));
    }

    /** Attention; a thread takes one head of one sequence at a time. */
    private final class HeadWork extends Chunks.Work implements Attention {
        private final AttentionLoops[] loops;
        private final int units;
        private final MemorySegment[] memory = new MemorySegment[5];
        private boolean back;

        HeadWork(AttentionLoops[] loops, int units) {
            this.loops = loops;
            this.units = units;
        }

        @Override
        public void run(int thread, long begin, long end) {
            AttentionLoops l = loops[thread];
            MemorySegment[] m = memory;
            for (int u = (int) begin; u < end; u++) {
                if (back) {
                    l.backward(m[0], m[1], m[2], m[3], m[4], u);
                } else {
                    l.forward(m[0], m[1], m[2], u);
                }
            }
        }

        @Override
        public void forward(Buffer qkv, Buffer out, Buffer logSums) {
            memory[0] = qkv.asSegment();
            memory[1] = out.asSegment();
            memory[2] = logSums.asSegment();
            back = false;
            team.run(this, units, 1);
        }

        @Override
        public void backward(
                Buffer qkv, Buffer out, Buffer logSums, Buffer outputGradient, Buffer gradient) {
            memory[0] = qkv.asSegment();
            memory[1] = out.asSegment();
            memory[2] = logSums.asSegment();
            memory[3] = outputGradient.asSegment();
            memory[4] = gradient.asSegment();
            back = true;
            team.run(this, units, 1);
        }
    }

    @Override
    public Compute compute() {
        Compute own = compute;
        if (own == null) {
            own = Compute.host(team.threads());
            compute = own;
        }
        return own;
    }

    /** Root mean squares are computed again. */
    @Override
    public int kept() {
        return 0;
    }

    @Override
    public void norm(Buffer x, int width, Buffer normed, Buffer kept) {
        rows(Kind.NORM, x.count() / width, width, x, normed);
    }

    @Override
    public void normBackward(
            Buffer x, int width, Buffer kept, Buffer normedGradient, Buffer gradient) {
        work.memory[2] = gradient.asSegment();
        rows(Kind.NORM_BACKWARD, x.count() / width, width, x, normedGradient);
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer sum) {
        work.memory[2] = sum.asSegment();
        run(Kind.SUM, sum.count(), GRAIN, a, b);
    }

    @Override
    public void reluSquared(Buffer x, Buffer y) {
        run(Kind.RELU_SQUARED, x.count(), GRAIN, x, y);
    }

    @Override
    public void reluSquaredBackward(Buffer x, Buffer gradient) {
        run(Kind.RELU_SQUARED_BACKWARD, x.count(), GRAIN, x, gradient);
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
        work.memory[2] = second == null ? MemorySegment.NULL : second.asSegment();
        work.memory[3] = secondIndex == null ? MemorySegment.NULL : secondIndex.asSegment();
        work.memory[4] = sum.asSegment();
        rows(Kind.LOOK_UP, firstIndex.count(), width, first, firstIndex);
    }

    @Override
    public void scatterAdd(Buffer rows, int width, Buffer index, Buffer table) {
        work.memory[2] = table.asSegment();
        work.width = width;
        work.rows = index.count();
        boolean small = rows.count() < 2 * GRAIN;
        run(Kind.SCATTER_ADD, width, small ? width : COLUMNS, rows, index);
    }

    @Override
    public int pitch(int tokens) {
        return tokens;
    }

    @Override
    public void crossEntropy(Buffer logits, int tokens, Buffer targets, float scale) {
        int count = Math.toIntExact(targets.count());
        if (losses.length < count) {
            losses = new double[count];
        }
        work.factor = scale;
        rows(Kind.CROSS_ENTROPY, count, tokens, logits, targets);
        double sum = 0;
        for (int i = 0; i < count; i++) {
            sum += losses[i];
        }
        loss += sum;
    }

    @Override
    public double takeLoss() {
        double sum = loss;
        loss = 0;
        return sum;
    }

    @Override
    public void convert(Buffer from, Buffer to) {
        if (from.dataType() == to.dataType()) {
            to.asSegment().copyFrom(from.asSegment());
            return;
        }
        work.from = from.dataType();
        work.to = to.dataType();
        run(Kind.CONVERT, from.count(), GRAIN, from, to);
    }

    @Override
    public void accumulate(Buffer from, float factor, Buffer to, Buffer scratch) {
        work.factor = factor;
        work.to = to.dataType();
        run(Kind.ACCUMULATE, from.count(), GRAIN, from, to);
    }

    @Override
    public void zero(Buffer target) {
        target.zero();
    }

    @Override
    public void close() {
        team.close();
        if (compute != null) {
            compute.close();
        }
    }
}
