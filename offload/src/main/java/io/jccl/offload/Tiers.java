package io.jccl.offload;

import org.jspecify.annotations.Nullable;

/**
 * The memory of {@linkplain OffloadedBuffer offloaded buffers}, and the engine that moves them. The
 * caller that created the parts closes them, after the buffers; {@link TierMemory} does both.
 *
 * {@snippet class="snippets.Offload" region="pools"}
 *
 * @param engine copies between device and host
 * @param device memory of tier {@link Tier#DEVICE}, on the engine's device
 * @param pinned memory of tier {@link Tier#PINNED}
 * @param nvme tier {@link Tier#NVME}; null if there is none
 */
public record Tiers(
        TransferEngine engine, BufferPool device, BufferPool pinned, @Nullable TierStore nvme) {
    /** Checks the pools' tiers. */
    public Tiers {
        check(device, Tier.DEVICE);
        check(pinned, Tier.PINNED);
    }

    private static void check(BufferPool pool, Tier tier) {
        if (pool.tier() != tier) {
            throw new IllegalArgumentException(
                    "the pool is of tier " + pool.tier() + ", expected one of tier " + tier);
        }
    }
}
