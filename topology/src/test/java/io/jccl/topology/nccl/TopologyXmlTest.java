package io.jccl.topology.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.LinkKind;
import io.jccl.topology.LinkModel;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Node;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class TopologyXmlTest {
    /** Two GPUs on a switch with a NIC, one on the other CPU; NVLinks between the first two. */
    private static final String SMALL =
            """
            <system version="1">
              <!-- written by hand -->
              <cpu numaid="0" affinity="0000000f,0000ffff" arch="x86_64" vendor="GenuineIntel"
                   familyid="6" modelid="106" host_hash="0x1f">
                <pci busid="0000:14:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
                  <pci busid="0000:16:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                    <gpu dev="1" sm="80" rank="1" gdr="1">
                      <nvlink target="0000:17:00.0" count="4" tclass="0x030200"/>
                    </gpu>
                  </pci>
                  <pci busid="0000:17:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
                    <gpu dev="0" sm="80" rank="0" gdr="1">
                      <nvlink target="0000:16:00.0" count="4" tclass="0x030200"/>
                    </gpu>
                  </pci>
                  <pci busid="0000:18:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
                    <nic>
                      <net name="mlx5_3" dev="0" latency="0" speed="200000" port="1" guid="0x12" maxconn="131072" gdr="1"/>
                    </nic>
                  </pci>
                </pci>
              </cpu>
              <cpu numaid="1" affinity="0000fff0,ffff0000" arch="x86_64" vendor="GenuineIntel"
                   familyid="6" modelid="106" host_hash="0x1f">
                <pci busid="0000:a6:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
                  <gpu dev="2" sm="80" rank="2" gdr="1"/>
                </pci>
              </cpu>
            </system>
            """;

    private static Topology read(String xml) {
        return TopologyXml.read(xml, false, "test");
    }

    @Test
    void aSmallMachine() {
        Topology t = read(SMALL);
        assertEquals(List.of(), t.warnings());
        // By dev, not by place in the file.
        assertEquals(List.of("GPU0", "GPU1", "GPU2"), t.gpus().stream().map(Gpu::name).toList());
        Gpu gpu0 = t.gpus().get(0);
        assertEquals("0000:17:00.0", gpu0.busId());
        assertEquals(80, gpu0.sm());
        assertEquals("0-15,32-35", gpu0.cpuAffinity());
        assertEquals("0", gpu0.numaAffinity());
        assertEquals("1", t.gpus().get(2).numaAffinity());
        assertEquals(new Nic(3, "mlx5_3", "mlx5_3", 25), t.nics().get(0));
        assertEquals("NV4", t.code(0, 1).text());
        assertEquals("SYS", t.code(0, 2).text());
        assertEquals("PIX", t.code(0, 3).text());
        assertEquals("SYS", t.code(2, 3).text());
        assertEquals(
                new TreeMap<>(
                        List.of(
                                        "GPU0-GPU1 NVLINK 4 80.0 NCCL_MODEL",
                                        "GPU0-pcie-switch0 PCIE 1 12.0 DEVICE",
                                        "GPU1-pcie-switch0 PCIE 1 24.0 DEVICE",
                                        "mlx5_3-pcie-switch0 PCIE 1 24.0 DEVICE",
                                        "host-bridge0-pcie-switch0 PCIE 1 24.0 DEVICE",
                                        "host-bridge0-numa0 HOST_BRIDGE 1 48.0 DEFAULT",
                                        "GPU2-host-bridge1 PCIE 1 24.0 DEVICE",
                                        "host-bridge1-numa1 HOST_BRIDGE 1 48.0 DEFAULT",
                                        "numa0-numa1 SMP 1 10.0 NCCL_MODEL")
                                .stream()
                                .collect(java.util.stream.Collectors.toMap(s -> s, s -> 1))),
                links(t, true));
    }

    /** Links by the names of their ends, with how often each occurs. */
    private static Map<String, Integer> links(Topology t, boolean source) {
        TreeMap<String, Integer> all = new TreeMap<>();
        for (Link link : t.links()) {
            List<String> ends = new ArrayList<>();
            ends.add(t.nodes().get(link.a()).name());
            ends.add(t.nodes().get(link.b()).name());
            Collections.sort(ends);
            all.merge(
                    String.join("-", ends)
                            + " "
                            + link.kind()
                            + " "
                            + link.count()
                            + " "
                            + Math.round(link.gbps() * 1e6) / 1e6
                            + (source ? " " + link.source() : ""),
                    1,
                    Integer::sum);
        }
        return all;
    }

    private static void assertSame(Topology expected, Topology actual, String what) {
        assertEquals(
                expected.gpus().stream()
                        .map(g -> g.name() + " " + g.index() + " " + g.sm())
                        .toList(),
                actual.gpus().stream().map(g -> g.name() + " " + g.index() + " " + g.sm()).toList(),
                what);
        assertEquals(expected.nics(), actual.nics(), what);
        assertEquals(
                expected.switches().stream().map(h -> h.name() + " " + h.kind()).sorted().toList(),
                actual.switches().stream().map(h -> h.name() + " " + h.kind()).sorted().toList(),
                what);
        assertEquals(links(expected, false), links(actual, false), what);
        for (Node a : expected.nodes()) {
            for (Node b : expected.nodes()) {
                if (!(a instanceof Switch) && !(b instanceof Switch)) {
                    assertEquals(expected.code(a.id(), b.id()), actual.code(a.id(), b.id()), what);
                }
            }
        }
    }

    private static void roundTrip(Topology t) {
        String xml = TopologyXml.write(t);
        Topology back = TopologyXml.read(xml, false, t.name());
        assertEquals(
                List.of(),
                back.warnings().stream().filter(w -> !w.message().contains("sm")).toList());
        assertSame(t, back, xml);
        assertSame(back, TopologyXml.read(TopologyXml.write(back), false, ""), "a second round");
    }

    @Test
    void roundTrips() {
        roundTrip(read(SMALL));
        roundTrip(Machines.dgx1v());
        roundTrip(Machines.nvswitch(8, 90, 18, 20.6));
        roundTrip(Machines.nvswitch(16, 70, 6, 20));
        roundTrip(Machines.nvswitch(72, 100, 18, 40.1));
        roundTrip(Machines.pcieOnly(8, 2, 12, 10));
        roundTrip(Machines.pcieOnly(4, 1, 48, 40));
        roundTrip(Machines.pcieOnly(10, 5, 24, 22));
    }

    /** Grace Hopper: C2C to the CPU, NVLinks between the GPUs, a NIC on the CPU's PCIe. */
    private static Topology grace() {
        Topology.Builder b = new Topology.Builder("four Grace Hoppers");
        for (int i = 0; i < 4; i++) {
            b.addGpu(i, 90);
        }
        for (int i = 0; i < 4; i++) {
            b.add(new Nic(b.nextId(), "NIC" + i, "mlx5_" + i, 25));
        }
        for (int i = 0; i < 4; i++) {
            int numa = b.addSwitch("numa" + i, Switch.Kind.NUMA);
            int bridge = b.addSwitch("bridge" + i, Switch.Kind.HOST_BRIDGE);
            b.link(bridge, numa, LinkKind.HOST_BRIDGE, 1, 96, Source.DEFAULT);
            b.link(i, bridge, LinkKind.PCIE, 1, 48, Source.DEVICE);
            b.link(4 + i, bridge, LinkKind.PCIE, 1, 48, Source.DEVICE);
            b.link(i, numa, LinkKind.C2C, 10, 448, Source.DEVICE);
        }
        List<Integer> numas = List.of(8, 10, 12, 14);
        for (int i = 0; i < 4; i++) {
            for (int j = i + 1; j < 4; j++) {
                b.link(i, j, LinkKind.NVLINK, 6, 6 * 20.6, Source.NCCL_MODEL);
                b.link(numas.get(i), numas.get(j), LinkKind.SMP, 1, 6, Source.NCCL_MODEL);
            }
        }
        return b.build();
    }

    @Test
    void c2cAndNicsSurvive() {
        roundTrip(grace());
        String xml = TopologyXml.write(grace());
        assertTrue(xml.contains("<c2c bw=\"44800\" count=\"10\"/>"), xml);
        assertTrue(xml.contains("<net name=\"mlx5_2\" dev=\"2\" speed=\"200000\""), xml);
    }

    @Test
    void randomMachinesSurvive() {
        randomMachines(40);
    }

    @Tag("exhaustive")
    @Test
    void veryManyRandomMachinesSurvive() {
        randomMachines(1_000);
    }

    private static void randomMachines(int n) {
        long seed = System.nanoTime();
        System.out.println("TopologyXmlTest.randomMachinesSurvive seed " + seed);
        Random random = new Random(seed);
        for (int i = 0; i < n; i++) {
            Topology t = random(random);
            roundTrip(t);
        }
    }

    /** A random machine that NCCL's XML can express. */
    static Topology random(Random r) {
        Topology.Builder b = new Topology.Builder("random");
        int gpus = r.nextInt(1, 17);
        int nics = r.nextInt(5);
        int[] sms = {0, 60, 70, 80, 86, 90, 100};
        int sm = sms[r.nextInt(sms.length)];
        int index = 0;
        for (int i = 0; i < gpus; i++) {
            index += r.nextInt(10) == 0 ? 2 : 1;
            b.add(
                    new Gpu(
                            i,
                            "GPU" + index,
                            index,
                            null,
                            sm,
                            Source.DEFAULT,
                            r.nextBoolean() ? String.format("0000%04x:%02x:00.0", i, i) : null,
                            r.nextBoolean() ? "0-7,16" : null,
                            null,
                            null));
        }
        for (int i = 0; i < nics; i++) {
            b.add(
                    new Nic(
                            b.nextId(),
                            "mlx5_" + i,
                            "mlx5_" + i,
                            new double[] {0, 12.5, 50}[r.nextInt(3)]));
        }
        double[] rates = {12, 24, 48, 6, 0.1875, 7.5, 13.125, 96, 3};
        double[] smps = {6, 10, 16, 22, 24, 32, 40};
        double smp = smps[r.nextInt(smps.length)];
        int numas = r.nextInt(1, 5);
        List<Integer> numa = new ArrayList<>();
        List<Integer> places = new ArrayList<>();
        for (int n = 0; n < numas; n++) {
            int id = b.addSwitch("numa" + n, Switch.Kind.NUMA);
            numa.forEach(o -> b.link(o, id, LinkKind.SMP, 1, smp, Source.NCCL_MODEL));
            numa.add(id);
            int bridges = r.nextInt(1, 3);
            for (int k = 0; k < bridges; k++) {
                int bridge = b.addSwitch("hb" + n + k, Switch.Kind.HOST_BRIDGE);
                // The format does not state it: twice the widest slot, so one has the widest of
                // all.
                b.link(bridge, id, LinkKind.HOST_BRIDGE, 1, 192, Source.DEFAULT);
                int top = b.addSwitch("switch" + n + k, Switch.Kind.PCIE_SWITCH);
                b.link(bridge, top, LinkKind.PCIE, 1, 96, Source.DEVICE);
                places.add(bridge);
                places.add(top);
                if (r.nextBoolean()) {
                    int below = b.addSwitch("sub" + n + k, Switch.Kind.PCIE_SWITCH);
                    b.link(
                            top,
                            below,
                            LinkKind.PCIE,
                            1,
                            rates[r.nextInt(rates.length)],
                            Source.DEVICE);
                    places.add(below);
                }
            }
        }
        for (int d = 0; d < gpus + nics; d++) {
            int place = places.get(r.nextInt(places.size()));
            b.link(d, place, LinkKind.PCIE, 1, rates[r.nextInt(rates.length)], Source.DEVICE);
        }
        if (r.nextInt(3) == 0) {
            int sw = b.addSwitch("nvswitch", Switch.Kind.NVSWITCH);
            for (int g = 0; g < gpus; g++) {
                int count = r.nextInt(1, 19);
                b.link(
                        g,
                        sw,
                        LinkKind.NVLINK,
                        count,
                        count * LinkModel.nvlink(sm),
                        Source.NCCL_MODEL);
            }
        } else {
            for (int g = 0; g < gpus; g++) {
                for (int h = g + 1; h < gpus; h++) {
                    if (r.nextInt(3) == 0) {
                        int count = r.nextInt(1, 5);
                        b.link(
                                g,
                                h,
                                LinkKind.NVLINK,
                                count,
                                count * LinkModel.nvlink(sm),
                                Source.NCCL_MODEL);
                    }
                }
            }
        }
        return b.build();
    }

    /** NCCL's parser takes less than XML: this is what its xmlGetNode and xmlGetToken take. */
    @Test
    void ncclsParserTakesWhatIsWritten() {
        Random random = new Random(5);
        List<Topology> all = new ArrayList<>(List.of(Machines.dgx1v(), grace(), read(SMALL)));
        for (int i = 0; i < 50; i++) {
            all.add(random(random));
        }
        for (Topology t : all) {
            for (String line : TopologyXml.write(t).split("\n", -1)) {
                assertTrue(
                        line.matches(
                                " *<(/?[a-z0-9]+|[a-z0-9]+( [a-z_]+=\"[^\"]{0,254}\"){0,16}/?)>|"),
                        line);
            }
        }
    }

    @Test
    void whatNcclRequiresIsThere() {
        XmlTree.Element root = parse(TopologyXml.write(grace()));
        assertEquals("1", root.get("version"));
        require(root, "cpu", "numaid", "affinity", "arch", "vendor", "familyid", "modelid");
        require(root, "pci", "busid", "class", "link_speed", "link_width");
        require(root, "gpu", "dev", "sm", "rank");
        require(root, "nvlink", "target", "count", "tclass");
        require(root, "c2c", "bw", "count");
        require(root, "net", "name", "dev", "speed");
    }

    private static String message(Throwable e) {
        return String.valueOf(e.getMessage());
    }

    private static XmlTree.Element parse(String xml) {
        return Objects.requireNonNull(new XmlTree(false).parse(xml));
    }

    private static void require(XmlTree.Element root, String name, String... attributes) {
        List<XmlTree.Element> found = new ArrayList<>();
        collect(root, name, found);
        assertFalse(found.isEmpty(), name);
        for (XmlTree.Element e : found) {
            for (String a : attributes) {
                assertTrue(e.attributes().containsKey(a), a + " of " + e);
            }
        }
    }

    private static void collect(XmlTree.Element e, String name, List<XmlTree.Element> found) {
        if (e.name().equals(name)) {
            found.add(e);
        }
        e.children().forEach(c -> collect(c, name, found));
    }

    @ParameterizedTest
    @CsvSource({
        "12, 8.0 GT/s PCIe, 16",
        "24, 16.0 GT/s PCIe, 16",
        "48, 32.0 GT/s PCIe, 16",
        "96, 64.0 GT/s PCIe, 16",
        "6, 5.0 GT/s PCIe, 16",
        "13.125, 2.5 GT/s PCIe, 70",
        "0.1875, 2.5 GT/s PCIe, 1"
    })
    void pcieSpeeds(double gbps, String speed, int width) {
        String xml = TopologyXml.write(Machines.pcieOnly(2, 2, gbps, 10));
        assertTrue(xml.contains("link_speed=\"" + speed + "\" link_width=\"" + width + "\""), xml);
    }

    @Test
    void madeUpBusIdsAreInADomainOfTheirOwnAndRealOnesInNcclsForm() {
        Topology.Builder b = new Topology.Builder("ids");
        b.addGpu(0, 90);
        b.add(new Gpu(1, "GPU1", 1, null, 90, Source.DEVICE, "00000000:3B:00.0", null, null, null));
        int numa = b.addSwitch("numa0", Switch.Kind.NUMA);
        b.link(0, numa, LinkKind.PCIE, 1, 12, Source.DEFAULT);
        b.link(1, numa, LinkKind.PCIE, 1, 12, Source.DEFAULT);
        String xml = TopologyXml.write(b.build());
        assertTrue(xml.contains("busid=\"ffff:00:00.0\""), xml);
        assertTrue(xml.contains("busid=\"0000:3b:00.0\""), xml);
        roundTrip(b.build());
    }

    @Test
    void gpusWithoutNumaNodeStandBelowNumberMinusOne() {
        Topology.Builder b = new Topology.Builder("NVLinks alone");
        b.addGpu(0, 70);
        b.addGpu(1, 70);
        b.link(0, 1, LinkKind.NVLINK, 2, 40, Source.NCCL_MODEL);
        String xml = TopologyXml.write(b.build());
        assertTrue(xml.contains("<cpu numaid=\"-1\""), xml);
        assertEquals("NV2", read(xml).code(0, 1).text());
    }

    @Test
    void aCpuWithoutNumaNumberKeepsMinusOne() {
        for (boolean orphan : new boolean[] {false, true}) {
            Topology.Builder b = new Topology.Builder("test");
            b.addGpu(0, 70);
            b.addGpu(1, 70);
            int numa = b.addSwitch("numa-1", Switch.Kind.NUMA);
            b.link(0, numa, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            b.link(0, 1, LinkKind.NVLINK, 2, 40, Source.NCCL_MODEL);
            if (!orphan) {
                b.link(1, numa, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            }
            String xml = TopologyXml.write(b.build());
            // A GPU below no CPU has that number.
            assertEquals(orphan, xml.contains("<cpu numaid=\"0\""), xml);
            assertTrue(xml.contains("<cpu numaid=\"-1\""), xml);
            assertEquals("NV2", read(xml).code(0, 1).text());
        }
    }

    @Test
    void whatIsNoTreeIsRefused() {
        Topology.Builder b = new Topology.Builder("two uplinks");
        b.addGpu(0, 70);
        int x = b.addSwitch("numa0", Switch.Kind.NUMA);
        int y = b.addSwitch("numa1", Switch.Kind.NUMA);
        b.link(0, x, LinkKind.PCIE, 1, 12, Source.DEFAULT);
        b.link(0, y, LinkKind.PCIE, 1, 12, Source.DEFAULT);
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> TopologyXml.write(b.build()));
        assertTrue(message(e).contains("GPU0"), e.getMessage());
    }

    /** Each damage of the small machine: what is found, where, and that lenient goes on. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "busid=\"0000:17:00.0\"|busid=\"0000:16:00.0\"|11|0000:16:00.0 appears at two",
                "busid=\"0000:17:00.0\"|busid=\"17\"|11|expected a PCI address",
                "busid=\"0000:a6:00.0\"||25|busid of <pci> is missing",
                "numaid=\"1\"|numaid=\"0\"|23|a second <cpu> with numaid 0",
                "numaid=\"1\"||23|has no numaid",
                "class=\"0x020700\"||16|class of <pci> is missing",
                "dev=\"1\"|dev=\"0\"|12|dev 0 appears at two <gpu>",
                "dev=\"1\"|dev=\"one\"|7|dev of <gpu> is \"one\", expected a number",
                "target=\"0000:16:00.0\"|target=\"0000:ff:00.0\"|13|not a GPU of this file",
                "count=\"4\" tclass=\"0x030200\"|count=\"3\" tclass=\"0x030200\"|12|NVLinks to",
                "count=\"4\" tclass=\"0x030200\"|tclass=\"0x030200\"|8|has no count",
                "count=\"4\" tclass=\"0x030200\"|count=\"0\" tclass=\"0x030200\"|8|number of 1 to"
                        + " 999",
                "count=\"4\" tclass=\"0x030200\"|count=\"4\"|8|tclass of <nvlink> is missing",
                "affinity=\"0000000f,0000ffff\"|affinity=\"0-3\"|3|expected a mask",
                "name=\"mlx5_3\"||18|<net> without name",
                "speed=\"200000\"|speed=\"fast\"|18|speed of <net>",
                "version=\"1\"|version=\"2\"|1|version of <system>",
                "</system>||30|not well-formed"
            })
    void damage(String from, String to, int line, String message) {
        String xml = SMALL.replaceFirst(java.util.regex.Pattern.quote(from), to == null ? "" : to);
        TopologyFormatException e =
                assertThrows(TopologyFormatException.class, () -> read(xml), xml);
        assertTrue(message(e).contains(message), e.getMessage());
        assertEquals(line, e.line(), e.getMessage());
        assertTrue(e.column() > 0);
        Topology t = TopologyXml.read(xml, true, "lenient");
        assertTrue(
                t.warnings().stream().anyMatch(w -> w.message().contains(message)),
                t.warnings().toString());
        assertTrue(t.gpus().size() >= 2, t.toString());
    }

    @Test
    void placesInTheText() {
        String xml =
                """


                  <?xml version="1.0"?>
                <system version="1">
                  <cpu numaid="x"/></system>\
                """;
        TopologyFormatException e = assertThrows(TopologyFormatException.class, () -> read(xml));
        assertEquals("5/3", e.line() + "/" + e.column(), e.getMessage());
        TopologyFormatException graph =
                assertThrows(TopologyFormatException.class, () -> read("<graphs version=\"1\"/>"));
        assertTrue(message(graph).contains("graph XML"), graph.getMessage());
    }

    @Test
    void whatIsNotKnownIsAWarningOnly() {
        Topology t =
                read(
                        SMALL.replace("rank=\"1\"", "rank=\"1\" colour=\"green\"")
                                .replace("</system>", "<fridge shelves=\"3\"/></system>")
                                .replace("<gpu dev=\"2\"", "text <gpu dev=\"2\""));
        List<String> warnings = t.warnings().stream().map(Warning::message).toList();
        assertEquals(3, warnings.size(), warnings.toString());
        assertTrue(warnings.toString().contains("colour"), warnings.toString());
        assertTrue(warnings.toString().contains("<fridge>"), warnings.toString());
        assertTrue(warnings.toString().contains("text between elements"), warnings.toString());
        assertSame(read(SMALL), t, "unknown things changed the graph");
    }

    @Test
    void filesOfVirtualMachinesHaveNoGpuOrNicElements() {
        Topology t =
                read(
                        """
                        <system version="1">
                          <cpu numaid="0" affinity="000000ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
                            <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
                              <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
                              <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
                            </pci>
                          </cpu>
                          <cpu numaid="1" affinity="0000ff00" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
                            <pci busid="ffff:ff:02.0" class="0x060400" link_speed="16 GT/s" link_width="16">
                              <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
                            </pci>
                          </cpu>
                        </system>
                        """);
        assertEquals(2, t.gpus().size());
        assertEquals("0001:00:00.0", t.gpus().get(0).busId());
        assertEquals(1, t.nics().size());
        assertEquals("PIX", t.code(0, 2).text());
        assertEquals("SYS", t.code(0, 1).text());
        assertEquals(2, t.warnings().size(), t.warnings().toString());
        assertEquals(16, t.links().getLast().gbps());
    }

    /** The families of AMD also as NCCL up to 2.30 writes them. */
    @ParameterizedTest
    @CsvSource({
        "x86_64,AuthenticAMD,23,49,16",
        "x86_64,AuthenticAMD,25,1,24",
        "x86_64,AuthenticAMD,26,2,32",
        "x86_64,AuthenticAMD,143,49,16",
        "x86_64,AuthenticAMD,175,17,24",
        "x86_64,AuthenticAMD,191,2,32",
        "x86_64,GenuineIntel,6,207,40",
        "x86_64,Shanghai,7,91,9",
        "arm64,,0,0,6",
        "ppc64,,0,0,32"
    })
    void theCpuSurvives(String arch, @Nullable String vendor, int family, int model, double smp) {
        Processor cpu = new Processor(arch, vendor == null ? "" : vendor, family, model);
        for (int sockets = 1; sockets <= 2; sockets++) {
            Topology.Builder b = new Topology.Builder("box");
            b.addGpu(0, 80);
            for (int i = 0; i < sockets; i++) {
                b.processor(b.addSwitch("numa" + i, Switch.Kind.NUMA), cpu);
            }
            if (sockets == 2) {
                b.link(1, 2, LinkKind.SMP, 1, cpu.smpGbps(), Source.NCCL_MODEL);
            }
            b.link(0, 1, LinkKind.PCIE, 1, 24, Source.DEVICE);
            String xml = TopologyXml.write(b.build());
            Topology back = TopologyXml.read(xml, false, "box");
            assertEquals(List.of(), back.warnings(), xml);
            for (Switch numa : back.switches()) {
                if (numa.kind() == Switch.Kind.NUMA) {
                    assertEquals(cpu, back.processor(numa.id()), xml);
                }
            }
            assertEquals(xml, TopologyXml.write(back));
            back.links().stream()
                    .filter(l -> l.kind() == LinkKind.SMP)
                    .forEach(l -> assertEquals(smp, l.gbps()));
        }
        assertEquals(smp, cpu.smpGbps());
    }

    @Test
    void olderIntelCpusHaveOneHostBridgeASocket() {
        String two =
                """
                <system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="%d">
                <pci busid="0000:06:00.0" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu dev="0" sm="70"/></pci>
                <pci busid="0000:0a:00.0" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu dev="1" sm="70"/></pci>
                </cpu></system>
                """;
        assertEquals("PHB", read(String.format(two, 79)).code(0, 1).text());
        assertEquals("NODE", read(String.format(two, 85)).code(0, 1).text());
    }

    @Test
    void linksToSeveralNvSwitchesAreOne() {
        Topology t =
                read(
                        SMALL.replace(
                                "<gpu dev=\"2\" sm=\"80\" rank=\"2\" gdr=\"1\"/>",
                                """
                                <gpu dev="2" sm="80" rank="2" gdr="1">
                                  <nvlink target="0000:c1:00.0" count="2" tclass="0x068000"/>
                                  <nvlink target="0000:c2:00.0" count="10" tclass="0x068000"/>
                                </gpu>\
                                """));
        Link link = t.links().stream().filter(l -> l.count() == 12).findFirst().orElseThrow();
        assertEquals(240, link.gbps());
        assertEquals(
                1, t.switches().stream().filter(h -> h.kind() == Switch.Kind.NVSWITCH).count());
    }

    @Test
    void nvlinksToACpu() {
        Topology t =
                read(
                        SMALL.replace("\"x86_64\"", "\"ppc64\"")
                                .replace(
                                        "<gpu dev=\"2\" sm=\"80\" rank=\"2\" gdr=\"1\"/>",
                                        "<gpu dev=\"2\" sm=\"70\"><nvlink target=\"0004:00:00.0\""
                                                + " count=\"3\" tclass=\"0x068001\"/></gpu>"));
        Link link = t.links().stream().filter(l -> l.count() == 3).findFirst().orElseThrow();
        assertEquals(LinkKind.NVLINK, link.kind());
        assertEquals("numa1", t.nodes().get(link.b()).name());
        assertEquals(
                32,
                t.links().stream()
                        .filter(l -> l.kind() == LinkKind.SMP)
                        .findFirst()
                        .orElseThrow()
                        .gbps());
        roundTrip(t);
    }

    /** Azure's file for its A100 machines with four GPUs has them; NCCL reads it. */
    @Test
    void anNvlinkFromAGpuToItselfIsIgnored() {
        Topology t = read(onlySelf());
        assertEquals(0, t.links().stream().filter(l -> l.kind() == LinkKind.NVLINK).count());
        assertTrue(
                t.warnings().toString().contains("to itself is ignored"), t.warnings().toString());
    }

    private static String onlySelf() {
        return SMALL.replace("<nvlink target=\"0000:17:00.0\"", "<nvlink target=\"0000:16:00.0\"")
                .replaceFirst(
                        "(dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">\\s*<nvlink target=\")0000:16",
                        "$10000:17");
    }

    @Test
    void versionTwoIsOfRccl() {
        TopologyFormatException e =
                assertThrows(
                        TopologyFormatException.class,
                        () ->
                                read(
                                        SMALL.replace(
                                                "<system version=\"1\"", "<system version=\"2\"")));
        assertTrue(String.valueOf(e.getMessage()).contains("RCCL"), e.getMessage());
    }

    @Test
    void severalMachinesAreNumberedThrough() {
        String cpu = SMALL.substring(SMALL.indexOf("<cpu"), SMALL.indexOf("</system>"));
        Topology t =
                read("<system version=\"1\">" + cpu + cpu.replace("0x1f", "0x2f") + "</system>");
        assertEquals(6, t.gpus().size());
        assertEquals("NV4", t.code(3, 4).text());
        assertNull(t.route(0, 3));
        assertEquals("host1-mlx5_3", t.nics().get(1).name());
        assertEquals(1, t.warnings().size());
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                " ",
                "<",
                "GPU0\tGPU1",
                "<a/>",
                "<system/>",
                "<system version=\"1\"/>",
                "<system version=\"1\"></cpu>",
                "<!DOCTYPE system [<!ENTITY a \"b\">]><system version=\"1\">&a;</system>",
                "<!DOCTYPE system SYSTEM \"file:///etc/passwd\"><system version=\"1\"/>",
                "<system version=\"1\">&a;</system>",
                "<system version=\"1\" version=\"1\"/>"
            })
    void noTopologyAtAll(String xml) {
        assertThrows(TopologyFormatException.class, () -> read(xml));
    }

    @Test
    void entitiesAreNotExpanded() {
        StringBuilder laughs = new StringBuilder("<!DOCTYPE system [<!ENTITY a0 \"ha\">");
        for (int i = 1; i < 30; i++) {
            laughs.append("<!ENTITY a").append(i).append(" \"");
            laughs.append(("&a" + (i - 1) + ";").repeat(10)).append("\">");
        }
        laughs.append("]><system version=\"1\" name=\"&a29;\"/>");
        assertTimeout(
                Duration.ofSeconds(5),
                () -> {
                    assertThrows(TopologyFormatException.class, () -> read(laughs.toString()));
                    assertThrows(
                            TopologyFormatException.class,
                            () -> TopologyXml.read(laughs.toString(), true, ""));
                });
    }

    @Test
    void whatIsTooLargeIsRefused() {
        String deep = "<system version=\"1\">" + "<pci>".repeat(100_000);
        String wide = "<system version=\"1\">" + "<cpu/>".repeat(200_000) + "</system>";
        String longValue = "<system version=\"1\" name=\"" + "x".repeat(5000) + "\"/>";
        String many = "<system version=\"1\" " + "a%d=\"\" ".repeat(300) + "/>";
        Object[] numbers = new Object[300];
        for (int i = 0; i < 300; i++) {
            numbers[i] = i;
        }
        String attributes = String.format(many, numbers);
        String big = " ".repeat(17 << 20);
        for (String xml : List.of(deep, wide, longValue, attributes, big)) {
            for (boolean lenient : new boolean[] {false, true}) {
                TopologyFormatException e =
                        assertThrows(
                                TopologyFormatException.class,
                                () -> TopologyXml.read(xml, lenient, "big"));
                assertTrue(message(e).length() < 400, e.getMessage());
            }
        }
    }

    @Test
    void mutatedFilesGiveATopologyOrAFormatError() {
        mutatedFiles(1_000);
    }

    @Test
    @Tag("exhaustive")
    void veryManyMutatedFilesGiveATopologyOrAFormatError() {
        mutatedFiles(60_000);
    }

    private static void mutatedFiles(int n) {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("TopologyXmlTest.mutatedFiles: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        List<String> originals = new ArrayList<>(List.of(SMALL, TopologyXml.write(grace())));
        for (int i = 0; i < 8; i++) {
            originals.add(TopologyXml.write(random(random)));
        }
        String tiny = SMALL.substring(0, SMALL.indexOf("  <cpu numaid=\"1\"")) + "</system>";
        int graphs = 0;
        long start = System.nanoTime();
        for (int i = 0; i < n; i++) {
            String original = i % 50 == 0 ? originals.get(random.nextInt(originals.size())) : tiny;
            String xml = mutate(original, random);
            try {
                TopologyXml.read(xml, random.nextBoolean(), "fuzz");
                graphs++;
            } catch (TopologyFormatException e) {
                assertFalse(message(e).isEmpty());
            } catch (RuntimeException | StackOverflowError e) {
                throw new AssertionError("seed " + seed + ", round " + i + ":\n" + xml, e);
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf("%d mutated files, %d graphs, %.1f s%n", n, graphs, seconds);
        assertTrue(graphs > n / 100 && graphs < n, "graphs: " + graphs);
    }

    private static final List<String> WORDS =
            List.of(
                    "<",
                    ">",
                    "\"",
                    "/>",
                    "</pci>",
                    "<cpu numaid=\"0\">",
                    "<gpu dev=\"0\"/>",
                    "<nvlink target=\"0000:16:00.0\" count=\"1\" tclass=\"0x03\"/>",
                    "&amp;",
                    "&x;",
                    "<!--",
                    "-->",
                    "<![CDATA[",
                    "]]>",
                    "\0",
                    "\uFFFF",
                    "\uD800",
                    "0",
                    "-1",
                    "999999999999",
                    "0x",
                    " ",
                    "\n",
                    "<?a?>",
                    "<!DOCTYPE a>",
                    "jccl_name=\"GPU0\"",
                    "<nic>",
                    "<net/>",
                    "<c2c bw=\"1\" count=\"1\"/>",
                    "jccl_bridge=\"numa0\"");

    private static String mutate(String text, Random r) {
        StringBuilder s = new StringBuilder(text);
        for (int n = r.nextInt(1, 4); n > 0; n--) {
            int at = r.nextInt(s.length() + 1);
            int to = Math.min(s.length(), at + r.nextInt(r.nextBoolean() ? 3 : 60));
            switch (r.nextInt(6)) {
                case 0 -> s.delete(at, to);
                case 1 -> s.insert(at, s.substring(at, to));
                case 2 -> s.insert(at, WORDS.get(r.nextInt(WORDS.size())));
                case 3 -> s.replace(at, to, WORDS.get(r.nextInt(WORDS.size())));
                case 4 -> {
                    if (at < s.length()) {
                        s.setCharAt(at, (char) r.nextInt(r.nextInt(20) == 0 ? 65536 : 128));
                    }
                }
                default -> {
                    // Another digit: still well-formed, but something else.
                    for (int i = at; i < s.length(); i++) {
                        if (Character.isDigit(s.charAt(i))) {
                            s.setCharAt(i, (char) ('0' + r.nextInt(10)));
                            break;
                        }
                    }
                }
            }
        }
        return s.toString();
    }
}
