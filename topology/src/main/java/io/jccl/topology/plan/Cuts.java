package io.jccl.topology.plan;

import io.jccl.topology.Link;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Bandwidth, in one direction, of the narrowest cut between a set of ranks and the other ranks.
 * Each switch is on the side that makes it narrower. Not thread-safe.
 */
final class Cuts {
    private final PlanGraph graph;
    private final int n;

    /** Bandwidth from rank to rank by links without switches. */
    private final double[] direct;

    /** Where {@link #direct} is not zero; each pair once. */
    private final int[] pairs;

    /** Switches that are in use, parents first, if they are a forest; the link to the parent. */
    private final int[] switches;

    private final int[] parent;
    private final double[] toParent;
    private int switchCount;
    private boolean forest = true;

    /** Links from ranks into switches. */
    private final int[] leafRank;

    private final int[] leafSwitch;
    private final double[] leafGbps;
    private int leaves;

    /** Cost of a switch's subtree if it is outside, or inside. */
    private final double[] outside;

    private final double[] inside;

    Cuts(PlanGraph graph) {
        this.graph = graph;
        n = graph.n;
        int nodes = graph.topology.nodes().size();
        int links = graph.topology.links().size();
        direct = new double[n * n];
        switches = new int[nodes];
        parent = new int[nodes];
        toParent = new double[nodes];
        leafRank = new int[links];
        leafSwitch = new int[links];
        leafGbps = new double[links];
        outside = new double[nodes];
        inside = new double[nodes];
        int[] rank = new int[nodes];
        Arrays.fill(rank, -1);
        for (int i = 0; i < n; i++) {
            rank[graph.gpus[i]] = i;
        }
        for (Link link : graph.topology.links()) {
            if (graph.capacity[2 * link.id()] == 0) {
                continue;
            }
            int a = rank[link.a()];
            int b = rank[link.b()];
            if (a >= 0 && b >= 0) {
                direct[a * n + b] += link.gbps();
                direct[b * n + a] += link.gbps();
            } else if (a >= 0 || b >= 0) {
                leafRank[leaves] = Math.max(a, b);
                leafSwitch[leaves] = a >= 0 ? link.b() : link.a();
                leafGbps[leaves++] = link.gbps();
            }
        }
        pairs = IntStream.range(0, n * n).filter(at -> at / n < at % n && direct[at] > 0).toArray();
        if (graph.switched()) {
            hubForest();
        }
    }

    private void hubForest() {
        boolean[] seen = new boolean[parent.length];
        for (int start = 0; start < parent.length; start++) {
            if (!graph.isSwitch(start) || seen[start]) {
                continue;
            }
            seen[start] = true;
            parent[start] = -1;
            int at = switchCount;
            switches[switchCount++] = start;
            for (; at < switchCount; at++) {
                int sw = switches[at];
                int up = 0;
                for (Link link : graph.topology.links(sw)) {
                    int next = link.opposite(sw);
                    if (graph.capacity[2 * link.id()] == 0 || !graph.isSwitch(next)) {
                        continue;
                    }
                    if (next == parent[sw]) {
                        up++;
                    } else if (seen[next]) {
                        forest = false;
                    } else {
                        seen[next] = true;
                        parent[next] = sw;
                        toParent[next] = link.gbps();
                        switches[switchCount++] = next;
                    }
                }
                forest &= up <= 1;
            }
        }
    }

    /** By set of ranks, as bits. */
    double[] all() {
        double[] cut = new double[1 << n];
        if (!graph.switched()) {
            for (int s = 1; s < cut.length; s++) {
                int v = Integer.numberOfTrailingZeros(s);
                double sum = cut[s & (s - 1)];
                for (int u = 0; u < n; u++) {
                    sum += (s >> u & 1) == 0 ? direct[v * n + u] : -direct[v * n + u];
                }
                cut[s] = sum;
            }
            return cut;
        }
        boolean[] set = new boolean[n];
        for (int s = 1; s < cut.length - 1; s += 2) {
            for (int i = 0; i < n; i++) {
                set[i] = (s >> i & 1) != 0;
            }
            cut[s] = of(set);
            cut[cut.length - 1 ^ s] = cut[s];
        }
        return cut;
    }

    double of(boolean[] set) {
        if (!forest) {
            return flow(set);
        }
        double sum = 0;
        for (int at : pairs) {
            sum += set[at / n] != set[at % n] ? direct[at] : 0;
        }
        for (int h = 0; h < switchCount; h++) {
            outside[switches[h]] = 0;
            inside[switches[h]] = 0;
        }
        for (int l = 0; l < leaves; l++) {
            (set[leafRank[l]] ? outside : inside)[leafSwitch[l]] += leafGbps[l];
        }
        for (int h = switchCount - 1; h >= 0; h--) {
            int sw = switches[h];
            int up = parent[sw];
            if (up < 0) {
                sum += Math.min(outside[sw], inside[sw]);
            } else {
                double width = toParent[sw];
                outside[up] += Math.min(outside[sw], inside[sw] + width);
                inside[up] += Math.min(inside[sw], outside[sw] + width);
            }
        }
        return sum;
    }

    /** The same where switches make cycles. */
    private double flow(boolean[] set) {
        double[] sinks = new double[graph.topology.nodes().size()];
        for (int i = 0; i < n; i++) {
            sinks[graph.gpus[i]] = set[i] ? 0 : Double.POSITIVE_INFINITY;
        }
        int[] sources = IntStream.range(0, n).filter(i -> set[i]).map(i -> graph.gpus[i]).toArray();
        return MaxFlow.of(graph.topology, graph.capacity.clone(), sources, sinks);
    }
}
