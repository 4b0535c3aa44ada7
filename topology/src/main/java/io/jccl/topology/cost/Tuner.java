package io.jccl.topology.cost;

import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Route;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Parameters.Generation;
import io.jccl.topology.cost.Parameters.Limit;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** Computes a {@link Tuning}: plans, and latency and bandwidth by NCCL's model. */
final class Tuner {
    private final Parameters p;
    private final Topology t;
    private final List<Integer> gpus;
    private final Operation op;
    private final int machines;
    private final int local;
    private final int ranks;
    private final int sm;
    private final Generation generation;
    private final List<Tuning.Way> ways = new ArrayList<>();
    private boolean nvlink;

    /** GB/s of the NICs of a machine; infinite for one machine. */
    private final double nics;

    private int nicCount;

    private Tuner(Parameters p, Topology t, List<Integer> gpus, Operation op, int machines) {
        this.p = p;
        this.t = t;
        this.gpus = List.copyOf(gpus);
        this.op = op;
        this.machines = machines;
        local = gpus.size();
        ranks = local * machines;
        int least = Integer.MAX_VALUE;
        for (int gpu : gpus) {
            if (gpu < 0 || gpu >= t.gpus().size()) {
                throw new IllegalArgumentException(
                        "GPU "
                                + gpu
                                + " is not there: "
                                + t
                                + " has places 0 to "
                                + (t.gpus().size() - 1));
            }
            least = Math.min(least, t.gpus().get(gpu).sm());
        }
        if (ranks < 2) {
            throw new IllegalArgumentException(
                    ranks + " ranks: a prediction needs at least two, name more GPUs");
        }
        sm = least;
        generation = Generation.of(sm);
        nics = machines == 1 ? Double.POSITIVE_INFINITY : nics();
    }

    static Tuning tune(Parameters p, Topology t, List<Integer> gpus, Operation op) {
        return new Tuner(p, t, gpus, op, 1).tune();
    }

    static Tuning tune(Parameters p, Cluster c, List<Integer> gpus, Operation op) {
        return new Tuner(p, c.machine(), gpus, op, c.machines()).tune();
    }

    private Tuning tune() {
        double rings = local == 1 ? Double.POSITIVE_INFINITY : planned(Planner::rings);
        double trees = local == 1 ? Double.POSITIVE_INFINITY : planned(Planner::trees);
        double exchange = local == 1 ? Double.POSITIVE_INFINITY : planned(Planner::exchange);
        ring(Math.min(rings, nics));
        tree(trees);
        nvls();
        pat(Math.min(rings, nics));
        direct(exchange);
        if (ways.isEmpty()) {
            throw new IllegalArgumentException(
                    "no way to do " + op.command() + " on " + gpus + " of " + t);
        }
        double channels = channels(rings);
        return new Tuning(
                p,
                op,
                ranks,
                ways,
                machines > 1 ? 64.0 * channels * ranks : Double.POSITIVE_INFINITY,
                p.ringPlateau[generation.compareTo(Generation.AMPERE) < 0 ? 0 : 1]);
    }

    private interface Plans {
        Optional<Plan> of(Topology t, Operation op, List<Integer> gpus, int root);
    }

    /** Bus bandwidth of a plan; 0 if there is none. */
    private double planned(Plans plans) {
        // The traffic inside a machine is the same for all operations of a kind.
        Plan plan = plans.of(t, op, gpus, 0).orElse(null);
        if (plan == null) {
            return 0;
        }
        nvlink = nvlink(plan);
        return plan.bandwidthGBps() * usable(plan);
    }

