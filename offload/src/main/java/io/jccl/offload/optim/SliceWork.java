package io.jccl.offload.optim;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.jccl.device.DataType;
import io.jccl.internal.Bfloat16;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.UpdateWork;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A step of a rule that brings its own kernel, chunk by chunk. Reused. */
final class SliceWork extends Chunks.Work {
    final Slice settings = new Slice();
    private final Slice[] slices;
    private @Nullable Optimizer optimizer;
    private MemorySegment target = UpdateWork.NONE;
    private @Nullable DataType targetType;

    /** The sums of each chunk, so that they are added in one order for any number of threads. */
    private double[] partial = new double[0];

    SliceWork(int threads) {
        slices = new Slice[threads];
        Arrays.setAll(slices, i -> new Slice());
    }

    void prepare(Optimizer rule, long count, MemorySegment target, @Nullable DataType targetType) {
        this.optimizer = rule;
        this.target = target;
        this.targetType = targetType;
        int needed = Math.toIntExact((count + Chunks.CHUNK - 1) / Chunks.CHUNK) * rule.sums();
        if (partial.length < needed) {
            partial = new double[needed];
        }
        Arrays.fill(partial, 0, needed, 0);
    }

    @Override
    public void run(int thread, long begin, long end) {
        Optimizer rule = Objects.requireNonNull(optimizer);
        Slice s = slices[thread];
        s.parameters = settings.parameters;
        s.gradients = settings.gradients;
        System.arraycopy(settings.tensors, 0, s.tensors, 0, s.tensors.length);
        s.type = settings.type;
        s.pass = settings.pass;
        s.step = settings.step;
        s.learningRate = settings.learningRate;
        s.factor = settings.factor;
        int sums = rule.sums();
        boolean adds = sums > 0 && s.pass == 0;
        for (long i = begin; i < end; i += Chunks.CHUNK) {
            s.from = settings.from + i;
            s.gradientFrom = i;
            s.count = (int) Math.min(Chunks.CHUNK, end - i);
            for (int k = 0; k < sums; k++) {
                s.sums[k] = adds ? 0 : settings.sums[k];
            }
            rule.apply(s);
            for (int k = 0; adds && k < sums; k++) {
                partial[(int) (i / Chunks.CHUNK) * sums + k] = s.sums[k];
            }
            if (!adds) {
                write(s, i);
            }
        }
    }

    /** The sums of all chunks; they are added to those that an array has from an index on. */
    void addSums(long count, double[] to, int at) {
        int sums = Objects.requireNonNull(optimizer).sums();
        int chunks = (int) ((count + Chunks.CHUNK - 1) / Chunks.CHUNK);
        for (int c = 0; c < chunks; c++) {
            for (int k = 0; k < sums; k++) {
                to[at + k] += partial[c * sums + k];
            }
        }
    }

    /** Writes the parameters of a slice to the target, if there is one. */
    void write(Slice s, long at) {
        DataType type = targetType;
        if (type == null) {
            return;
        }
        for (int i = 0; i < s.count; i++) {
            float p = s.parameter(i);
            switch (type) {
                case FLOAT32 -> target.set(JAVA_FLOAT_UNALIGNED, (at + i) * Float.BYTES, p);
                case BFLOAT16 ->
                        target.set(JAVA_SHORT_UNALIGNED, (at + i) * Short.BYTES, Bfloat16.of(p));
                default ->
                        target.set(
                                JAVA_SHORT_UNALIGNED,
                                (at + i) * Short.BYTES,
                                Float.floatToFloat16(p));
            }
        }
    }

    /** Lets go of the memory. */
    void clear() {
        target = UpdateWork.NONE;
        clear(settings);
        for (Slice s : slices) {
            clear(s);
        }
    }

    private static void clear(Slice s) {
        s.parameters = UpdateWork.NONE;
        s.gradients = UpdateWork.NONE;
        Arrays.fill(s.tensors, UpdateWork.NONE);
    }
}
