package io.jccl.topology.plan;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One search for plans: the checked arguments, and what the kinds of plans share. Not thread-safe.
 */
final class Search {
    private final Topology t;
    private final Operation op;
    private final List<Integer> gpus;
    private final int root;
    private final int n;
    private final int[] ids;
    private final @Nullable PlanGraph graph;

    /** Bounds of {@link #graph} and of all links, once they are known. */
    private Bounds.@Nullable Bound bound;

    private @Nullable PlanGraph all;
    private Bounds.@Nullable Bound boundOfAll;

    Search(Topology t, Operation op, List<Integer> gpus, int root) {
        this.t = t;
        this.op = op;
        this.gpus = List.copyOf(gpus);
        this.root = root;
        n = gpus.size();
        ids = check(t, this.gpus);
        if (root < 0 || root >= n) {
            throw new IllegalArgumentException(
                    "root is " + root + ", expected a rank: 0 to " + (n - 1));
        }
        graph = n == 1 ? null : PlanGraph.of(t, ids);
    }

    /** The GPUs as an array, if they are there and named once. */
    static int[] check(Topology t, List<Integer> gpus) {
        if (gpus.isEmpty()) {
            throw new IllegalArgumentException("no GPUs: name at least one of " + t);
        }
        int[] ids = new int[gpus.size()];
        BitSet seen = new BitSet();
        for (int i = 0; i < ids.length; i++) {
            ids[i] = gpus.get(i);
            if (ids[i] < 0 || ids[i] >= t.gpus().size()) {
                throw new IllegalArgumentException(
                        "GPU "
                                + ids[i]
                                + " is not there: "
                                + t.name()
                                + (t.gpus().isEmpty()
                                        ? " has no GPUs"
                                        : " has places 0 to " + (t.gpus().size() - 1)));
            }
            if (seen.get(ids[i])) {
                throw new IllegalArgumentException("GPU " + ids[i] + " is named twice in " + gpus);
            }
            seen.set(ids[i]);
        }
        return ids;
    }

    Plan best() {
        List<String> others = new ArrayList<>();
        @Nullable Plan best = better(exchange(), rings(), others);
        if (best == null || best.ratio() < 1 - 1e-9) {
            @Nullable Plan trees = trees();
            if (best != null && trees != null && graph != null && graph.nvlinkOnly && mixed(best)) {
                // Rings need PCIe here. Trees may use it too; of equal plans the one without it is
                // better: it leaves PCIe to others.
                trees = better(trees, trees(all()), others);
                if (trees != null && best.bandwidthGBps() <= trees.bandwidthGBps() * (1 + 1e-6)) {
                    Plan rings = best;
                    best = null;
                    others.add(instead(rings));
                }
            }
            best = better(best, trees, others);
        } else if (trees(op)) {
            others.add("Packed trees were not tried: nothing exceeds the bound.");
        }
        if (best == null) {
            throw new IllegalArgumentException(
                    ("no plan for %s over places %s of %s: two GPUs that exchange data reach each"
                                    + " other only through other GPUs, which do not forward")
                            .formatted(op.command(), gpus, t));
        }
        if (best.ratio() < 1 - 1e-6) {
            boolean ring = best.channels().getFirst() instanceof Channel.Ring;
            if (ring && !trees(op) && n <= Rings.EXACT) {
                others.add(
                        "The bound is of any algorithm. No set of rings is faster than this one:"
                                + " linear program over all of them.");
            } else if (best.channels().getFirst() instanceof Channel.Exchange) {
                others.add(
                        "The bound is of any algorithm, and so of those that forward through other"
                                + " GPUs. Direct copies end with the slowest of them.");
            }
        }
        if (others.isEmpty()) {
            return best;
        }
        List<String> why = new ArrayList<>(best.why());
        why.addAll(others);
        return plan(best.channels(), best.bandwidthGBps(), best.boundGBps(), best.bound(), why);
    }

    private static @Nullable Plan better(
            @Nullable Plan first, @Nullable Plan second, List<String> others) {
        if (first == null || second == null) {
            return first == null ? second : first;
        }
        if (first.channels().isEmpty()) {
            return first;
        }
        boolean better = second.bandwidthGBps() > first.bandwidthGBps() * (1 + 1e-6);
        Plan worse = better ? first : second;
        others.add(instead(worse));
        return better ? second : first;
    }

    private static String instead(Plan worse) {
        return "Instead: %s would give %s GB/s."
                .formatted(Texts.channels(worse.channels()), Texts.number(worse.bandwidthGBps()));
    }

    /** Whether a plan uses links that are not NVLinks. */
    private boolean mixed(Plan plan) {
        return plan.channels().stream()
                .flatMap(c -> c.hops().stream())
                .flatMap(h -> h.route().arcs().stream())
                .anyMatch(arc -> t.links().get(arc >> 1).kind() != LinkKind.NVLINK);
    }

    private static boolean trees(Operation op) {
        return switch (op) {
            case ALL_REDUCE, BROADCAST, REDUCE -> true;
            default -> false;
        };
    }

    @Nullable Plan rings() {
        switch (op) {
            case ALL_TO_ALL, GATHER, SCATTER, SEND_RECV -> {
                return null;
            }
            default -> {}
        }
        if (graph == null) {
            return alone();
        }
        List<Channel> rings = Rings.pack(graph);
        PlanGraph used = graph;
        if (rings.isEmpty() && graph.nvlinkOnly) {
            used = all();
            rings = Rings.pack(used);
        }
        return rings.isEmpty() ? null : plan(used, rings);
    }

