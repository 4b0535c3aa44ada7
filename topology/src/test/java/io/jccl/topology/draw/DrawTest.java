package io.jccl.topology.draw;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.Warning;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.InputSource;

class DrawTest {
    /** What a dump's author may have put into a name. */
    private static final String NASTY = "<script>alert(1)</script>&\"'\u0001\u202e]]>\\\n{}";

    static Stream<Topology> machines() {
        return Stream.of(
                Machines.dgx1v(),
                Machines.nvswitch(8, 90, 18, 20.6),
                Machines.pcieOnly(8, 2, 12, 10),
                Machines.pcieOnly(3, 4, 24, 16),
                nvl72(),
                fourSockets(),
                new Topology.Builder("nothing").build(),
                lonely());
    }

    /** 72 GPUs on NVSwitches, 18 NICs, a network. */
    private static Topology nvl72() {
        Topology.Builder b = new Topology.Builder("72 GPUs, 18 NICs");
        for (int i = 0; i < 72; i++) {
            b.addGpu(i, 100);
        }
        for (int i = 0; i < 18; i++) {
            b.add(new Nic(b.nextId(), "NIC" + i, "mlx5_bond_" + i, 50));
        }
        int nvswitch = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        int network = b.addSwitch("network", Switch.Kind.NETWORK);
        for (int s = 0; s < 18; s++) {
            int numa = b.addSwitch("numa" + s, Switch.Kind.NUMA);
            for (int g = 4 * s; g < 4 * s + 4; g++) {
                b.link(g, nvswitch, LinkKind.NVLINK, 18, 721.8, Source.NCCL_MODEL);
                b.link(g, numa, LinkKind.C2C, 1, 450, Source.DEFAULT);
            }
            b.link(72 + s, numa, LinkKind.PCIE, 1, 48, Source.NCCL_MODEL);
            b.link(72 + s, network, LinkKind.NETWORK, 1, 50, Source.DEVICE);
            if (s > 0) {
                b.link(numa - 1, numa, LinkKind.SMP, 1, 6, Source.NCCL_MODEL);
            }
        }
        return b.build();
    }

    /**
     * Every pair of four sockets is linked, switches lie below switches, a GPU has C2C and PCIe.
     */
    private static Topology fourSockets() {
        Topology.Builder b = new Topology.Builder("four sockets");
        for (int i = 0; i < 4; i++) {
            b.addGpu(i, 90);
        }
        for (int s = 0; s < 4; s++) {
            int numa = b.addSwitch("numa" + s, Switch.Kind.NUMA);
            int bridge = b.addSwitch("bridge" + s, Switch.Kind.HOST_BRIDGE);
            int upper = b.addSwitch("upper" + s, Switch.Kind.PCIE_SWITCH);
            int lower = b.addSwitch("lower" + s, Switch.Kind.PCIE_SWITCH);
            b.link(numa, bridge, LinkKind.HOST_BRIDGE, 1, 96, Source.DEFAULT);
            b.link(bridge, upper, LinkKind.PCIE, 1, 48, Source.DEFAULT);
            b.link(upper, lower, LinkKind.PCIE, 1, 48, Source.DEFAULT);
            b.link(lower, s, LinkKind.PCIE, 1, 48, Source.DEFAULT);
            b.link(s, numa, LinkKind.C2C, 1, 450, Source.DEFAULT);
            for (int before = 0; before < s; before++) {
                b.link(4 + 4 * before, numa, LinkKind.SMP, 1, 20, Source.DEFAULT);
            }
        }
        return b.build();
    }

    /** GPUs with no links at all. */
    private static Topology lonely() {
        Topology.Builder b = new Topology.Builder("apart");
        b.addGpu(0, 0);
        b.addGpu(5, 0);
        return b.build();
    }

    @ParameterizedTest
    @MethodSource("machines")
    void everyNodeAndLinkIsInThePicture(Topology t) throws Exception {
        Plan plan = ring(t);
        String svg = Svg.of(t, plan);
        Document document = parse(svg);
        Set<String> ids = ids(document);
        t.nodes().forEach(n -> assertTrue(ids.contains("node" + n.id()), n::toString));
        t.links().forEach(l -> assertTrue(ids.contains("link" + l.id()), l::toString));
        for (int i = 0; plan != null && i < plan.channels().size(); i++) {
            assertTrue(ids.contains("channel" + i));
        }
        t.nodes().forEach(n -> assertTrue(svg.contains(n.name()), n::toString));
        assertTrue(svg.length() < 4_000 + 700 * (t.nodes().size() + t.links().size() + 30));
        assertEquals(svg, Svg.of(t, plan), "the same input, the same picture");
        assertFalse(svg.contains("NaN") || svg.contains("Infinity"));

        String html = Html.of(t, plan);
        assertTrue(ids(parse(html.substring(html.indexOf("<html")))).containsAll(ids));
        assertFalse(html.matches("(?s).*(src|href)=.*"), "nothing from outside");

        String dot = Dot.of(t, plan);
        t.nodes().forEach(n -> assertTrue(dot.contains("n" + n.id() + " [label=")));
        assertTrue(count(dot, " -> ") >= t.links().size());
    }

