package io.jccl.topology.cost;

import io.jccl.topology.Link;
import io.jccl.topology.Operation;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Parameters.Generation;
import io.jccl.topology.cost.Parameters.Limit;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.Planner;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Computes a {@link Tuning}: plans, and latency and bandwidth by NCCL's model. */
final class Tuner {
    /** More GPUs on NVSwitches are a rack: one published figure. */
    private static final int MOST_OF_A_MACHINE = 16;

    private final Parameters p;
    private final Topology t;
    private final List<Integer> gpus;
    private final Operation op;
    private final int machines;
    private final int local;
    private final int ranks;
    private final int sm;
    private final Generation generation;
    private final List<Tuning.Timed> ways = new ArrayList<>();
    private final List<AlgorithmBound> bounds = new ArrayList<>();

    /** What the predictions assume about the network. */
    private final List<String> rests;

    /** GB/s of the NICs of a machine; infinite for one machine. */
    private final double nics;

    private final int nicCount;

    /** Whether the GPUs are of a rack: more on NVSwitches than a baseboard has. */
    private final boolean rack;

    private Tuner(Parameters p, Cluster cluster, List<Integer> gpus, Operation op) {
        this.p = p;
        t = cluster.machine();
        this.gpus = List.copyOf(gpus);
        this.op = op;
        machines = cluster.machines();
        local = gpus.size();
        ranks = local * machines;
        int least = Integer.MAX_VALUE;
        for (int gpu : gpus) {
            if (gpu < 0 || gpu >= t.gpus().size()) {
                throw new IllegalArgumentException(
                        "GPU %s is not there: %s has places 0 to %s"
                                .formatted(gpu, t, t.gpus().size() - 1));
            }
            least = Math.min(least, t.gpus().get(gpu).sm());
        }
        if (ranks < 2) {
            throw new IllegalArgumentException(
                    ranks + " ranks: a prediction needs at least two, name more GPUs");
        }
        sm = least;
        generation = Generation.of(sm);
        rack = local > MOST_OF_A_MACHINE && switched() > 0;
        BetweenMachines between = BetweenMachines.of(p, cluster, this.gpus, op, rack);
        nics = between.gbps();
        nicCount = between.nics();
        rests = between.assumptions();
    }

    static Tuning tune(Parameters p, Topology t, List<Integer> gpus, Operation op) {
        return new Tuner(p, new Cluster(t, 1), gpus, op).tune();
    }

    static Tuning tune(Parameters p, Cluster c, List<Integer> gpus, Operation op) {
        return new Tuner(p, c, gpus, op).tune();
    }

    private Tuning tune() {
        PlannedRate rings = planned(Planner::rings);
        PlannedRate exchange = planned(Planner::exchange);
        ring(rings);
        tree(trees(rings));
        nvls();
        pat(Math.min(rings.busbwGBps(), nics));
        direct(exchange);
        if (ways.isEmpty()) {
            throw new IllegalArgumentException(
                    "no way to do " + op.command() + " on " + gpus + " of " + t);
        }
        double channels = channels(rings.busbwGBps());
        bounds.sort(AlgorithmBound.WIDEST_FIRST);
        return new Tuning(
                p,
                op,
                ranks,
                ways,
                bounds,
                rests,
                p.spread[spread(rings.busbwGBps() > 0 ? rings : exchange).ordinal()],
                machines > 1 ? 64.0 * channels * ranks : Double.POSITIVE_INFINITY,
                p.ringPlateau[generation.compareTo(Generation.AMPERE) < 0 ? 0 : 1]);
    }

    private Parameters.Spread spread(PlannedRate plan) {
        if (machines > 1 || rack) {
            return Parameters.Spread.NET;
        }
        if (switched() > 0) {
            return Parameters.Spread.SWITCH;
        }
        return plan.nvlink() ? Parameters.Spread.NVLINK : Parameters.Spread.PCIE;
    }

    private PlannedRate planned(PlannedRate.Plans plans) {
        return local == 1
                ? PlannedRate.ALONE
                : PlannedRate.of(plans, t, op, gpus, p.bridgeOverhead);
    }