    @Nullable Plan trees() {
        if (!trees(op)) {
            return null;
        }
        return graph == null ? alone() : trees(graph);
    }

    private @Nullable Plan trees(PlanGraph f) {
        boolean both = op == Operation.ALL_REDUCE;
        double most = bound(f).gbps() / (both ? op.busFactor(n) : 1);
        List<Channel> trees = Trees.pack(f, root, both, most);
        return trees.isEmpty() ? null : plan(f, trees);
    }

    @Nullable Plan exchange() {
        switch (op) {
            case ALL_REDUCE, REDUCE_SCATTER, BROADCAST, REDUCE -> {
                return null;
            }
            default -> {}
        }
        if (graph == null) {
            return alone();
        }
        Plan plan = exchange(graph);
        return plan == null && graph.nvlinkOnly ? exchange(all()) : plan;
    }

    private @Nullable Plan exchange(PlanGraph f) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                boolean needed =
                        i != j
                                && switch (op) {
                                    case SCATTER -> i == root;
                                    case GATHER -> j == root;
                                    case SEND_RECV -> j == (i + 1) % n;
                                    default -> true;
                                };
                if (needed) {
                    if (f.ways(i, j).length == 0) {
                        return null;
                    }
                    hops.add(f.hop(i, j, 0));
                }
            }
        }
        double[] load = new double[f.capacity.length];
        double rate = Double.POSITIVE_INFINITY;
        for (Hop hop : hops) {
            for (int arc : hop.route().arcs()) {
                rate = Math.min(rate, f.capacity[arc] / ++load[arc]);
            }
        }
        return plan(f, List.of(new Channel.Exchange(hops, rate)));
    }

    private PlanGraph all() {
        PlanGraph f = all;
        if (f == null) {
            f = PlanGraph.all(t, ids);
            all = f;
        }
        return f;
    }

    private Bounds.Bound bound(PlanGraph f) {
        Bounds.Bound b = f == graph ? bound : boundOfAll;
        if (b == null) {
            b = Bounds.of(f, op, root);
            if (f == graph) {
                bound = b;
            } else {
                boundOfAll = b;
            }
        }
        return b;
    }

    private Plan plan(PlanGraph f, List<Channel> channels) {
        Bounds.Bound b = bound(f);
        double bandwidth = Check.bandwidth(op, n, channels);
        if (Math.abs(bandwidth - b.gbps()) < 1e-6 * b.gbps()) {
            bandwidth = b.gbps(); // what is left is rounding
        }
        return plan(channels, bandwidth, b.gbps(), b.what(), why(f, channels, bandwidth, b));
    }

    private Plan plan(
            List<Channel> channels, double bandwidth, double bound, String what, List<String> why) {
        return new Plan(t, op, gpus, root, channels, bandwidth, bound, what, why);
    }

    private List<String> why(
            PlanGraph f, List<Channel> channels, double bandwidth, Bounds.Bound limit) {
        double[] load = new double[f.capacity.length];
        for (Channel channel : channels) {
            boolean tree = channel instanceof Channel.Tree;
            for (Hop hop : channel.hops()) {
                for (int arc : hop.route().arcs()) {
                    load[arc] += !tree || op != Operation.REDUCE ? channel.gbps() : 0;
                    load[arc ^ 1] += tree && op != Operation.BROADCAST ? channel.gbps() : 0;
                }
            }
        }
        double nvlinkLoad = 0;
        double nvlinks = 0;
        boolean pcieUsed = false;
        boolean pcieThere = false;
        int nvlinkCount = 0;
        for (Link link : t.links()) {
            int arc = 2 * link.id();
            if (link.kind() == LinkKind.NVLINK) {
                nvlinkLoad += load[arc] + load[arc + 1];
                nvlinks += 2 * f.capacity[arc];
                nvlinkCount += f.capacity[arc] > 0 ? link.count() : 0;
            } else {
                pcieUsed |= load[arc] + load[arc + 1] > 0;
                pcieThere |= link.a() < t.gpus().size() || link.b() < t.gpus().size();
            }
        }
        List<String> why = new ArrayList<>();
        why.add(
                "%s: %s GB/s of bus bandwidth; the bound is %s (%s)."
                        .formatted(
                                Texts.capital(Texts.channels(channels)),
                                Texts.number(bandwidth),
                                Texts.number(limit.gbps()),
                                limit.what()));
        if (nvlinkCount > 0) {
            why.add(
                    nvlinkLoad > nvlinks * (1 - 1e-6)
                            ? "Every NVLink is used in both directions, to the full."
                            : Texts.number(100 * nvlinkLoad / nvlinks)
                                    + "% of the NVLink bandwidth between these GPUs is used.");
        }
        if (f.nvlinkOnly && pcieThere) {
            why.add("PCIe is left out of plan and bound: NVLink alone joins these GPUs.");
        } else if (pcieUsed && nvlinkCount > 0) {
            why.add(
                    graph == f
                            ? "NVLink alone does not join these GPUs, so PCIe has to help."
                            : "NVLink alone is not enough for this, so PCIe is used too.");
        } else if (pcieUsed) {
            why.add("There is no NVLink between these GPUs: all data goes over PCIe.");
        }
        return why;
    }

    private Plan alone() {
        List<String> why = List.of("One GPU alone: nothing moves.");
        return plan(List.of(), 0, 0, "one GPU: nothing moves", why);
    }
}