    private boolean nvlink(Plan plan) {
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
     * The share of a plan's rates that remains, since traffic through host bridges takes more of
     * its links.
     */
    private double usable(Plan plan) {
        double[] load = new double[2 * t.links().size()];
        for (Channel c : plan.channels()) {
            for (Hop hop : c.hops()) {
                double more = bridged(hop) ? p.bridgeOverhead : 1;
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

    private boolean bridged(Hop hop) {
        for (int arc : hop.route().arcs()) {
            if (t.nodes().get(t.head(arc)) instanceof Switch sw
                    && (sw.kind() == Switch.Kind.HOST_BRIDGE || sw.kind() == Switch.Kind.NUMA)) {
                return true;
            }
        }
        return false;
    }

    /** GB/s of the NICs nearest to the GPUs: those that a plan over machines uses. */
    private double nics() {
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
            sum += rate((Nic) t.nodes().get(id));
        }
        nicCount = near.size();
        if (sum == 0) {
            throw new IllegalArgumentException(
                    "no GPU reaches a NIC of "
                            + t.name()
                            + ": a prediction for several machines needs one");
        }
        return sum;
    }

    /** The rate of a NIC: NCCL's planning figure as it is, or the line rate less its overhead. */
    private double rate(Nic nic) {
        if (nic.gbps() == 0) {
            return LinkModel.DEFAULT_NIC; // as the planner takes it
        }
        for (Link link : t.links(nic.id())) {
            if (link.kind() == LinkKind.NETWORK
                    && (link.source() == Source.DEFAULT || link.source() == Source.NCCL_MODEL)) {
                return nic.gbps();
            }
        }
        return nic.gbps() * p.nicShare;
    }

    /** One per NIC; within a machine one for each 20 GB/s, which is an NVLink. */
    private double channels(double planned) {
        return machines > 1 ? nicCount : Math.max(1, Math.ceil(planned / 20));
    }

    private void add(Algorithm a, Protocol protocol, double latency, double busbw) {
        if (busbw > 0) {
            ways.add(new Tuning.Way(a, protocol, latency, busbw / op.busFactor(ranks)));
        }
    }

    private double step(Parameters.Way way, Algorithm a, Protocol protocol) {
        return p.step[way.ordinal()][a.ordinal()][protocol.ordinal()];
    }

    private double inside(Algorithm a, Protocol protocol) {
        return step(nvlink ? Parameters.Way.NVLINK : Parameters.Way.PCIE, a, protocol);
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

    private boolean ll128() {
        return nvlink && sm >= 70;
    }

    private void ring(double planned) {
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
            double near = Math.max(inside(Algorithm.RING, protocol), overhead);
            double latency =
                    base(Algorithm.RING, protocol)
                            + (steps - far) * near
                            + far * between(Algorithm.RING, protocol);
            double share =
                    switch (protocol) {
                        case LL ->
                                Math.min(
                                        bandwidth * p.ringLl,
                                        p.limit(Limit.LL, generation, machines));
                        case LL128 ->
                                ll128()
                                        ? Math.min(
                                                bandwidth * p.ringLl128,
                                                channels
                                                        * p.limit(
                                                                Limit.RING_LL128,
                                                                generation,
                                                                machines))
                                        : 0;
                        case SIMPLE -> bandwidth;
                    };
            add(Algorithm.RING, protocol, latency, share);
        }
    }

    private void tree(double planned) {
        if (op != Operation.ALL_REDUCE
                && (machines > 1 || (op != Operation.BROADCAST && op != Operation.REDUCE))) {
            return;
        }
        double channels = channels(planned);
        // Two machines: each byte crosses once either way. More: up and down, twice.
        double net = machines == 2 ? 2 * nics : nics;
        double bus = Math.min(planned, net);
        int log = machines == 1 ? 0 : 31 - Integer.numberOfLeadingZeros(machines);
        for (Protocol protocol : Protocol.values()) {
            double latency =
                    base(Algorithm.TREE, protocol)
                            + (op == Operation.ALL_REDUCE ? 2 : 1)
                                    * ((local - 1) * inside(Algorithm.TREE, protocol)
                                            + log * between(Algorithm.TREE, protocol));
            double full =
                    op == Operation.ALL_REDUCE
                            ? Math.min(
                                    bus * p.treeShare,
                                    channels * p.limit(Limit.TREE, generation, machines))
                            : bus;
            double share =
                    switch (protocol) {
                        case LL ->
                                Math.min(full * p.treeLl, p.limit(Limit.LL, generation, machines));
                        case LL128 ->
                                ll128()
                                        ? Math.min(
                                                full * p.treeLl128[machines == 1 ? 0 : 1],
                                                channels
                                                        * p.limit(
                                                                Limit.TREE_LL128,
                                                                generation,
                                                                machines))
                                        : 0;
                        case SIMPLE -> full;
                    };
            // NCCL counts each byte of an allReduce twice: up and down.
            add(
                    Algorithm.TREE,
                    protocol,
                    latency,
                    op == Operation.ALL_REDUCE ? share / 2 * op.busFactor(ranks) : share);
        }
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
            switch (op) {
                case ALL_REDUCE ->
                        add(
                                Algorithm.NVLS,
                                Protocol.SIMPLE,
                                latency,
                                2 * (heads - 1) / (heads + 1) * width * share);
                // Each byte comes in once, by multicast or as a sum: no more than a ring does.
                case ALL_GATHER, REDUCE_SCATTER ->
                        add(Algorithm.NVLS, Protocol.SIMPLE, latency, width * share);
                default -> {}
            }
            return;
        }
        if (op != Operation.ALL_REDUCE) {
            return;
        }
        double inside = heads / (heads + 1) * width * share * op.busFactor(ranks);
        double net = machines == 2 ? 2 * nics : nics;
        double most = Math.min(local, nicCount) * p.limit(Limit.NVLS_TREE, generation, machines);
        int log = 31 - Integer.numberOfLeadingZeros(machines);
        add(
                Algorithm.NVLS_TREE,
                Protocol.SIMPLE,
                latency + 2 * log * between(Algorithm.NVLS_TREE, Protocol.SIMPLE),
                Math.min(inside, Math.min(net, most)));
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
    }

    private void direct(double planned) {
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
                            ? inside(Algorithm.DIRECT, protocol)
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
    }
}
