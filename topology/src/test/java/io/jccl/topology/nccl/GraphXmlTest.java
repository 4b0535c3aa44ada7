package io.jccl.topology.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.Machines;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;

class GraphXmlTest {
    private static final List<Integer> ALL = List.of(0, 1, 2, 3, 4, 5, 6, 7);

    /** Three cycles that use each NVLink of a DGX-1V once; both ways, that is six rings. */
    private static final List<List<Integer>> CYCLES =
            List.of(
                    List.of(0, 1, 2, 3, 7, 5, 6, 4),
                    List.of(0, 2, 6, 7, 4, 5, 1, 3),
                    List.of(0, 3, 2, 1, 5, 6, 7, 4));

    private static Hop hop(Topology t, int from, int to) {
        return new Hop(from, to, Objects.requireNonNull(t.route(from, to)));
    }

    private static Channel.Ring ring(Topology t, List<Integer> order, double gbps) {
        List<Hop> hops = new ArrayList<>();
        for (int i = 0; i < order.size(); i++) {
            hops.add(hop(t, order.get(i), order.get((i + 1) % order.size())));
        }
        return new Channel.Ring(hops, gbps);
    }

    private static Plan plan(Topology t, List<Integer> gpus, List<? extends Channel> channels) {
        double sum = channels.stream().mapToDouble(Channel::gbps).sum();
        return new Plan(
                t, Operation.ALL_REDUCE, gpus, 0, List.copyOf(channels), sum, sum, "", List.of());
    }

    private static Plan dgx1v() {
        Topology t = Machines.dgx1v();
        List<Channel.Ring> rings = new ArrayList<>();
        for (List<Integer> cycle : CYCLES) {
            rings.add(ring(t, cycle, 20));
            rings.add(ring(t, cycle.reversed(), 20));
        }
        return plan(t, ALL, rings);
    }

    /** Devs of the channels of the graph with an id. */
    private static List<List<Integer>> channels(XmlTree.Element graphs, String id) {
        List<List<Integer>> all = new ArrayList<>();
        for (XmlTree.Element graph : graphs.children()) {
            if (id.equals(graph.get("id"))) {
                for (XmlTree.Element channel : graph.children()) {
                    List<Integer> devs = new ArrayList<>();
                    for (XmlTree.Element gpu : channel.children()) {
                        devs.add(Integer.decode(Objects.requireNonNull(gpu.get("dev"))));
                    }
                    all.add(devs);
                }
            }
        }
        return all;
    }

    private static XmlTree.Element parse(String xml) {
        for (String line : xml.split("\n", -1)) {
            assertTrue(line.matches(" *<(/?[a-z]+|[a-z]+( [a-z]+=\"[^\"]*\"){0,16}/?)>|"), line);
        }
        return Objects.requireNonNull(new XmlTree(false).parse(xml));
    }

    @Test
    void theSixRingsOfADgx1v() {
        XmlTree.Element graphs = parse(GraphXml.write(dgx1v()));
        assertEquals("graphs", graphs.name());
        assertEquals("1", graphs.get("version"));
        assertEquals(2, graphs.children().size());
        List<List<Integer>> expected = new ArrayList<>();
        for (List<Integer> cycle : CYCLES) {
            expected.add(cycle);
            expected.add(cycle.reversed());
        }
        assertEquals(
                expected.stream().map(GraphXmlTest::turned).toList(),
                channels(graphs, "0").stream().map(GraphXmlTest::turned).toList());
        // The tree has as many channels, or NCCL would use fewer of the rings.
        assertEquals(channels(graphs, "0"), channels(graphs, "1"));
        XmlTree.Element ring = graphs.children().get(0);
        assertEquals("4", ring.get("pattern"));
        assertEquals("1", graphs.children().get(1).get("pattern"));
        for (XmlTree.Element graph : graphs.children()) {
            assertEquals("6", graph.get("nchannels"));
            assertEquals(20, Double.parseDouble(Objects.requireNonNull(graph.get("speedintra"))));
            assertEquals("NVL", graph.get("typeintra"));
            assertEquals("PIX", graph.get("typeinter"));
            assertEquals("0", graph.get("samechannels"));
            assertEquals("0", graph.get("crossnic"));
        }
    }

    /** A ring from its GPU 0 on: where it starts means nothing. */
    private static List<Integer> turned(List<Integer> ring) {
        List<Integer> turned = new ArrayList<>(ring);
        java.util.Collections.rotate(turned, -ring.indexOf(0));
        return turned;
    }

    @Test
    void oneWideRingBecomesSeveralChannels() {
        Topology t = Machines.nvswitch(8, 90, 18, 20.6);
        XmlTree.Element graphs = parse(GraphXml.write(plan(t, ALL, List.of(ring(t, ALL, 370.8)))));
        XmlTree.Element ring = graphs.children().get(0);
        int n = Integer.parseInt(Objects.requireNonNull(ring.get("nchannels")));
        double speed = Double.parseDouble(Objects.requireNonNull(ring.get("speedintra")));
        assertEquals(15, n);
        assertEquals(370.8, n * speed, 0.01);
        assertTrue(speed <= GraphXml.MAX_CHANNEL_GBPS);
        assertEquals("1", ring.get("samechannels"));
        assertEquals(n, channels(graphs, "0").size());
    }

