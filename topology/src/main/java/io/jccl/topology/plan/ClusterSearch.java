package io.jccl.topology.plan;

import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.ClusterPlan.Rail;
import io.jccl.topology.plan.ClusterPlan.Shape;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Plans for many machines. Every NIC is a rail. Data enters at the GPU nearest to the NIC and
 * passes along a chain of all GPUs of the machine. In a ring it leaves from the last GPU by the
 * same NIC to the next machine, or by the NIC nearest to that GPU if this gives more bandwidth. In
 * a tree the GPU nearest to the NIC exchanges data with parent and children, and is the head of the
 * chain. The rates of all rails are raised together until a link or NIC is saturated; the rails
 * over it keep their rate, and the others are raised further.
 */
final class ClusterSearch {
    private final Cluster cluster;
    private final Topology t;
    private final Operation op;
    private final List<Integer> gpus;
    private final int n;
    private final int m;
    private final List<String> notes = new ArrayList<>();

    /** Bandwidth of each NIC; 0 if no GPU reaches it. */
    private final double[] nics;

    private final List<Channel.Ring> rings;
    private final boolean anyOrder;
    private final @Nullable PlanGraph graph;

    ClusterSearch(Cluster cluster, Operation op, List<Integer> gpus) {
        this.cluster = cluster;
        this.op = op;
        t = cluster.machine();
        this.gpus = List.copyOf(gpus);
        n = gpus.size();
        m = cluster.machines();
        int[] ids = Search.check(t, this.gpus);
        switch (op) {
            case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE -> {}
            default ->
                    throw new IllegalArgumentException(
                            "no plan over machines for "
                                    + op.command()
                                    + ": expected all_reduce, all_gather, reduce_scatter,"
                                    + " broadcast or reduce");
        }
        if (m < 2) {
            throw new IllegalArgumentException(
                    "machines is 1, expected at least 2: plan for the machine itself");
        }
        nics = nics();
        PlanGraph f = n == 1 ? null : PlanGraph.of(t, ids);
        List<Channel> packed = f == null ? List.of() : Rings.pack(f);
        if (f != null && packed.isEmpty() && f.nvlinkOnly) {
            f = PlanGraph.all(t, ids);
            packed = Rings.pack(f);
        }
        if (f != null && packed.isEmpty()) {
            throw new IllegalArgumentException(
                    ("no chain leads through all GPUs %s of %s: leave out GPUs that only one other"
                                    + " GPU reaches")
                            .formatted(gpus, t));
        }
        graph = f;
        anyOrder = f != null && f.nvlinkOnly && f.switched();
        rings = new ArrayList<>();
        for (Channel channel : packed) {
            rings.add((Channel.Ring) channel);
        }
    }

    private double[] nics() {
        double[] gbps = new double[t.nics().size()];
        int unknown = 0;
        int apart = 0;
        for (int k = 0; k < gbps.length; k++) {
            Nic nic = t.nics().get(k);
            if (near(k, -1) == null) {
                apart++;
                continue;
            }
            gbps[k] = cluster.gbps(nic, op);
            unknown += nic.gbps() > 0 ? 0 : 1;
        }
        if (gbps.length == apart) {
            throw new IllegalArgumentException(
                    (apart == 0 ? t.name() + " has no NIC" : "no GPU reaches a NIC of " + t.name())
                            + ": a plan over machines needs one; read a source that lists NICs, or"
                            + " plan for one machine");
        }
        if (unknown > 0) {
            notes.add(
                    "%s NICs have unknown bandwidth; assumed are %s GB/s each."
                            .formatted(unknown, Texts.number(LinkModel.DEFAULT_NIC)));
        }
        double share = cluster.network().share(op, m);
        if (share < 1) {
            notes.add(
                    "The network leaves "
                            + Texts.number(100 * share)
                            + "% of the NICs' rate: units of "
                            + cluster.network().unit()
                            + " machines, oversubscription "
                            + Texts.number(cluster.network().oversubscription())
                            + ".");
        }
        if (apart > 0) {
            notes.add(apart + " NICs are left out, since no GPU reaches them.");
        }
        return gbps;
    }

    /**
     * The route to a NIC from the GPU nearest to it, with one GPU excluded: widest, then shortest.
     */
    private @Nullable Route near(int nic, int but) {
        Route best = null;
        int nicId = t.nics().get(nic).id();
        for (int gpu : gpus) {
            Route route = gpu == but ? null : t.route(gpu, nicId);
            if (route != null
                    && (best == null
                            || route.gbps() > best.gbps()
                            || (route.gbps() == best.gbps()
                                    && route.arcs().size() < best.arcs().size()))) {
                best = route;
            }
        }
        return best;
    }

    ClusterPlan best() {
        ClusterPlan ring = rails(false);
        if (op != Operation.ALL_REDUCE) {
            return ring;
        }
        ClusterPlan trees = rails(true);
        boolean better = trees.bandwidthGBps() > ring.bandwidthGBps() * (1 + 1e-6);
        ClusterPlan best = better ? trees : ring;
        List<String> why = new ArrayList<>(best.why());
        why.add(
                better
                        ? "Rings over the machines would give "
                                + Texts.number(ring.bandwidthGBps())
                                + " GB/s."
                        : "Binary trees over the machines would give "
                                + Texts.number(trees.bandwidthGBps())
                                + " GB/s, at less latency.");
        return new ClusterPlan(
                cluster,
                op,
                gpus,
                best.channels(),
                best.bandwidthGBps(),
                best.boundGBps(),
                best.bound(),
                why);
    }

