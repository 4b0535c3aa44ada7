package io.jccl.offload;

import io.jccl.device.Device;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * {@link Tiers} of a device with their own engine and pools, which {@link #close} frees: what most
 * programs need. Slabs have 16 MiB, and with a drive, blocks have its alignment.
 *
 * {@snippet class="snippets.Offload" region="memory"}
 *
 * <p><b>Threads:</b> those of {@link Tiers}; one closes it.
 */
public final class TierMemory implements AutoCloseable {
    private static final long SLAB = 16L << 20;

    /** A cache line. */
    private static final int LINE = 64;

    /** Alignment that O_DIRECT requires. */
    private static final int PAGE = 4096;

    private final Tiers tiers;

    private TierMemory(Tiers tiers) {
        this.tiers = tiers;
    }

    /**
     * Memory without limits and without a drive.
     *
     * @param device of tier {@link Tier#DEVICE}
     * @return memory that the caller closes, after what uses it
     */
    public static TierMemory of(Device device) {
        return of(device, new Budgets(Map.of()), null);
    }

    /**
     * Memory with limits.
     *
     * @param device of tier {@link Tier#DEVICE}
     * @param budgets limits of all tiers
     * @param nvme tier {@link Tier#NVME}, which the caller closes, after this; null for none
     * @return memory that the caller closes, after what uses it
     */
    public static TierMemory of(Device device, Budgets budgets, @Nullable TierStore nvme) {
        return of(device, budgets, nvme, SLAB);
    }

    /**
     * Memory with limits, in slabs of another size.
     *
     * @param device of tier {@link Tier#DEVICE}
     * @param budgets limits of all tiers
     * @param nvme tier {@link Tier#NVME}, which the caller closes, after this; null for none
     * @param slabBytes bytes of a slab; where the budget has less, a slab is as large as the budget
     * @return memory that the caller closes, after what uses it
     */
    public static TierMemory of(
            Device device, Budgets budgets, @Nullable TierStore nvme, long slabBytes) {
        int alignment = nvme == null ? LINE : PAGE;
        BufferPool near = BufferPool.device(device, budgets, new PoolOptions(slabBytes, LINE));
        BufferPool far = BufferPool.pinned(device, budgets, new PoolOptions(slabBytes, alignment));
        TransferEngine engine = TransferEngine.create(device, TransferOptions.DEFAULT, budgets);
        return new TierMemory(new Tiers(engine, near, far, nvme));
    }

    /**
     * The tiers.
     *
     * @return always the same
     */
    public Tiers tiers() {
        return tiers;
    }

    /** Stops the engine and frees the pools. */
    @Override
    public void close() {
        tiers.engine().close();
        tiers.pinned().close();
        tiers.device().close();
    }
}
