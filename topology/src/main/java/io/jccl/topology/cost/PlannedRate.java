package io.jccl.topology.cost;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Operation;
import io.jccl.topology.Processor;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.List;
import java.util.Optional;

/**
 * What is left of a plan's bandwidth.
 *
 * @param busbwGBps bus bandwidth
 * @param nvlink whether it goes over NVLink alone
 * @param limitedBy what limits it
 */
record PlannedRate(double busbwGBps, boolean nvlink, String limitedBy) {
    /** No plan is possible. */
    private static final PlannedRate NONE = new PlannedRate(0, false, "");

    /** A single GPU, whose data never leaves it. */
    static final PlannedRate ALONE = new PlannedRate(Double.POSITIVE_INFINITY, false, "");

    /** A method of {@link io.jccl.topology.plan.Planner}. */
    interface Plans {
        Optional<Plan> of(Topology t, Operation op, List<Integer> gpus, int root);
    }

    /** Of the plan that a method makes; bandwidth 0 if it makes none. */
    static PlannedRate of(
            Plans plans, Topology t, Operation op, List<Integer> gpus, double bridgeOverhead) {
        // The traffic inside a machine is the same for all operations of a kind.
        Plan plan = plans.of(t, op, gpus, 0).orElse(null);
        return plan == null
                ? NONE
                : new PlannedRate(
                        plan.bandwidthGBps() * usable(plan, bridgeOverhead),
                        nvlink(plan),
                        plan.bound());
    }

    private static boolean nvlink(Plan plan) {
        Topology t = plan.topology();
        for (Channel c : plan.channels()) {
            for (Hop hop : c.hops()) {
                for (int arc : hop.route().arcs()) {
                    if (t.links().get(arc >> 1).kind() != LinkKind.NVLINK) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

    /**
     * The share of a plan's rates that remains, since traffic through the host bridges of some CPUs
     * takes more of its links.
     */
    private static double usable(Plan plan, double bridgeOverhead) {
        Topology t = plan.topology();
        Operation op = plan.operation();
        double[] load = new double[2 * t.links().size()];
        for (Channel c : plan.channels()) {
            for (Hop hop : c.hops()) {
                double more = split(t, hop) ? bridgeOverhead : 1;
                boolean tree = c instanceof Channel.Tree;
                for (int arc : hop.route().arcs()) {
                    boolean pcie = t.links().get(arc >> 1).kind() == LinkKind.PCIE;
                    double rate = c.gbps() * (pcie ? more : 1);
                    load[arc] += tree && op == Operation.REDUCE ? 0 : rate;
                    load[arc ^ 1] += tree && op != Operation.BROADCAST ? rate : 0;
                }
            }
        }
        double share = 1;
        for (int arc = 0; arc < load.length; arc++) {
            share = load[arc] > 0 ? Math.min(share, t.capacity(arc) / load[arc]) : share;
        }
        return share;
    }

    /**
     * Whether a hop goes through the host bridges of one CPU that splits it into small packets: one
     * of Intel's, or one that is not known. NCCL 2.30, src/graph/search.cc, followPath: paths of
     * type PHB, so not those between sockets, and no other vendor's CPUs.
     */
    private static boolean split(Topology t, Hop hop) {
        Switch bridge = null;
        for (int arc : hop.route().arcs()) {
            if (t.links().get(arc >> 1).kind() == LinkKind.SMP) {
                return false;
            }
            if (t.nodes().get(t.head(arc)) instanceof Switch sw
                    && (sw.kind() == Switch.Kind.HOST_BRIDGE || sw.kind() == Switch.Kind.NUMA)) {
                bridge = sw;
            }
        }
        if (bridge == null) {
            return false;
        }
        Processor cpu = t.processor(numa(t, bridge));
        return cpu == null || cpu.vendor().isEmpty() || cpu.vendor().equals("GenuineIntel");
    }

    /** The NUMA node of a host bridge; the bridge itself if the graph has none. */
    private static int numa(Topology t, Switch bridge) {
        for (Link link : t.links(bridge.id())) {
            int next = link.opposite(bridge.id());
            if (bridge.kind() == Switch.Kind.HOST_BRIDGE
                    && t.nodes().get(next) instanceof Switch sw
                    && sw.kind() == Switch.Kind.NUMA) {
                return next;
            }
        }
        return bridge.id();
    }
}