    /**
     * NCCL's trees are chains inside a machine, and as many as its rings (2.30, src/init.cc, lines
     * 1184 and 1185). Over PCIe that is one: what is narrower than 25 GB/s is not doubled
     * (src/graph/search.cc, line 1039), and a chain passes the narrowest link that the ring does.
     */
    private PlannedRate trees(PlannedRate rings) {
        PlannedRate trees = planned(Planner::trees);
        boolean chains = op == Operation.ALL_REDUCE && machines == 1 && !trees.nvlink();
        return chains && rings.busbwGBps() > 0 && rings.busbwGBps() < trees.busbwGBps()
                ? rings
                : trees;
    }

    /** One per NIC; within a machine one for each 20 GB/s, which is an NVLink. */
    private double channels(double planned) {
        return machines > 1 ? nicCount : Math.max(1, Math.ceil(planned / 20));
    }

    private void add(Algorithm a, Protocol protocol, double latency, double busbw) {
        add(a, protocol, latency, busbw, Start.launch(p), 1);
    }

    private void add(
            Algorithm a,
            Protocol protocol,
            double latency,
            double busbw,
            Start start,
            double share) {
        if (busbw > 0) {
            Tuning.Way way = new Tuning.Way(a, protocol, latency, busbw / op.busFactor(ranks));
            ways.add(new Tuning.Timed(way, start, share));
        }
    }

    /** Notes what the links allow an algorithm, after its ways. */
    private void bound(Algorithm a, double most, String why) {
        double reached = Tuning.reached(ways, a, op.busFactor(ranks));
        if (reached > 0) {
            bounds.add(new AlgorithmBound(a, reached, Math.max(most, reached), why));
        }
    }

    private String narrower(double inside, String what) {
        return machines > 1 && nics <= inside
                ? String.format(
                        Locale.ROOT,
                        "the %d NICs of a machine, %.1f GB/s together; with PXN a GPU also uses"
                                + " those of others",
                        nicCount,
                        nics)
                : what;
    }

    private double step(Parameters.Way way, Algorithm a, Protocol protocol) {
        return p.step[way.ordinal()][a.ordinal()][protocol.ordinal()];
    }

    private double inside(PlannedRate plan, Algorithm a, Protocol protocol) {
        return step(plan.nvlink() ? Parameters.Way.NVLINK : Parameters.Way.PCIE, a, protocol);
    }

    private double base(Algorithm a, Protocol protocol) {
        return p.base[a.ordinal()][protocol.ordinal()];
    }

    /**
     * A step between machines; with one GPU per machine nothing overlaps it, so it costs as much as
     * in a tree.
     */
    private double between(Algorithm a, Protocol protocol) {
        return step(Parameters.Way.NET, local == 1 ? Algorithm.TREE : a, protocol);
    }

    /** What a protocol carries of a bandwidth: its share, and no more than its limit. */
    private double carried(
            PlannedRate plan,
            Protocol protocol,
            double full,
            double ll,
            double ll128,
            double ll128Most) {
        return switch (protocol) {
            case LL -> Math.min(full * ll, p.limit(Limit.LL, generation, machines));
            case LL128 -> plan.nvlink() && sm >= 70 ? Math.min(full * ll128, ll128Most) : 0;
            case SIMPLE -> full;
        };
    }

    private void ring(PlannedRate plan) {
        double planned = Math.min(plan.busbwGBps(), nics);
        int steps =
                switch (op) {
                    case ALL_REDUCE -> 2 * (ranks - 1);
                    case ALL_GATHER, REDUCE_SCATTER -> ranks - 1;
                    case BROADCAST, REDUCE -> ranks;
                    default -> 0;
                };
        if (steps == 0) {
            return;
        }
        int far =
                machines == 1 ? 0 : op == Operation.ALL_REDUCE ? 2 * (machines - 1) : machines - 1;
        double bandwidth = planned / (1 + p.ringStartup / (ranks - 1));
        double channels = channels(planned);
        for (Protocol protocol : Protocol.values()) {
            double overhead =
                    machines == 1 ? 0 : p.netOverhead * (protocol == Protocol.SIMPLE ? 3 : 1);
            double near = Math.max(inside(plan, Algorithm.RING, protocol), overhead);
            double latency =
                    base(Algorithm.RING, protocol)
                            + (steps - far) * near
                            + far * between(Algorithm.RING, protocol);
            double share =
                    carried(
                            plan,
                            protocol,
                            bandwidth,
                            p.ringLl,
                            p.ringLl128,
                            channels * p.limit(Limit.RING_LL128, generation, machines));
            // Only steps inside a machine: for those between machines NCCL has more latency itself.
            double[] fill = p.ringFill[protocol.ordinal()];
            Start start =
                    Start.pipeline(
                            p,
                            Math.min(steps, 2 * (local - 1)) * fill[0],
                            fill[1] * ranks * planned * 1000);
            add(Algorithm.RING, protocol, latency, share, start, 1);
        }
        bound(Algorithm.RING, planned, narrower(plan.busbwGBps(), plan.limitedBy()));
    }

