package io.jccl.topology.simulate;

import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.DoubleBinaryTree;
import io.jccl.topology.plan.Hop;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Simulates a plan for a cluster: every machine, or one for all. Not thread-safe. */
final class ClusterSimulator {
    /** Chunks of a channel at which the time of one more is measured. */
    private static final int FEW = 24;

    private final ClusterPlan plan;
    private final Operation op;
    private final Topology t;
    private final int machines;
    private final int local;
    private final long bytes;
    private final long chunkBytes;

    /** Arcs of a machine: those of its links, then out of and into each NIC. */
    private final int arcs;

    private final double[] capacity;
    private final Map<Integer, Integer> rankOf = new HashMap<>();

    ClusterSimulator(ClusterPlan plan, long bytes, long chunkBytes) {
        Simulator.check("size", bytes);
        Simulator.check("chunk size", chunkBytes);
        this.plan = plan;
        this.bytes = bytes;
        this.chunkBytes = chunkBytes;
        op = plan.operation();
        t = plan.cluster().machine();
        machines = plan.cluster().machines();
        local = plan.gpus().size();
        int links = 2 * t.links().size();
        arcs = links + 2 * t.nics().size();
        capacity = new double[arcs];
        for (int a = 0; a < links; a++) {
            capacity[a] = t.capacity(a);
        }
        for (int k = 0; k < t.nics().size(); k++) {
            capacity[links + 2 * k] = plan.cluster().gbps(t.nics().get(k), op);
            capacity[links + 2 * k + 1] = capacity[links + 2 * k];
        }
        for (int r = 0; r < local; r++) {
            rankOf.put(plan.gpus().get(r), r);
        }
        if ((long) machines * local > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("more than 2^31 ranks");
        }
    }

    Simulation full() {
        return full(machines, bytes, chunkBytes);
    }

    private Simulation full(int count, long size, long chunk) {
        double[] all = new double[count * arcs];
        List<String> names = new ArrayList<>();
        for (int m = 0; m < count; m++) {
            System.arraycopy(capacity, 0, all, m * arcs, arcs);
            for (int a = 0; a < arcs; a++) {
                names.add("machine " + m + ", " + name(a));
            }
        }
        List<Schedule.Part> parts = new ArrayList<>();
        for (ClusterPlan.Rail rail : plan.channels()) {
            parts.add(
                    rail.shape() == ClusterPlan.Shape.RING ? ring(rail, count) : tree(rail, count));
        }
        return Simulator.play(op, count * local, 0, parts, all, names, size, chunk, 0);
    }

    private String name(int arc) {
        int links = 2 * t.links().size();
        if (arc < links) {
            return Simulator.name(t, arc);
        }
        String nic = t.nics().get((arc - links) / 2).name();
        return (arc - links) % 2 == 0 ? nic + " to network" : "network to " + nic;
    }

    private int rank(int gpu) {
        Integer rank = rankOf.get(gpu);
        if (rank == null) {
            throw new IllegalArgumentException(
                    "a rail passes GPU " + gpu + ", which does not participate: " + plan.gpus());
        }
        return rank;
    }

    private int[] path(Hop hop, int machine) {
        return hop.route().arcs().stream().mapToInt(a -> a + machine * arcs).toArray();
    }

    /** From the GPU where a rail leaves one machine to that where it comes into another. */
    private int[] between(ClusterPlan.Rail rail, int from, int to) {
        int links = 2 * t.links().size();
        List<Integer> out = toNic(rail.exit(), rail.nicOut()).arcs();
        List<Integer> in = toNic(rail.entry(), rail.nicIn()).arcs();
        int[] path = new int[out.size() + 2 + in.size()];
        int n = 0;
        for (int arc : out) {
            path[n++] = arc + from * arcs;
        }
        path[n++] = links + 2 * rail.nicOut() + from * arcs;
        path[n++] = links + 2 * rail.nicIn() + 1 + to * arcs;
        for (int arc : in.reversed()) {
            path[n++] = (arc ^ 1) + to * arcs;
        }
        return path;
    }

