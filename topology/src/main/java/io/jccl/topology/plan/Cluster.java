package io.jccl.topology.plan;

import io.jccl.topology.Topology;
import java.util.Objects;

/**
 * Machines of one kind on a network. The ranks of machine <i>i</i> follow those of machine
 * <i>i-1</i>. The network is non-blocking: what limits is the NICs. NIC <i>k</i> of every machine
 * is on rail <i>k</i>.
 *
 * @param machine one of them, with the bandwidth of its NICs known
 * @param machines how many, at least 1
 */
public record Cluster(Topology machine, int machines) {
    /** Checks the number. */
    public Cluster {
        Objects.requireNonNull(machine, "machine");
        if (machines < 1) {
            throw new IllegalArgumentException(
                    "machines is " + machines + ", and must be at least 1");
        }
    }
}
