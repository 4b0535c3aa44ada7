package io.jccl.offload.memplan;

import io.jccl.offload.Tier;
import java.util.ArrayList;
import java.util.List;

/**
 * Techniques that save memory.
 *
 * @param stage ZeRO stage: 0 plain data parallelism, 1 shards optimizer state over the
 *     data-parallel ranks, 2 gradients too, 3 parameters too (arXiv 1910.02054)
 * @param optimizer where optimizer state lives
 * @param gradients where gradients live; not further away than the optimizer that reads them
 * @param parameters where parameters live while no computing layer needs them
 * @param activations where the activations kept for the backward pass live
 * @param recomputation which activations are recomputed instead
 * @param pieces number of parts in which a layer is fetched and computed, 1 for whole layers
 *     (memory-centric tiling, arXiv 2104.07857); more than 1 only if parameters are sharded or
 *     offloaded
 * @param split how the model is split over GPUs
 */
public record Techniques(
        int stage,
        Tier optimizer,
        Tier gradients,
        Tier parameters,
        Tier activations,
        Recomputation recomputation,
        int pieces,
        ModelParallel split) {
    /** Plain data parallelism. */
    public static final Techniques PLAIN =
            new Techniques(
                    0,
                    Tier.DEVICE,
                    Tier.DEVICE,
                    Tier.DEVICE,
                    Tier.DEVICE,
                    Recomputation.NONE,
                    1,
                    ModelParallel.NONE);

    /** Checks what can be checked without a machine. */
    public Techniques {
        Checks.range("the ZeRO stage", stage, 0, 3, "0 is plain data parallelism");
        Checks.range("pieces per layer", pieces, 1, 65_536, "1 is whole layers");
        if (gradients.compareTo(optimizer) > 0) {
            throw new IllegalArgumentException(
                    ("gradients are on tier %s and the optimizer is on %s, which"
                                    + " would read them back; offload the optimizer too, or keep"
                                    + " the gradients nearer")
                            .formatted(gradients, optimizer));
        }
        if (pieces > 1 && stage < 3 && parameters == Tier.DEVICE) {
            throw new IllegalArgumentException(
                    "layers are fetched in "
                            + pieces
                            + " pieces, but whole parameters stay on the device; use stage 3 or"
                            + " offload the parameters, or leave pieces at 1");
        }
    }

    /**
     * With another ZeRO stage.
     *
     * @param value 0 to 3
     * @return the techniques
     */
    public Techniques withStage(int value) {
        return new Techniques(
                value, optimizer, gradients, parameters, activations, recomputation, pieces, split);
    }

    /**
     * With model state in other tiers.
     *
     * @param forOptimizer where optimizer state lives
     * @param forGradients where gradients live
     * @param forParameters where parameters live
     * @return the techniques
     */
    public Techniques withState(Tier forOptimizer, Tier forGradients, Tier forParameters) {
        return new Techniques(
                stage,
                forOptimizer,
                forGradients,
                forParameters,
                activations,
                recomputation,
                pieces,
                split);
    }

    /**
     * With activations in another tier, or recomputed.
     *
     * @param tier where they live
     * @param again which activations are recomputed
     * @return the techniques
     */
    public Techniques withActivations(Tier tier, Recomputation again) {
        return new Techniques(stage, optimizer, gradients, parameters, tier, again, pieces, split);
    }

    /**
     * With layers in pieces.
     *
     * @param value pieces per layer
     * @return the techniques
     */
    public Techniques withPieces(int value) {
        return new Techniques(
                stage, optimizer, gradients, parameters, activations, recomputation, value, split);
    }

    /**
     * With the model split over GPUs.
     *
     * @param byTensor tensor-parallel degree, with sequence parallelism
     * @param byPipeline pipeline-parallel degree
     * @return the techniques
     */
    public Techniques withModelParallel(int byTensor, int byPipeline) {
        return withSplit(ModelParallel.of(byTensor, byPipeline));
    }

    /**
     * With the model split over GPUs.
     *
     * @param other how it is split
     * @return the techniques
     */
    public Techniques withSplit(ModelParallel other) {
        return new Techniques(
                stage, optimizer, gradients, parameters, activations, recomputation, pieces, other);
    }

    /**
     * Tensor-parallel degree.
     *
     * @return 1 is none
     */
    public int tensor() {
        return split.tensor();
    }

    /**
     * Pipeline-parallel degree.
     *
     * @return 1 is none
     */
    public int pipeline() {
        return split.pipeline();
    }

    /**
     * The names of the techniques in use.
     *
     * @return names such as {@code ZeRO-2} and {@code optimizer on host}; empty if plain
     */
    public List<String> names() {
        List<String> names = new ArrayList<>(split.names());
        if (stage > 0) {
            names.add("ZeRO-" + stage);
        }
        if (recomputation != Recomputation.NONE) {
            names.add(recomputation + " recomputation");
        }
        offload(names, "optimizer", optimizer);
        offload(names, "gradients", gradients);
        offload(names, "parameters", parameters);
        offload(names, "activations", activations);
        if (pieces > 1) {
            names.add(pieces + " pieces per layer");
        }
        return names;
    }

    /**
     * The number of techniques in use. {@link MemoryPlanner} sorts by it, then by {@link #cost}.
     *
     * @return their number
     */
    public int count() {
        return one(tensor() > 1)
                + one(pipeline() > 1)
                + one(split.context() > 1)
                + one(split.expert() > 1)
                + one(stage > 0)
                + one(recomputation != Recomputation.NONE)
                + one(optimizer != Tier.DEVICE)
                + one(gradients != Tier.DEVICE)
                + one(parameters != Tier.DEVICE)
                + one(activations != Tier.DEVICE)
                + one(pieces > 1);
    }

    /**
     * Whether each of these techniques saves at least as much as the other's.
     *
     * @param others the others
     * @return true if none of these is weaker
     */
    public boolean includes(Techniques others) {
        return stage >= others.stage
                && optimizer.compareTo(others.optimizer) >= 0
                && gradients.compareTo(others.gradients) >= 0
                && parameters.compareTo(others.parameters) >= 0
                && activations.compareTo(others.activations) >= 0
                && recomputation.compareTo(others.recomputation) >= 0
                && pieces >= others.pieces
                && tensor() >= others.tensor()
                && pipeline() >= others.pipeline()
                && split.context() >= others.split.context()
                && split.expert() >= others.split.expert();
    }

    /**
     * The cost of a step, for ordering only. Points per technique: 1 if it moves no more data
     * (stages 1 and 2, gradients on the host, selective recomputation), 4 if it adds about a third
     * of compute (full recomputation) or a copy over PCIe per step, 5 if a copy or gather precedes
     * every layer, 10 if a drive access does; 6 per kind of model parallelism; 1 each time pieces
     * are halved.
     *
     * @return points, 0 for plain data parallelism
     */
    public int cost() {
        return (stage == 3 ? 5 : stage)
                + switch (recomputation) {
                    case NONE -> 0;
                    case SELECTIVE -> 1;
                    case FULL -> 4;
                }
                + points(optimizer, 4, 10)
                + points(gradients, 1, 10)
                + points(parameters, 5, 10)
                + points(activations, 4, 10)
                + 6 * one(tensor() > 1)
                + 6 * one(pipeline() > 1)
                + 6 * one(split.context() > 1)
                + 6 * one(split.expert() > 1)
                + (31 - Integer.numberOfLeadingZeros(pieces));
    }

    /**
     * The techniques in use, for display.
     *
     * @return such as {@code ZeRO-2 + optimizer on host}
     */
    @Override
    public String toString() {
        List<String> names = names();
        return names.isEmpty() ? "plain data parallelism" : String.join(" + ", names);
    }

    private static int one(boolean on) {
        return on ? 1 : 0;
    }

    private static int points(Tier tier, int host, int nvme) {
        return switch (tier) {
            case DEVICE -> 0;
            case PINNED -> host;
            case NVME -> nvme;
        };
    }

    private static void offload(List<String> names, String what, Tier tier) {
        if (tier != Tier.DEVICE) {
            names.add(what + " on " + (tier == Tier.PINNED ? "host" : "NVMe"));
        }
    }
}