    private Route toNic(int gpu, int nic) {
        Route route = t.route(gpu, t.nics().get(nic).id());
        if (route == null) {
            throw new IllegalArgumentException(
                    "no way from " + t.gpus().get(gpu).name() + " to " + t.nics().get(nic).name());
        }
        return route;
    }

    private Schedule.Ring ring(ClusterPlan.Rail rail, int count) {
        int g = rail.hops().size() + 1;
        int[] ranks = new int[count * g];
        int[][] paths = new int[count * g][];
        for (int m = 0; m < count; m++) {
            ranks[m * g] = rank(rail.entry()) + m * local;
            for (int i = 0; i + 1 < g; i++) {
                Hop hop = rail.hops().get(i);
                ranks[m * g + i + 1] = rank(hop.to()) + m * local;
                paths[m * g + i] = path(hop, m);
            }
            paths[m * g + g - 1] = between(rail, m, (m + 1) % count);
        }
        return new Schedule.Ring(ranks, paths, rail.gbps());
    }

    private Schedule.Tree tree(ClusterPlan.Rail rail, int count) {
        int which = rail.shape() == ClusterPlan.Shape.TREE ? 0 : 1;
        int hops = rail.hops().size();
        int n = count * hops + count - 1;
        int[] from = new int[n];
        int[] to = new int[n];
        int[][] down = new int[n][];
        int[][] up = new int[n][];
        int at = 0;
        for (int m = 0; m < count; m++) {
            int parent = DoubleBinaryTree.parent(which, m, count);
            if (parent >= 0) {
                from[at] = rank(rail.exit()) + parent * local;
                to[at] = rank(rail.entry()) + m * local;
                down[at] = between(rail, parent, m);
                up[at] = between(rail, m, parent);
                at++;
            }
            for (Hop hop : rail.hops()) {
                from[at] = rank(hop.from()) + m * local;
                to[at] = rank(hop.to()) + m * local;
                down[at] = path(hop, m);
                up[at] = Simulator.back(new int[][] {down[at]})[0];
                at++;
            }
        }
        int root = rank(rail.entry()) + DoubleBinaryTree.root(which, count) * local;
        return new Schedule.Tree(root, from, to, down, up, rail.gbps());
    }

    /** One machine for all. */
    Simulation alike() {
        boolean trees = false;
        for (ClusterPlan.Rail rail : plan.channels()) {
            trees |= rail.shape() != ClusterPlan.Shape.RING;
        }
        // Wrong data occurs in a small cluster as in a large one.
        int few = Math.min(machines, 5);
        Simulation small = full(few, (long) few * local, 1L << 40);
        if (!small.correct()) {
            return small;
        }
        boolean pipelined = trees || op == Operation.BROADCAST || op == Operation.REDUCE;
        if (pipelined && machines <= (trees ? 17 : 5)) {
            return full();
        }
        if (trees) {
            spans(0);
            spans(1);
            return pipeline(true);
        }
        return pipelined ? pipeline(false) : steadyState();
    }

    /** Checks that a tree over the machines reaches each from its root. */
    private void spans(int which) {
        int[] depth = new int[machines];
        int root = DoubleBinaryTree.root(which, machines);
        depth[root] = 1;
        for (int m = 0; m < machines; m++) {
            int at = m;
            int steps = 0;
            while (depth[at] == 0 && steps <= machines) {
                at = DoubleBinaryTree.parent(which, at, machines);
                steps++;
            }
            int level = depth[at] + steps;
            for (int b = m; depth[b] == 0; b = DoubleBinaryTree.parent(which, b, machines)) {
                depth[b] = level--;
            }
            if (steps > machines) {
                throw new IllegalStateException("tree " + which + " has a circle at " + m);
            }
        }
    }