    private void tree(PlannedRate plan) {
        if (op != Operation.ALL_REDUCE
                && (machines > 1 || (op != Operation.BROADCAST && op != Operation.REDUCE))) {
            return;
        }
        double planned = plan.busbwGBps();
        double channels = channels(planned);
        double bus = Math.min(planned, machines == 2 ? 2 * nics : nics);
        double reached = Math.min(planned, treeNet());
        int log = machines == 1 ? 0 : 31 - Integer.numberOfLeadingZeros(machines);
        for (Protocol protocol : Protocol.values()) {
            double latency =
                    base(Algorithm.TREE, protocol)
                            + (op == Operation.ALL_REDUCE ? 2 : 1)
                                    * ((local - 1) * inside(plan, Algorithm.TREE, protocol)
                                            + log * between(Algorithm.TREE, protocol));
            double full =
                    op == Operation.ALL_REDUCE
                            ? Math.min(
                                    bus * p.treeShare,
                                    channels * p.limit(Limit.TREE, generation, machines))
                            : bus;
            double share =
                    carried(
                            plan,
                            protocol,
                            full,
                            p.treeLl,
                            p.treeLl128[machines == 1 ? 0 : 1],
                            channels * p.limit(Limit.TREE_LL128, generation, machines));
            // Over the network a tree reaches what the links allow, and not what NCCL plans with.
            double more =
                    machines > 1 && protocol == Protocol.SIMPLE
                            ? Math.min(planned * p.treeShare, treeNet()) / full
                            : 1;
            // NCCL counts each byte of an allReduce twice: up and down.
            add(
                    Algorithm.TREE,
                    protocol,
                    latency,
                    op == Operation.ALL_REDUCE ? share / 2 * op.busFactor(ranks) : share,
                    Start.launch(p),
                    more);
        }
        bound(
                Algorithm.TREE,
                op == Operation.ALL_REDUCE ? reached / 2 * op.busFactor(ranks) : reached,
                narrower(
                        planned,
                        op == Operation.ALL_REDUCE
                                ? "each byte goes up and down the tree"
                                : plan.limitedBy()));
    }

    /**
     * What the NICs allow a pair of trees, GB/s, each byte of an allReduce counted twice. Over two
     * machines each byte crosses once either way, over three the busiest sends it 1.5 times: it is
     * an inner one of one tree and the root or a leaf of the other. Over more it sends it twice.
     */
    private double treeNet() {
        return machines == 2 ? 2 * nics : machines == 3 ? 4 * nics / 3 : nics;
    }

    /** GB/s of each GPU into the NVSwitches; 0 without. */
    private double switched() {
        double least = Double.POSITIVE_INFINITY;
        for (int gpu : gpus) {
            double width = 0;
            for (Link link : t.links(gpu)) {
                if (t.nodes().get(link.opposite(gpu)) instanceof Switch sw
                        && sw.kind() == Switch.Kind.NVSWITCH) {
                    width += link.gbps();
                }
            }
            least = Math.min(least, width);
        }
        return least;
    }

