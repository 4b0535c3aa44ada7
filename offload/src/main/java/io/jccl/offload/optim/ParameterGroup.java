package io.jccl.offload.optim;

import java.util.Objects;

/**
 * How some tensors are updated.
 *
 * @param optimizer the rule, such as one without weight decay for norms and biases; label and state
 *     are those of all groups of a model
 * @param rate factor of the learning rate, 0 or more
 * @param counted whether the tensors count in {@link
 *     io.jccl.offload.zero.ZeroOptimizer#sumOfSquares}, for the norm of a model that several
 *     optimizers share: ranks of a tensor-parallel group that hold the same tensor let one of them
 *     count it. {@link io.jccl.offload.zero.ZeroOptions#maxNorm} limits the norm of all tensors,
 *     counted or not
 */
public record ParameterGroup(Optimizer optimizer, double rate, boolean counted) {
    /** Checks the arguments. */
    public ParameterGroup {
        Objects.requireNonNull(optimizer, "optimizer");
        Checks.notNegative("the rate of a group", rate);
    }

    /**
     * A group with the usual learning rate.
     *
     * @param optimizer the rule
     * @return the group
     */
    public static ParameterGroup of(Optimizer optimizer) {
        return new ParameterGroup(optimizer, 1, true);
    }

    /** Chooses the group of each tensor. */
    @FunctionalInterface
    public interface Choice {
        /**
         * The group of a tensor.
         *
         * @param layer the layer's name
         * @param tensor the tensor's name
         * @return its group
         */
        ParameterGroup of(String layer, String tensor);
    }
}
