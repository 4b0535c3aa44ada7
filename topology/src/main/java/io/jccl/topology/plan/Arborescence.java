package io.jccl.topology.plan;

import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The cheapest spanning arborescence of a complete digraph: Y. J. Chu and T. H. Liu (1965), J.
 * Edmonds (1967). Every node takes its cheapest arc; a cycle is contracted, and the arcs into it
 * get cheaper by what they replace.
 */
final class Arborescence {
    private Arborescence() {}

    /**
     * Finds it.
     *
     * @param cost from i to j at {@code i * n + j}; infinite where there is no arc
     * @return the parent of each node, -1 for the root; null if the root does not reach all
     */
    static int @Nullable [] cheapest(double[] cost, int n, int root) {
        int[] in = new int[n];
        Arrays.fill(in, -1);
        for (int v = 0; v < n; v++) {
            for (int u = 0; u < n && v != root; u++) {
                if (u != v
                        && cost[u * n + v] < Double.POSITIVE_INFINITY
                        && (in[v] < 0 || cost[u * n + v] < cost[in[v] * n + v])) {
                    in[v] = u;
                }
            }
            if (v != root && in[v] < 0) {
                return null;
            }
        }
        int[] seen = new int[n];
        int cycle = -1;
        for (int v = 0; v < n && cycle < 0; v++) {
            int at = v;
            while (at >= 0 && seen[at] == 0) {
                seen[at] = v + 1;
                at = in[at];
            }
            cycle = at >= 0 && seen[at] == v + 1 ? at : -1;
        }
        return cycle < 0 ? in : contract(cost, n, root, in, cycle);
    }

    private static int @Nullable [] contract(double[] cost, int n, int root, int[] in, int cycle) {
        boolean[] inside = new boolean[n];
        int size = 0;
        for (int v = cycle; !inside[v]; v = in[v]) {
            inside[v] = true;
            size++;
        }
        // Nodes of the smaller graph: those outside the cycle, and then the cycle.
        int m = n - size + 1;
        int[] old = new int[m];
        int count = 0;
        int newRoot = -1;
        for (int v = 0; v < n; v++) {
            if (!inside[v]) {
                newRoot = v == root ? count : newRoot;
                old[count++] = v;
            }
        }
        double[] small = new double[m * m];
        int[] entry = new int[m];
        int[] exit = new int[m];
        Arrays.fill(small, Double.POSITIVE_INFINITY);
        for (int i = 0; i < m - 1; i++) {
            for (int j = 0; j < m - 1; j++) {
                small[i * m + j] = cost[old[i] * n + old[j]];
            }
            for (int v = 0; v < n; v++) {
                if (inside[v]) {
                    double into = cost[old[i] * n + v] - cost[in[v] * n + v];
                    if (into < small[i * m + m - 1]) {
                        small[i * m + m - 1] = into;
                        entry[i] = v;
                    }
                    if (cost[v * n + old[i]] < small[(m - 1) * m + i]) {
                        small[(m - 1) * m + i] = cost[v * n + old[i]];
                        exit[i] = v;
                    }
                }
            }
        }
        int[] parent = cheapest(small, m, newRoot);
        if (parent == null) {
            return null;
        }
        int[] all = in.clone();
        for (int i = 0; i < m - 1; i++) {
            if (parent[i] >= 0) {
                all[old[i]] = parent[i] == m - 1 ? exit[i] : old[parent[i]];
            }
        }
        all[entry[parent[m - 1]]] = old[parent[m - 1]];
        all[root] = -1;
        return all;
    }
}