    private void nvls() {
        int first = generation.ordinal() - Generation.HOPPER.ordinal();
        double width = switched();
        if (first < 0 || width == 0 || local < 2) {
            return;
        }
        double heads = Math.min(local, p.nvlsHeads);
        double share = p.nvlsShare[first] * (local > 8 ? Math.pow(8.0 / local, p.nvlsRack) : 1);
        double latency = step(Parameters.Way.NVLINK, Algorithm.NVLS, Protocol.SIMPLE);
        if (machines == 1) {
            // A gather or scatter: each byte comes in once, by multicast or as a sum, as in a ring.
            boolean all = op == Operation.ALL_REDUCE;
            if (all || op == Operation.ALL_GATHER || op == Operation.REDUCE_SCATTER) {
                double most = all ? 2 * (heads - 1) / (heads + 1) * width : width;
                Start start = rounds(first, heads, most * share);
                add(Algorithm.NVLS, Protocol.SIMPLE, latency, most * share, start, 1);
                bound(
                        Algorithm.NVLS,
                        most,
                        all
                                ? String.format(
                                        Locale.ROOT,
                                        "the switches reduce: %.2f of the %.1f GB/s of a GPU",
                                        most / width,
                                        width)
                                : "each byte enters a GPU once");
            }
            return;
        }
        if (op != Operation.ALL_REDUCE) {
            return;
        }
        double inside = heads / (heads + 1) * width * share * op.busFactor(ranks);
        double net = treeNet();
        double most = Math.min(local, nicCount) * p.limit(Limit.NVLS_TREE, generation, machines);
        int log = 31 - Integer.numberOfLeadingZeros(machines);
        double time = latency + 2 * log * between(Algorithm.NVLS_TREE, Protocol.SIMPLE);
        double busbw = Math.min(inside, Math.min(net, most));
        Start start = rounds(first, heads, busbw);
        add(Algorithm.NVLS_TREE, Protocol.SIMPLE, time, busbw, start, 1);
        bound(
                Algorithm.NVLS_TREE,
                Math.min(heads / (heads + 1) * width * op.busFactor(ranks), net),
                narrower(
                        inside / (net / nics),
                        "the switches reduce, and each GPU sends by the NIC beside it"));
    }

    /** NVLS's start: the first round of chunks, and what racks take. */
    private Start rounds(int generation, double heads, double busbw) {
        double fill = p.rackStart[0] * Math.max(0, local - 8);
        if (rack && machines > 1) {
            fill += p.rackStart[1] * (31 - Integer.numberOfLeadingZeros(machines));
        }
        return Start.rounds(
                p, busbw / op.busFactor(ranks), p.nvlsChannels[generation] * heads, fill);
    }

    private void pat(double planned) {
        if (local > 1 || (op != Operation.ALL_GATHER && op != Operation.REDUCE_SCATTER)) {
            return;
        }
        int log = 31 - Integer.numberOfLeadingZeros(machines);
        double latency =
                base(Algorithm.PAT, Protocol.SIMPLE)
                        + log * between(Algorithm.PAT, Protocol.SIMPLE) / p.patLatency[0]
                        + ranks * p.patLatency[1];
        add(Algorithm.PAT, Protocol.SIMPLE, latency, planned * p.patShare);
        bound(Algorithm.PAT, planned, narrower(planned, "the NICs"));
    }

    private void direct(PlannedRate plan) {
        boolean pair = op == Operation.SEND_RECV;
        boolean has =
                switch (op) {
                    case ALL_TO_ALL, GATHER, SCATTER, SEND_RECV -> true;
                    case ALL_GATHER -> machines == 1;
                    default -> false;
                };
        if (!has) {
            return;
        }
        double planned = plan.busbwGBps();
        double each = nics / local;
        double bandwidth =
                machines == 1
                        ? planned
                        : Math.min(planned, pair ? each : each * (ranks - 1) / (ranks - local));
        for (Protocol protocol : Protocol.values()) {
            if (protocol == Protocol.LL128) {
                continue;
            }
            double hop =
                    machines == 1
                            ? inside(plan, Algorithm.DIRECT, protocol)
                            : step(Parameters.Way.NET, Algorithm.DIRECT, protocol);
            double latency =
                    base(Algorithm.DIRECT, protocol)
                            + hop
                            + (pair ? 0 : (ranks - 2) * p.peerLatency);
            double share =
                    protocol == Protocol.SIMPLE
                            ? bandwidth
                            : Math.min(
                                    bandwidth * p.ringLl, p.limit(Limit.LL, generation, machines));
            add(Algorithm.DIRECT, protocol, latency, share);
        }
        bound(Algorithm.DIRECT, bandwidth, narrower(planned, plan.limitedBy()));
    }
}
