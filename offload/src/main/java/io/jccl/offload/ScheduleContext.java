package io.jccl.offload;

import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Immutable data shared by the parts of a schedule. */
record ScheduleContext(
        List<Layer> layers, Tiers tiers, ScheduleOptions options, ScheduleStats stats) {
    ScheduleContext {
        Objects.requireNonNull(tiers, "tiers");
        Objects.requireNonNull(options, "options");
        if (layers.isEmpty()) {
            throw new IllegalArgumentException("there are no layers, expected one or more");
        }
    }

    ScheduleContext(List<Layer> layers, Tiers tiers, ScheduleOptions options) {
        this(List.copyOf(layers), tiers, options, new ScheduleStats(layers.size()));
    }

    @Nullable ChromeTrace trace() {
        return options.trace();
    }
}
