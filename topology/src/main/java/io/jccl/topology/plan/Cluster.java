package io.jccl.topology.plan;

import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.Objects;

/**
 * Machines of one kind on a network. The ranks of machine <i>i</i> follow those of machine
 * <i>i-1</i>. NIC <i>k</i> of every machine is on rail <i>k</i>.
 *
 * @param machine one of them, with known bandwidths of its NICs
 * @param machines how many, from 1 to {@value #MOST}
 * @param network what joins them
 */
public record Cluster(Topology machine, int machines, Network network) {
    /** The largest number of machines. */
    public static final int MOST = 1_000_000;

    /** Checks the arguments. */
    public Cluster {
        Objects.requireNonNull(machine, "machine");
        Objects.requireNonNull(network, "network");
        if (machines < 1 || machines > MOST) {
            throw new IllegalArgumentException(
                    "machines is " + machines + ", expected 1 to " + MOST);
        }
    }

    /**
     * Machines on a network where only the NICs limit the bandwidth.
     *
     * @param machine one of them, with known bandwidths of its NICs
     * @param machines how many, from 1 to {@value #MOST}
     */
    public Cluster(Topology machine, int machines) {
        this(machine, machines, Network.FULL);
    }

    /**
     * The bandwidth of a NIC to other machines, as the network leaves it.
     *
     * @param nic a NIC of the machine
     * @param op the operation
     * @return GB/s in one direction; for a NIC of unknown bandwidth that of 100 Gbit/s
     */
    public double gbps(Nic nic, Operation op) {
        double port = nic.gbps() > 0 ? nic.gbps() : LinkModel.DEFAULT_NIC;
        return port * network.share(op, machines);
    }
}
