package io.jccl.topology;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A GPU.
 *
 * @param id index in {@link Topology#nodes()} and in {@link Topology#gpus()}
 * @param name as printed: {@code GPU0}
 * @param index the number in the name, as {@code nvidia-smi} assigns it; there may be gaps
 * @param model marketing name, if known: {@code NVIDIA H100 80GB HBM3}
 * @param sm compute capability times ten, such as 90; 0 if unknown
 * @param smSource how {@code sm} is known: {@link Source#DEFAULT} if it was guessed from the links
 * @param busId PCI address, if known
 * @param cpuAffinity CPU list as printed, see {@link CpuList}; empty if the cell was empty; null if
 *     there was no such column
 * @param numaAffinity NUMA list as printed, with the same rule
 * @param gpuNumaId the GPU's own NUMA node as printed, with the same rule
 */
public record Gpu(
        int id,
        String name,
        int index,
        @Nullable String model,
        int sm,
        Source smSource,
        @Nullable String busId,
        @Nullable String cpuAffinity,
        @Nullable String numaAffinity,
        @Nullable String gpuNumaId)
        implements Node {
    /** Checks that the name is not null. */
    public Gpu {
        Objects.requireNonNull(name, "name");
        Objects.requireNonNull(smSource, "smSource");
    }
}
