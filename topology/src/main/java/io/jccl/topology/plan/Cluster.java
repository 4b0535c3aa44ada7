package io.jccl.topology.plan;

import io.jccl.topology.Topology;
import java.util.Objects;

/**
 * Machines of one kind on a network. The ranks of machine <i>i</i> follow those of machine
 * <i>i-1</i>. The network is non-blocking: only the NICs limit the bandwidth. NIC <i>k</i> of every
 * machine is on rail <i>k</i>.
 *
 * @param machine one of them, with known bandwidths of its NICs
 * @param machines how many, at least 1
 */
public record Cluster(Topology machine, int machines) {
    /** Checks the arguments. */
    public Cluster {
        Objects.requireNonNull(machine, "machine");
        if (machines < 1) {
            throw new IllegalArgumentException("machines is " + machines + ", expected at least 1");
        }
    }
}
