package io.jccl.topology.cost;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Route;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * The NICs nearest to some GPUs, which a plan over machines uses.
 *
 * @param count how many
 * @param gbps GB/s of all together
 */
record NearNics(int count, double gbps) {

    static NearNics of(Topology t, List<Integer> gpus, double share) {
        Set<Integer> near = new LinkedHashSet<>();
        for (int gpu : gpus) {
            double width = 0;
            int hops = Integer.MAX_VALUE;
            List<Integer> best = new ArrayList<>();
            for (Nic nic : t.nics()) {
                Route r = t.route(gpu, nic.id());
                if (r == null) {
                    continue;
                }
                int h = r.arcs().size();
                if (h < hops || (h == hops && r.gbps() > width)) {
                    best.clear();
                    hops = h;
                    width = r.gbps();
                }
                if (h == hops && r.gbps() == width) {
                    best.add(nic.id());
                }
            }
            near.addAll(best);
        }
        double sum = 0;
        for (int id : near) {
            sum += rate(t, (Nic) t.nodes().get(id), share);
        }
        if (sum == 0) {
            throw new IllegalArgumentException(
                    "no GPU reaches a NIC of "
                            + t.name()
                            + ": a prediction for several machines needs one");
        }
        return new NearNics(near.size(), sum);
    }

    /** The rate of a NIC: NCCL's planning figure as it is, or the line rate less its overhead. */
    private static double rate(Topology t, Nic nic, double share) {
        if (nic.gbps() == 0) {
            return LinkModel.DEFAULT_NIC; // as the planner takes it
        }
        for (Link link : t.links(nic.id())) {
            if (link.kind() == LinkKind.NETWORK
                    && (link.source() == Source.DEFAULT || link.source() == Source.NCCL_MODEL)) {
                return nic.gbps();
            }
        }
        return nic.gbps() * share;
    }
}
