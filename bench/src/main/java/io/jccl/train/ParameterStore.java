package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.nio.file.Path;

/**
 * Where one rank's parameters and gradients live, and what joins gradients over ranks: what the
 * model computes with are float32 buffers at places that never change, whatever holds them between.
 *
 * <p>A step: for each micro-step {@link #begin}; {@link #load} and {@link #unload} around each use
 * of a layer's weights; {@link #open} before gradients are added to a layer, {@link #ready} when
 * those of this micro-step are there; {@link #end}. Then {@link #step}.
 */
interface ParameterStore extends AutoCloseable {
    /** A weight's elements, valid between {@link #load} and {@link #unload} of its layer. */
    Buffer weight(int layer, int weight);

    /** Its gradient, to be added to between {@link #open} and {@link #ready} of its layer. */
    Buffer gradient(int layer, int weight);

    /** What the mean loss of a micro-step is multiplied by before the way back. */
    double lossFactor();

    /** Sets all parameters from their {@link Initial values}. */
    void initialize(Initial values);

    /** Begins a micro-step's way back. */
    void begin(boolean last);

    void load(int layer);

    void unload(int layer);

    void open(int layer);

    void ready(int layer);

    /** Ends a micro-step's way back. */
    void end();

    /**
     * Updates the parameters.
     *
     * @throws JcclException if a gradient is infinite or not a number
     */
    void step(double learningRate);

    /** Nanoseconds so far in which this rank waited for gradients or parameters of others. */
    long waitedNanos();

    /** All ranks write what is needed to go on. */
    void save(Path folder) throws IOException;

    /** All ranks read it. */
    void load(Path folder) throws IOException;

    @Override
    void close();

    /** Gives initial values. */
    @FunctionalInterface
    interface Initial {
        void fill(int layer, int weight, Buffer values);
    }
}
