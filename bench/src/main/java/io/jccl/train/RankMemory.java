package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.Budgets;
import io.jccl.offload.BufferPool;
import io.jccl.offload.Tier;
import io.jccl.offload.TierMemory;
import io.jccl.offload.Tiers;
import io.jccl.offload.nvme.NvmeOptions;
import io.jccl.offload.nvme.NvmeStore;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One rank's memory tiers: its device, and its parts of the machine's host memory and drive.
 *
 * <p><b>Threads:</b> those of {@link Tiers}; one closes it.
 */
public final class RankMemory implements AutoCloseable {
    /**
     * Bytes of a slab where there are limits, so that hardly any memory is lost at the end of one;
     * a smaller limit is a single slab, like the memory of a real device.
     */
    private static final long SLAB = 4L << 30;

    /** Bytes of a slab that a pool of host memory may lose to the alignment of a drive. */
    private static final long PAGE = 4096;

    private final Budgets budgets;
    private final Owned owned = new Owned();
    private final Tiers tiers;

    /** Memory without limits, with a named folder for data on the drive. */
    RankMemory(Communicator world, RunSettings settings, String name) {
        this(
                new Budgets(Map.of()),
                settings.techniques().offload().drive() && settings.nvme() != null
                        ? settings.nvme().resolve("state" + name)
                        : null,
                world.rank(),
                (b, drive) -> TierMemory.of(world.device(), b, drive));
    }

    /**
     * Memory with limits.
     *
     * @param device where the model computes
     * @param limits bytes of each tier for this rank
     * @param folder folder of tier NVME, in which the rank creates its own; null for none
     * @param rank this rank
     */
    public RankMemory(Device device, Map<Tier, Long> limits, @Nullable Path folder, int rank) {
        this(
                new Budgets(limits),
                folder,
                rank,
                (b, drive) -> TierMemory.of(device, b, drive, SLAB));
    }

    private interface Pools {
        TierMemory of(Budgets budgets, @Nullable NvmeStore drive);
    }

    private RankMemory(Budgets budgets, @Nullable Path folder, int rank, Pools pools) {
        this.budgets = budgets;
        try {
            NvmeStore drive =
                    folder == null
                            ? null
                            : owned.add(
                                    NvmeStore.open(
                                            make(folder.resolve("rank-" + rank)),
                                            budgets,
                                            NvmeOptions.DEFAULT.withScratch(true)));
            tiers = owned.add(pools.of(budgets, drive)).tiers();
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

    /**
     * The tiers.
     *
     * @return always the same
     */
    public Tiers tiers() {
        return tiers;
    }

    /**
     * The most bytes that were in use, from the pools or in the store.
     *
     * @param tier the tier
     * @return bytes
     */
    public long peak(Tier tier) {
        return tier == Tier.NVME ? budgets.peak(tier) : pool(tier).peakBytes();
    }

    /**
     * What is left of a limit at the peak, which is now if memory has only been allocated so far.
     * Slabs occupy more than is in use, so the {@linkplain Budgets budgets} do not show it.
     *
     * @param tier the tier
     * @return bytes, 0 or more
     */
    public long left(Tier tier) {
        return Math.max(0, budgets.cap(tier) - slack(tier) - peak(tier));
    }

    /**
     * Bytes that a slab of the tier takes in addition to the requested size.
     *
     * @param tier the tier
     * @return bytes
     */
    public long slack(Tier tier) {
        return tier == Tier.PINNED && tiers.nvme() != null ? PAGE : 0;
    }

    private BufferPool pool(Tier tier) {
        return tier == Tier.DEVICE ? tiers.device() : tiers.pinned();
    }

    /**
     * Frees the memory.
     *
     * @throws IllegalStateException if a block or byte was not returned before
     */
    @Override
    public void close() {
        long blocks = tiers.device().stats().blocks() + tiers.pinned().stats().blocks();
        owned.close();
        for (Tier t : Tier.values()) {
            if (blocks != 0 || budgets.used(t) != 0) {
                throw new IllegalStateException(
                        ("%s blocks were not given back, and tier %s still counts %s bytes; please"
                                        + " report it")
                                .formatted(blocks, t, budgets.used(t)));
            }
        }
    }
}