    ClusterPlan rails(boolean tree) {
        List<Rail> rails = rails(tree, false);
        double sum = sum(rails);
        boolean alternate = false;
        if (!tree && n > 1) {
            List<Rail> other = rails(false, true);
            double more = sum(other);
            if (more > sum * (1 + 1e-6)) {
                rails = other;
                sum = more;
                alternate = true;
            }
        }
        int ranks = m * n;
        double bandwidth = sum * (tree ? op.busFactor(ranks) : 1);
        Bounds.Bound bound = ClusterBounds.of(cluster, op, gpus, nics);
        if (Math.abs(bandwidth - bound.gbps()) < 1e-6 * bound.gbps()) {
            bandwidth = bound.gbps();
        }
        List<String> why = new ArrayList<>();
        why.add(
                rails.size()
                        + (tree
                                ? " binary trees over machines, two for each NIC and complementary: "
                                : (rails.size() == 1 ? " ring" : " rings")
                                        + " over machines, one for each NIC: ")
                        + Texts.number(bandwidth)
                        + " GB/s of bus bandwidth; the bound is "
                        + Texts.number(bound.gbps())
                        + " ("
                        + bound.what()
                        + ").");
        if (alternate) {
            why.add(
                    "A ring leaves by the NIC of its last GPU, and every second machine runs it"
                            + " backwards, so that data stays on its rail.");
        }
        why.addAll(notes);
        return new ClusterPlan(
                cluster, op, gpus, rails, bandwidth, bound.gbps(), bound.what(), why);
    }

    private static double sum(List<Rail> rails) {
        double sum = 0;
        for (Rail rail : rails) {
            sum += rail.gbps();
        }
        return sum;
    }

    /**
     * One rail for each NIC, or two trees.
     *
     * @param alternate whether rings may leave by another NIC than they come in by
     */
    private List<Rail> rails(boolean tree, boolean alternate) {
        List<Rail> shapes = new ArrayList<>();
        double[] ringLoad = new double[2 * t.links().size()];
        int[] entries = new int[t.gpus().size()];
        int[] exits = alternate ? new int[nics.length] : null;
        for (int k = 0; k < nics.length; k++) {
            if (nics[k] > 0) {
                Rail rail = chain(k, tree, entries, exits, ringLoad);
                shapes.add(rail);
                if (tree) {
                    shapes.add(
                            new Rail(
                                    Shape.COMPLEMENT_TREE,
                                    rail.hops(),
                                    rail.entry(),
                                    rail.exit(),
                                    k,
                                    k,
                                    1));
                }
            }
        }
        return fill(shapes);
    }

    /** A rail with its chain, of rate 1. */
    private Rail chain(
            int nic, boolean tree, int[] entries, int @Nullable [] exits, double[] used) {
        int nicId = t.nics().get(nic).id();
        Route nearest = near(nic, -1);
        if (nearest == null) {
            throw new IllegalStateException("NIC " + nic + " was reached before");
        }
        // Of equally near GPUs, the one at which the fewest rails enter.
        int entry = nearest.from();
        for (int gpu : gpus) {
            Route route = t.route(gpu, nicId);
            if (route != null
                    && route.gbps() == nearest.gbps()
                    && route.arcs().size() == nearest.arcs().size()
                    && entries[gpu] < entries[entry]) {
                entry = gpu;
            }
        }
        entries[entry]++;
        if (graph == null) {
            return new Rail(tree ? Shape.TREE : Shape.RING, List.of(), entry, entry, nic, nic, 1);
        }
        List<Hop> hops =
                anyOrder ? anyChain(graph, nic, entry, exits) : ringChain(nic, entry, exits, used);
        for (Hop hop : hops) {
            for (int arc : hop.route().arcs()) {
                used[arc] += 1 / t.capacity(arc);
            }
        }
        int exit = tree ? entry : hops.getLast().to();
        int out = nic;
        if (exits != null) {
            out = Math.max(0, exit(exit, exits).nic);
            exits[out]++;
        }
        return new Rail(tree ? Shape.TREE : Shape.RING, hops, entry, exit, nic, out, 1);
    }

    /**
     * A route out of a machine.
     *
     * @param nic place of the NIC; -1 if there is none
     * @param gbps bandwidth from the GPU into the network, shared with the rails that leave there
     *     too
     * @param length links of the route
     */
    private record Exit(int nic, double gbps, int length) {
        boolean isBetterThan(Exit o) {
            return gbps > o.gbps || (gbps == o.gbps && length < o.length);
        }
    }

