package io.jccl.topology.plan;

import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The checks of {@link Planner#check}. */
final class Check {
    /** Relative error that rounding may make. */
    static final double TOLERANCE = 1e-6;

    private final Plan plan;
    private final Topology t;
    private final double[] load;
    private final List<String> errors = new ArrayList<>();

    private Check(Plan plan) {
        this.plan = plan;
        t = plan.topology();
        load = new double[2 * t.links().size()];
    }

    static List<String> of(Plan plan) {
        Check check = new Check(plan);
        check.run();
        return check.errors;
    }

    /** The bus bandwidth that channels give: see {@link Planner}. */
    static double bandwidth(Operation op, int n, List<Channel> channels) {
        double sum = 0;
        for (Channel channel : channels) {
            sum +=
                    channel.gbps()
                            * switch (channel) {
                                case Channel.Ring ring -> 1;
                                case Channel.Tree tree ->
                                        op == Operation.ALL_REDUCE ? op.busFactor(n) : 1;
                                case Channel.Exchange exchange ->
                                        op == Operation.SEND_RECV ? 1 : n - 1;
                            };
        }
        return sum;
    }

    private void run() {
        Set<Integer> members = new HashSet<>(plan.gpus());
        for (Channel channel : plan.channels()) {
            if (!(channel.gbps() > 0)) {
                errors.add("a channel has " + channel.gbps() + " GB/s");
            }
            for (Hop hop : channel.hops()) {
                route(hop);
                if (!members.contains(hop.from()) || !members.contains(hop.to())) {
                    errors.add("a GPU of " + hop + " takes no part");
                }
                boolean tree = channel instanceof Channel.Tree;
                for (int arc : hop.route().arcs()) {
                    if (!tree || plan.operation() != Operation.REDUCE) {
                        load[arc] += channel.gbps();
                    }
                    if (tree && plan.operation() != Operation.BROADCAST) {
                        load[arc ^ 1] += channel.gbps();
                    }
                }
            }
            switch (channel) {
                case Channel.Ring ring -> ring(ring, members);
                case Channel.Tree tree -> tree(tree, members);
                case Channel.Exchange exchange -> exchange(exchange);
            }
        }
        for (int arc = 0; arc < load.length; arc++) {
            if (load[arc] > t.capacity(arc) * (1 + TOLERANCE)) {
                errors.add(
                        "the arc from %s to %s carries %s of %s GB/s"
                                .formatted(
                                        t.nodes().get(t.tail(arc)).name(),
                                        t.nodes().get(t.head(arc)).name(),
                                        load[arc],
                                        t.capacity(arc)));
            }
        }
        double bandwidth = bandwidth(plan.operation(), members.size(), plan.channels());
        if (Math.abs(bandwidth - plan.bandwidthGBps()) > TOLERANCE * bandwidth) {
            errors.add("channels give " + bandwidth + ", the plan has " + plan.bandwidthGBps());
        }
        if (plan.bandwidthGBps() > plan.boundGBps() * (1 + TOLERANCE)) {
            errors.add(plan.bandwidthGBps() + " is above the bound " + plan.boundGBps());
        }
        if (members.size() > 1 && plan.channels().isEmpty()) {
            errors.add("no channels");
        }
    }

    private void route(Hop hop) {
        int at = hop.from();
        for (int arc : hop.route().arcs()) {
            if (t.tail(arc) != at || (at != hop.from() && at < t.gpus().size())) {
                errors.add("the route of " + hop + " breaks or passes through a GPU");
            }
            at = t.head(arc);
        }
        if (at != hop.to()) {
            errors.add("the route of " + hop + " does not end there");
        }
    }

    private void ring(Channel.Ring ring, Set<Integer> members) {
        if (ring.hops().size() != members.size() || !new HashSet<>(ring.order()).equals(members)) {
            errors.add("no Hamiltonian cycle: " + ring.order() + " over " + members);
        }
    }

    private void tree(Channel.Tree tree, Set<Integer> members) {
        Set<Integer> reached = new HashSet<>();
        reached.add(tree.root());
        for (Hop hop : tree.hops()) {
            if (!reached.contains(hop.from()) || !reached.add(hop.to())) {
                errors.add("no tree from " + tree.root() + ", parents first: " + hop);
            }
        }
        if (!reached.equals(members)) {
            errors.add("the tree reaches " + reached + " of " + members);
        }
        boolean rooted =
                plan.operation() == Operation.BROADCAST || plan.operation() == Operation.REDUCE;
        if (rooted && tree.root() != plan.gpus().get(plan.root())) {
            errors.add("root " + tree.root() + " is not rank " + plan.root());
        }
    }

    private void exchange(Channel.Exchange exchange) {
        Set<Long> pairs = new HashSet<>();
        for (Hop hop : exchange.hops()) {
            if (!pairs.add((long) hop.from() << 32 | hop.to())) {
                errors.add("twice in the exchange: " + hop);
            }
        }
        int n = plan.gpus().size();
        int root = plan.gpus().get(plan.root());
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                int from = plan.gpus().get(i);
                int to = plan.gpus().get(j);
                boolean needed =
                        i != j
                                && switch (plan.operation()) {
                                    case SCATTER -> from == root;
                                    case GATHER -> to == root;
                                    case SEND_RECV -> j == (i + 1) % n;
                                    default -> true;
                                };
                if (needed != pairs.contains((long) from << 32 | to)) {
                    errors.add("the pair " + from + ", " + to + (needed ? " lacks" : " is extra"));
                }
            }
        }
    }
}
