package io.jccl.offload.zero;

import static io.jccl.offload.zero.Ranks.FOREVER;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.Completion;
import io.jccl.offload.Tier;
import io.jccl.offload.TierStore;
import io.jccl.offload.Tiers;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Where the elements of one layer live: memory, or a store. In a store there may be two versions: a
 * write goes to the one that is not current, and {@link #commit} makes it current.
 */
final class TieredTensor implements AutoCloseable {
    final Tier tier;
    final DataType type;
    final long count;

    private final @Nullable Buffer memory;
    private final List<TierStore.Place> places = new ArrayList<>();
    private int current;
    private boolean written;

    TieredTensor(Tiers tiers, Tier tier, DataType type, long count, String name, int versions) {
        this.tier = tier;
        this.type = type;
        this.count = count;
        this.memory =
                switch (tier) {
                    case DEVICE -> tiers.device().allocate(type, count).zero();
                    case PINNED -> tiers.pinned().allocate(type, count).zero();
                    case NVME -> null;
                };
        if (tier == Tier.NVME) {
            TierStore store = tiers.nvme();
            if (store == null) {
                throw new IllegalArgumentException(
                        name
                                + " is to be on tier NVME, but there is no store: give Tiers one, or"
                                + " use another tier");
            }
            try {
                for (int v = 0; v < versions; v++) {
                    places.add(store.place(versions == 1 ? name : name + "." + v, type, count));
                }
            } catch (RuntimeException | Error e) {
                close();
                throw e;
            }
        }
    }

    boolean inStore() {
        return memory == null;
    }

    Buffer memory() {
        return Objects.requireNonNull(memory);
    }

    long bytes() {
        return count * type.size() * Math.max(1, places.size());
    }

    Completion read(Buffer pinned) {
        return places.get(current).read(pinned);
    }

    Completion write(Buffer pinned) {
        written = true;
        return places.get((current + 1) % places.size()).write(pinned);
    }

    /** Waits for a read or a write, whose object the store may use again then. */
    static void finish(Completion c) {
        try {
            c.await(FOREVER);
        } finally {
            c.recycle();
        }
    }

    /** Makes what was written current; nothing if nothing was. */
    void commit() {
        if (written) {
            flip();
        }
        written = false;
    }

    /** Forgets what was written since the last commit. */
    void forget() {
        written = false;
    }

    /** The other version becomes current. */
    void flip() {
        if (!places.isEmpty()) {
            current = (current + 1) % places.size();
        }
    }

    @Override
    public void close() {
        if (memory != null) {
            memory.close();
        }
        for (TierStore.Place p : places) {
            p.close();
        }
    }
}
