package io.jccl.topology.plan;

import io.jccl.topology.Link;
import io.jccl.topology.Operation;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * Upper bounds of the bus bandwidth of any algorithm in which GPUs reduce and forward, and switches
 * do not reduce. With M the bytes of an operation, n ranks, S a set of ranks and B(S) the bandwidth
 * of the narrowest cut between S and the other ranks, in one direction:
 *
 * <ul>
 *   <li>broadcast, reduce: M bytes leave every S that holds the root, so busbw is at most B(S). By
 *       Edmonds' theorem on arborescences a packing of trees reaches it where all links lead from
 *       GPU to GPU.
 *   <li>scatter, gather: the parts of the other ranks leave S: busbw is at most (n-1) B(S) / (n -
 *       |S|).
 *   <li>allGather, reduceScatter: the parts of S leave S: (n-1) B(S) / |S|. Source: ForestColl,
 *       arXiv 2402.06787.
 *   <li>allToAll: |S| (n-|S|) parts of M/n bytes leave S: (n-1) B(S) / (|S| (n-|S|)).
 *   <li>allReduce: take any partition of the ranks into k parts, and one element. Before some part
 *       first knows its sum, each of the k-1 others has sent something that depends on its own
 *       share; afterwards each of them must receive something. So at least 2(k-1) M bytes leave
 *       parts, and algbw is at most (sum of B over the parts) / (2(k-1)). By the theorem of Tutte
 *       and Nash-Williams a packing of spanning trees reaches it where all links lead from GPU to
 *       GPU.
 * </ul>
 *
 * <p>For up to {@value #EXACT} ranks all sets and partitions are tried. For more ranks, only those
 * that removing a link or a switch leaves: in a tree of switches no others are narrower; elsewhere
 * the bound may be too high, but never too low.
 */
final class Bounds {
    /** Most ranks for which every set is tried. */
    static final int EXACT = 12;

    /** GB/s, and the limiting cut. */
    record Bound(double gbps, String what) {}

    private final PlanGraph graph;
    private final Operation op;
    private final int root;
    private final int n;
    private double least = Double.POSITIVE_INFINITY;
    private String what = "";

    private Bounds(PlanGraph graph, Operation op, int root) {
        this.graph = graph;
        this.op = op;
        this.root = root;
        n = graph.n;
    }

    static Bound of(PlanGraph graph, Operation op, int root) {
        Bounds b = new Bounds(graph, op, root);
        if (b.n <= EXACT) {
            b.exact();
        } else {
            b.family();
        }
        return new Bound(b.least, b.what);
    }

    /** The bus bandwidth as a multiple of B(S); infinite if S does not limit. */
    private double factor(int size, boolean withRoot, int crossing) {
        return switch (op) {
            case BROADCAST, REDUCE -> 1;
            case ALL_GATHER, REDUCE_SCATTER -> (double) (n - 1) / Math.max(size, n - size);
            case ALL_TO_ALL -> (double) (n - 1) / ((double) size * (n - size));
            case GATHER, SCATTER -> (double) (n - 1) / (withRoot ? n - size : size);
            case SEND_RECV -> crossing == 0 ? Double.POSITIVE_INFINITY : 1.0 / crossing;
            case ALL_REDUCE -> op.busFactor(n);
        };
    }

    private void exact() {
        double[] cut = new Cuts(graph).all();
        int full = (1 << n) - 1;
        if (op == Operation.ALL_REDUCE) {
            partitions(cut, full);
            return;
        }
        int best = 0;
        for (int s = 1; s < full; s += 2) {
            int next = (s << 1 | s >> (n - 1)) & full;
            double f =
                    factor(
                            Integer.bitCount(s),
                            (s >> root & 1) != 0,
                            Integer.bitCount(next & ~s & full));
            // Of equal ones, the one with the fewest ranks on a side, which is the most
            // informative.
            if (cut[s] * f < least * (1 - 1e-9)
                    || (cut[s] * f < least * (1 + 1e-9) && smaller(s) < smaller(best))) {
                least = Math.min(least, cut[s] * f);
                best = s;
            }
        }
        boolean[] part = new boolean[n];
        for (int i = 0; i < n; i++) {
            part[i] = (best >> i & 1) != 0;
        }
        what = cut(part);
    }

    private int smaller(int set) {
        int size = Integer.bitCount(set);
        return Math.min(size, n - size);
    }

    /**
     * Newton's method: at the least ratio r, the sum over parts of (B - 2r) is at least -2r for all
     * partitions. While one has less, r becomes its ratio.
     */
    private void partitions(double[] cut, int full) {
        double ratio = 0;
        for (int i = 0; i < n; i++) {
            ratio += cut[1 << i];
        }
        ratio /= 2 * (n - 1);
        int[] parts = new int[n];
        for (int i = 0; i < n; i++) {
            parts[i] = 1 << i;
        }
        double[] best = new double[full + 1];
        int[] first = new int[full + 1];
        while (true) {
            for (int s = 1; s <= full; s++) {
                int low = Integer.lowestOneBit(s);
                int rest = s ^ low;
                double min = Double.POSITIVE_INFINITY;
                int choice = s;
                // The set of all ranks is not a part: a partition has at least two.
                for (int sub = s == full ? (rest - 1) & rest : rest; ; sub = (sub - 1) & rest) {
                    double sum = cut[sub | low] - 2 * ratio + best[rest ^ sub];
                    if (sum < min) {
                        min = sum;
                        choice = sub | low;
                    }
                    if (sub == 0) {
                        break;
                    }
                }
                best[s] = min;
                first[s] = choice;
            }
            if (best[full] > -2 * ratio - 1e-9 * (1 + ratio)) {
                break;
            }
            int k = 0;
            double sum = 0;
            for (int s = full; s != 0; s ^= first[s]) {
                parts[k++] = first[s];
                sum += cut[first[s]];
            }
            ratio = sum / (2 * (k - 1));
            parts = Arrays.copyOf(Arrays.copyOf(parts, k), n);
        }
        least = ratio * op.busFactor(n);
        List<boolean[]> sets = new ArrayList<>();
        for (int p : parts) {
            if (p != 0) {
                boolean[] set = new boolean[n];
                for (int i = 0; i < n; i++) {
                    set[i] = (p >> i & 1) != 0;
                }
                sets.add(set);
            }
        }
        what = partition(sets);
    }

    /** Sets that lie on one side of a link, and partitions around a switch. */
    private void family() {
        Cuts cuts = new Cuts(graph);
        List<boolean[]> sets = new ArrayList<>();
        double singles = 0;
        List<boolean[]> single = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            boolean[] one = new boolean[n];
            one[i] = true;
            sets.add(one);
            single.add(one);
            singles += cuts.of(one);
        }
        if (op == Operation.ALL_REDUCE) {
            offer(singles / (2 * (n - 1)) * op.busFactor(n), partition(single));
        }
        Set<Integer> switches = new HashSet<>();
        for (Link link : graph.topology.links()) {
            if (graph.capacity[2 * link.id()] == 0
                    || !graph.isSwitch(link.a())
                    || !graph.isSwitch(link.b())) {
                continue;
            }
            switches.add(link.a());
            switches.add(link.b());
            boolean[] seen = graph.reach(link.a(), link.id());
            if (!seen[link.b()]) {
                boolean[] part = new boolean[n];
                int size = 0;
                for (int i = 0; i < n; i++) {
                    part[i] = seen[graph.gpus[i]];
                    size += part[i] ? 1 : 0;
                }
                if (size > 0 && size < n) {
                    sets.add(part);
                }
            }
        }
        for (boolean[] set : sets) {
            int size = 0;
            int crossing = 0;
            for (int i = 0; i < n; i++) {
                size += set[i] ? 1 : 0;
                crossing += set[i] && !set[(i + 1) % n] ? 1 : 0;
            }
            offer(cuts.of(set) * factor(size, set[root], crossing), cut(set));
        }
        if (op == Operation.ALL_REDUCE) {
            for (int sw : switches) {
                around(sw, cuts);
            }
        }
    }

    /** The partition into the parts that are left when a switch is removed. */
    private void around(int sw, Cuts cuts) {
        boolean[] done = new boolean[n];
        List<boolean[]> parts = new ArrayList<>();
        double sum = 0;
        for (Link link : graph.topology.links(sw)) {
            if (graph.capacity[2 * link.id()] == 0) {
                continue;
            }
            boolean[] seen = graph.reach(link.opposite(sw), link.id());
            if (seen[sw]) {
                return;
            }
            boolean[] part = new boolean[n];
            boolean any = false;
            for (int i = 0; i < n; i++) {
                part[i] = seen[graph.gpus[i]] && !done[i];
                done[i] |= part[i];
                any |= part[i];
            }
            if (any) {
                parts.add(part);
                sum += cuts.of(part);
            }
        }
        if (parts.size() > 1) {
            offer(sum / (2 * (parts.size() - 1)) * op.busFactor(n), partition(parts));
        }
    }

    private void offer(double gbps, String limit) {
        if (gbps < least * (1 - 1e-9)) {
            least = gbps;
            what = limit;
        }
    }

    /** The name of a cut: its smaller side. */
    private String cut(boolean[] part) {
        int size = 0;
        int one = 0;
        int other = 0;
        for (int i = 0; i < n; i++) {
            size += part[i] ? 1 : 0;
            one = part[i] ? i : one;
            other = part[i] ? other : i;
        }
        if (size == 1 || size == n - 1) {
            int alone = size == 1 ? one : other;
            boolean out =
                    switch (op) {
                        case BROADCAST, SCATTER -> alone == root;
                        case REDUCE, GATHER -> alone != root;
                        // The n-1 parts of the others come in.
                        case ALL_GATHER -> n == 2;
                        default -> true;
                    };
            return (out ? "egress of " : "ingress of ") + graph.gpu(alone).name();
        }
        return "cut " + graph.names(part, true) + " | " + graph.names(part, false);
    }

    private String partition(List<boolean[]> parts) {
        if (parts.size() == 2) {
            return cut(parts.get(0));
        }
        if (parts.size() == n && n > 4) {
            return "egress of all " + n + " GPUs together";
        }
        StringBuilder text = new StringBuilder("partition ");
        for (boolean[] part : parts) {
            text.append(text.length() == 10 ? "" : " | ").append(graph.names(part, true));
        }
        return text.toString();
    }
}
