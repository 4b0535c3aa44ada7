package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.error.JcclException;
import io.jccl.offload.optim.LossScale;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Stores one rank's parameters and gradients and reduces gradients over ranks. The model computes
 * with float32 buffers at fixed addresses, however the store keeps the data between uses.
 *
 * <p>A step: for each micro-step {@link #begin}; {@link #load} and {@link #unload} around each use
 * of a layer's weights; {@link #open} before gradients are added to a layer, {@link #ready} when
 * those of this micro-step are there; {@link #end}. Then {@link #step}.
 */
interface ParameterStore extends AutoCloseable {
    /** A weight's elements, valid between {@link #load} and {@link #unload} of its layer. */
    Buffer weight(int layer, int weight);

    /**
     * The gradient of a weight, to be accumulated between {@link #open} and {@link #ready} of its
     * layer.
     */
    Buffer gradient(int layer, int weight);

    /** A weight of a part's layer by name; null if the model has none of that name. */
    default @Nullable Parameter find(Part part, int layer, String name) {
        int w = part.weight(layer, name);
        return w < 0
                ? null
                : new Parameter(
                        part.layers().get(layer).weights().get(w),
                        weight(layer, w),
                        gradient(layer, w));
    }

    /** A weight that every model has. */
    default Parameter get(Part part, int layer, String name) {
        return Objects.requireNonNull(find(part, layer, name), name);
    }

    /** Factor of a micro-step's mean loss before the backward pass. */
    double lossFactor();

    /** Sets all parameters from their {@link Initial values}. */
    void initialize(Initial values);

    /** Parameters and moments per element. */
    int states();

    /**
     * Passes on parameters (state 0) or a moment of all weights. All ranks call it.
     *
     * @param state its number, less than {@link #states}
     */
    void visit(int state, Initial visitor);

    /** Sets all parameters and moments as they are after a number of steps. All ranks call it. */
    void restore(long steps, State values);

    /** Steps that the optimizer has taken of a run's steps, without skipped ones. */
    default long updates(long steps) {
        return steps;
    }

    /** The adaptive factor of the loss; null if there is none. */
    default @Nullable LossScale lossScale() {
        return null;
    }

    /** Begins a micro-step's backward pass. */
    void begin(boolean last);

    void load(int layer);

    void unload(int layer);

    void open(int layer);

    void ready(int layer);

    /** Ends a micro-step's backward pass. */
    void end();

    /**
     * The sum of squares of the mean gradients on the ranks of this store; those that tensor ranks
     * share count once. All ranks call it.
     */
    double sumOfSquares();

    /**
     * Updates the parameters.
     *
     * @param learningRate 0 or more
     * @param clip factor of the gradients, above 0
     * @throws JcclException if a gradient is infinite or not a number
     */
    void step(double learningRate, double clip);

    /**
     * Skips a step and lowers the loss scale, because a gradient of some rank is not finite. All
     * ranks call it, instead of {@link #step}.
     */
    default void skip() {
        throw new IllegalStateException("there is no loss scale; please report it");
    }

    /** Nanoseconds that this rank has waited for gradients or parameters of others. */
    long waitedNanos();

    /** Saves the state needed to resume. All ranks call it. */
    void save(Path folder) throws IOException;

    /**
     * Loads the saved state. All ranks call it.
     *
     * @param carried whether each rank has saved what its compression carries
     */
    void load(Path folder, boolean carried) throws IOException;

    @Override
    void close();

    /** Provides initial values. */
    @FunctionalInterface
    interface Initial {
        void fill(int layer, int weight, Buffer values);
    }

    /** Provides parameters (state 0) and moments; elements that it does not set are zero. */
    @FunctionalInterface
    interface State {
        void fill(int state, int layer, int weight, Buffer values);
    }
}
