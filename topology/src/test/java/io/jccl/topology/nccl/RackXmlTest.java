package io.jccl.topology.nccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Machines;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Machines with NVLink between them, in NCCL's XML. */
class RackXmlTest {
    private static final int TRAYS = 18;

    /** A tray of two CPUs with two GPUs and a NIC each; the same bus ids in every tray. */
    private static String tray(String hash) {
        StringBuilder b = new StringBuilder();
        for (int cpu = 0; cpu < 2; cpu++) {
            b.append(
                    """
                      <cpu numaid="%d" affinity="000000ff" arch="arm64" host_hash="%s">
                    """
                            .formatted(cpu, hash));
            for (int g = 0; g < 2; g++) {
                int dev = 2 * cpu + g;
                b.append(
                        """
                            <pci busid="%04x:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
                              <gpu dev="%d" sm="100" rank="%d" gdr="1">
                                <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
                                <c2c bw="44800" count="10"/>
                              </gpu>
                            </pci>
                        """
                                .formatted(8 + dev, dev, dev));
            }
            b.append(
                    """
                        <pci busid="%04x:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
                          <nic>
                            <net name="mlx5_%d" dev="%d" speed="400000"/>
                          </nic>
                        </pci>
                      </cpu>
                    """
                            .formatted(cpu, cpu, cpu));
        }
        return b.toString();
    }

    private static Topology rack(int trays) {
        StringBuilder b = new StringBuilder("<system version=\"1\">\n");
        for (int i = 0; i < trays; i++) {
            b.append(tray("0xabc" + Integer.toHexString(i)));
        }
        return TopologyXml.read(b + "</system>\n", false, "rack");
    }

    private static Plan rings(Topology t, List<Integer> gpus) {
        return Planner.rings(t, Operation.ALL_REDUCE, gpus, 0).orElseThrow();
    }

    /** What NCCL makes of a topology XML, by the rules of topo.cc (2.30). */
    private static final class NcclSystem {
        /** By the highest byte of the id, then the bus id: rank and dev. */
        final Map<String, int[]> gpus = new HashMap<>();

        final List<Long> hosts = new ArrayList<>();
        final Set<String> nets = new HashSet<>();

        NcclSystem(String xml) {
            for (XmlTree.Element cpu :
                    Objects.requireNonNull(new XmlTree(false).parse(xml)).children("cpu")) {
                String hash = cpu.get("host_hash");
                long value = hash == null ? 0 : Long.decode(hash);
                if (!hosts.contains(value)) {
                    hosts.add(value); // ncclGetSystemId
                }
                pci(cpu, hosts.indexOf(value));
            }
        }

        private void pci(XmlTree.Element at, int system) {
            for (XmlTree.Element e : at.children()) {
                if (e.name().equals("gpu")) {
                    int[] gpu = {number(e, "rank"), number(e, "dev")};
                    assertEquals(null, gpus.put(system + "/" + at.get("busid"), gpu));
                } else if (e.name().equals("net")) {
                    assertTrue(nets.add(system + "/" + e.get("dev")), "NET of id " + e.get("dev"));
                } else {
                    pci(e, system);
                }
            }
        }

        /** The rank of a {@code <gpu>} of a graph XML: ncclTopoGetChannelFromXml. */
        int rank(XmlTree.Element e) {
            long dev = Long.decode(Objects.requireNonNull(e.get("dev")));
            List<Integer> found = new ArrayList<>();
            gpus.forEach((id, gpu) -> {
                long system = Long.parseLong(id.substring(0, id.indexOf('/')));
                if ((system << 56) + gpu[1] == dev) {
                    found.add(gpu[0]);
                }
            });
            assertEquals(1, found.size(), "GPUs of dev " + Long.toHexString(dev));
            String rank = e.get("rank");
            if (rank != null) {
                assertEquals(found.getFirst(), Integer.decode(rank), "rank and dev agree");
            }
            return found.getFirst();
        }
    }

    private static int number(XmlTree.Element e, String attribute) {
        return Integer.parseInt(Objects.requireNonNull(e.get(attribute)));
    }

    @Test
    void aRackKeepsItsMachines() {
        Topology t = rack(TRAYS);
        assertEquals(72, t.gpus().size());
        assertEquals(TRAYS, t.machines().size());
        assertEquals("0xabc1", t.machines().get(1));
        assertEquals(1, t.machine(7));
        assertEquals(3, t.device(7));
        String xml = TopologyXml.write(t);
        NcclSystem system = new NcclSystem(xml);
        assertEquals(TRAYS, system.hosts.size());
        assertEquals(0xabc1L, system.hosts.get(1));
        assertEquals(72, system.gpus.size());
        assertEquals(72, system.gpus.values().stream().map(g -> g[0]).distinct().count());
        assertEquals(Set.of(0, 1, 2, 3), devs(system));
        assertEquals(2 * TRAYS, system.nets.size());
        Topology back = TopologyXml.read(xml, false, "rack");
        assertEquals(t.machines(), back.machines());
        for (Gpu gpu : t.gpus()) {
            assertEquals(gpu, back.gpus().get(gpu.id()));
            assertEquals(t.machine(gpu.id()), back.machine(gpu.id()));
            assertEquals(t.device(gpu.id()), back.device(gpu.id()));
        }
        assertEquals(
                t.nics().stream().map(Nic::name).toList(),
                back.nics().stream().map(Nic::name).toList());
        assertEquals(t.links().size(), back.links().size());
    }

