package io.jccl.train.fit;

import io.jccl.train.Techniques;
import java.util.List;

/**
 * A set of techniques.
 *
 * @param name its name for {@code --only}
 * @param title its name in reports
 * @param accumulation whether the batch is split into micro-batches whose gradients are accumulated
 * @param others stage of ZeRO (arXiv 1910.02054), which includes those before it; bfloat16 with
 *     float32 master parameters (arXiv 1710.03740); recomputation (arXiv 1604.06174); parameters,
 *     gradients and optimizer state in host memory (arXiv 2101.06840), or the latter on a drive
 *     (arXiv 2104.07857)
 */
public record TechniqueSet(String name, String title, boolean accumulation, Techniques others) {
    /** Plain data parallelism: an allReduce of gradients. */
    public static final TechniqueSet PLAIN = of("plain", "plain data parallelism", false, "zero=0");

    /** All techniques. */
    public static final TechniqueSet ALL =
            of("all", "all techniques", true, "zero=3 bf16 recompute offload=nvme");

    /** Plain, all techniques, and all but one of them. */
    public static final List<TechniqueSet> SETS =
            List.of(
                    PLAIN,
                    ALL,
                    of(
                            "no-accumulation",
                            "all but gradient accumulation",
                            false,
                            ALL.others.toString()),
                    without(
                            "no-mixed-precision",
                            "mixed precision",
                            "zero=3 recompute offload=nvme"),
                    without("no-recomputation", "recomputation", "zero=3 bf16 offload=nvme"),
                    without("no-zero-3", "ZeRO 3", "zero=2 bf16 recompute offload=nvme"),
                    without("no-zero-2", "ZeRO 2 and 3", "zero=1 bf16 recompute offload=nvme"),
                    without("no-zero-1", "ZeRO 1 to 3", "zero=0 bf16 recompute offload=nvme"),
                    without("no-cpu-offload", "CPU offload", "zero=3 bf16 recompute offload=state"),
                    without(
                            "no-nvme-offload",
                            "NVMe offload",
                            "zero=3 bf16 recompute offload=host"));

    private static TechniqueSet without(String name, String what, String others) {
        return of(name, "all but " + what, true, others);
    }

    private static TechniqueSet of(String name, String title, boolean accumulation, String others) {
        return new TechniqueSet(name, title, accumulation, Techniques.parse(others));
    }

    /** The techniques of a trainer with ranks that see different samples. */
    Techniques on(int ranks, int microBatches) {
        int accumulate = accumulation ? microBatches : 1;
        return Techniques.parse(others + " dp=" + ranks + " accumulate=" + accumulate);
    }
}
