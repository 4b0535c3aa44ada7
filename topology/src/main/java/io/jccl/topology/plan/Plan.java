package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.List;
import java.util.Objects;

/**
 * How an operation moves its data over a topology.
 *
 * {@snippet class="snippets.Topologies" region="plan"}
 *
 * @param topology the machine
 * @param operation the operation
 * @param gpus the participating GPUs, by rank: indices in {@link Topology#gpus()}
 * @param root rank of the root, 0 if the operation has none
 * @param channels the paths that carry the data, all used at once
 * @param bandwidthGBps bus bandwidth (as in nccl-tests, see {@link Operation#busFactor}) for sizes
 *     at which latency is negligible
 * @param boundGBps upper bound of the bus bandwidth of any algorithm over these links
 * @param bound what limits it: {@code egress of GPU3}, {@code cut {0,1} | {2}}
 * @param why the reasons for the choice, one per line
 */
public record Plan(
        Topology topology,
        Operation operation,
        List<Integer> gpus,
        int root,
        List<Channel> channels,
        double bandwidthGBps,
        double boundGBps,
        String bound,
        List<String> why) {
    /** Copies the lists. */
    public Plan {
        Objects.requireNonNull(topology, "topology");
        Objects.requireNonNull(operation, "operation");
        Objects.requireNonNull(bound, "bound");
        gpus = List.copyOf(gpus);
        channels = List.copyOf(channels);
        why = List.copyOf(why);
    }

    /**
     * How close to the bound the plan is.
     *
     * @return bandwidth / bound, at most 1
     */
    public double ratio() {
        return boundGBps == 0 ? 1 : bandwidthGBps / boundGBps;
    }
}
