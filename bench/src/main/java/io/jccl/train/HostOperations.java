package io.jccl.train;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import io.jccl.kernel.AttentionLoops;
import java.lang.foreign.MemorySegment;

/** {@link Functions} on the calling thread; nothing is allocated. */
final class HostOperations implements Operations {
    private double loss;

    @Override
    public Attention attention(int sequences, int context, int heads, int size, Owned owned) {
        AttentionLoops loops = new AttentionLoops(context, heads, heads, size, DataType.FLOAT32);
        return new Attention() {
            @Override
            public void forward(Buffer qkv, Buffer out, Buffer logSums) {
                loops.forward(qkv.asSegment(), out.asSegment(), logSums.asSegment(), sequences);
            }

            @Override
            public void backward(
                    Buffer qkv,
                    Buffer out,
                    Buffer logSums,
                    Buffer outputGradient,
                    Buffer gradient) {
                loops.backward(
                        qkv.asSegment(),
                        out.asSegment(),
                        logSums.asSegment(),
                        outputGradient.asSegment(),
                        gradient.asSegment(),
                        sequences);
            }
        };
    }

    /** Root mean squares are computed again. */
    @Override
    public int kept() {
        return 0;
    }

    private static int rows(Buffer x, int width) {
        return Math.toIntExact(x.count() / width);
    }

    @Override
    public void norm(Buffer x, int width, Buffer normed, Buffer kept) {
        Functions.norm(x.asSegment(), normed.asSegment(), rows(x, width), width);
    }

    @Override
    public void normBackward(
            Buffer x, int width, Buffer kept, Buffer normedGradient, Buffer gradient) {
        Functions.normBackward(
                x.asSegment(),
                normedGradient.asSegment(),
                gradient.asSegment(),
                rows(x, width),
                width);
    }

    @Override
    public void add(Buffer a, Buffer b, Buffer sum) {
        Functions.sum(a.asSegment(), b.asSegment(), sum.asSegment(), sum.count());
    }

    @Override
    public void reluSquared(Buffer x, Buffer y) {
        Functions.reluSquared(x.asSegment(), y.asSegment(), x.count());
    }

    @Override
    public void reluSquaredBackward(Buffer x, Buffer gradient) {
        Functions.reluSquaredBackward(x.asSegment(), gradient.asSegment(), x.count());
    }

    @Override
    public void lookUp(
            Buffer first,
            Buffer firstIndex,
            Buffer second,
            Buffer secondIndex,
            int width,
            Buffer sum,
            Buffer scratch) {
        MemorySegment a = first.asSegment();
        MemorySegment b = second.asSegment();
        MemorySegment aIndex = firstIndex.asSegment();
        MemorySegment bIndex = secondIndex.asSegment();
        MemorySegment to = sum.asSegment();
        for (long r = 0; r < firstIndex.count(); r++) {
            long i = (long) aIndex.getAtIndex(JAVA_INT, r) * width;
            long j = (long) bIndex.getAtIndex(JAVA_INT, r) * width;
            for (int c = 0; c < width; c++) {
                float v = a.getAtIndex(JAVA_FLOAT, i + c) + b.getAtIndex(JAVA_FLOAT, j + c);
                to.setAtIndex(JAVA_FLOAT, r * width + c, v);
            }
        }
    }

    @Override
    public void scatterAdd(Buffer rows, int width, Buffer index, Buffer table) {
        MemorySegment from = rows.asSegment();
        MemorySegment which = index.asSegment();
        MemorySegment to = table.asSegment();
        for (long r = 0; r < index.count(); r++) {
            long at = (long) which.getAtIndex(JAVA_INT, r) * width;
            for (int c = 0; c < width; c++) {
                float v = from.getAtIndex(JAVA_FLOAT, r * width + c);
                to.setAtIndex(JAVA_FLOAT, at + c, to.getAtIndex(JAVA_FLOAT, at + c) + v);
            }
        }
    }

    @Override
    public void crossEntropy(Buffer logits, int tokens, Buffer targets, float scale) {
        loss +=
                Functions.crossEntropy(
                        logits.asSegment(),
                        targets.asSegment(),
                        Math.toIntExact(targets.count()),
                        tokens,
                        scale);
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
        } else if (to.dataType() == DataType.BFLOAT16) {
            Bfloat16.narrow(from.asSegment(), to.asSegment(), from.count());
        } else {
            Bfloat16.widen(from.asSegment(), to.asSegment(), from.count());
        }
    }

    @Override
    public void accumulate(Buffer from, float factor, Buffer to, Buffer scratch) {
        MemorySegment a = from.asSegment();
        MemorySegment b = to.asSegment();
        long count = from.count();
        if (to.dataType() == DataType.FLOAT32) {
            for (long i = 0; i < count; i++) {
                float g = a.getAtIndex(JAVA_FLOAT, i) * factor;
                b.setAtIndex(JAVA_FLOAT, i, b.getAtIndex(JAVA_FLOAT, i) + g);
            }
            return;
        }
        for (long i = 0; i < count; i++) {
            float g = a.getAtIndex(JAVA_FLOAT, i) * factor;
            float sum = Bfloat16.toFloat(b.getAtIndex(JAVA_SHORT, i)) + g;
            b.setAtIndex(JAVA_SHORT, i, Bfloat16.of(sum));
        }
    }

    @Override
    public void zero(Buffer target) {
        target.zero();
    }

    @Override
    public void close() {}
}
