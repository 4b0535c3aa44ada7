package io.jccl.offload;

import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The tensors that one layer of a model needs on the device.
 *
 * @param name for messages and traces
 * @param parameters read by forward and backward; copied in, and dropped after the work
 * @param gradients written by backward; copied out as soon as it has run
 * @param checkpoint activations that forward writes and backward reads; copied out after forward
 *     and copied in before backward. Null if there are none, or they stay on the device
 */
public record Layer(
        String name,
        List<LayerTensor> parameters,
        List<LayerTensor> gradients,
        @Nullable LayerTensor checkpoint) {

    /** Tensors in device memory begin at multiples of this, as {@code cudaMalloc}'s memory does. */
    static final long ALIGNMENT = 256;

    /** Checks the names. */
    public Layer {
        Objects.requireNonNull(name, "name");
        parameters = List.copyOf(parameters);
        gradients = List.copyOf(gradients);
        checkNames(name, "parameters", parameters);
        checkNames(name, "gradients", gradients);
    }

    private static void checkNames(String layer, String kind, List<LayerTensor> tensors) {
        Set<String> seen = new HashSet<>();
        for (LayerTensor t : tensors) {
            if (!seen.add(t.name())) {
                throw new IllegalArgumentException(
                        "layer '%s' has two %s called '%s'; names must be unique"
                                .formatted(layer, kind, t.name()));
            }
        }
    }

    /**
     * A layer that only runs forward.
     *
     * @param name for messages and traces
     * @param parameters the tensors it reads
     * @return the layer
     */
    public static Layer of(String name, LayerTensor... parameters) {
        return new Layer(name, List.of(parameters), List.of(), null);
    }

    /**
     * With gradients.
     *
     * @param tensors the tensors that backward writes
     * @return the changed copy
     */
    public Layer withGradients(LayerTensor... tensors) {
        return new Layer(name, parameters, List.of(tensors), checkpoint);
    }

    /**
     * With activations that are offloaded between forward and backward.
     *
     * @param tensor the tensor that forward writes and backward reads
     * @return the changed copy
     */
    public Layer withCheckpoint(LayerTensor tensor) {
        return new Layer(name, parameters, gradients, tensor);
    }

    /**
     * Device memory that the layer needs while it computes: all its tensors, each rounded up to 256
     * bytes.
     *
     * @return bytes
     */
    public long deviceBytes() {
        long bytes = 0;
        for (LayerTensor t : parameters) {
            bytes = Math.addExact(bytes, padded(t));
        }
        for (LayerTensor t : gradients) {
            bytes = Math.addExact(bytes, padded(t));
        }
        return checkpoint == null ? bytes : Math.addExact(bytes, padded(checkpoint));
    }

    static long padded(LayerTensor t) {
        return (t.byteSize() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}