    /** Rings on which all machines do the same at any time. */
    private Simulation steadyState() {
        List<RingSteadyState.Rail> rails = new ArrayList<>();
        double total = 0;
        double most = 0;
        for (ClusterPlan.Rail rail : plan.channels()) {
            total += rail.gbps();
            most = Math.max(most, rail.gbps());
        }
        int n = machines * local;
        int chunks =
                ScheduleBuilder.chunks(
                        ScheduleBuilder.block(op, n, bytes * most / total), chunkBytes);
        for (ClusterPlan.Rail rail : plan.channels()) {
            int[][] paths = new int[local][];
            for (int i = 0; i + 1 < local; i++) {
                paths[i] = path(rail.hops().get(i), 0);
            }
            paths[local - 1] = between(rail, 0, 0);
            double block = ScheduleBuilder.block(op, n, bytes * rail.gbps() / total);
            rails.add(new RingSteadyState.Rail(paths, rail.gbps(), chunks, block / chunks));
        }
        long steps = (op == Operation.ALL_REDUCE ? 2L : 1L) * (n - 1);
        RingSteadyState steadyState = new RingSteadyState(rails, capacity, steps);
        List<String> names = new ArrayList<>();
        for (int a = 0; a < arcs; a++) {
            names.add(name(a));
        }
        double seconds = steadyState.play();
        return Simulation.of(
                op,
                n,
                bytes,
                seconds,
                new Network.Outcome(
                        steadyState.transfers() * machines,
                        List.of(),
                        0,
                        0,
                        ChannelSimulator.uses(
                                steadyState.carried, steadyState.network, seconds, names)));
    }

    /**
     * Chunks one behind the other: the time is linear in their number, and in how many machines
     * (rings) or levels (trees) the last of them has to pass.
     */
    private Simulation pipeline(boolean trees) {
        double total = 0;
        for (ClusterPlan.Rail rail : plan.channels()) {
            total += rail.gbps();
        }
        double most = 0;
        for (ClusterPlan.Rail rail : plan.channels()) {
            most = Math.max(most, bytes * rail.gbps() / total);
        }
        double chunks = Math.max(1, Math.ceil(most / chunkBytes));
        // As many machines as fit trees of 3 and 4 levels, odd or even as the cluster is.
        int a = trees ? 8 + machines % 2 : 4;
        int b = trees ? 16 + machines % 2 : 5;
        double levels = trees ? level(machines) - level(a) : machines - a;
        double stages = trees ? level(b) - level(a) : b - a;
        int k1 = (int) Math.min(chunks, FEW);
        int k2 = (int) Math.min(chunks, 2 * FEW);
        Simulation low = part(a, k1, chunks);
        Simulation wide = part(b, k1, chunks);
        Simulation last = k2 > k1 ? part(b, k2, chunks) : wide;
        double stage = (wide.timeUs() - low.timeUs()) / stages;
        double chunk = k2 > k1 ? (last.timeUs() - wide.timeUs()) / (k2 - k1) : 0;
        double us = low.timeUs() + levels * stage + (chunks - k1) * chunk;
        int n = machines * local;
        double seconds = us * 1e-6;
        double scale = bytes / (double) last.bytes();
        Map<Integer, ArcUse> busiest = new HashMap<>();
        for (ArcUse use : last.arcs()) {
            int arc = use.arc() % arcs;
            double carried = use.bytes() * scale;
            ArcUse of =
                    new ArcUse(arc, name(arc), carried, carried / (capacity[arc] * 1e9 * seconds));
            busiest.merge(arc, of, (x, y) -> x.bytes() >= y.bytes() ? x : y);
        }
        List<ArcUse> uses = new ArrayList<>(busiest.values());
        uses.sort((x, y) -> Double.compare(y.use(), x.use()));
        long transfers = (long) (last.transfers() * ((n - 1.0) / (b * local - 1)) * chunks / k2);
        return Simulation.of(
                op, n, bytes, seconds, new Network.Outcome(transfers, List.of(), 0, 0, uses));
    }

    private static int level(int machines) {
        return 31 - Integer.numberOfLeadingZeros(machines);
    }

    /** A small cluster, with the first chunks of the whole. */
    private Simulation part(int count, int k, double chunks) {
        long size = Math.max(1, Math.round(bytes * (k / chunks)));
        return full(count, size, chunkBytes);
    }
}
