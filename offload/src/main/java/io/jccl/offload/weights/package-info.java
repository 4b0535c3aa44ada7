/**
 * Weights in files that other frameworks read and write: the safetensors format of Hugging Face.
 *
 * <p>{@link io.jccl.offload.weights.Safetensors} reads, {@link
 * io.jccl.offload.weights.SafetensorsWriter} writes.
 */
@NullMarked
package io.jccl.offload.weights;

import org.jspecify.annotations.NullMarked;
