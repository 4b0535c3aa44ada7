package io.jccl.topology.plan;

import io.jccl.topology.Operation;

/**
 * What joins the machines of a {@link Cluster}: a rail-optimised fat tree. NIC <i>k</i> of the
 * machines of a unit is on the same leaf switch, where it has its full rate to the others. The
 * uplinks of a leaf together have the rate of its NICs, divided by the oversubscription. Machines
 * of a unit follow each other in the order of ranks.
 *
 * @param unit machines that share their leaf switches, at least 1
 * @param oversubscription rate of a leaf's NICs over the rate of its uplinks, at least 1; 1 is a
 *     network without bottleneck
 */
public record Network(int unit, double oversubscription) {
    /** Every NIC has its full rate to every machine. */
    public static final Network FULL = new Network(1, 1);

    /** Checks the arguments. */
    public Network {
        if (unit < 1) {
            throw new IllegalArgumentException(
                    "machines of a unit are " + unit + ", expected at least 1");
        }
        if (!(oversubscription >= 1 && oversubscription <= 1000)) {
            throw new IllegalArgumentException(
                    "oversubscription is "
                            + oversubscription
                            + ", expected 1 (none) to 1000: rate of the NICs of a leaf switch over"
                            + " that of its uplinks");
        }
    }

    /**
     * The share of the NICs' rate that an operation can use. Around a ring one connection of each
     * rail leaves a unit, and a tree is taken as a ring; with {@code alltoall} all of a machine's
     * data leaves the unit except that for the machines in it; pairs that send and receive are
     * taken to be in two units.
     *
     * @param op the operation
     * @param machines how many machines there are
     * @return a share, above 0, at most 1
     */
    public double share(Operation op, int machines) {
        if (machines <= unit) {
            return 1;
        }
        double leaving =
                switch (op) {
                    case ALL_TO_ALL -> (double) (machines - unit) / (machines - 1);
                    case SEND_RECV -> 1;
                    default -> 1.0 / unit;
                };
        return Math.min(1, 1 / (oversubscription * leaving));
    }
}
