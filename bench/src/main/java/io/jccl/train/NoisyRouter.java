package io.jccl.train;

import io.jccl.device.Buffer;
import io.jccl.parallel.RouterNoise;
import org.jspecify.annotations.Nullable;

/**
 * The product that computes a block's logits, in float32 however the parameters are stored, with
 * noise in training.
 */
final class NoisyRouter {
    private final Operations operations;
    private final Experts.Room room;
    private final RouterNoise noise;
    private final Product product;
    private final Buffer logits;
    private final int experts;

    /** Inputs with their noise, if there is any: what the product reads. */
    private final @Nullable Buffer noisy;

    /**
     * Creates a router.
     *
     * @param operations of the device
     * @param room memory of the experts, with the places of tokens
     * @param noise of this block
     * @param product from the tokens, or if noise changes them from {@link Experts.Room#noisy}
     * @param logits its output
     * @param experts logits of a token
     */
    NoisyRouter(
            Operations operations,
            Experts.Room room,
            RouterNoise noise,
            Product product,
            Buffer logits,
            int experts) {
        this.operations = operations;
        this.room = room;
        this.noise = noise;
        this.product = product;
        this.logits = logits;
        this.experts = experts;
        noisy = noise.scales() ? room.noisy : null;
    }

    /** Computes the logits of all rows of the tokens of a slot. */
    void forward(Buffer tokens, int slot) {
        readInputs(tokens, slot);
        product.forward();
        if (noise.adds() && room.training()) {
            noise.add(operations.compute(), logits, experts, room.place(slot), room.stream);
        }
    }

    /** From the gradient of the logits to those of the weights and of the tokens. */
    void backward(Buffer tokens, int slot) {
        readInputs(tokens, slot);
        product.backward();
        if (noisy != null) {
            scale(room.routed, slot, room.routed);
        }
    }

    private void readInputs(Buffer tokens, int slot) {
        if (noisy != null && room.training()) {
            scale(tokens, slot, noisy);
        } else if (noisy != null) {
            operations.convert(tokens, noisy);
        }
    }

    private void scale(Buffer tokens, int slot, Buffer to) {
        int features = Math.toIntExact(tokens.count() / (logits.count() / experts));
        noise.scale(operations.compute(), tokens, features, room.place(slot), to, room.stream);
    }
}