    @ParameterizedTest
    @MethodSource("machines")
    void boxesDoNotOverlapAndLieInThePicture(Topology t) {
        Layout layout = new Layout(t, 2);
        for (var a : t.nodes()) {
            Layout.Box x = layout.box(a.id());
            assertNotNull(x, a::name);
            assertTrue(x.x() >= 0 && x.y() >= 0, a::name);
            assertTrue(x.x() + x.width() <= layout.width(), a::name);
            assertTrue(x.bottom() <= layout.height(), a::name);
            for (var b : t.nodes()) {
                Layout.Box y = layout.box(b.id());
                boolean apart =
                        a.id() == b.id()
                                || x.x() + x.width() <= y.x()
                                || y.x() + y.width() <= x.x()
                                || x.bottom() <= y.y()
                                || y.bottom() <= x.y();
                assertTrue(apart, () -> a + " " + x + " and " + b + " " + y);
            }
        }
    }

    @Test
    void namesAreEscaped() throws Exception {
        Topology.Builder b = new Topology.Builder(NASTY);
        b.add(new Gpu(0, "GPU0" + NASTY, 0, NASTY, 0, Source.DEFAULT, NASTY, NASTY, NASTY, NASTY));
        b.add(new Nic(1, "NIC" + NASTY, NASTY, 0));
        int sw = b.addSwitch(NASTY, Switch.Kind.PCIE_SWITCH);
        b.link(0, sw, LinkKind.PCIE, 1, 12, Source.DEFAULT);
        b.warn(Warning.of(NASTY));
        Topology t = b.build();
        for (String text : List.of(Svg.of(t, null), Html.of(t, null))) {
            assertFalse(text.contains("<script>alert"), text);
            assertFalse(text.contains("\u0001") || text.contains("\u202e"), text);
            parse(text.substring(text.indexOf("<html") < 0 ? 0 : text.indexOf("<html")));
        }
        String dot = Dot.of(t, null);
        assertTrue(dot.contains("\\\"") && dot.contains("\\\\"), dot);
        // A quote that is not escaped would end the string: they come in pairs on every line.
        dot.lines()
                .forEach(line ->
                        assertEquals(
                                0,
                                count(line.replace("\\\\", "").replace("\\\"", ""), "\"") % 2,
                                line));
        assertEquals("a".repeat(200) + "…", Text.plain("a".repeat(5000)));
        assertEquals("\ufffd", Text.plain("\ud800"));
    }

    @Test
    void aRingOfManyChannelsStaysSmall() throws Exception {
        Topology t = nvl72();
        List<Channel> channels = new ArrayList<>();
        for (int i = 0; i < 36; i++) {
            channels.addAll(ring(t).channels());
        }
        String svg = Svg.of(t, plan(t, channels));
        parse(svg);
        assertTrue(svg.length() < 900_000, () -> "is " + svg.length());
    }

