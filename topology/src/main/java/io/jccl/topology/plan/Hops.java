package io.jccl.topology.plan;

import java.util.Arrays;

/**
 * The hops of a plan graph as numbers: {@code (from * n + to) << 8 | way}, and the cheapest hop of
 * each pair at given prices. Where hops are used both ways, the resources are links, else arcs.
 */
final class Hops {
    private static final int WAYS = 8;

    final PlanGraph graph;
    final int n;

    /** By resource; 0 for one that no hop uses. */
    final double[] capacity;

    /** Price of the cheapest way of each pair; infinite if there is none. */
    final double[] cost;

    private final int[] way;
    private final int[][][] uses;

    Hops(PlanGraph graph, boolean both) {
        this.graph = graph;
        n = graph.n;
        cost = new double[n * n];
        way = new int[n * n];
        uses = new int[n * n][][];
        capacity = new double[both ? graph.capacity.length / 2 : graph.capacity.length];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                int[][] ways = i == j ? new int[0][] : graph.ways(i, j);
                int[][] used = new int[Math.min(ways.length, 1 << WAYS)][];
                for (int w = 0; w < used.length; w++) {
                    used[w] = ways[w].clone();
                    for (int a = 0; a < used[w].length; a++) {
                        used[w][a] >>= both ? 1 : 0;
                        capacity[used[w][a]] = graph.capacity[ways[w][a]];
                    }
                }
                uses[i * n + j] = used;
            }
        }
    }

    /** Sets {@link #cost} by the prices of resources. */
    void price(double[] price) {
        Arrays.fill(cost, Double.POSITIVE_INFINITY);
        for (int pair = 0; pair < cost.length; pair++) {
            int[][] ways = uses[pair];
            for (int w = 0; w < ways.length; w++) {
                double sum = 0;
                for (int r : ways[w]) {
                    sum += price[r];
                }
                if (sum < cost[pair]) {
                    cost[pair] = sum;
                    way[pair] = w;
                }
            }
        }
    }

    /** The hop of a pair that {@link #price} found the cheapest. */
    int cheapest(int from, int to) {
        int pair = from * n + to;
        return (pair << WAYS) | way[pair];
    }

    /** The widest hop of a pair. */
    int widest(int from, int to) {
        return (from * n + to) << WAYS;
    }

    boolean exists(int from, int to) {
        return uses[from * n + to].length > 0;
    }

    int from(int hop) {
        return (hop >> WAYS) / n;
    }

    int to(int hop) {
        return (hop >> WAYS) % n;
    }

    private static int way(int hop) {
        return hop & ((1 << WAYS) - 1);
    }

    /** The same hop the other way. */
    int back(int hop) {
        return ((to(hop) * n + from(hop)) << WAYS) | way(hop);
    }

    Hop hop(int hop) {
        return graph.hop(from(hop), to(hop), way(hop));
    }

    /** Resources that hops use, with repetitions. */
    int[] uses(int[] hops) {
        int count = 0;
        for (int hop : hops) {
            count += uses[hop >> WAYS][way(hop)].length;
        }
        int[] all = new int[count];
        for (int hop : hops) {
            for (int r : uses[hop >> WAYS][way(hop)]) {
                all[--count] = r;
            }
        }
        return all;
    }

    /** How fast a set of hops can be if nothing else runs. */
    double rate(int[] hops) {
        int[] load = new int[capacity.length];
        double rate = Double.POSITIVE_INFINITY;
        for (int r : uses(hops)) {
            rate = Math.min(rate, capacity[r] / ++load[r]);
        }
        return rate;
    }
}
