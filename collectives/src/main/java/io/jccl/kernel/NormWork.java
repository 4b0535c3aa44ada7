package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The sum of the squares of some elements, chunk by chunk: the same bits on any number of threads.
 * Reused, so that nothing is allocated once it is large enough.
 */
public final class NormWork extends Chunks.Work {
    private static final ThreadLocal<NormWork> OWN = ThreadLocal.withInitial(() -> new NormWork(1));
    private static final MemorySegment NONE = MemorySegment.ofArray(new byte[0]);

    /**
     * Accumulators of each thread, in separate arrays so that threads do not share a cache line.
     */
    private final double[][] scratch;

    private double[] chunks = new double[1];
    private int used;
    private MemorySegment segment = NONE;
    private @Nullable NormKernel kernel;
    private int size;

    /** For a number of threads. */
    public NormWork(int threads) {
        // Twice what is used: neighbours in memory must not share cache lines.
        scratch = new double[threads][2 * NormKernel.LANES];
    }

    /** The calling thread's own, for one thread. */
    public static NormWork ofThread() {
        return OWN.get();
    }

    /** Sets the elements to sum: float32, bfloat16 or float16. */
    public void prepare(MemorySegment elements, DataType type, long count) {
        segment = elements;
        size = type.size();
        kernel = NormKernel.of(type);
        used = Math.toIntExact((count + Chunks.CHUNK - 1) / Chunks.CHUNK);
        if (chunks.length < used) {
            chunks = new double[used];
        }
    }

    @Override
    public void run(int thread, long begin, long end) {
        NormKernel k = Objects.requireNonNull(kernel);
        for (long i = begin; i < end; i += Chunks.CHUNK) {
            chunks[(int) (i / Chunks.CHUNK)] =
                    k.sum(
                            segment,
                            i * size,
                            (int) Math.min(Chunks.CHUNK, end - i),
                            scratch[thread]);
        }
    }

    /** The sum, after all elements were run. */
    public double total() {
        double sum = 0;
        for (int i = 0; i < used; i++) {
            sum += chunks[i];
        }
        return sum;
    }

    /** Releases its references to the memory. */
    public void clear() {
        segment = NONE;
    }
}
