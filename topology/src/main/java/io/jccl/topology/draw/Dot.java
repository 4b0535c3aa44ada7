package io.jccl.topology.draw;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Node;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A picture of a machine in the DOT language of Graphviz, for {@code dot -Tpdf}. Labels are GB/s
 * (10^9 bytes per second) per direction. Names are escaped.
 *
 * <p><b>Threads:</b> any.
 */
public final class Dot {
    private Dot() {}

    /**
     * Draws a machine.
     *
     * @param topology the machine
     * @param plan a plan of this machine to draw over it; null for none
     * @return a directed graph in DOT
     */
    public static String of(Topology topology, @Nullable Plan plan) {
        return of(topology, RenderedChannel.of(plan));
    }

    /**
     * Draws one machine of a cluster.
     *
     * @param plan the plan, of which the part of each rail inside a machine is drawn
     * @return a directed graph in DOT
     */
    public static String of(ClusterPlan plan) {
        return of(plan.cluster().machine(), RenderedChannel.of(plan));
    }

    private static String of(Topology topology, List<RenderedChannel> channels) {
        StringBuilder out = new StringBuilder();
        out.append("digraph ").append(Text.dot(topology.name())).append(" {\n");
        out.append("  graph [rankdir=TB];\n  node [shape=box, style=\"rounded,filled\",");
        out.append(" fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=9];\n");
        for (Node node : topology.nodes()) {
            String colour =
                    switch (node) {
                        case Gpu gpu -> "#e6f4d7";
                        case Nic nic -> "#dff1f4";
                        case Switch sw ->
                                switch (sw.kind()) {
                                    case NVSWITCH -> "#eef7e2";
                                    case PCIE_SWITCH -> "#e8eefb";
                                    case HOST_BRIDGE -> "#f1ecfa";
                                    case NUMA -> "#f4f1ea";
                                    case NETWORK -> "#dff1f4";
                                };
                    };
            out.append("  n").append(node.id()).append(" [label=").append(Text.dot(node.name()));
            out.append(", fillcolor=\"").append(colour).append("\"];\n");
        }
        for (Link link : topology.links()) {
            String label =
                    (link.count() > 1 ? link.count() + " × " : "")
                            + Svg.name(link.kind())
                            + ", "
                            + Text.gbps(link.gbps());
            out.append("  n").append(link.a()).append(" -> n").append(link.b());
            out.append(" [dir=none, penwidth=").append(link.kind() == LinkKind.NVLINK ? 4 : 2);
            out.append(", color=\"").append(colour(link.kind())).append("\", label=");
            out.append(Text.dot(label)).append("];\n");
        }
        for (int i = 0; i < channels.size(); i++) {
            RenderedChannel channel = channels.get(i);
            out.append("  // ").append(Text.plain(channel.title())).append('\n');
            if (channel.all()) {
                continue;
            }
            for (Hop hop : channel.hops()) {
                out.append("  n").append(hop.from()).append(" -> n").append(hop.to());
                out.append(" [constraint=false, color=\"");
                out.append(SvgStyle.COLOURS.get(i % SvgStyle.COLOURS.size())).append("\"];\n");
            }
        }
        return out.append("}\n").toString();
    }

    private static String colour(LinkKind kind) {
        return switch (kind) {
            case NVLINK -> "#9fcf4a";
            case C2C -> "#3aa88f";
            case PCIE -> "#9db5e6";
            case HOST_BRIDGE -> "#bfaae2";
            case SMP -> "#d9a35b";
            case NETWORK -> "#6fbccb";
        };
    }
}
