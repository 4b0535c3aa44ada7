package io.jccl.cli.topo;

import io.jccl.topology.Operation;
import io.jccl.topology.cost.Crossover;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Plan;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The findings of {@code jccl topo}.
 *
 * @param name of the machine or the file
 * @param gpus the GPUs, in the order of the source
 * @param nics the NICs, likewise
 * @param links every pair of GPUs, then every pair of GPU and NIC; none if the source has no paths
 * @param operation planned operation
 * @param machines number of machines
 * @param selected indices of the participating GPUs, by rank
 * @param plan null if none is possible, or if there are several machines
 * @param clusterPlan null if none is possible, or if there is one machine
 * @param predictions what NCCL chooses for each size
 * @param crossovers sizes from which NCCL chooses another algorithm
 * @param tuning what was predicted with; null if nothing was
 * @param answers the other answers requested
 * @param simulation lines of a simulation, if requested
 * @param warnings warnings
 */
public record Findings(
        String name,
        List<GpuRow> gpus,
        List<NicRow> nics,
        List<Pair> links,
        Operation operation,
        int machines,
        List<Integer> selected,
        @Nullable Plan plan,
        @Nullable ClusterPlan clusterPlan,
        List<Prediction> predictions,
        List<Crossover> crossovers,
        @Nullable Tuning tuning,
        Answers answers,
        List<String> simulation,
        List<String> warnings) {
    /**
     * A GPU; unknown values are null, values printed as blank are empty.
     *
     * @param index its number
     * @param name as printed
     * @param cpuAffinity as printed
     * @param numaAffinity as printed
     * @param gpuNumaId as printed
     * @param model marketing name
     * @param computeCapability such as 9.0
     * @param busId PCI address
     * @param nvlinks how many NVLinks are up, by {@code nvidia-smi nvlink -s}
     * @param nvlinkGbps signalling rate of one of them, GB/s per direction
     */
    public record GpuRow(
            int index,
            String name,
            @Nullable String cpuAffinity,
            @Nullable String numaAffinity,
            @Nullable String gpuNumaId,
            @Nullable String model,
            @Nullable String computeCapability,
            @Nullable String busId,
            @Nullable Integer nvlinks,
            @Nullable Double nvlinkGbps) {}

    /**
     * A NIC.
     *
     * @param name as printed
     * @param device by the legend
     * @param gbps GB/s per direction, if known
     */
    public record NicRow(String name, @Nullable String device, @Nullable Double gbps) {}

    /**
     * Two devices and the link between them.
     *
     * @param a name of a GPU
     * @param b name of a GPU or NIC
     * @param toNic whether {@code b} is a NIC
     * @param code as printed
     * @param kind in words
     * @param count how many physical links are bonded; 0 if that is not known
     * @param gbps GB/s per direction of the best route used alone; null if not known
     */
    public record Pair(
            String a,
            String b,
            boolean toNic,
            String code,
            String kind,
            int count,
            @Nullable Double gbps) {}

    /** Number of a GPU by its index in the graph. */
    int index(int place) {
        return gpus.get(place).index();
    }
}
