package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.ClusterPlan.Rail;
import io.jccl.topology.plan.ClusterPlan.Shape;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** How much a rail uses of the links and NICs of a machine, and whether a plan is feasible. */
final class ClusterCheck {
    private ClusterCheck() {}

    /**
     * How much one GB/s of a rail uses of each arc, and then of each NIC, out and in, on the
     * machine where it uses most.
     */
    static double[] uses(Cluster cluster, Rail rail) {
        Topology t = cluster.machine();
        int arcs = 2 * t.links().size();
        double[] uses = new double[arcs + 2 * t.nics().size()];
        boolean tree = rail.shape() != Shape.RING;
        for (Hop hop : rail.hops()) {
            for (int arc : hop.route().arcs()) {
                uses[arc]++;
                uses[arc ^ 1] += tree ? 1 : 0;
            }
        }
        // Both trees of a pair have the same rate: each uses half of what both use.
        double rate = tree ? neighbours(cluster.machines()) / 2.0 : 1;
        uses[arcs + 2 * rail.nicOut()] += rate;
        uses[arcs + 2 * rail.nicIn() + 1] += rate;
        add(uses, t, rail.exit(), rail.nicOut(), rate, 0);
        add(uses, t, rail.entry(), rail.nicIn(), rate, 1);
        return uses;
    }

    private static void add(double[] uses, Topology t, int gpu, int nic, double rate, int back) {
        Route route = t.route(gpu, t.nics().get(nic).id());
        if (route == null) {
            throw new IllegalArgumentException(
                    "no way from " + t.gpus().get(gpu).name() + " to " + t.nics().get(nic).name());
        }
        for (int arc : route.arcs()) {
            uses[arc ^ back] += rate;
        }
    }

    /** The most neighbours of a machine in both trees together. */
    private static int neighbours(int machines) {
        int[] count = new int[machines];
        int most = 0;
        for (int tree = 0; tree < 2; tree++) {
            for (int i = 0; i < machines; i++) {
                int parent = DoubleBinaryTree.parent(tree, i, machines);
                if (parent >= 0) {
                    most = Math.max(most, Math.max(++count[i], ++count[parent]));
                }
            }
        }
        return most;
    }

    static List<String> of(ClusterPlan plan) {
        List<String> errors = new ArrayList<>();
        Topology t = plan.cluster().machine();
        int arcs = 2 * t.links().size();
        double[] load = new double[arcs + 2 * t.nics().size()];
        Set<Integer> members = new HashSet<>(plan.gpus());
        double sum = 0;
        for (Rail rail : plan.channels()) {
            double[] uses = uses(plan.cluster(), rail);
            for (int r = 0; r < load.length; r++) {
                load[r] += rail.gbps() * uses[r];
            }
            sum += rail.gbps() * (rail.shape() == Shape.RING ? 1 : factor(plan));
            if (rail.shape() != Shape.RING && plan.operation() != Operation.ALL_REDUCE) {
                errors.add("trees over machines for " + plan.operation());
            }
            Set<Integer> met = new HashSet<>();
            int at = rail.entry();
            met.add(at);
            for (Hop hop : rail.hops()) {
                if (hop.from() != at || !met.add(hop.to())) {
                    errors.add("no chain from the entry: " + hop);
                }
                at = hop.to();
            }
            if (!met.equals(members)) {
                errors.add("the chain has " + met + " of " + members);
            }
            if (rail.exit() != (rail.shape() == Shape.RING ? at : rail.entry())) {
                errors.add("data does not leave at the chain's end: " + rail);
            }
        }
        for (int r = 0; r < load.length; r++) {
            double most;
            if (r < arcs) {
                most = t.capacity(r);
            } else {
                most = plan.cluster().gbps(t.nics().get((r - arcs) / 2), plan.operation());
            }
            if (load[r] > most * (1 + Check.TOLERANCE)) {
                errors.add("resource " + r + " carries " + load[r] + " of " + most + " GB/s");
            }
        }
        if (Math.abs(sum - plan.bandwidthGBps()) > Check.TOLERANCE * sum) {
            errors.add("rails give " + sum + ", the plan has " + plan.bandwidthGBps());
        }
        if (plan.bandwidthGBps() > plan.boundGBps() * (1 + Check.TOLERANCE)) {
            errors.add(plan.bandwidthGBps() + " is above the bound " + plan.boundGBps());
        }
        return errors;
    }

    private static double factor(ClusterPlan plan) {
        return plan.operation().busFactor(plan.cluster().machines() * plan.gpus().size());
    }
}
