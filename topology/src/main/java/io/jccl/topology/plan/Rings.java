package io.jccl.topology.plan;

import io.jccl.topology.Link;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Packs directed Hamiltonian cycles. In order: cycles of whole physical links by backtracking where
 * all links lead from GPU to GPU; one walk over the switches; and if neither is as good as any can
 * be, the linear program, whose cheapest ring is found by dynamic programming over sets of ranks
 * (Held and Karp, 1962) for up to {@value #EXACT} ranks, and by a walk to the nearest rank with
 * improvements beyond.
 */
final class Rings implements Packing.Oracle {
    static final int EXACT = 12;

    /** Beyond this a linear program takes too long for what it gains. */
    private static final int MAX_RANKS = 24;

    /** Steps of backtracking. */
    private static final int STEPS = 20_000;

    /** What NCCL can have at most (NCCL 2.30, src/include/device.h: MAXCHANNELS is 64) halved. */
    static final int MAX_CHANNELS = 32;

    private final PlanGraph graph;
    private final Hops hops;
    private final int n;

    /** Least cost from rank 0 through a set to a rank in it, and the rank before. */
    private double[] table = {};

    private byte[] before = {};

    private Rings(PlanGraph graph) {
        this.graph = graph;
        hops = new Hops(graph, false);
        n = graph.n;
    }

    /** The rings; none if there is no Hamiltonian cycle. */
    static List<Channel> pack(PlanGraph graph) {
        return new Rings(graph).pack();
    }

    private List<Channel> pack() {
        double most = most();
        List<Packing.Item> best = graph.switched() ? around() : units();
        double total = total(best);
        if (total < most * (1 - 1e-9) && n <= MAX_RANKS) {
            int rounds = n <= EXACT ? 2000 : 200;
            List<Packing.Item> found =
                    Packing.few(
                            Packing.pack(hops.capacity, this, most, rounds), hops.capacity, this);
            if (total(found) > total * (1 + 1e-6)) {
                best = found;
            }
        }
        List<Channel> rings = new ArrayList<>();
        for (Packing.Item item : best) {
            List<Hop> list = new ArrayList<>(n);
            for (int hop : item.structure()) {
                list.add(hops.hop(hop));
            }
            rings.add(new Channel.Ring(list, item.rate()));
        }
        return rings;
    }

    static double total(List<Packing.Item> items) {
        double total = 0;
        for (Packing.Item item : items) {
            total += item.rate();
        }
        return total;
    }

    /** Each ring leaves each rank once, and passes each link whose lack parts the ranks. */
    private double most() {
        double most = Double.POSITIVE_INFINITY;
        for (int gpu : graph.gpus) {
            double out = 0;
            for (Link link : graph.topology.links(gpu)) {
                out += graph.capacity[2 * link.id()];
            }
            most = Math.min(most, out);
        }
        if (graph.switched()) {
            for (Link link : graph.topology.links()) {
                double width = graph.capacity[2 * link.id()];
                if (width > 0 && width < most && parts(link)) {
                    most = width;
                }
            }
        }
        return most;
    }

    private boolean parts(Link link) {
        boolean[] seen = graph.reach(graph.gpus[0], link.id());
        for (int gpu : graph.gpus) {
            if (!seen[gpu]) {
                return true;
            }
        }
        return false;
    }

    /**
     * One ring in the order of a walk. On an NVSwitch, where all orders are equivalent, up to four
     * that share the bandwidth, with strides that have no divisor in common with n.
     */
    private List<Packing.Item> around() {
        int[] walk = graph.walk();
        List<Packing.Item> items = new ArrayList<>();
        for (int stride = 1; stride < Math.max(2, n - 1) && items.size() < 4; stride++) {
            if (gcd(stride, n) > 1) {
                continue;
            }
            int[] ring = new int[n];
            for (int i = 0; i < n; i++) {
                int from = walk[(int) ((long) i * stride % n)];
                int to = walk[(int) ((long) (i + 1) * stride % n)];
                if (!hops.exists(from, to)) {
                    return items;
                }
                ring[i] = hops.widest(from, to);
            }
            items.add(new Packing.Item(ring, hops.rate(ring)));
            if (!graph.nvlinkOnly) {
                return items;
            }
        }
        double one = items.getFirst().rate();
        for (Packing.Item item : items) {
            if (item.rate() < one * (1 - 1e-9)) {
                return items.subList(0, 1);
            }
        }
        // Each ring alone can have the whole bandwidth; check that all can have a share each.
        List<Packing.Item> shared = new ArrayList<>();
        for (Packing.Item item : items) {
            shared.add(new Packing.Item(item.structure(), one / items.size()));
        }
        double[] load = new double[hops.capacity.length];
        for (Packing.Item item : shared) {
            for (int r : uses(item.structure())) {
                load[r] += item.rate();
                if (load[r] > hops.capacity[r] * (1 + 1e-9)) {
                    return items.subList(0, 1);
                }
            }
        }
        return shared;
    }

    private static int gcd(int a, int b) {
        return b == 0 ? a : gcd(b, a % b);
    }

    /** Edge-disjoint cycles of physical links, each of which makes a ring in either direction. */
    private List<Packing.Item> units() {
        double unit = Double.POSITIVE_INFINITY;
        for (Link link : graph.topology.links()) {
            if (graph.capacity[2 * link.id()] > 0) {
                unit = Math.min(unit, link.gbps() / link.count());
            }
        }
        int[][] links = new int[n][n];
        int least = Integer.MAX_VALUE;
        for (int i = 0; i < n; i++) {
            int degree = 0;
            for (int j = 0; j < n; j++) {
                // Parallel links are rare, and left to the linear program.
                if (i != j && hops.exists(i, j)) {
                    double width = graph.width(graph.ways(i, j)[0]);
                    links[i][j] = (int) Math.min(99, width / unit + 1e-6);
                    degree += links[i][j];
                }
            }
            least = Math.min(least, degree);
        }
        List<Packing.Item> items = new ArrayList<>();
        if (n == 2) {
            int rings = Math.min(least, MAX_CHANNELS);
            int[] ring = {hops.widest(0, 1), hops.widest(1, 0)};
            for (int i = 0; i < rings; i++) {
                items.add(new Packing.Item(ring, graph.width(graph.ways(0, 1)[0]) / rings));
            }
            return items;
        }
        int cycles = least / 2;
        if (cycles < 1 || cycles > MAX_CHANNELS / 2) {
            return items;
        }
        Backtrack search = new Backtrack(links, cycles);
        if (search.run()) {
            for (int[] cycle : search.found) {
                int[] there = new int[n];
                int[] back = new int[n];
                for (int i = 0; i < n; i++) {
                    there[i] = hops.widest(cycle[i], cycle[(i + 1) % n]);
                    back[n - 1 - i] = hops.back(there[i]);
                }
                items.add(new Packing.Item(there, unit));
                items.add(new Packing.Item(back, unit));
            }
        }
        return items;
    }

    /** Looks for a number of edge-disjoint Hamiltonian cycles in a multigraph. */
    private static final class Backtrack {
        private final int[][] links;
        private final int n;
        private final int[] degree;
        final int[][] found;
        private int steps;

        Backtrack(int[][] links, int cycles) {
            this.links = links;
            n = links.length;
            found = new int[cycles][n];
            degree = new int[n];
            for (int i = 0; i < n; i++) {
                for (int j = 0; j < n; j++) {
                    degree[i] += links[i][j];
                }
            }
        }

        boolean run() {
            return extend(0, 1, 1);
        }

        /** Puts a rank at a place of a cycle, given those before. */
        private boolean extend(int cycle, int place, int used) {
            if (++steps > STEPS) {
                return false;
            }
            int[] path = found[cycle];
            int last = path[place - 1];
            if (place == n) {
                // Each cycle is found in two directions: use one.
                if (links[last][0] == 0 || path[1] > last) {
                    return false;
                }
                take(last, 0, -1);
                if (cycle + 1 == found.length || extend(cycle + 1, 1, 1)) {
                    return true;
                }
                take(last, 0, 1);
                return false;
            }
            for (int next = 1; next < n; next++) {
                if (links[last][next] > 0 && (used >> next & 1) == 0) {
                    path[place] = next;
                    take(last, next, -1);
                    if (extend(cycle, place + 1, used | 1 << next)) {
                        return true;
                    }
                    take(last, next, 1);
                }
            }
            return false;
        }

        private void take(int a, int b, int change) {
            links[a][b] += change;
            links[b][a] += change;
        }
    }

    @Override
    public int[] uses(int[] structure) {
        return hops.uses(structure);
    }

    @Override
    public int @Nullable [] cheapest(double[] price) {
        hops.price(price);
        int[] order = n <= EXACT ? exact() : near();
        if (order.length == 0) {
            return null;
        }
        int[] ring = new int[n];
        for (int i = 0; i < n; i++) {
            ring[i] = hops.cheapest(order[i], order[(i + 1) % n]);
        }
        return ring;
    }

    /** Held and Karp over ranks 1 to n-1; rank r is bit r-1. */
    private int[] exact() {
        int m = n - 1;
        int full = (1 << m) - 1;
        if (table.length == 0) {
            table = new double[(full + 1) * m];
            before = new byte[(full + 1) * m];
        }
        double[] cost = hops.cost;
        Arrays.fill(table, Double.POSITIVE_INFINITY);
        for (int v = 0; v < m; v++) {
            table[(1 << v) * m + v] = cost[v + 1];
        }
        for (int set = 1; set < full; set++) {
            for (int left = set; left != 0; left &= left - 1) {
                int v = Integer.numberOfTrailingZeros(left);
                double so = table[set * m + v];
                if (so == Double.POSITIVE_INFINITY) {
                    continue;
                }
                for (int out = full & ~set; out != 0; out &= out - 1) {
                    int u = Integer.numberOfTrailingZeros(out);
                    double sum = so + cost[(v + 1) * n + u + 1];
                    int at = (set | 1 << u) * m + u;
                    if (sum < table[at]) {
                        table[at] = sum;
                        before[at] = (byte) v;
                    }
                }
            }
        }
        int last = -1;
        double least = Double.POSITIVE_INFINITY;
        for (int v = 0; v < m; v++) {
            double sum = table[full * m + v] + cost[(v + 1) * n];
            if (sum < least) {
                least = sum;
                last = v;
            }
        }
        if (last < 0) {
            return new int[0];
        }
        int[] order = new int[n];
        int set = full;
        for (int i = n - 1; i > 0; i--) {
            order[i] = last + 1;
            int previous = before[set * m + last];
            set ^= 1 << last;
            last = previous;
        }
        return order;
    }

    /** To the nearest rank from every start, then single ranks moved while that helps. */
    private int[] near() {
        int[] best = {};
        double least = Double.POSITIVE_INFINITY;
        for (int start = 0; start < n; start++) {
            int[] order = new int[n];
            boolean[] seen = new boolean[n];
            order[0] = start;
            seen[start] = true;
            for (int i = 1; i < n; i++) {
                int next = -1;
                for (int v = 0; v < n; v++) {
                    if (!seen[v]
                            && (next < 0
                                    || hops.cost[order[i - 1] * n + v]
                                            < hops.cost[order[i - 1] * n + next])) {
                        next = v;
                    }
                }
                order[i] = next;
                seen[next] = true;
            }
            improve(order);
            double sum = cost(order);
            if (sum < least) {
                least = sum;
                best = order;
            }
        }
        return best;
    }

    private double cost(int[] order) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += hops.cost[order[i] * n + order[(i + 1) % n]];
        }
        return sum;
    }

    private void improve(int[] order) {
        double now = cost(order);
        for (boolean better = true; better; ) {
            better = false;
            for (int i = 0; i < n; i++) {
                for (int j = 0; j < n; j++) {
                    move(order, i, j);
                    double sum = cost(order);
                    if (sum < now - 1e-12) {
                        now = sum;
                        better = true;
                    } else {
                        move(order, j, i);
                    }
                }
            }
        }
    }

    private static void move(int[] order, int from, int to) {
        int v = order[from];
        if (from < to) {
            System.arraycopy(order, from + 1, order, from, to - from);
        } else {
            System.arraycopy(order, to, order, to + 1, from - to);
        }
        order[to] = v;
    }
}
