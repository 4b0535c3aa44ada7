package io.jccl.topology.plan;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Route;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The part of a topology that a plan works on: some GPUs, by rank, the switches, and the links
 * between these. NICs and GPUs that do not participate forward nothing.
 *
 * <p>If NVLink alone joins the GPUs, everything else is left out of the plan and of its bound: PCIe
 * would add little, and would compete with other traffic (host memory, NICs). NCCL does the same.
 *
 * <p>All links are full duplex and symmetric, so the capacity of a cut is one number. Not
 * thread-safe.
 */
final class PlanGraph {
    final Topology topology;

    /** Node ids by rank. */
    final int[] gpus;

    final int n;
    final boolean nvlinkOnly;

    /** Capacity by arc; 0 if the arc is not part of this graph. */
    final double[] capacity;

    /** Ways from rank i to rank j at {@code i * n + j}, widest first: each the arcs of a route. */
    private final int[] @Nullable [][] ways;

    /** Last arc to each node, by source rank and kind of search. */
    private final int[] @Nullable [] trees;

    private final boolean switched;

    private PlanGraph(Topology topology, int[] gpus, boolean nvlinkOnly) {
        this.topology = topology;
        this.gpus = gpus;
        this.nvlinkOnly = nvlinkOnly;
        n = gpus.length;
        ways = new int[n * n][][];
        trees = new int[2 * n][];
        boolean[] usable = new boolean[topology.nodes().size()];
        for (Switch sw : topology.switches()) {
            usable[sw.id()] =
                    nvlinkOnly
                            ? sw.kind() == Switch.Kind.NVSWITCH
                            : sw.kind() != Switch.Kind.NETWORK;
        }
        for (int gpu : gpus) {
            usable[gpu] = true;
        }
        List<Link> links = topology.links();
        capacity = new double[2 * links.size()];
        boolean switches = false;
        for (Link link : links) {
            if (usable[link.a()]
                    && usable[link.b()]
                    && link.kind() != LinkKind.NETWORK
                    && (!nvlinkOnly || link.kind() == LinkKind.NVLINK)) {
                capacity[2 * link.id()] = link.gbps();
                capacity[2 * link.id() + 1] = link.gbps();
                switches |= isSwitch(link.a()) || isSwitch(link.b());
            }
        }
        switched = switches;
    }

    /**
     * NVLink alone if that joins the GPUs, else all links.
     *
     * @throws IllegalArgumentException if nothing joins them
     */
    static PlanGraph of(Topology topology, int[] gpus) {
        PlanGraph nvlink = new PlanGraph(topology, gpus, true);
        return nvlink.part() == null ? nvlink : all(topology, gpus);
    }

    /** All links. */
    static PlanGraph all(Topology topology, int[] gpus) {
        PlanGraph all = new PlanGraph(topology, gpus, false);
        boolean[] part = all.part();
        if (part != null) {
            throw new IllegalArgumentException(
                    String.format(
                            "no link leads from %s to %s in %s: plan for one side alone, or look"
                                    + " for what the source of this topology leaves out",
                            all.names(part, true), all.names(part, false), topology.name()));
        }
        return all;
    }

    boolean isSwitch(int node) {
        return node >= topology.gpus().size() + topology.nics().size();
    }

    /** Whether switches are part of it: else all links lead from GPU to GPU. */
    boolean switched() {
        return switched;
    }

    Gpu gpu(int rank) {
        return topology.gpus().get(gpus[rank]);
    }

    /** The ranks that rank 0 reaches, or null if it reaches all. */
    private boolean @Nullable [] part() {
        boolean[] seen = reach(gpus[0], -1);
        boolean[] part = new boolean[n];
        int count = 0;
        for (int i = 0; i < n; i++) {
            part[i] = seen[gpus[i]];
            count += part[i] ? 1 : 0;
        }
        return count == n ? null : part;
    }

    /** The nodes that one node reaches if a link is removed. */
    boolean[] reach(int from, int without) {
        boolean[] seen = new boolean[topology.nodes().size()];
        int[] queue = new int[seen.length];
        int end = 0;
        queue[end++] = from;
        seen[from] = true;
        for (int at = 0; at < end; at++) {
            for (Link link : topology.links(queue[at])) {
                int next = link.opposite(queue[at]);
                if (!seen[next] && capacity[2 * link.id()] > 0 && link.id() != without) {
                    seen[next] = true;
                    queue[end++] = next;
                }
            }
        }
        return seen;
    }

    /** Names of the ranks that are in a part, or of those that are not: {@code {GPU0,GPU1}}. */
    String names(boolean[] part, boolean in) {
        StringBuilder names = new StringBuilder("{");
        for (int i = 0; i < n; i++) {
            if (part[i] == in) {
                names.append(names.length() == 1 ? "" : ",").append(gpu(i).name());
            }
        }
        return names.append("}").toString();
    }

    /**
     * Ways from one rank to another that pass through no GPU.
     *
     * @return the arcs of each, widest first; none if only other GPUs could forward
     */
    int[][] ways(int from, int to) {
        int[][] found = ways[from * n + to];
        if (found == null) {
            if (from < to) {
                found = search(from, to);
            } else {
                int[][] there = ways(to, from);
                found = new int[there.length][];
                for (int w = 0; w < there.length; w++) {
                    found[w] = back(there[w]);
                }
            }
            ways[from * n + to] = found;
        }
        return found;
    }

