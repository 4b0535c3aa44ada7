package io.jccl.topology;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.PriorityQueue;
import org.jspecify.annotations.Nullable;

/** The best routes of one topology, computed on first use. Safe for use by many threads. */
final class Routes {
    private final Topology topology;

    /** The routes from one node, by node where they end; final, so that other threads see them. */
    private record Row(@Nullable Route[] to) {}

    /** By node where they start. A race only computes them twice. */
    private final @Nullable Row[] rows;

    Routes(Topology topology) {
        this.topology = topology;
        rows = new Row[topology.nodes().size()];
    }

    /** The route between two nodes; null if there is none. */
    @Nullable Route get(int from, int to) {
        Row row = rows[from];
        if (row == null) {
            row = new Row(from(from));
            rows[from] = row;
        }
        return row.to[to];
    }

    /** Dijkstra by (bandwidth descending, hops ascending). */
    private @Nullable Route[] from(int from) {
        int n = rows.length;
        double[] width = new double[n];
        int[] hops = new int[n];
        int[] via = new int[n];
        boolean[] done = new boolean[n];
        Arrays.fill(via, -1);
        Arrays.fill(hops, Integer.MAX_VALUE);
        width[from] = Double.POSITIVE_INFINITY;
        hops[from] = 0;
        record Entry(double width, int hops, int node) {}
        PriorityQueue<Entry> queue =
                new PriorityQueue<>((x, y) ->
                        x.width != y.width
                                ? Double.compare(y.width, x.width)
                                : Integer.compare(x.hops, y.hops));
        queue.add(new Entry(width[from], 0, from));
        while (!queue.isEmpty()) {
            int at = queue.remove().node;
            if (done[at]) {
                continue;
            }
            done[at] = true;
            if (at != from && !(topology.nodes().get(at) instanceof Switch)) {
                continue;
            }
            for (Link link : topology.links(at)) {
                int next = link.opposite(at);
                double w = Math.min(width[at], link.gbps());
                int h = hops[at] + 1;
                if (!done[next] && (w > width[next] || (w == width[next] && h < hops[next]))) {
                    width[next] = w;
                    hops[next] = h;
                    via[next] = link.arcFrom(at);
                    queue.add(new Entry(w, h, next));
                }
            }
        }
        @Nullable Route[] row = new Route[n];
        for (int to = 0; to < n; to++) {
            if (hops[to] == Integer.MAX_VALUE) {
                continue;
            }
            List<Integer> arcs = new ArrayList<>();
            for (int at = to; at != from; at = topology.tail(via[at])) {
                arcs.add(via[at]);
            }
            Collections.reverse(arcs);
            row[to] = new Route(from, to, arcs, width[to]);
        }
        return row;
    }

    /** What nvidia-smi would print for the route: NVLinks to CPUs do not count. */
    PathCode code(int a, int b) {
        Route route = get(a, b);
        if (route == null) {
            return PathCode.of("DIS");
        }
        int nvlinks = 0;
        int switches = 0;
        int bridges = 0;
        boolean cpu = false;
        boolean smp = false;
        for (int arc : route.arcs()) {
            Link link = topology.links().get(arc >> 1);
            if (link.kind() == LinkKind.NVLINK) {
                nvlinks = nvlinks == 0 ? link.count() : Math.min(nvlinks, link.count());
            }
            smp |= link.kind() == LinkKind.SMP;
        }
        for (int node : nodesOf(route)) {
            if (topology.nodes().get(node) instanceof Switch sw) {
                switches += sw.kind() == Switch.Kind.PCIE_SWITCH ? 1 : 0;
                bridges += sw.kind() == Switch.Kind.HOST_BRIDGE ? 1 : 0;
                cpu |= sw.kind() == Switch.Kind.NUMA;
            }
        }
        if (smp) {
            return PathCode.of("SYS");
        }
        if (bridges > 0 || cpu) {
            return PathCode.of(bridges > 1 ? "NODE" : "PHB");
        }
        if (nvlinks > 0) {
            return PathCode.of("NV" + nvlinks);
        }
        return PathCode.of(switches > 1 ? "PXB" : "PIX");
    }

    /** Ids of the nodes of a route, ends included. */
    private List<Integer> nodesOf(Route route) {
        List<Integer> all = new ArrayList<>();
        int at = route.from();
        all.add(at);
        for (int arc : route.arcs()) {
            at = topology.head(arc);
            all.add(at);
        }
        return all;
    }
}
