package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import java.util.ArrayDeque;
import org.jspecify.annotations.Nullable;

/**
 * Pinned slots, one for each chunk in flight, through which a GPU copies host memory that is not
 * pinned. Their memory is taken when the first is.
 *
 * <p><b>Threads:</b> any; only one at a time calls {@link #take}.
 */
final class StagingRing {
    private final String direction;
    private final TransferOptions options;
    private final Budgets budgets;

    // All below is guarded by this.
    private final ArrayDeque<Buffer> free = new ArrayDeque<>();
    private @Nullable Buffer memory;

    StagingRing(String direction, TransferOptions options, Budgets budgets) {
        this.direction = direction;
        this.options = options;
        this.budgets = budgets;
    }

    /** A free slot: there are as many as chunks in flight. */
    Buffer take() {
        synchronized (this) {
            if (memory != null) {
                return free.pop();
            }
        }
        int depth = options.depth();
        long size = options.chunkBytes() * depth;
        budgets.take(Tier.PINNED, size, "the " + direction + " ring of " + depth + " slots");
        Buffer taken = null;
        try {
            taken = Cuda.pinned(DataType.UINT8, size);
        } finally {
            if (taken == null) {
                budgets.give(Tier.PINNED, size);
            }
        }
        synchronized (this) {
            memory = taken;
            for (int i = 0; i < depth; i++) {
                long at = i * options.chunkBytes();
                free.add(taken.lease(at, DataType.UINT8, options.chunkBytes(), () -> {}));
            }
            return free.pop();
        }
    }

    synchronized void give(Buffer slot) {
        free.push(slot);
    }

    /** The first elements of a slot. */
    static Buffer view(Buffer slot, DataType type, long count) {
        return slot.lease(0, type, count, () -> {});
    }

    /** Gives the memory back; no copy may be under way. */
    synchronized void close() {
        Buffer m = memory;
        if (m != null) {
            m.close();
            budgets.give(Tier.PINNED, m.byteSize());
            memory = null;
        }
    }
}
