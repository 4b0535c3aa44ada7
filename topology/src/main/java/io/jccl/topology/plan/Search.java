package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** One search for plans: the arguments, checked, and what kinds of plans share. Not thread-safe. */
final class Search {
    private final Topology t;
    private final Operation op;
    private final List<Integer> gpus;
    private final int root;
    private final int n;
    private final @Nullable Fabric fabric;

    Search(Topology t, Operation op, List<Integer> gpus, int root) {
        this.t = t;
        this.op = op;
        this.gpus = List.copyOf(gpus);
        this.root = root;
        n = gpus.size();
        int[] ids = check(t, this.gpus);
        if (root < 0 || root >= n) {
            throw new IllegalArgumentException(
                    "root is " + root + ", and must be a rank: 0 to " + (n - 1));
        }
        fabric = n == 1 ? null : Fabric.of(t, ids);
    }

    /** The GPUs as an array, if they are there and named once. */
    static int[] check(Topology t, List<Integer> gpus) {
        if (gpus.isEmpty()) {
            throw new IllegalArgumentException("no GPUs: name at least one of " + t);
        }
        int[] ids = new int[gpus.size()];
        Set<Integer> seen = new HashSet<>();
        for (int i = 0; i < ids.length; i++) {
            ids[i] = gpus.get(i);
            if (ids[i] < 0 || ids[i] >= t.gpus().size()) {
                throw new IllegalArgumentException(
                        "GPU "
                                + ids[i]
                                + " is not there: "
                                + t.name()
                                + " has places 0 to "
                                + (t.gpus().size() - 1));
            }
            if (!seen.add(ids[i])) {
                throw new IllegalArgumentException("GPU " + ids[i] + " is named twice in " + gpus);
            }
        }
        return ids;
    }

    Plan best() {
        Plan best = null;
        for (Plan plan : new @Nullable Plan[] {exchange(), rings(), trees()}) {
            if (plan != null
                    && (best == null || plan.bandwidthGBps() > best.bandwidthGBps() * 1.000001)) {
                best = plan;
            }
        }
        if (best == null) {
            throw new IllegalArgumentException(
                    "no plan for " + op.command() + " over " + gpus + " of " + t);
        }
        return best;
    }

    @Nullable Plan rings() {
        if (fabric == null) {
            return alone();
        }
        int[] order = fabric.walk();
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            if (fabric.ways(order[i], order[(i + 1) % n]).length == 0) {
                return null;
            }
            hops.add(fabric.hop(order[i], order[(i + 1) % n], 0));
        }
        return switch (op) {
            case ALL_TO_ALL, GATHER, SCATTER, SEND_RECV -> null;
            default -> plan(new Channel.Ring(hops, rate(hops, false)));
        };
    }

    @Nullable Plan trees() {
        if (fabric == null) {
            return alone();
        }
        int[] order = fabric.walk();
        List<Hop> hops = new ArrayList<>();
        int start = 0;
        while (order[start] != root) {
            start++;
        }
        for (int i = start; i < start + n - 1; i++) {
            if (fabric.ways(order[i % n], order[(i + 1) % n]).length == 0) {
                return null;
            }
            hops.add(fabric.hop(order[i % n], order[(i + 1) % n], 0));
        }
        return switch (op) {
            case ALL_REDUCE, BROADCAST, REDUCE ->
                    plan(
                            new Channel.Tree(
                                    gpus.get(root), hops, rate(hops, op == Operation.ALL_REDUCE)));
            default -> null;
        };
    }

    @Nullable Plan exchange() {
        if (fabric == null) {
            return alone();
        }
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                boolean needed =
                        i != j
                                && switch (op) {
                                    case ALL_TO_ALL, ALL_GATHER -> true;
                                    case SCATTER -> i == root;
                                    case GATHER -> j == root;
                                    case SEND_RECV -> j == (i + 1) % n;
                                    default -> false;
                                };
                if (needed) {
                    if (fabric.ways(i, j).length == 0) {
                        return null;
                    }
                    hops.add(fabric.hop(i, j, 0));
                }
            }
        }
        return hops.isEmpty() ? null : plan(new Channel.Exchange(hops, rate(hops, false)));
    }

    private double rate(List<Hop> hops, boolean both) {
        double[] load = new double[2 * t.links().size()];
        for (Hop hop : hops) {
            for (int arc : hop.route().arcs()) {
                load[arc]++;
                load[arc ^ 1] += both ? 1 : 0;
            }
        }
        double rate = Double.POSITIVE_INFINITY;
        for (int arc = 0; arc < load.length; arc++) {
            rate = load[arc] > 0 ? Math.min(rate, t.capacity(arc) / load[arc]) : rate;
        }
        return rate;
    }

    private Plan plan(Channel channel) {
        List<Channel> channels = List.of(channel);
        double bandwidth = Check.bandwidth(op, n, channels);
        double bound = Double.POSITIVE_INFINITY;
        String cut = "";
        for (int gpu : gpus) {
            double sum = 0;
            for (var link : t.links(gpu)) {
                sum += link.gbps();
            }
            sum *= op == Operation.SCATTER || op == Operation.GATHER ? n - 1 : 1;
            if (sum < bound) {
                bound = sum;
                cut = "egress of " + t.gpus().get(gpu).name();
            }
        }
        return new Plan(t, op, gpus, root, channels, bandwidth, bound, cut, List.of());
    }

    private Plan alone() {
        return new Plan(t, op, gpus, root, List.of(), 0, 0, "one GPU: nothing moves", List.of());
    }
}