    @Test
    void unequalRingsAreWrittenInProportion() {
        Topology t = Machines.dgx1v();
        XmlTree.Element graphs =
                parse(
                        GraphXml.write(
                                plan(
                                        t,
                                        ALL,
                                        List.of(
                                                ring(t, CYCLES.get(0), 20),
                                                ring(t, CYCLES.get(2), 10)))));
        List<List<Integer>> channels = channels(graphs, "0");
        assertEquals(3, channels.size());
        assertEquals(2, channels.stream().filter(CYCLES.get(0)::equals).count());
        assertEquals(
                10,
                Double.parseDouble(
                        Objects.requireNonNull(graphs.children().get(0).get("speedintra"))));
    }

    /** No speed fits both widths into 32 channels: the wide rings remain. */
    @Test
    void ringsTooNarrowForAChannelAreLeftOut() {
        Topology t = Machines.dgx1v();
        List<Channel.Ring> rings = new ArrayList<>();
        for (double gbps : new double[] {1.2, 18.8, 18.8, 1.2, 1.2}) {
            rings.add(ring(t, gbps > 2 ? CYCLES.getFirst() : ALL, gbps));
        }
        XmlTree.Element graphs = parse(GraphXml.write(plan(t, ALL, rings)));
        XmlTree.Element ring = graphs.children().getFirst();
        assertEquals(
                List.of(CYCLES.getFirst(), CYCLES.getFirst()),
                channels(graphs, "0").stream().toList());
        assertEquals(18.8, Double.parseDouble(Objects.requireNonNull(ring.get("speedintra"))));
        assertEquals("NVL", ring.get("typeintra"));
    }

    @Test
    void devsAreTheNumbersOfNvidiaSmi() {
        Topology.Builder b = new Topology.Builder("some GPUs");
        for (int i = 0; i < 3; i++) {
            int index = 9 + 2 * i;
            b.add(
                    new Gpu(
                            i,
                            "GPU" + index,
                            index,
                            null,
                            70,
                            Source.DEFAULT,
                            null,
                            null,
                            null,
                            null));
        }
        for (int i = 0; i < 3; i++) {
            b.link(i, (i + 1) % 3, io.jccl.topology.LinkKind.NVLINK, 1, 20, Source.NCCL_MODEL);
        }
        Topology t = b.build();
        String xml =
                GraphXml.write(plan(t, List.of(0, 1, 2), List.of(ring(t, List.of(0, 2, 1), 20))));
        // NCCL reads dev as hexadecimal, with or without 0x.
        assertTrue(xml.contains("<gpu dev=\"0x9\"/>"), xml);
        assertEquals(List.of(List.of(9, 13, 11)), channels(parse(xml), "0"));
    }

    @Test
    void typesOfPaths() {
        Topology t = Machines.pcieOnly(8, 2, 12, 10);
        assertEquals("PIX", type(t, List.of(0, 1)));
        assertEquals("PHB", type(t, List.of(0, 2)));
        assertEquals("SYS", type(t, ALL));
        assertEquals("NVL", type(Machines.nvswitch(8, 90, 18, 20.6), ALL));
    }

    private static String type(Topology t, List<Integer> order) {
        return Objects.requireNonNull(
                parse(GraphXml.write(plan(t, order, List.of(ring(t, order, 5)))))
                        .children()
                        .get(0)
                        .get("typeintra"));
    }

    @Test
    void chainsMakeATreeGraphOnly() {
        Topology t = Machines.dgx1v();
        Channel chain = new Channel.Tree(0, List.of(hop(t, 0, 3), hop(t, 3, 2), hop(t, 2, 1)), 20);
        XmlTree.Element graphs =
                parse(GraphXml.write(plan(t, List.of(0, 1, 2, 3), List.of(chain))));
        assertEquals(1, graphs.children().size());
        assertEquals(List.of(List.of(0, 3, 2, 1)), channels(graphs, "1"));
    }

    @Test
    void whatHasNoCounterpartIsRefused() {
        Topology t = Machines.dgx1v();
        Channel branching = new Channel.Tree(0, List.of(hop(t, 0, 3), hop(t, 0, 2)), 20);
        refused(plan(t, List.of(0, 2, 3), List.of(branching)), "branches at 0");
        Channel exchange = new Channel.Exchange(List.of(hop(t, 0, 3), hop(t, 3, 0)), 20);
        refused(plan(t, List.of(0, 3), List.of(exchange)), "direct exchange");
        refused(plan(t, List.of(0, 3), List.of()), "no channels");
        Channel some = ring(t, List.of(0, 3, 2, 1), 20);
        refused(plan(t, ALL, List.of(some)), "each must be visited once");
        Channel chain = new Channel.Tree(0, List.of(hop(t, 0, 3), hop(t, 3, 2), hop(t, 2, 1)), 20);
        refused(plan(t, List.of(0, 1, 2, 3), List.of(some, chain)), "rings and trees");
        List<Channel> many = java.util.Collections.nCopies(33, some);
        refused(plan(t, List.of(0, 1, 2, 3), many), "at most 32");
    }

    private static void refused(Plan plan, String why) {
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> GraphXml.write(plan));
        assertTrue(String.valueOf(e.getMessage()).contains(why), e.getMessage());
    }
}
