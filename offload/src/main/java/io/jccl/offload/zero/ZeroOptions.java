package io.jccl.offload.zero;

import io.jccl.device.DataType;
import io.jccl.offload.Tier;

/**
 * What is sharded, in which types, and on which tiers it is stored. Stages are those of arXiv
 * 1910.02054, section 5.
 *
 * @param stage 0: plain data parallelism; 1: optimizer state is sharded; 2: and gradients; 3: and
 *     parameters
 * @param type of parameters and gradients as the model computes with them: float32, or bfloat16 or
 *     float16, with float32 master parameters in the optimizer state
 * @param accumulator type in which gradients are summed over micro-steps: {@code type}, or float32
 *     for sums that do not lose the low digits. Up to stage 1 it is also the type that is reduced
 *     over ranks
 * @param parameters where parameters live; on another tier than {@link Tier#DEVICE} each layer is
 *     copied to the device when it is gathered
 * @param gradients where gradients are added up
 * @param optimizer where master parameters and moments live
 * @param accumulation micro-steps of one step, 1 or more
 * @param prefetch layers that are gathered ahead, 0 or more; the window of gathered layers holds
 *     one more
 * @param maxNorm largest norm of all gradients, which are scaled down to it; infinity for no
 *     clipping
 * @param keepPrevious whether a copy of the optimizer state of before the last step is kept on tier
 *     {@link Tier#PINNED}, so that {@link ZeroOptimizer#undoStep} can return to it. State on tier
 *     {@link Tier#NVME} always keeps its previous version there
 */
public record ZeroOptions(
        int stage,
        DataType type,
        DataType accumulator,
        Tier parameters,
        Tier gradients,
        Tier optimizer,
        int accumulation,
        int prefetch,
        double maxNorm,
        boolean keepPrevious) {
    private static final int MAX_PREFETCH = 64;

    /** Checks the numbers. */
    public ZeroOptions {
        if (stage < 0 || stage > 3) {
            throw new IllegalArgumentException("stage is " + stage + ", expected 0 to 3");
        }
        if (type != DataType.FLOAT32 && type != DataType.BFLOAT16 && type != DataType.FLOAT16) {
            throw new IllegalArgumentException(
                    "the type is " + type.label() + ", expected float, bfloat16 or half");
        }
        if (accumulator != type && accumulator != DataType.FLOAT32) {
            throw new IllegalArgumentException(
                    "the accumulator's type is %s, expected float or that of the parameters, %s"
                            .formatted(accumulator.label(), type.label()));
        }
        if (parameters == null || gradients == null || optimizer == null) {
            throw new NullPointerException("a tier is null");
        }
        if (accumulation < 1) {
            throw new IllegalArgumentException(
                    "accumulation is " + accumulation + " micro-steps, expected 1 or more");
        }
        if (prefetch < 0 || prefetch > MAX_PREFETCH) {
            throw new IllegalArgumentException(
                    "prefetch is " + prefetch + " layers, expected 0 to " + MAX_PREFETCH);
        }
        if (!(maxNorm > 0)) {
            throw new IllegalArgumentException(
                    "the largest norm is "
                            + maxNorm
                            + ", expected more than 0; infinity means no clipping");
        }
    }

    /**
     * Float32 on the device, one micro-step, one layer ahead, no clipping.
     *
     * @param stage 0 to 3
     * @return the options
     */
    public static ZeroOptions stage(int stage) {
        return new ZeroOptions(
                stage,
                DataType.FLOAT32,
                DataType.FLOAT32,
                Tier.DEVICE,
                Tier.DEVICE,
                Tier.DEVICE,
                1,
                1,
                Double.POSITIVE_INFINITY,
                false);
    }

    /**
     * With other types.
     *
     * @param newType of parameters and gradients
     * @param newAccumulator in which gradients are added up
     * @return the changed copy
     */
    public ZeroOptions withTypes(DataType newType, DataType newAccumulator) {
        return stored(newType, newAccumulator, parameters, gradients, optimizer);
    }

    /**
     * With other tiers.
     *
     * @param ofParameters where parameters live
     * @param ofGradients where gradients are added up
     * @param ofOptimizer where master parameters and moments live
     * @return the changed copy
     */
    public ZeroOptions withTiers(Tier ofParameters, Tier ofGradients, Tier ofOptimizer) {
        return stored(type, accumulator, ofParameters, ofGradients, ofOptimizer);
    }

    /**
     * With more or fewer micro-steps.
     *
     * @param microSteps of one step, 1 or more
     * @return the changed copy
     */
    public ZeroOptions withAccumulation(int microSteps) {
        return stepped(microSteps, prefetch, maxNorm, keepPrevious);
    }

    /**
     * With another window.
     *
     * @param layers gathered ahead, 0 or more
     * @return the changed copy
     */
    public ZeroOptions withPrefetch(int layers) {
        return stepped(accumulation, layers, maxNorm, keepPrevious);
    }

    /**
     * With clipping.
     *
     * @param norm largest norm of all gradients; infinity for no clipping
     * @return the changed copy
     */
    public ZeroOptions withMaxNorm(double norm) {
        return stepped(accumulation, prefetch, norm, keepPrevious);
    }

    /**
     * With or without a copy of the state of before the last step.
     *
     * @param keep whether to keep it
     * @return the changed copy
     */
    public ZeroOptions withKeepPrevious(boolean keep) {
        return stepped(accumulation, prefetch, maxNorm, keep);
    }

    private ZeroOptions stored(
            DataType newType,
            DataType newAccumulator,
            Tier ofParameters,
            Tier ofGradients,
            Tier ofOptimizer) {
        return new ZeroOptions(
                stage,
                newType,
                newAccumulator,
                ofParameters,
                ofGradients,
                ofOptimizer,
                accumulation,
                prefetch,
                maxNorm,
                keepPrevious);
    }

    private ZeroOptions stepped(int microSteps, int layers, double norm, boolean keep) {
        return new ZeroOptions(
                stage,
                type,
                accumulator,
                parameters,
                gradients,
                optimizer,
                microSteps,
                layers,
                norm,
                keep);
    }
}