    /** The best exit for a GPU, given how many rails leave by each NIC already. */
    private Exit exit(int gpu, int[] exits) {
        Exit best = new Exit(-1, 0, 0);
        for (int k = 0; k < nics.length; k++) {
            Route route = nics[k] > 0 ? t.route(gpu, t.nics().get(k).id()) : null;
            if (route != null) {
                double gbps = Math.min(route.gbps(), nics[k] / (1 + exits[k]));
                Exit exit = new Exit(k, gbps, route.arcs().size());
                best = exit.isBetterThan(best) ? exit : best;
            }
        }
        return best;
    }

    /** The exit by the NIC at which data entered. */
    private Exit back(int gpu, int nic) {
        Route route = t.route(gpu, t.nics().get(nic).id());
        return route == null
                ? new Exit(-1, 0, 0)
                : new Exit(nic, route.gbps(), route.arcs().size());
    }

    /** For graphs in which all orders are equally good: the GPU with the best exit comes last. */
    private List<Hop> anyChain(PlanGraph f, int nic, int entry, int @Nullable [] exits) {
        int last = -1;
        Exit best = new Exit(-1, 0, 0);
        int at = gpus.indexOf(entry);
        for (int i = 1; i < n; i++) {
            int gpu = f.gpus[(at + i) % n];
            Exit exit = exits == null ? back(gpu, nic) : exit(gpu, exits);
            if (exit.isBetterThan(best)) {
                best = exit;
                last = gpu;
            }
        }
        List<Integer> order = new ArrayList<>(n);
        order.add(at);
        for (int i = 1; i < n; i++) {
            if (f.gpus[(at + i) % n] != last) {
                order.add((at + i) % n);
            }
        }
        if (last >= 0) {
            order.add(gpus.indexOf(last));
        }
        List<Hop> hops = new ArrayList<>(n - 1);
        for (int i = 0; i + 1 < n; i++) {
            hops.add(f.hop(order.get(i), order.get(i + 1), 0));
        }
        return hops;
    }

    /**
     * A ring, opened before the entry: the one with the best exit, of equal ones the least used.
     */
    private List<Hop> ringChain(int nic, int entry, int @Nullable [] exits, double[] used) {
        List<Hop> best = List.of();
        Exit bestExit = new Exit(-1, -1, 0);
        double bestLoad = 0;
        for (Channel.Ring ring : rings) {
            int start = ring.order().indexOf(entry);
            List<Hop> hops = new ArrayList<>(n - 1);
            double load = 0;
            for (int i = 0; i < n - 1; i++) {
                Hop hop = ring.hops().get((start + i) % n);
                hops.add(hop);
                for (int arc : hop.route().arcs()) {
                    load = Math.max(load, used[arc] + 1 / t.capacity(arc));
                }
            }
            int last = hops.getLast().to();
            Exit exit = exits == null ? back(last, nic) : exit(last, exits);
            boolean same = !exit.isBetterThan(bestExit) && !bestExit.isBetterThan(exit);
            if (exit.isBetterThan(bestExit) || (same && load < bestLoad)) {
                best = hops;
                bestExit = exit;
                bestLoad = load;
            }
        }
        return best;
    }

    /**
     * Raises all rates together until an arc is saturated; then raises those of the other rails.
     */
    private List<Rail> fill(List<Rail> rails) {
        int arcs = 2 * t.links().size();
        double[] left = new double[arcs + 2 * nics.length];
        for (int arc = 0; arc < arcs; arc++) {
            left[arc] = t.capacity(arc);
        }
        for (int k = 0; k < nics.length; k++) {
            left[arcs + 2 * k] = nics[k];
            left[arcs + 2 * k + 1] = nics[k];
        }
        List<double[]> uses = new ArrayList<>();
        for (Rail rail : rails) {
            uses.add(ClusterCheck.uses(cluster, rail));
        }
        double[] full = left.clone();
        double[] rate = new double[rails.size()];
        boolean[] held = new boolean[rails.size()];
        for (int open = rails.size(); open > 0; ) {
            double[] load = new double[left.length];
            for (int i = 0; i < rate.length; i++) {
                for (int r = 0; r < load.length && !held[i]; r++) {
                    load[r] += uses.get(i)[r];
                }
            }
            double step = Double.POSITIVE_INFINITY;
            for (int r = 0; r < load.length; r++) {
                step = load[r] > 0 ? Math.min(step, left[r] / load[r]) : step;
            }
            for (int r = 0; r < load.length; r++) {
                left[r] = Math.max(0, left[r] - step * load[r]);
            }
            for (int i = 0; i < rate.length; i++) {
                if (held[i]) {
                    continue;
                }
                rate[i] += step;
                for (int r = 0; r < load.length && !held[i]; r++) {
                    if (uses.get(i)[r] > 0 && left[r] <= 1e-9 * full[r]) {
                        held[i] = true;
                        open--;
                    }
                }
            }
        }
        List<Rail> filled = new ArrayList<>(rails.size());
        for (int i = 0; i < rate.length; i++) {
            Rail r = rails.get(i);
            if (rate[i] > 0) {
                filled.add(
                        new Rail(
                                r.shape(),
                                r.hops(),
                                r.entry(),
                                r.exit(),
                                r.nicIn(),
                                r.nicOut(),
                                rate[i]));
            }
        }
        return filled;
    }
}
