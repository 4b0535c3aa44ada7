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
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A picture of a machine as SVG: GPUs and NICs, the switches, bridges and NUMA nodes between them,
 * links coloured by kind and labelled with GB/s (10^9 bytes per second) per direction, and a plan's
 * channels drawn over it. The same input gives the same picture. The picture is self-contained and
 * adapts to a dark background. Names are escaped.
 *
 * <p><b>Threads:</b> any.
 */
public final class Svg {
    /** Rings and trees with more hops than this in all are drawn without arrow heads. */
    private static final int ARROWS = 1200;

    /** More channels than this are counted, not listed, in the legend. */
    private static final int LISTED = 16;

    private static final double LEGEND_LINE = 20;

    /** Most characters of a line of the legend. */
    private static final int LINE = 180;

    private final Topology topology;
    private final List<RenderedChannel> channels;
    private final Layout layout;
    private final boolean listChannels;
    private final StringBuilder out = new StringBuilder();

    Svg(Topology topology, List<RenderedChannel> channels, boolean listChannels) {
        this.topology = topology;
        this.channels = channels;
        this.listChannels = listChannels;
        layout = new Layout(topology, channels.size());
    }

    /**
     * Draws a machine.
     *
     * @param topology the machine
     * @param plan a plan of this machine to draw over it; null for none
     * @return an SVG document
     */
    public static String of(Topology topology, @Nullable Plan plan) {
        return of(topology, RenderedChannel.of(plan), true);
    }

    /**
     * Draws one machine of a cluster.
     *
     * @param plan the plan, of which the part of each rail inside a machine is drawn
     * @return an SVG document
     */
    public static String of(ClusterPlan plan) {
        return of(plan.cluster().machine(), RenderedChannel.of(plan), true);
    }

    private static String of(
            Topology topology, List<RenderedChannel> channels, boolean listChannels) {
        return new Svg(topology, channels, listChannels).draw();
    }

    double width() {
        return layout.width();
    }