    private static int[] back(int[] arcs) {
        int[] back = new int[arcs.length];
        for (int i = 0; i < arcs.length; i++) {
            back[i] = arcs[arcs.length - 1 - i] ^ 1;
        }
        return back;
    }

    private int[][] search(int from, int to) {
        List<int[]> found = new ArrayList<>(2);
        for (Link link : topology.links(gpus[from])) {
            if (capacity[2 * link.id()] > 0 && link.opposite(gpus[from]) == gpus[to]) {
                found.add(new int[] {link.arcFrom(gpus[from])});
            }
        }
        if (switched) {
            add(found, from, to, true);
            if (!nvlinkOnly) {
                add(found, from, to, false);
            }
        }
        found.sort((x, y) -> Double.compare(width(y), width(x)));
        return found.toArray(new int[0][]);
    }

    private void add(List<int[]> found, int from, int to, boolean nvlink) {
        int key = 2 * from + (nvlink ? 1 : 0);
        int[] via = trees[key];
        if (via == null) {
            via = tree(gpus[from], nvlink);
            trees[key] = via;
        }
        int count = 0;
        int at = gpus[to];
        while (at != gpus[from]) {
            if (via[at] < 0) {
                return;
            }
            at = topology.tail(via[at]);
            count++;
        }
        int[] arcs = new int[count];
        at = gpus[to];
        while (count > 0) {
            arcs[--count] = via[at];
            at = topology.tail(via[at]);
        }
        found.add(arcs);
    }

    double width(int[] arcs) {
        double width = Double.POSITIVE_INFINITY;
        for (int arc : arcs) {
            width = Math.min(width, capacity[arc]);
        }
        return width;
    }

    /**
     * Dijkstra through switches by (bandwidth descending, hops ascending): the last arc to each.
     */
    private int[] tree(int from, boolean nvlink) {
        int nodes = topology.nodes().size();
        int firstSwitch = topology.gpus().size() + topology.nics().size();
        double[] width = new double[nodes];
        int[] hops = new int[nodes];
        int[] via = new int[nodes];
        boolean[] done = new boolean[nodes];
        Arrays.fill(via, -1);
        width[from] = Double.POSITIVE_INFINITY;
        int at = from;
        while (at >= 0) {
            done[at] = true;
            for (Link link : topology.links(at)) {
                int next = link.opposite(at);
                if (capacity[2 * link.id()] == 0
                        || (link.kind() == LinkKind.NVLINK) != nvlink
                        || done[next]
                        || (at == from && next < firstSwitch)) {
                    continue;
                }
                double w = Math.min(width[at], link.gbps());
                int h = hops[at] + 1;
                if (w > width[next] || (w == width[next] && h < hops[next])) {
                    width[next] = w;
                    hops[next] = h;
                    via[next] = link.arcFrom(at);
                }
            }
            at = -1;
            for (int sw = firstSwitch; sw < nodes; sw++) {
                if (!done[sw]
                        && via[sw] >= 0
                        && (at < 0
                                || width[sw] > width[at]
                                || (width[sw] == width[at] && hops[sw] < hops[at]))) {
                    at = sw;
                }
            }
        }
        return via;
    }

    Hop hop(int from, int to, int way) {
        int[] arcs = ways(from, to)[way];
        List<Integer> list = new ArrayList<>(arcs.length);
        for (int arc : arcs) {
            list.add(arc);
        }
        int a = gpus[from];
        int b = gpus[to];
        return new Hop(a, b, new Route(a, b, list, width(arcs)));
    }

    /**
     * Ranks in the order in which a walk over the switches meets them: neighbours are near each
     * other, and a ring in this order passes each link of a tree of switches once in each
     * direction.
     */
    int[] walk() {
        int[] order = new int[n];
        int count = 0;
        if (!switched) {
            for (int i = 0; i < n; i++) {
                order[i] = i;
            }
            return order;
        }
        int[] rank = new int[topology.nodes().size()];
        Arrays.fill(rank, -1);
        for (int i = 0; i < n; i++) {
            rank[gpus[i]] = i;
        }
        boolean[] seen = new boolean[rank.length];
        int[] stack = new int[capacity.length + 1];
        int end = 0;
        stack[end++] = gpus[0];
        while (end > 0) {
            int at = stack[--end];
            if (seen[at]) {
                continue;
            }
            seen[at] = true;
            if (rank[at] >= 0) {
                order[count++] = rank[at];
            }
            List<Link> links = topology.links(at);
            // Switches pushed last would be visited first: visit the GPUs of a switch before its
            // parent.
            for (int pass = 0; pass < 2; pass++) {
                for (int i = links.size() - 1; i >= 0; i--) {
                    Link link = links.get(i);
                    int next = link.opposite(at);
                    if (capacity[2 * link.id()] > 0
                            && !seen[next]
                            && isSwitch(next) == (pass == 0)
                            && (link.kind() != LinkKind.NVLINK || nvlinkOnly)) {
                        stack[end++] = next;
                    }
                }
            }
        }
        for (int i = 0; i < n && count < n; i++) {
            if (!seen[gpus[i]]) {
                order[count++] = i;
            }
        }
        return order;
    }
}
