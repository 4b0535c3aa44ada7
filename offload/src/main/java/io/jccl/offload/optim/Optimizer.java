package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import org.jspecify.annotations.Nullable;

/**
 * An update rule with its hyper-parameters, applied on the CPU to float32 state in host memory.
 *
 * <p>All rules work element by element: new parameters and moments at an index depend on what is at
 * that index alone. So a step may be cut into pieces in any way and run by any number of threads in
 * any order, and gives the same bits. Each operation is one of IEEE 754 binary32, rounded to
 * nearest even and never fused, which makes the loops on the Vector API and the plain ones agree
 * bit by bit too; only the sign and payload of a NaN may differ.
 *
 * <p>One pass reads gradients, parameters and moments, and writes parameters and moments, and on
 * request also the new parameters rounded to a narrower type. Nothing is allocated. Memory outside
 * the Java heap is the fast case; buffers over Java arrays work.
 *
 * <p><b>Threads:</b> immutable; any thread may call. Concurrent steps of one state are allowed on
 * pieces that do not overlap. Nothing here checks gradients for infinities or NaN: see {@link
 * GradientNorm} and {@link CheckedStep}.
 */
public sealed interface Optimizer permits Adam, AdamW, Sgd {
    /**
     * The name used in files and reports.
     *
     * @return such as {@code "adamw"}
     */
    String label();

    /**
     * Float32 values remembered for each parameter.
     *
     * @return 0 to 2
     */
    int moments();

    /**
     * One step of some elements on the calling thread.
     *
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients gradients of as many elements as are to be updated: float32, bfloat16 or
     *     float16
     * @param target where the new parameters go besides, of as many elements: bfloat16, float16
     *     (rounded to nearest even) or float32; or null
     * @param step the number of this step, 1 or more: the same for all pieces of a step
     * @param learningRate 0 or more
     * @param gradientFactor what gradients are multiplied by first, in float32: 1 divided by the
     *     loss scale, times the factor of clipping
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer is closed
     * @throws UnsupportedOperationException if memory is not the host's
     */
    default void step(
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        StepWork work = StepWork.ofThread();
        try {
            work.prepare(this, state, from, gradients, target, step, learningRate, gradientFactor);
            work.run(0, gradients.count());
        } finally {
            work.clear();
        }
    }

    /**
     * One step of some elements on several threads; the same bits as on one.
     *
     * @param workers the threads; the calling thread works too
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients as in {@link #step(OptimizerState, long, Buffer, Buffer, long, double,
     *     double)}
     * @param target where the new parameters go besides, or null
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param gradientFactor what gradients are multiplied by first
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer or the workers are closed
     * @throws UnsupportedOperationException if memory is not the host's
     */
    default void step(
            Workers workers,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        workers.step(this, state, from, gradients, target, step, learningRate, gradientFactor);
    }
}
