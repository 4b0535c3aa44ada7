package io.jccl.topology.plan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Packs spanning trees. For a broadcast or reduce: arborescences from the root, the cheapest of
 * which Chu and Liu's algorithm finds; links are the same both ways, so a reduce uses a broadcast's
 * trees backwards. For an allReduce: undirected trees, each hop of which is used both ways, and the
 * cheapest of which is a minimum spanning tree (Prim).
 */
final class Trees implements Packing.Oracle {
    /** For more ranks a linear program takes too long for its gain. */
    private static final int MAX_RANKS = 24;

    /** Share of the bound at which two binary trees are taken: they have 7/8 of it for 8 ranks. */
    private static final double SHALLOW = 0.85;

    private final PlanGraph graph;
    private final Hops hops;
    private final int n;
    private final int root;
    private final boolean both;

    private Trees(PlanGraph graph, int root, boolean both) {
        this.graph = graph;
        this.root = root;
        this.both = both;
        hops = new Hops(graph, both);
        n = graph.n;
    }

    /**
     * The trees.
     *
     * @param both whether hops are used both ways, and any rank may be the root
     * @param most the total rate that no packing exceeds
     */
    static List<Channel> pack(PlanGraph graph, int root, boolean both, double most) {
        return new Trees(graph, root, both).pack(most);
    }

    private List<Channel> pack(double most) {
        List<Packing.Item> best = List.of();
        if (both && graph.switched()) {
            best = binary();
        }
        // On NVSwitches two binary trees are nearly as fast as any packing, and much less deep.
        boolean enough = graph.nvlinkOnly && Rings.total(best) > SHALLOW * most;
        if (!enough) {
            List<Packing.Item> chain = chain();
            best = Rings.total(chain) > Rings.total(best) ? chain : best;
            if (n <= MAX_RANKS && Rings.total(best) < most * (1 - 1e-9)) {
                List<Packing.Item> found =
                        Packing.few(
                                Packing.pack(hops.capacity, this, most, 2000), hops.capacity, this);
                best = Rings.total(found) > Rings.total(best) * (1 + 1e-6) ? found : best;
            }
        }
        List<Channel> trees = new ArrayList<>();
        for (Packing.Item item : best) {
            trees.add(tree(item));
        }
        return trees;
    }

    private List<Packing.Item> chain() {
        int[] walk = graph.walk();
        int start = 0;
        while (walk[start] != root) {
            start++;
        }
        int[] chain = new int[n - 1];
        for (int i = 0; i < n - 1; i++) {
            int from = walk[(start + i) % n];
            int to = walk[(start + i + 1) % n];
            if (!hops.exists(from, to)) {
                return List.of();
            }
            chain[i] = hops.widest(from, to);
        }
        return List.of(new Packing.Item(chain, hops.rate(chain)));
    }

    private List<Packing.Item> binary() {
        int[] walk = graph.walk();
        int[][] trees = new int[2][n - 1];
        int[] all = new int[2 * (n - 1)];
        for (int tree = 0; tree < 2; tree++) {
            int count = 0;
            for (int rank = 0; rank < n; rank++) {
                int parent = DoubleBinaryTree.parent(tree, rank, n);
                if (parent >= 0) {
                    if (!hops.exists(walk[parent], walk[rank])) {
                        return List.of();
                    }
                    trees[tree][count] = hops.widest(walk[parent], walk[rank]);
                    all[tree * (n - 1) + count++] = hops.widest(walk[parent], walk[rank]);
                }
            }
        }
        double rate = hops.rate(all);
        return List.of(new Packing.Item(trees[0], rate), new Packing.Item(trees[1], rate));
    }

    /** Hops from parents to children, parents first; from the middle if any root will do. */
    private Channel.Tree tree(Packing.Item item) {
        List<List<Integer>> at = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            at.add(new ArrayList<>(2));
        }
        for (int hop : item.structure()) {
            at.get(hops.from(hop)).add(hop);
            at.get(hops.to(hop)).add(hops.back(hop));
        }
        int[] order = new int[n];
        int[] in = new int[n];
        int top = root;
        if (both) {
            // The middle of a longest path: the last met from anywhere is one end of such a path.
            top = walk(at, walk(at, 0, order, in), order, in);
            int depth = 0;
            for (int v = top; in[v] >= 0; v = hops.from(in[v])) {
                depth++;
            }
            for (int i = 0; i < depth / 2; i++) {
                top = hops.from(in[top]);
            }
        }
        walk(at, top, order, in);
        List<Hop> list = new ArrayList<>(n - 1);
        for (int i = 1; i < n; i++) {
            list.add(hops.hop(in[order[i]]));
        }
        return new Channel.Tree(graph.gpus[top], list, item.rate());
    }

    /** Breadth first; the last rank met. */
    private int walk(List<List<Integer>> at, int from, int[] order, int[] in) {
        Arrays.fill(in, -2);
        int end = 0;
        order[end++] = from;
        in[from] = -1;
        for (int i = 0; i < end; i++) {
            for (int hop : at.get(order[i])) {
                int to = hops.to(hop);
                if (in[to] == -2) {
                    in[to] = hop;
                    order[end++] = to;
                }
            }
        }
        return order[end - 1];
    }

    @Override
    public int[] uses(int[] structure) {
        return hops.uses(structure);
    }

    @Override
    public int @Nullable [] cheapest(double[] price) {
        hops.price(price);
        return both ? spanning() : arborescence();
    }

    private int @Nullable [] spanning() {
        int[] tree = new int[n - 1];
        int[] from = new int[n];
        double[] cost = new double[n];
        boolean[] in = new boolean[n];
        System.arraycopy(hops.cost, 0, cost, 0, n);
        in[0] = true;
        for (int i = 0; i < n - 1; i++) {
            int next = 0;
            for (int v = 1; v < n; v++) {
                if (!in[v] && (next == 0 || cost[v] < cost[next])) {
                    next = v;
                }
            }
            if (cost[next] == Double.POSITIVE_INFINITY) {
                return null;
            }
            tree[i] = hops.cheapest(from[next], next);
            in[next] = true;
            for (int v = 1; v < n; v++) {
                if (!in[v] && hops.cost[next * n + v] < cost[v]) {
                    cost[v] = hops.cost[next * n + v];
                    from[v] = next;
                }
            }
        }
        return tree;
    }

    private int @Nullable [] arborescence() {
        int[] parent = Arborescence.cheapest(hops.cost, n, root);
        if (parent == null) {
            return null;
        }
        int[] tree = new int[n - 1];
        int count = 0;
        for (int v = 0; v < n; v++) {
            if (v != root) {
                tree[count++] = hops.cheapest(parent[v], v);
            }
        }
        return tree;
    }
}
