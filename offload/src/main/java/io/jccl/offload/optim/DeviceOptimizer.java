package io.jccl.offload.optim;

import io.jccl.compute.Compute;
import io.jccl.compute.ReusableUpdate;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An optimizer whose state is on the device of a {@link Compute}, such as a GPU: float32 parameters
 * and moments, updated there with the bits that {@link Optimizer#step} gives on the CPU. Whether a
 * step is taken, and how gradients are clipped, is decided on the device; nothing waits for it.
 *
 * <p>A skipped step must not count, since bias corrections depend on the number of the step: {@link
 * #wasSkipped} returns this after the stream has been synchronized.
 *
 * {@snippet class="snippets.Offload" region="onDevice"}
 *
 * <p><b>Threads:</b> one at a time. All steps of one state belong on one stream.
 */
public final class DeviceOptimizer implements AutoCloseable {
    private final Optimizer optimizer;
    private final Compute compute;
    private final Buffer parameters;
    private final @Nullable Buffer first;
    private final @Nullable Buffer second;
    private final Buffer norm;
    private final List<Buffer> all;
    private final ReusableUpdate formula = new ReusableUpdate();

    private DeviceOptimizer(Optimizer optimizer, Compute compute, List<Buffer> all) {
        this.optimizer = optimizer;
        this.compute = compute;
        parameters = all.getFirst();
        first = optimizer.moments() > 0 ? all.get(1) : null;
        second = optimizer.moments() > 1 ? all.get(2) : null;
        norm = all.getLast();
        this.all = all;
    }

    /**
     * Allocates parameters and moments, all zero.
     *
     * @param optimizer the rule
     * @param compute of the device; the caller closes it, later than this
     * @param count number of parameters, 0 or more
     * @return the state; closing it frees the memory
     * @throws io.jccl.error.JcclException if the memory cannot be allocated
     */
    public static DeviceOptimizer allocate(Optimizer optimizer, Compute compute, long count) {
        List<Buffer> all = new ArrayList<>();
        try {
            for (int i = 0; i <= optimizer.moments(); i++) {
                all.add(compute.device().allocate(DataType.FLOAT32, count));
            }
            all.add(compute.device().allocate(DataType.FLOAT64, Compute.NORM_COUNT));
            return new DeviceOptimizer(optimizer, compute, all);
        } catch (RuntimeException | Error e) {
            all.forEach(Buffer::close);
            throw e;
        }
    }

    /**
     * The parameters.
     *
     * @return float32 on the device
     */
    public Buffer parameters() {
        return parameters;
    }

    /**
     * A moment: 0 is the mean of gradients or the momentum, 1 the mean of their squares.
     *
     * @param index its index
     * @return float32 on the device
     * @throws IndexOutOfBoundsException if there is none
     */
    public Buffer moment(int index) {
        Buffer b = index == 0 ? first : index == 1 ? second : null;
        if (b == null) {
            throw new IndexOutOfBoundsException(
                    "moment " + index + " of " + optimizer.moments() + " of " + optimizer);
        }
        return b;
    }

    /**
     * Enqueues a step without checking the gradients.
     *
     * @param gradients as many as parameters: float32, bfloat16 or float16 on the device
     * @param target gets the new parameters too: float32, bfloat16 or float16; or null
     * @param step the number of this step, 1 or more
     * @param learningRate 0 or more
     * @param gradientFactor what gradients are multiplied by
     * @param stream where
     * @throws IllegalArgumentException if a value is out of range, or types, counts or devices do
     *     not fit
     */
    public void step(
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor,
            Stream stream) {
        Checks.notNegative("the gradient factor", gradientFactor);
        optimizer.update(step, learningRate, formula);
        compute.update(
                formula,
                parameters,
                first,
                second,
                gradients,
                target,
                gradientFactor,
                null,
                stream);
    }

    /**
     * Enqueues a step that unscales and clips gradients, and is skipped if one is infinite or NaN,
     * or becomes so by unscaling.
     *
     * @param gradients as in {@link #step}
     * @param target gets the new parameters too, or null
     * @param step the number of this step, 1 or more; a skipped one does not count
     * @param learningRate 0 or more
     * @param lossScale the factor that the loss was multiplied by; 1 for none
     * @param maxNorm largest norm of the unscaled gradients, to which they are clipped; infinity
     *     for no clipping
     * @param stream where
     * @throws IllegalArgumentException if a value is out of range, or types, counts or devices do
     *     not fit
     */
    public void checkedStep(
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double lossScale,
            double maxNorm,
            Stream stream) {
        compute.sumOfSquares(gradients, norm, false, stream);
        compute.stepControl(norm, lossScale, maxNorm, stream);
        optimizer.update(step, learningRate, formula);
        compute.update(formula, parameters, first, second, gradients, target, 1, norm, stream);
    }

    /**
     * Whether the last {@link #checkedStep} wrote nothing. Its stream must have been synchronized.
     *
     * @return true if a gradient was not finite
     */
    public boolean wasSkipped() {
        return norm.get(2) != 0;
    }

    /** Frees the memory. Closing twice does nothing. */
    @Override
    public void close() {
        all.forEach(Buffer::close);
    }
}