    private static Set<Integer> devs(NcclSystem system) {
        Set<Integer> devs = new HashSet<>();
        system.gpus.values().forEach(g -> devs.add(g[1]));
        return devs;
    }

    @Test
    void oneMachineOfARackIsAFileOfItsOwn() {
        Topology t = rack(TRAYS);
        String xml = TopologyXml.write(t, 5);
        assertFalse(xml.contains("host_hash"), xml);
        NcclSystem system = new NcclSystem(xml);
        assertEquals(4, system.gpus.size());
        assertEquals(Set.of(0, 1, 2, 3), devs(system));
        assertEquals(Set.of("0/0", "0/1"), system.nets);
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> TopologyXml.write(t, 18));
        assertTrue(String.valueOf(e.getMessage()).contains("18, expected 0 to 17"), e.getMessage());
    }

    @Test
    void hashesThatNcclWouldNotTellApartAreReplaced() {
        String xml = "<system version=\"1\">" + tray("node-a") + tray("node-b") + "</system>";
        Topology t = TopologyXml.read(xml, false, "rack");
        assertEquals(List.of("node-a", "node-b"), t.machines());
        NcclSystem system = new NcclSystem(TopologyXml.write(t));
        assertEquals(List.of(1L, 2L), system.hosts);
        // Written in two ways, but the same number to NCCL: one machine with its CPUs twice.
        String same = "<system version=\"1\">" + tray("0x0A") + tray("a") + "</system>";
        assertThrows(
                io.jccl.topology.TopologyFormatException.class,
                () -> TopologyXml.read(same, false, "rack"));
    }

    @Test
    void ncclFindsEveryGpuOfTheGraph() {
        Topology t = rack(TRAYS);
        List<Integer> all = t.gpus().stream().map(Gpu::id).toList();
        NcclSystem system = new NcclSystem(TopologyXml.write(t));
        XmlTree.Element graphs =
                Objects.requireNonNull(new XmlTree(false).parse(GraphXml.write(rings(t, all))));
        int channels = 0;
        for (XmlTree.Element graph : graphs.children()) {
            for (XmlTree.Element channel : graph.children()) {
                Set<Integer> ranks = new HashSet<>();
                channel.children().forEach(gpu -> ranks.add(system.rank(gpu)));
                assertEquals(new HashSet<>(all), ranks);
                channels++;
            }
        }
        assertTrue(channels >= 2, "rings and trees");
    }

    @Test
    void machinesAreNumberedInTheOrderOfTheRanks() {
        Topology t = rack(3);
        // Ranks 0 and 1 are in the last machine, ranks 2 and 3 in the first.
        String xml = GraphXml.write(rings(t, List.of(9, 8, 0, 3)));
        assertTrue(xml.contains("<gpu dev=\"0x1\" rank=\"0\"/>"), xml);
        assertTrue(xml.contains("<gpu dev=\"0x0\" rank=\"1\"/>"), xml);
        assertTrue(xml.contains("<gpu dev=\"0x100000000000000\" rank=\"2\"/>"), xml);
        assertTrue(xml.contains("<gpu dev=\"0x100000000000003\" rank=\"3\"/>"), xml);
        // Within one machine any rank may use any GPU.
        assertFalse(GraphXml.write(rings(t, List.of(8, 9))).contains("rank="));
    }

    @Test
    void aRackOfUnknownMachinesIsRefused() {
        Topology t = Machines.nvswitch(72, 100, 18, 40.1);
        Plan plan = rings(t, t.gpus().stream().map(Gpu::id).toList());
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> GraphXml.write(plan));
        assertTrue(
                String.valueOf(e.getMessage()).contains("which machine each is in"),
                e.getMessage());
        Topology dgx2 = Machines.nvswitch(16, 70, 6, 20);
        assertTrue(
                GraphXml.write(rings(dgx2, dgx2.gpus().stream().map(Gpu::id).toList()))
                        .contains("dev=\"0xf\""));
    }

    @Test
    void linksThatNcclCannotExpressAreRefused() {
        for (LinkKind kind : List.of(LinkKind.NVLINK, LinkKind.SMP)) {
            Topology.Builder b = new Topology.Builder("two machines");
            b.addGpu(0, 70);
            b.addGpu(1, 70);
            int first = b.addMachine("0x1");
            int second = b.addMachine("0x2");
            int x = b.addSwitch("numa0", Switch.Kind.NUMA);
            int y = b.addSwitch("host1-numa0", Switch.Kind.NUMA);
            b.link(0, x, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            b.link(1, y, LinkKind.PCIE, 1, 12, Source.DEFAULT);
            b.machine(0, first);
            b.machine(1, second);
            b.machine(y, second);
            boolean gpus = kind == LinkKind.NVLINK;
            b.link(gpus ? 0 : x, gpus ? 1 : y, kind, 1, 20, Source.DEFAULT);
            Topology t = b.build();
            IllegalArgumentException e =
                    assertThrows(IllegalArgumentException.class, () -> TopologyXml.write(t));
            assertTrue(String.valueOf(e.getMessage()).contains("no counterpart"), e.getMessage());
        }
    }

    @Test
    void aMachineThatNcclWouldNotReadIsRefused() {
        Topology t = Machines.nvswitch(100, 90, 18, 20.6);
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> TopologyXml.write(t));
        assertTrue(String.valueOf(e.getMessage()).contains("at most 256"), e.getMessage());
    }
}
