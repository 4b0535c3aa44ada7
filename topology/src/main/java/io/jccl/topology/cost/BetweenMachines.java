package io.jccl.topology.cost;

import io.jccl.topology.Operation;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.Network;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * What a machine's NICs and the network carry.
 *
 * @param nics how many NICs its GPUs use; 0 for one machine
 * @param gbps GB/s of all together, towards other machines; infinite for one machine
 * @param assumptions what that, and a prediction for a rack, rests on
 */
record BetweenMachines(int nics, double gbps, List<String> assumptions) {

    /** Looks at one machine of a cluster; {@code rack} if its GPUs are more than a baseboard's. */
    static BetweenMachines of(
            Parameters p, Cluster c, List<Integer> gpus, Operation op, boolean rack) {
        List<String> rests = new ArrayList<>();
        if (rack) {
            rests.add("the start of racks is that of one published rack of GB200, and of 20");
        }
        if (c.machines() == 1) {
            return new BetweenMachines(0, Double.POSITIVE_INFINITY, rests);
        }
        NearNics near = NearNics.of(c.machine(), gpus, p.nicShare);
        Network network = c.network();
        double left = near.gbps() * network.share(op, c.machines());
        double gbps = rack ? Math.min(left, p.rackNetwork) : left;
        rests.addFirst(
                left < near.gbps()
                        ? String.format(
                                Locale.ROOT,
                                "units of %d machines and an oversubscription of %s leave %.1f"
                                        + " GB/s of that",
                                network.unit(),
                                network.oversubscription(),
                                left)
                        : "every NIC has its full rate to every machine (no oversubscription)");
        rests.addFirst(
                String.format(
                        Locale.ROOT,
                        "%d NIC%s for %d GPUs of a machine, %.1f GB/s together",
                        near.count(),
                        near.count() == 1 ? "" : "s",
                        gpus.size(),
                        near.gbps()));
        if (gbps < left) {
            rests.add(
                    String.format(
                            Locale.ROOT,
                            "between racks at most %.0f GB/s for each rack, as in the only"
                                    + " published runs over several racks of GB200; whether the"
                                    + " network or NCCL limits those is not known",
                            gbps));
        }
        return new BetweenMachines(near.count(), gbps, rests);
    }
}
