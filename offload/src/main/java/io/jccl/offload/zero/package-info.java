/**
 * Training state sharded over the ranks of a communicator, as the ZeRO stages of arXiv 1910.02054
 * do, on any tier (arXiv 2101.06840, arXiv 2104.07857).
 *
 * <p>Every rank runs this:
 *
 * <pre>{@code
 * List<ShardedLayer> layers = List.of(ShardedLayer.of("embed", 51_200), ShardedLayer.of("block0", 1 << 20), ...);
 * ZeroOptions options = ZeroOptions.stage(3)
 *         .withTypes(DataType.BFLOAT16, DataType.FLOAT32)
 *         .withTiers(Tier.PINNED, Tier.PINNED, Tier.PINNED);
 * try (ZeroOptimizer zero = ZeroOptimizer.create(
 *         communicator, layers, Adam.defaults(), options, LossScale.fixed(1), tiers)) {
 *     zero.initialize((layer, tensor, values) -> ...); // the same on all ranks
 *     for (int step = 0; step < steps; step++) {
 *         for (int layer = 0; layer < layers.size(); layer++) { // forward
 *             Buffer parameters = zero.gather(layer);
 *             ...
 *             zero.release(layer);
 *         }
 *         for (int layer = layers.size() - 1; layer >= 0; layer--) { // backward
 *             Buffer parameters = zero.gather(layer);
 *             Buffer gradients = zero.gradients(layer);
 *             ... // add this rank's gradients, of the loss times zero.lossScale()
 *             zero.release(layer);
 *             zero.reduce(layer);
 *         }
 *         zero.step(learningRate);
 *     }
 * }
 * }</pre>
 */
@NullMarked
package io.jccl.offload.zero;

import org.jspecify.annotations.NullMarked;