    String draw() {
        // A page shows these in its own heading.
        double top = listChannels ? 58 : 0;
        double legendTop = top + layout.height();
        String legend = legend(legendTop);
        double height = legendTop + legendHeight + 8;
        out.append("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
        out.append(n(layout.width())).append(' ').append(n(height)).append("\" width=\"");
        out.append(n(layout.width())).append("\" height=\"").append(n(height));
        out.append("\" role=\"img\" class=\"jccl-topo\">\n");
        out.append("<title>").append(Text.xml(topology.name())).append("</title>\n");
        SvgStyle.add(out);
        markers();
        out.append("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n");
        if (listChannels) {
            text(24, 32, "title", Text.cut(topology.name(), 60));
            text(24, 50, "small", counts());
        }
        out.append("<g transform=\"translate(0,")
                .append(n(top))
                .append(")\">\n<g class=\"links\">\n");
        for (Link link : topology.links()) {
            link(link);
        }
        out.append("</g>\n<g class=\"nodes\">\n");
        for (Node node : topology.nodes()) {
            node(node);
        }
        out.append("</g>\n<g class=\"channels\">\n");
        for (int i = 0; i < channels.size(); i++) {
            channel(i, channels.get(i));
        }
        out.append("</g>\n<g class=\"labels\">\n");
        for (Link link : topology.links()) {
            label(link);
        }
        for (Switch sw : topology.switches()) {
            Layout.Box box = layout.box(sw.id());
            int fits = Math.max(4, (int) (box.width() / Layout.CHARACTER));
            out.append("<text class=\"rate switch\" x=\"").append(n(box.x() + 8)).append("\" y=\"");
            double y = sw.kind() == Switch.Kind.NVSWITCH ? box.y() + 14 : box.centre() + 4;
            out.append(n(y)).append("\">");
            out.append(Text.xml(Text.cut(sw.name(), fits))).append("</text>\n");
        }
        out.append("</g>\n</g>\n").append(legend).append("</svg>\n");
        return out.toString();
    }

    private String counts() {
        return count(topology.gpus().size(), "GPU")
                + ", "
                + count(topology.nics().size(), "NIC")
                + "; figures are GB/s (10^9 bytes) per direction";
    }

    static String count(int number, String what) {
        return number + " " + what + (number == 1 ? "" : "s");
    }

    private void markers() {
        if (channels.isEmpty()) {
            return;
        }
        out.append("<defs>\n");
        for (int i = 0; i < Math.min(SvgStyle.COLOURS.size(), channels.size()); i++) {
            out.append("<marker id=\"arrow").append(i);
            out.append("\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"4.4\"");
            out.append(" markerHeight=\"4.4\" orient=\"auto\"><path class=\"f").append(i);
            out.append("\" d=\"M0 0L8 4L0 8z\"/></marker>\n");
        }
        out.append("</defs>\n");
    }

    /** The legend; sets {@link #legendHeight}. */
    private String legend(double top) {
        StringBuilder body = new StringBuilder();
        Map<LinkKind, List<Link>> kinds = new EnumMap<>(LinkKind.class);
        for (Link link : topology.links()) {
            kinds.computeIfAbsent(link.kind(), k -> new ArrayList<>()).add(link);
        }
        double y = top + 8;
        double x = 24;
        for (Map.Entry<LinkKind, List<Link>> e : kinds.entrySet()) {
            String text = kindText(e.getKey(), e.getValue());
            double space = 46 + text.length() * 6.5;
            if (x > 24 && x + space > layout.width()) {
                x = 24;
                y += LEGEND_LINE;
            }
            body.append("<line class=\"link l-").append(lower(e.getKey())).append("\" x1=\"");
            body.append(n(x)).append("\" y1=\"").append(n(y)).append("\" x2=\"").append(n(x + 24));
            body.append("\" y2=\"").append(n(y)).append("\" stroke-width=\"5\"/>\n");
            text(body, x + 31, y + 4, "small", text);
            x += space;
        }
        if (!kinds.isEmpty()) {
            y += LEGEND_LINE;
        }
        if (listChannels && !channels.isEmpty()) {
            int most = Math.min(LINE, (int) ((layout.width() - 90) / 6.1));
            for (int i = 0; i < Math.min(LISTED, channels.size()); i++) {
                int colour = i % SvgStyle.COLOURS.size();
                body.append("<line class=\"hop c").append(colour).append("\" x1=\"24\" y1=\"");
                body.append(n(y)).append("\" x2=\"48\" y2=\"").append(n(y));
                body.append("\" stroke-width=\"2.5\"/>\n");
                RenderedChannel c = channels.get(i);
                for (String line : Text.wrapped(c.title() + ": " + c.path(), most)) {
                    text(body, 55, y + 4, "small", line);
                    y += LEGEND_LINE;
                }
            }
            if (channels.size() > LISTED) {
                int more = channels.size() - LISTED;
                text(body, 55, y + 4, "small", "and " + count(more, "more channel"));
                y += LEGEND_LINE;
            }
        }
        legendHeight = y - top;
        return body.toString();
    }

    private double legendHeight;

    private static String kindText(LinkKind kind, List<Link> links) {
        double least = Double.POSITIVE_INFINITY;
        double most = 0;
        for (Link link : links) {
            least = Math.min(least, link.gbps());
            most = Math.max(most, link.gbps());
        }
        return links.size()
                + " × "
                + name(kind)
                + ", "
                + Text.gbps(least)
                + (least == most ? "" : " to " + Text.gbps(most))
                + " GB/s";
    }

    /** What a kind of link is called. */
    static String name(LinkKind kind) {
        return switch (kind) {
            case NVLINK -> "NVLink";
            case C2C -> "NVLink-C2C";
            case PCIE -> "PCIe";
            case HOST_BRIDGE -> "host bridge to CPU";
            case SMP -> "CPU to CPU";
            case NETWORK -> "network";
        };
    }

    private static String lower(Enum<?> e) {
        return e.name().toLowerCase(Locale.ROOT);
    }

    private void link(Link link) {
        String text =
                topology.nodes().get(link.a()).name()
                        + " – "
                        + topology.nodes().get(link.b()).name()
                        + ": "
                        + (link.count() > 1 ? link.count() + " × " : "")
                        + name(link.kind())
                        + ", "
                        + Text.gbps(link.gbps())
                        + " GB/s per direction ("
                        + lower(link.source()).replace('_', ' ')
                        + ")";
        double wide = Math.min(9, 1.6 + 1.5 * Math.log(1 + link.gbps() / 8));
        out.append("<path id=\"link").append(link.id()).append("\" class=\"link l-");
        out.append(lower(link.kind())).append("\" stroke-width=\"").append(n(wide));
        out.append("\" d=\"").append(path(layout.line(link.id()), 0, 0, true));
        out.append("\"><title>").append(Text.xml(text)).append("</title></path>\n");
    }

    private void label(Link link) {
        Layout.Line line = layout.line(link.id());
        String rate = Text.gbps(link.gbps());
        double x = (line.x1() + line.x2()) / 2;
        double y = (line.y1() + line.y2()) / 2;
        if (line.rise() != 0) {
            String text = link.count() > 1 ? rate + " (" + link.count() + "×)" : rate;
            out.append("<text class=\"rate\" text-anchor=\"middle\" x=\"").append(n(x));
            out.append("\" y=\"")
                    .append(n(y - line.rise() + (line.rise() > 0 ? -5 : 12)))
                    .append("\">");
            out.append(Text.xml(text)).append("</text>\n");
            return;
        }
        boolean flat = Math.abs(line.y1() - line.y2()) < 1;
        double aside = 5 + lanes() * step() / 2;
        out.append("<text class=\"rate\" x=\"").append(n(flat ? x : x + aside)).append("\" y=\"");
        out.append(n(flat ? y - 8 : y + 3)).append(flat ? "\" text-anchor=\"middle\">" : "\">");
        out.append(rate).append("</text>\n");
    }

    /** SVG path data, moved aside for a channel's lane. */
    private static String path(Layout.Line l, double dx, double dy, boolean move) {
        StringBuilder d = new StringBuilder();
        d.append(move ? "M" : "L").append(n(l.x1() + dx)).append(' ').append(n(l.y1() + dy));
        if (l.rise() == 0) {
            return d.append('L')
                    .append(n(l.x2() + dx))
                    .append(' ')
                    .append(n(l.y2() + dy))
                    .toString();
        }
        // The middle of a cubic Bezier curve is at three quarters of its control points' height.
        double rise = (l.rise() - Math.signum(l.rise()) * Math.abs(dx)) * 4 / 3;
        double inset = (l.x2() - l.x1()) * 0.12;
        d.append('C').append(n(l.x1() + dx + inset)).append(' ').append(n(l.y1() - rise));
        d.append(' ').append(n(l.x2() + dx - inset)).append(' ').append(n(l.y2() - rise));
        return d.append(' ').append(n(l.x2() + dx)).append(' ').append(n(l.y2())).toString();
    }

    private void node(Node node) {
        Layout.Box box = layout.box(node.id());
        String kind =
                switch (node) {
                    case Gpu g -> "gpu";
                    case Nic nic -> "nic";
                    case Switch sw -> lower(sw.kind());
                };
        out.append("<g id=\"node").append(node.id()).append("\"><title>");
        out.append(Text.xml(about(node))).append("</title><rect class=\"box ").append(kind);
        out.append("\" x=\"").append(n(box.x())).append("\" y=\"").append(n(box.y()));
        out.append("\" width=\"").append(n(box.width())).append("\" height=\"");
        out.append(n(box.height())).append("\" rx=\"").append(node instanceof Switch ? 4 : 7);
        out.append("\"/>");
        if (!(node instanceof Switch)) {
            String below = below(node);
            double y = box.centre() + (below.isEmpty() ? 4 : -2);
            fitted("name", box, y, Text.cut(node.name(), Layout.NAME), 12);
            if (!below.isEmpty()) {
                fitted("sub", box, box.centre() + 13, Text.cut(below, Layout.NAME), 10);
            }
        }
        out.append("</g>\n");
    }

    /** Text in the middle of a box, smaller if it would not fit. */
    private void fitted(String type, Layout.Box box, double y, String text, double size) {
        double fits = (box.width() - 4) / (0.62 * Math.max(1, text.length()));
        out.append("<text class=\"").append(type).append("\" x=\"").append(n(box.middle()));
        out.append("\" y=\"").append(n(y)).append("\" style=\"font-size:");
        out.append(n(Math.max(5, Math.min(size, fits)))).append("px\">");
        out.append(Text.xml(text)).append("</text>");
    }

    /** The second line of a box. */
    private String below(Node node) {
        return switch (node) {
            case Gpu gpu -> gpu.model() == null ? "" : shortModel(gpu.model());
            case Nic nic ->
                    nic.device() != null && !nic.device().equals(nic.name()) ? nic.device() : "";
            case Switch sw -> "";
        };
    }

    /** The word of a model's name that has a digit: of NVIDIA H100 80GB HBM3, H100. */
    static String shortModel(String model) {
        for (String word : model.split("[ -]", -1)) {
            if (!word.isEmpty()
                    && Character.isLetter(word.charAt(0))
                    && word.chars().anyMatch(Character::isDigit)) {
                return word;
            }
        }
        return model;
    }

    private String about(Node node) {
        StringBuilder b = new StringBuilder(node.name());
        switch (node) {
            case Gpu gpu -> {
                add(b, "", gpu.model());
                add(b, "bus ", gpu.busId());
                add(b, "CPUs ", gpu.cpuAffinity());
                add(b, "NUMA ", gpu.numaAffinity());
            }
            case Nic nic -> {
                add(b, "", nic.device());
                add(b, "", nic.gbps() > 0 ? Text.gbps(nic.gbps()) + " GB/s" : null);
            }
            case Switch sw -> add(b, "", lower(sw.kind()).replace('_', ' '));
        }
        return b.toString();
    }

    private static void add(StringBuilder b, String label, @Nullable String value) {
        if (value != null && !value.isEmpty()) {
            b.append(", ").append(label).append(value);
        }
    }

    private void channel(int place, RenderedChannel channel) {
        int colour = place % SvgStyle.COLOURS.size();
        out.append("<g id=\"channel").append(place).append("\"><title>");
        out.append(Text.xml(channel.title())).append("</title>\n");
        if (channel.all()) {
            // Hops of all pairs would cover each other: draw the links that are used.
            Set<Integer> used = new TreeSet<>();
            channel.hops().forEach(h -> h.route().arcs().forEach(arc -> used.add(arc >> 1)));
            for (int link : used) {
                out.append("<path class=\"hop whole c").append(colour).append("\" d=\"");
                out.append(path(layout.line(link), 0, 0, true)).append("\"/>\n");
            }
        } else {
            int hops = channels.stream().mapToInt(c -> c.hops().size()).sum();
            for (Hop hop : channel.hops()) {
                out.append("<path class=\"hop c").append(colour).append("\" d=\"");
                out.append(hopPath(place, hop)).append('"');
                if (hops <= ARROWS) {
                    out.append(" marker-end=\"url(#arrow").append(colour).append(")\"");
                }
                out.append("/>\n");
            }
        }
        out.append("</g>\n");
    }

    /** How many channels are drawn side by side. */
    private int lanes() {
        return Math.clamp(channels.size(), 1, 48);
    }

    /** How far apart they are. */
    private double step() {
        return Math.min(3.2, 40.0 / lanes());
    }

    private String hopPath(int place, Hop hop) {
        double dx = (place % lanes() - (lanes() - 1) / 2.0) * step();
        double dy = dx;
        StringBuilder d = new StringBuilder();
        List<Integer> arcs = hop.route().arcs();
        for (int i = 0; i < arcs.size(); i++) {
            int arc = arcs.get(i);
            Layout.Line line = layout.line(arc >> 1);
            if ((arc & 1) != 0) {
                line = line.reversed();
            }
            if (line.rise() != 0) {
                d.append(path(line, dx, 0, d.isEmpty()));
                continue;
            }
            boolean flat = Math.abs(line.y1() - line.y2()) < 1;
            double y1 = line.y1();
            double y2 = line.y2();
            // Inside a bar a channel keeps to its lane.
            if (!flat && topology.nodes().get(topology.head(arc)) instanceof Switch sw) {
                y2 = layout.box(sw.id()).centre() + lane(sw, dy);
            }
            if (!flat && topology.nodes().get(topology.tail(arc)) instanceof Switch sw) {
                y1 = layout.box(sw.id()).centre() + lane(sw, dy);
            }
            // A GPU's own line is used both ways: out on the left, in on the right.
            double side = i == 0 ? -0.8 : i == arcs.size() - 1 ? 0.8 : 0;
            double fx = flat ? 0 : dx + side;
            double fy = flat ? Math.clamp(dy, -8.0, 8.0) : 0;
            d.append(d.isEmpty() ? "M" : "L").append(n(line.x1() + fx)).append(' ');
            d.append(n(y1 + fy)).append('L').append(n(line.x2() + fx)).append(' ');
            d.append(n(y2 + fy));
        }
        return d.toString();
    }

    private double lane(Switch sw, double dy) {
        double most = layout.box(sw.id()).height() / 2 - 3;
        return sw.kind() == Switch.Kind.NVSWITCH
                ? Math.clamp(dy * 1.2, -most, most)
                : Math.clamp(dy, -most, most);
    }

    private void text(double x, double y, String type, String text) {
        text(out, x, y, type, text);
    }

    private static void text(StringBuilder to, double x, double y, String type, String text) {
        to.append("<text class=\"").append(type).append("\" x=\"").append(n(x));
        to.append("\" y=\"").append(n(y)).append("\">").append(Text.xml(text));
        to.append("</text>\n");
    }

    private static String n(double value) {
        return Text.number(Math.round(value * 10) / 10.0);
    }
}
