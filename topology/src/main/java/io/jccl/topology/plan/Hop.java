package io.jccl.topology.plan;

import io.jccl.topology.Route;
import java.util.Objects;

/**
 * One step of a channel: data goes from a GPU to another.
 *
 * @param from index of the sending GPU in {@link io.jccl.topology.Topology#gpus()}, which is also
 *     its node id
 * @param to index of the receiving GPU
 * @param route the links it uses
 */
public record Hop(int from, int to, Route route) {
    /** Checks that the route fits. */
    public Hop {
        Objects.requireNonNull(route, "route");
        if (route.from() != from || route.to() != to) {
            throw new IllegalArgumentException(
                    "hop from %s to %s over a route from %s to %s"
                            .formatted(from, to, route.from(), route.to()));
        }
    }
}
