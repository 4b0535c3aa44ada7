package io.jccl.train;

import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.TierMemory;
import io.jccl.offload.Tiers;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** One rank's memory tiers, without limits. */
final class RankTiers implements AutoCloseable {
    final Tiers tiers;
    private final Owned owned = new Owned();

    /**
     * Opens the tiers.
     *
     * @param device where the model computes
     * @param folder folder of tier NVME, in which the rank creates its own; null for none
     * @param rank this rank
     */
    RankTiers(Device device, @Nullable Path folder, int rank) {
        try {
            Budgets budgets = new Budgets(Map.of());
            NvmeStore store =
                    folder == null
                            ? null
                            : owned.add(
                                    NvmeStore.open(
                                            make(folder.resolve("rank-" + rank)),
                                            budgets,
                                            NvmeOptions.DEFAULT.withScratch(true)));
            tiers = owned.add(TierMemory.of(device, budgets, store)).tiers();
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
    }

    private static Path make(Path folder) {
        try {
            return Files.createDirectories(folder);
        } catch (IOException e) {
            throw new JcclException("no folder " + folder + " for tier NVME: " + e, e);
        }
    }

    @Override
    public void close() {
        owned.close();
    }
}
