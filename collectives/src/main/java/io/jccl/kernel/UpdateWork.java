package io.jccl.kernel;

import io.jccl.device.DataType;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One step of one piece: what the kernels read. Reused, so that a step allocates nothing. Written
 * by one thread before others run it.
 */
public final class UpdateWork extends Chunks.Work {
    /** Memory of a target or moment that is absent. */
    public static final MemorySegment NONE = MemorySegment.ofArray(new byte[0]);

    /** float32; moments that the rule does not have are not read. */
    public MemorySegment parameters = NONE;

    public MemorySegment first = NONE;
    public MemorySegment second = NONE;
    public MemorySegment gradients = NONE;
    public MemorySegment target = NONE;

    /** The factor of the gradients. */
    public float factor;

    /** Weight decay; for AdamW one minus its product with the learning rate. */
    public float decay;

    /** beta1 or momentum, and the gradient's weight in the first moment. */
    public float keep1;

    public float add1;

    /** The same for the second moment. */
    public float keep2;

    public float add2;

    /** Learning rate, for Adam over its bias correction. */
    public float rate;

    /** The factor of the root of the second moment: its bias correction. */
    public float root;

    public float epsilon;

    private @Nullable UpdateKernel kernel;
    private long from;
    private int gradientSize;
    private int targetSize;

    /** Sets the rule, the types, and the index in the parameters of the first element. */
    public void kernel(
            UpdateKernel.Rule rule, DataType gradients, @Nullable DataType target, long from) {
        this.kernel = UpdateKernel.of(rule, gradients, target);
        this.gradientSize = gradients.size();
        this.targetSize = target == null ? 0 : target.size();
        this.from = from;
    }

    @Override
    public void run(int thread, long begin, long end) {
        UpdateKernel k = Objects.requireNonNull(kernel);
        for (long i = begin; i < end; i += Chunks.CHUNK) {
            k.run(
                    this,
                    (from + i) * Float.BYTES,
                    i * gradientSize,
                    i * targetSize,
                    (int) Math.min(Chunks.CHUNK, end - i));
        }
    }

    /** Releases its references to the memory. */
    public void clear() {
        parameters = NONE;
        first = NONE;
        second = NONE;
        gradients = NONE;
        target = NONE;
    }
}
