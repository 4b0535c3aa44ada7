package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import java.nio.file.Path;
import java.util.function.LongFunction;

/**
 * Takes slabs for a {@link BufferPool}: within the budget, what the system lets the process lock,
 * and what it has; aligned according to the pool's options.
 *
 * <p><b>Threads:</b> one at a time.
 */
final class SlabSource {
    /**
     * Memory of a pool.
     *
     * @param memory aligned
     * @param usable how many of its bytes are for blocks, a multiple of the alignment
     * @param bytes what it takes of the budget
     */
    record Slab(Buffer memory, long usable, long bytes) {}

    private final Tier tier;
    private final Budgets budgets;
    private final PoolOptions options;
    private final LongFunction<Buffer> system;
    private final Path proc;

    /**
     * A source.
     *
     * @param system allocates bytes
     * @param proc the folder in which the system reports how much the process may lock
     */
    SlabSource(
            Tier tier,
            Budgets budgets,
            PoolOptions options,
            LongFunction<Buffer> system,
            Path proc) {
        this.tier = tier;
        this.budgets = budgets;
        this.options = options;
        this.system = system;
        this.proc = proc;
    }

    /**
     * Takes a slab of the usual size, or, where the budget or the system has less, a smaller one.
     *
     * @param needed the least that is of use, a multiple of the alignment
     * @param forBlock bytes of the block that needs it, and how much is out, for messages
     */
    Slab take(long needed, long forBlock, long out, long outBytes) {
        String what =
                "a slab for a block of %s bytes (%s blocks of %s bytes are out)"
                        .formatted(forBlock, out, outBytes);
        long aligned = Math.max(needed, options.slabBytes() & -options.alignment());
        long wanted = aligned;
        if (budgets.free(tier) < wanted) {
            // A smaller slab than usual, if that is all the budget leaves.
            wanted = Math.max(needed, budgets.free(tier) & -options.alignment());
        }
        // Room to start at the next boundary, since the system may align to less.
        long slack = options.alignment() > 64 ? options.alignment() : 0;
        if (slack > 0 && budgets.free(tier) < wanted + slack) {
            wanted = Math.max(needed, wanted - slack);
        }
        Buffer memory;
        try {
            memory = allocate(what, wanted + slack);
        } catch (OffloadMemoryException e) {
            if (wanted == needed) {
                throw e;
            }
            // Not a whole slab, but perhaps the requested size.
            wanted = needed;
            memory = allocate(what, wanted + slack);
        }
        long skip = slack == 0 ? 0 : -memory.address() & (options.alignment() - 1);
        if (skip > 0) {
            Buffer whole = memory;
            memory = whole.lease(skip, DataType.UINT8, wanted, whole::close);
        }
        return new Slab(memory, wanted, wanted + slack);
    }

    /** Takes memory from the budget and the system. */
    private Buffer allocate(String what, long total) {
        if (tier == Tier.PINNED && options.checkLockLimit()) {
            LockLimit lock = LockLimit.read(proc);
            if (total > lock.free()) {
                throw new OffloadMemoryException(
                        tier, total, lock.free(), what + "; " + lock.advice(total), null);
            }
        }
        budgets.take(tier, total, what);
        boolean taken = false;
        try {
            Buffer memory = system.apply(total);
            taken = true;
            return memory;
        } catch (JcclException e) {
            throw new OffloadMemoryException(
                    tier,
                    total,
                    Math.max(0, budgets.free(tier)),
                    "the budget would allow it, but the system does not: "
                            + e.getMessage()
                            + (tier == Tier.PINNED
                                    ? "; " + LockLimit.read(proc).advice(total)
                                    : ""),
                    e);
        } finally {
            if (!taken) {
                budgets.give(tier, total);
            }
        }
    }
}
