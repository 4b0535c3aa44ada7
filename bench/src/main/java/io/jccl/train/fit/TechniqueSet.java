package io.jccl.train.fit;

import io.jccl.device.DataType;
import io.jccl.offload.Tier;
import io.jccl.offload.zero.ZeroOptions;
import java.util.List;

/**
 * A set of techniques.
 *
 * @param name its name for {@code --only}
 * @param title its name in reports
 * @param stage of ZeRO (arXiv 1910.02054); a stage includes those before it
 * @param mixedPrecision bfloat16 parameters, gradients and activations, float32 master parameters
 *     (arXiv 1710.03740); else all float32
 * @param accumulation whether the batch is split into micro-batches whose gradients are accumulated
 * @param recomputation whether only the input of each block is kept for the backward pass (arXiv
 *     1604.06174)
 * @param cpuOffload whether parameters, gradients, optimizer state and the kept inputs are stored
 *     in pinned host memory (arXiv 2101.06840)
 * @param nvmeOffload whether optimizer state is stored on a drive (arXiv 2104.07857)
 */
public record TechniqueSet(
        String name,
        String title,
        int stage,
        boolean mixedPrecision,
        boolean accumulation,
        boolean recomputation,
        boolean cpuOffload,
        boolean nvmeOffload) {
    /** Plain data parallelism: an allReduce of gradients. */
    public static final TechniqueSet PLAIN =
            new TechniqueSet(
                    "plain", "plain data parallelism", 0, false, false, false, false, false);

    /** All techniques. */
    public static final TechniqueSet ALL =
            new TechniqueSet("all", "all techniques", 3, true, true, true, true, true);

    /** Plain, all techniques, and all but one of them. */
    public static final List<TechniqueSet> SETS =
            List.of(
                    PLAIN,
                    ALL,
                    new TechniqueSet(
                            "no-accumulation",
                            "all but gradient accumulation",
                            3,
                            true,
                            false,
                            true,
                            true,
                            true),
                    new TechniqueSet(
                            "no-mixed-precision",
                            "all but mixed precision",
                            3,
                            false,
                            true,
                            true,
                            true,
                            true),
                    new TechniqueSet(
                            "no-recomputation",
                            "all but recomputation",
                            3,
                            true,
                            true,
                            false,
                            true,
                            true),
                    withStage(2, "no-zero-3", "all but ZeRO 3"),
                    withStage(1, "no-zero-2", "all but ZeRO 2 and 3"),
                    withStage(0, "no-zero-1", "all but ZeRO 1 to 3"),
                    new TechniqueSet(
                            "no-cpu-offload",
                            "all but CPU offload",
                            3,
                            true,
                            true,
                            true,
                            false,
                            true),
                    new TechniqueSet(
                            "no-nvme-offload",
                            "all but NVMe offload",
                            3,
                            true,
                            true,
                            true,
                            true,
                            false));

    private static TechniqueSet withStage(int stage, String name, String title) {
        return new TechniqueSet(name, title, stage, true, true, true, true, true);
    }

    /** Element type of parameters, gradients and kept activations. */
    DataType type() {
        return mixedPrecision ? DataType.BFLOAT16 : DataType.FLOAT32;
    }

    /** Whether the kept inputs of blocks are stored on the host. */
    boolean checkpointsOnHost() {
        return recomputation && cpuOffload;
    }

    ZeroOptions options(int microBatches) {
        Tier near = cpuOffload ? Tier.PINNED : Tier.DEVICE;
        return ZeroOptions.stage(stage)
                .withTypes(type(), type())
                .withTiers(near, near, nvmeOffload ? Tier.NVME : near)
                .withAccumulation(microBatches);
    }
}