    @Test
    void aTreeAndAnExchange() throws Exception {
        Topology t = Machines.nvswitch(8, 90, 18, 20.6);
        List<Hop> tree = IntStream.range(1, 8).mapToObj(i -> hop(t, (i - 1) / 2, i)).toList();
        List<Hop> pairs = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            for (int j = 0; j < 8; j++) {
                if (i != j) {
                    pairs.add(hop(t, i, j));
                }
            }
        }
        String svg =
                Svg.of(
                        t,
                        plan(
                                t,
                                List.of(
                                        new Channel.Tree(0, tree, 100),
                                        new Channel.Exchange(pairs, 50))));
        parse(svg);
        assertTrue(svg.contains("tree 1, 100 GB/s: 0 → 1, 2; 1 → 3, 4; 2 → 5, 6; 3 → 7"), svg);
        assertTrue(svg.contains("every pair at once, 56 hops"), svg);
    }

    @Test
    void aClusterShowsItsRailsInsideAMachine() throws Exception {
        Topology t = nvl72();
        List<Hop> chain = IntStream.range(1, 72).mapToObj(i -> hop(t, i - 1, i)).toList();
        ClusterPlan plan =
                new ClusterPlan(
                        new Cluster(t, 4),
                        Operation.ALL_REDUCE,
                        IntStream.range(0, 72).boxed().toList(),
                        List.of(
                                new ClusterPlan.Rail(
                                        ClusterPlan.Shape.RING, chain, 0, 71, 0, 17, 50)),
                        50,
                        60,
                        "NICs",
                        List.of("because"));
        parse(Svg.of(plan));
        String html = Html.of(plan, List.of(List.of("size"), List.of("1G")), "", List.of());
        parse(html.substring(html.indexOf("<html")));
        assertTrue(html.contains("ring over machines 1, 50 GB/s") && html.contains("NIC17"), html);
        assertTrue(html.contains("<td class=\"n\">1G</td>") && html.contains("because"), html);
        assertTrue(Dot.of(plan).contains("ring over machines 1"));
    }

    /** A rack: 18 machines of four GPUs and four NICs with long names. */
    private static Topology rack() {
        Topology.Builder b = new Topology.Builder("rack");
        for (int i = 0; i < 72; i++) {
            b.addGpu(i, 100);
        }
        for (int i = 0; i < 72; i++) {
            b.add(new Nic(b.nextId(), "host" + i / 4 + "-mlx5_" + i % 4, null, 50));
        }
        int nvs = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
        for (int h = 0; h < 18; h++) {
            int numa = b.addSwitch("host" + h + "-numa0", Switch.Kind.NUMA);
            for (int i = 4 * h; i < 4 * h + 4; i++) {
                b.link(i, nvs, LinkKind.NVLINK, 18, 721.8, Source.NCCL_MODEL);
                b.link(i, numa, LinkKind.C2C, 1, 450, Source.NCCL_MODEL);
                b.link(72 + i, numa, LinkKind.PCIE, 1, 50, Source.NCCL_MODEL);
            }
        }
        return b.build();
    }

    @Test
    void aRackCanBeReadAndZoomed() throws Exception {
        Topology t = rack();
        Plan plan =
                Planner.plan(t, Operation.ALL_REDUCE, IntStream.range(0, 72).boxed().toList(), 0);
        String html = Html.of(t, plan);
        parse(html.substring(html.indexOf("<html")));
        assertTrue(html.contains("<div class=\"picture wide\">"));
        for (String button : List.of("fit", "natural", "in", "out")) {
            assertTrue(html.contains("id=\"" + button + "\""), button);
        }
        // The whole order of the first ring, in the page and in the legend of the picture.
        String order =
                IntStream.range(0, 73)
                        .mapToObj(i -> String.valueOf(i % 72))
                        .collect(Collectors.joining(" → "));
        assertTrue(html.contains(order), html);
        String svg = Svg.of(t, plan);
        String legend =
                Pattern.compile("<text class=\"small\"[^>]*>([^<]*)</text>")
                        .matcher(svg)
                        .results()
                        .map(m -> m.group(1))
                        .collect(Collectors.joining(" "));
        assertTrue(legend.contains(order), legend);
        // Names are whole, and not too small.
        Matcher name = Pattern.compile("font-size:([0-9.]+)px\">(host[^<]*)</text>").matcher(svg);
        int names = 0;
        while (name.find()) {
            names++;
            assertTrue(Double.parseDouble(name.group(1)) >= 8, name.group());
            assertTrue(name.group(2).matches("host\\d+-mlx5_\\d"), name.group());
        }
        assertEquals(72, names);
        assertTrue(svg.contains(">host17-numa0</text>"));
        assertFalse(svg.contains("…"));
    }

    @Test
    void aSmallMachineIsNotWide() {
        String html = Html.of(Machines.dgx1v(), null);
        assertTrue(html.contains("<div class=\"picture\">"));
    }

    private static Plan ring(Topology t) {
        int n = t.gpus().size();
        if (n < 2 || t.route(0, 1) == null) {
            return plan(t, List.of());
        }
        List<Hop> hops = IntStream.range(0, n).mapToObj(i -> hop(t, i, (i + 1) % n)).toList();
        return plan(t, List.of(new Channel.Ring(hops, 10)));
    }

    private static Plan plan(Topology t, List<Channel> channels) {
        List<Integer> gpus = IntStream.range(0, t.gpus().size()).boxed().toList();
        return new Plan(
                t,
                Operation.ALL_REDUCE,
                gpus,
                0,
                channels,
                10,
                20,
                "egress of GPU0",
                List.of("why"));
    }

    private static Hop hop(Topology t, int from, int to) {
        var route = t.route(from, to);
        assertNotNull(route);
        return new Hop(from, to, route);
    }

    private static Document parse(String xml) throws Exception {
        return DocumentBuilderFactory.newInstance()
                .newDocumentBuilder()
                .parse(new InputSource(new StringReader(xml)));
    }

    private static Set<String> ids(Document document) {
        Set<String> ids = new HashSet<>();
        NodeList all = document.getElementsByTagName("*");
        for (int i = 0; i < all.getLength(); i++) {
            String id = ((Element) all.item(i)).getAttribute("id");
            assertTrue(id.isEmpty() || ids.add(id), () -> "twice: " + id);
        }
        return ids;
    }

    private static int count(String text, String what) {
        return (text.length() - text.replace(what, "").length()) / what.length();
    }
}
