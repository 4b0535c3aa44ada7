package io.jccl.train.fit;

import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.PoolOptions;
import io.jccl.offload.Tier;
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

/**
 * One rank's memory: its own device and its share of the machine's host memory and drive. Each pool
 * is a single slab of its whole budget, like the memory of a real device.
 */
final class RankMemory implements AutoCloseable {
    /** Alignment that O_DIRECT requires; without a drive the pool's own alignment suffices. */
    private static final int PAGE = 4096;

    private static final int LINE = 64;

    final Tiers tiers;

    private final Budgets budgets;
    private final TransferEngine engine;
    private final BufferPool device;
    private final BufferPool pinned;
    private final @Nullable NvmeStore store;

    RankMemory(Settings s, boolean drive, int rank) {
        budgets =
                new Budgets(
                        Map.of(
                                Tier.DEVICE,
                                s.deviceBytes(),
                                Tier.PINNED,
                                s.hostBytes() / s.ranks(),
                                Tier.NVME,
                                s.nvmeBytes() / s.ranks()));
        store =
                drive
                        ? NvmeStore.open(
                                folder(s, rank), budgets, NvmeOptions.DEFAULT.withScratch(true))
                        : null;
        engine = TransferEngine.create(Device.host(), TransferOptions.DEFAULT, budgets);
        device = BufferPool.device(Device.host(), budgets, new PoolOptions(s.deviceBytes(), LINE));
        pinned =
                BufferPool.pinned(
                        Device.host(),
                        budgets,
                        new PoolOptions(
                                Math.max(1, s.hostBytes() / s.ranks()), drive ? PAGE : LINE));
        tiers = new Tiers(engine, device, pinned, store);
    }

    private static Path folder(Settings s, int rank) {
        try {
            return Files.createDirectories(s.folder().resolve("rank-" + rank));
        } catch (IOException e) {
            throw new JcclException("no folder for tier NVME in " + s.folder() + ": " + e, e);
        }
    }

    /** Peak of the bytes allocated from the pools or in the store. */
    long peak(Tier tier) {
        return switch (tier) {
            case DEVICE -> device.peakBytes();
            case PINNED -> pinned.peakBytes();
            case NVME -> budgets.peak(Tier.NVME);
        };
    }

    /**
     * The failed allocation of a tier. Memory was only allocated until then, so the peak is the
     * memory in use; the exception cannot tell, since the slab occupies the whole budget.
     */
    Attempt.Refused refused(int blocks, long parameters, OffloadMemoryException e) {
        // Bytes that a slab may lose to page alignment.
        long slack = e.tier() == Tier.PINNED && store != null ? PAGE : 0;
        return new Attempt.Refused(
                blocks,
                parameters,
                e.tier(),
                e.asked() - slack,
                Math.max(0, budgets.cap(e.tier()) - slack - peak(e.tier())));
    }

    @Override
    public void close() {
        long blocks = device.stats().blocks() + pinned.stats().blocks();
        engine.close();
        if (store != null) {
            store.close();
        }
        pinned.close();
        device.close();
        for (Tier t : Tier.values()) {
            if (blocks != 0 || budgets.used(t) != 0) {
                throw new IllegalStateException(
                        blocks
                                + " blocks were not given back, and tier "
                                + t
                                + " still counts "
                                + budgets.used(t)
                                + " bytes; please report it");
            }
        }
    }
}
