package io.jccl.offload.zero;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.internal.Closing;
import io.jccl.offload.Tier;
import io.jccl.offload.Tiers;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** All that one rank takes, by tier and by what it is for; given back in reverse order. */
final class Memory implements AutoCloseable {
    /** What elements with a home are. */
    enum Kind {
        PARAMETERS,
        GRADIENTS,
        OPTIMIZER
    }

    private final Tiers tiers;
    private final int rank;
    private final Deque<AutoCloseable> owned = new ArrayDeque<>();
    private final Map<Tier, Usage> usage = new EnumMap<>(Tier.class);

    Memory(ZeroConfig config) {
        this.tiers = config.tiers();
        this.rank = config.rank();
        for (Tier t : Tier.values()) {
            usage.put(t, Usage.NONE);
        }
    }

    /** Closes it with the rest. */
    <T extends AutoCloseable> T own(T resource) {
        owned.push(resource);
        return resource;
    }

    TieredTensor home(Tier tier, DataType type, long count, String name, int versions, Kind kind) {
        TieredTensor h =
                own(new TieredTensor(tiers, tier, type, count, name + " rank " + rank, versions));
        long bytes = h.bytes();
        account(
                tier,
                switch (kind) {
                    case PARAMETERS -> new Usage(bytes, 0, 0, 0);
                    case GRADIENTS -> new Usage(0, bytes, 0, 0);
                    case OPTIMIZER -> new Usage(0, 0, bytes, 0);
                });
        return h;
    }

    /** Working memory, all zero. */
    Buffer buffer(Tier tier, DataType type, long count) {
        Buffer b =
                own(
                        (tier == Tier.DEVICE ? tiers.device() : tiers.pinned())
                                .allocate(type, count)
                                .zero());
        account(tier, new Usage(0, 0, 0, b.byteSize()));
        return b;
    }

    private void account(Tier tier, Usage more) {
        usage.put(tier, usage(tier).plus(more));
    }

    Usage usage(Tier tier) {
        return Objects.requireNonNull(usage.get(Objects.requireNonNull(tier, "tier")));
    }

    /** Gives all of it back, even if a part cannot be closed; throws the first error then. */
    @Override
    public void close() {
        List<AutoCloseable> all = List.copyOf(owned);
        owned.clear();
        Closing.all(all);
    }
}
