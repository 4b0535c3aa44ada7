package io.jccl.engine.copy;

import io.jccl.topology.Operation;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Routes of data along the channels of a plan, by rank. */
final class ChannelRoutes {
    private final Operation op;
    private final List<Channel> channels;
    private final Map<Integer, Integer> rankOf;
    private final int n;

    /** By channel and origin: the rank from which each rank receives the origin's data, or -1. */
    private final Map<Integer, int[]> parents = new HashMap<>();

    /**
     * Routes for one operation.
     *
     * @param channels of the plan
     * @param rankOf ranks by the positions of GPUs in the topology
     * @param n number of ranks
     */
    ChannelRoutes(Operation op, List<Channel> channels, Map<Integer, Integer> rankOf, int n) {
        this.op = op;
        this.channels = channels;
        this.rankOf = rankOf;
        this.n = n;
    }

    /** Ranks that receive the data, for themselves or to forward it, parents first. */
    List<Integer> receivers(int[] parent, int origin, boolean[] targets) {
        boolean[] needed = new boolean[n];
        for (int r = 0; r < n; r++) {
            for (int v = r; targets[r] && v != origin && !needed[v]; v = parent[v]) {
                needed[v] = true;
            }
        }
        List<Integer> order = new ArrayList<>();
        Deque<Integer> queue = new ArrayDeque<>(List.of(origin));
        while (!queue.isEmpty()) {
            int u = queue.remove();
            for (int v = 0; v < n; v++) {
                if (needed[v] && parent[v] == u) {
                    order.add(v);
                    queue.add(v);
                }
            }
        }
        return order;
    }

    /** Whether a channel leads from a rank to all targets. */
    boolean reachesAll(int channel, int origin, boolean[] targets) {
        int[] parent = parents(channel, origin);
        for (int r = 0; r < n; r++) {
            int v = r;
            for (int i = 0; targets[r] && v != origin; i++) {
                v = parent[v];
                if (v < 0 || i == n) {
                    return false;
                }
            }
        }
        return true;
    }

    private int rank(int gpu) {
        Integer rank = rankOf.get(gpu);
        if (rank == null) {
            throw new IllegalArgumentException(
                    "the plan has a hop at GPU %s, which is none of its GPUs %s"
                            .formatted(gpu, rankOf.keySet()));
        }
        return rank;
    }

    /** The rank from which each rank receives the origin's data on a channel; -1 for none. */
    int[] parents(int channel, int origin) {
        return parents.computeIfAbsent(channel * n + origin, k -> lookUp(channel, origin));
    }

    private int[] lookUp(int channel, int origin) {
        int[] parent = new int[n];
        Arrays.fill(parent, -1);
        switch (channels.get(channel)) {
            case Channel.Ring ring -> {
                for (Hop hop : ring.hops()) {
                    if (rank(hop.to()) != origin) {
                        parent[rank(hop.to())] = rank(hop.from());
                    }
                }
            }
            case Channel.Exchange exchange -> {
                for (Hop hop : exchange.hops()) {
                    if (rank(hop.from()) == origin) {
                        parent[rank(hop.to())] = origin;
                    }
                }
            }
            case Channel.Tree tree -> {
                if (op == Operation.GATHER) {
                    up(tree, origin, parent);
                } else if (rank(tree.root()) == origin) {
                    for (Hop hop : tree.hops()) {
                        parent[rank(hop.to())] = rank(hop.from());
                    }
                }
            }
        }
        return parent;
    }

    /** The path from a rank to the root of a tree. */
    private void up(Channel.Tree tree, int origin, int[] parent) {
        Map<Integer, Integer> above = new HashMap<>();
        for (Hop hop : tree.hops()) {
            above.put(rank(hop.to()), rank(hop.from()));
        }
        int v = origin;
        for (int i = 0; i < n && above.containsKey(v); i++) {
            int u = above.getOrDefault(v, -1);
            parent[u] = v;
            v = u;
        }
    }
}
