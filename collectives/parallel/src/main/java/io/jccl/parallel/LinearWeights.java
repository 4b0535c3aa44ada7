package io.jccl.parallel;

import io.jccl.device.Buffer;
import io.jccl.gemm.Matrix;
import org.jspecify.annotations.Nullable;

/**
 * One rank's share of a linear layer's parameters and their gradients. All memory is owned by the
 * caller, so it may be part of the buckets of a reducer or an optimizer.
 *
 * @param weight inputs x outputs of this rank, float32 or bfloat16
 * @param bias one element per output, float32; null for none
 * @param weightGradient shape of the weight, float32; null if there is no backward pass
 * @param biasGradient shape of the bias, float32; null if there is no bias or no backward pass
 */
public record LinearWeights(
        Matrix weight,
        @Nullable Buffer bias,
        @Nullable Matrix weightGradient,
        @Nullable Buffer biasGradient) {
    /** Checks that gradients have the shapes of their parameters. */
    public LinearWeights {
        if (weightGradient != null
                && (weightGradient.rows() != weight.rows()
                        || weightGradient.columns() != weight.columns())) {
            throw new IllegalArgumentException(
                    "the weight's gradient is %s, expected the shape of the weight, %s"
                            .formatted(weightGradient, weight));
        }
        if (bias != null && bias.count() != weight.columns()) {
            throw new IllegalArgumentException(
                    "the bias has %s elements, expected one for each of the %s outputs of %s"
                            .formatted(bias.count(), weight.columns(), weight));
        }
        boolean fits =
                biasGradient == null || (bias != null && biasGradient.count() == bias.count());
        if (!fits || (bias != null && weightGradient != null && biasGradient == null)) {
            throw new IllegalArgumentException(
                    "the bias has "
                            + (bias == null ? "no" : bias.count())
                            + " elements, its gradient "
                            + (biasGradient == null ? "no" : biasGradient.count())
                            + "; expected as many");
        }
    }
}
