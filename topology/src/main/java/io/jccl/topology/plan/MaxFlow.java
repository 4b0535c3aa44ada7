package io.jccl.topology.plan;

import io.jccl.topology.Link;
import io.jccl.topology.Topology;
import java.util.Arrays;
import java.util.List;

/** Maximum flow through switches by shortest augmenting paths (Edmonds and Karp). */
final class MaxFlow {
    private MaxFlow() {}

    /**
     * The flow.
     *
     * @param residual capacity of each arc; reduced by the flow
     * @param sources nodes
     * @param sinks capacity into each node, 0 if it is not a sink; reduced by the flow
     */
    static double of(Topology t, double[] residual, int[] sources, double[] sinks) {
        int firstSwitch = t.gpus().size() + t.nics().size();
        int[] via = new int[sinks.length];
        int[] queue = new int[sinks.length];
        double flow = 0;
        while (true) {
            Arrays.fill(via, -2);
            int end = 0;
            for (int source : sources) {
                via[source] = -1;
                queue[end++] = source;
            }
            int found = -1;
            for (int at = 0; at < end && found < 0; at++) {
                List<Link> links = t.links(queue[at]);
                for (int l = 0; l < links.size() && found < 0; l++) {
                    int arc = links.get(l).arcFrom(queue[at]);
                    int next = t.head(arc);
                    if (via[next] != -2 || residual[arc] <= 1e-9) {
                        continue;
                    }
                    if (next >= firstSwitch) {
                        via[next] = arc;
                        queue[end++] = next;
                    } else if (sinks[next] > 1e-9) {
                        via[next] = arc;
                        found = next;
                    }
                }
            }
            if (found < 0) {
                return flow;
            }
            double width = sinks[found];
            for (int at = found; via[at] >= 0; at = t.tail(via[at])) {
                width = Math.min(width, residual[via[at]]);
            }
            for (int at = found; via[at] >= 0; at = t.tail(via[at])) {
                residual[via[at]] -= width;
                residual[via[at] ^ 1] += width;
            }
            sinks[found] -= width;
            flow += width;
        }
    }
}
