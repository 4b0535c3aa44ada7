package io.jccl.topology.simulate;

import io.jccl.topology.plan.ClusterPlan;

/** Plays plans for clusters. */
final class ClusterPlayer {
    private ClusterPlayer() {}

    static Simulation run(ClusterPlan plan, long bytes, long chunkBytes) {
        throw new UnsupportedOperationException();
    }
}
