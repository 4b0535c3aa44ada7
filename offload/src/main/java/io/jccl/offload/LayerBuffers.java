package io.jccl.offload;

import io.jccl.device.Buffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The tensors of a layer in device memory, for the work that is enqueued on the compute stream
 * between acquiring and releasing the layer. Afterwards the memory is used for other layers.
 *
 * <p><b>Threads:</b> any.
 */
public final class LayerBuffers {
    private final Layer layer;
    private final List<Buffer> parameters;
    private final List<Buffer> gradients;
    private final @Nullable Buffer checkpoint;

    LayerBuffers(
            Layer layer,
            List<Buffer> parameters,
            List<Buffer> gradients,
            @Nullable Buffer checkpoint) {
        this.layer = layer;
        this.parameters = List.copyOf(parameters);
        this.gradients = List.copyOf(gradients);
        this.checkpoint = checkpoint;
    }

    /**
     * Their layer.
     *
     * @return the layer
     */
    public Layer layer() {
        return layer;
    }

    /**
     * The parameters, in the layer's order.
     *
     * @return device memory to read
     */
    public List<Buffer> parameters() {
        return parameters;
    }

    /**
     * The gradients, in the layer's order. Their content is undefined until backward writes them.
     * Backward must write all elements, since they replace those in the tensors' homes.
     *
     * @return device memory to write in backward
     */
    public List<Buffer> gradients() {
        return gradients;
    }

    /**
     * The activations that forward writes and backward reads.
     *
     * @return device memory
     * @throws IllegalStateException if the layer has none
     */
    public Buffer checkpoint() {
        if (checkpoint == null) {
            throw new IllegalStateException(
                    "layer '" + layer.name() + "' has no checkpoint: give it one");
        }
        return checkpoint;
    }
}
