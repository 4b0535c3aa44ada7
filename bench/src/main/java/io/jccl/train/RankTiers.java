package io.jccl.train;

import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tiers;
import io.jccl.offload.TransferEngine;
import io.jccl.offload.TransferOptions;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** One rank's memory tiers, without limits. */
final class RankTiers implements AutoCloseable {
    /** Alignment that O_DIRECT requires. */
    private static final int PAGE = 4096;

    private static final int LINE = 64;
    private static final long SLAB = 16L << 20;

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
            PoolOptions near = new PoolOptions(SLAB, LINE);
            PoolOptions far = new PoolOptions(SLAB, folder == null ? LINE : PAGE);
            BufferPool own = owned.add(BufferPool.device(device, budgets, near));
            BufferPool pinned = owned.add(BufferPool.pinned(device, budgets, far));
            TransferEngine engine =
                    owned.add(TransferEngine.create(device, TransferOptions.DEFAULT, budgets));
            tiers = new Tiers(engine, own, pinned, store);
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
