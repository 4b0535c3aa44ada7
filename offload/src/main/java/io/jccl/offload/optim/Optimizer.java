package io.jccl.offload.optim;

import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import org.jspecify.annotations.Nullable;

/**
 * An update rule with its hyper-parameters, applied on the CPU to float32 state in host memory.
 *
 * <p>All rules work element by element: the new parameter and moments at an index depend on that
 * index alone. A step can therefore be divided into pieces in any way and run by any number of
 * threads in any order, with bit-identical results. Every operation is an IEEE 754 binary32
 * operation, rounded to nearest even and never fused, so the loops on the Vector API and the plain
 * ones are bit-identical too; only the sign and payload of a NaN may differ.
 *
 * <p>One pass reads gradients, parameters and moments, and writes parameters and moments, and on
 * request also the new parameters rounded to a narrower type. Nothing is allocated. Off-heap memory
 * is fastest; buffers over Java arrays work too.
 *
 * <p><b>Threads:</b> immutable; any thread may call. Concurrent steps of one state are allowed on
 * pieces that do not overlap. Gradients are not checked for infinities or NaN: see {@link
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
     * Float32 state values per parameter.
     *
     * @return 0 to 2
     */
    int moments();

    /**
     * What a step does to each element, for {@link io.jccl.compute.Compute#update} on any device;
     * see {@link DeviceOptimizer}.
     *
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @return the formula with its coefficients
     * @throws IllegalArgumentException if a value is out of range
     */
    default Update update(long step, double learningRate) {
        return StepWork.update(this, step, learningRate);
    }

    /**
     * One step of some elements on the calling thread.
     *
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients gradients of the elements to update: float32, bfloat16 or float16
     * @param target a second target for the new parameters, with the same count: bfloat16, float16
     *     (rounded to nearest even) or float32; or null
     * @param step the number of this step, 1 or more: the same for all pieces of a step
     * @param learningRate 0 or more
     * @param gradientFactor gradients are first multiplied by this, in float32: 1 divided by the
     *     loss scale, times the clipping factor
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer is closed
     * @throws UnsupportedOperationException if the memory is not host memory
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
            work.work.run(0, 0, gradients.count());
        } finally {
            work.clear();
        }
    }

    /**
     * One step of some elements on several threads; the result is bit-identical to that on one
     * thread.
     *
     * @param workers the threads; the calling thread works too
     * @param state parameters and moments
     * @param from index in the state of the first element
     * @param gradients as in {@link #step(OptimizerState, long, Buffer, Buffer, long, double,
     *     double)}
     * @param target a second target for the new parameters, or null
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param gradientFactor gradients are first multiplied by this
     * @throws IllegalArgumentException if a value is out of range, or types, counts or moments do
     *     not fit
     * @throws IndexOutOfBoundsException if the elements do not lie within the state
     * @throws IllegalStateException if a buffer or the workers are closed
     * @throws UnsupportedOperationException if the memory is not host memory
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
