package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.Link;
import io.jccl.topology.Node;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SysFsMachineTest {
    @TempDir Path temp;

    /** The link between two nodes. */
    static Link link(Topology t, String a, String b) {
        return t.links().stream()
                .filter(l -> {
                    String x = t.nodes().get(l.a()).name();
                    String y = t.nodes().get(l.b()).name();
                    return (x.equals(a) && y.equals(b)) || (x.equals(b) && y.equals(a));
                })
                .findFirst()
                .orElseThrow(() -> new AssertionError("no link " + a + "-" + b + ": " + t.links()));
    }

    @Test
    void twoSockets() throws IOException {
        Topology t = SysFs.machine(FakeSys.twoSockets(temp).root);
        assertEquals(
                List.of(
                        "GPU0",
                        "GPU1",
                        "GPU2",
                        "mlx5_0",
                        "eno1",
                        "numa0",
                        "numa1",
                        "pci0000:10",
                        "pcie-switch0",
                        "pci0000:80",
                        "pci0000:90"),
                t.nodes().stream().map(Node::name).toList());
        assertEquals("0000:14:00.0", t.gpus().get(1).busId());
        assertEquals("8-15,24-31", t.gpus().get(2).cpuAffinity());
        assertEquals("1", t.gpus().get(2).numaAffinity());
        assertEquals(50, t.nics().get(0).gbps());
        assertEquals(3.125, t.nics().get(1).gbps());
        // Asleep: what counts is the highest speed. A NIC's is the current one.
        assertEquals(48, link(t, "GPU0", "pcie-switch0").gbps());
        assertEquals(24, link(t, "GPU1", "pcie-switch0").gbps());
        assertEquals(24, link(t, "mlx5_0", "pcie-switch0").gbps());
        assertEquals(48, link(t, "pcie-switch0", "pci0000:10").gbps());
        assertEquals(Source.DEVICE, link(t, "pcie-switch0", "pci0000:10").source());
        // The slot is slower than the GPU.
        assertEquals(24, link(t, "GPU2", "pci0000:90").gbps());
        assertEquals(3, link(t, "eno1", "pci0000:80").gbps());
        assertEquals(22, link(t, "numa0", "numa1").gbps());
        assertEquals("PIX", t.code(0, 1).text());
        assertEquals("PIX", t.code(0, 3).text());
        assertEquals("SYS", t.code(0, 2).text());
        assertEquals("NODE", t.code(2, 4).text());
        assertTrue(t.warnings().toString().contains("NVLinks"), t.warnings().toString());
    }

    @Test
    void cascadedSwitches() throws IOException {
        FakeSys s = new FakeSys(temp).node(0, "0-3");
        String top = "pci0000:00/0000:00:01.0/0000:01:00.0";
        String low = top + "/0000:02:00.0/0000:03:00.0";
        s.device(low + "/0000:04:00.0/0000:05:00.0", "0x030000", "0x10de", 0);
        s.device(low + "/0000:04:01.0/0000:06:00.0", "0x030000", "0x10de", 0);
        s.device(top + "/0000:02:01.0/0000:07:00.0", "0x030000", "0x10de", 0);
        Topology t = SysFs.machine(s.root);
        assertEquals(3, t.gpus().size());
        assertEquals("PIX", t.code(0, 1).text());
        assertEquals("PXB", t.code(0, 2).text());
        assertEquals(
                2, t.switches().stream().filter(h -> h.kind() == Switch.Kind.PCIE_SWITCH).count());
        assertEquals(Source.DEFAULT, t.links().getFirst().source());
    }

    @Test
    void aVirtualMachine() throws IOException {
        // Devices on the root bus, no NUMA, no speeds, a network device below a virtio one.
        FakeSys s = new FakeSys(temp).node(0, "0-3");
        s.device("pci0000:00/0000:00:05.0", "0x030200", "0x10de", -1);
        s.device("pci0000:00/0000:00:06.0", "0x030200", "0x10de", -1);
        s.device("pci0000:00/0000:00:03.0", "0x020000", "0x1af4", -1);
        s.net("eth0", "pci0000:00/0000:00:03.0/virtio0", "-1");
        s.write("devices/pci0000:00/0000:00:05.0/max_link_speed", "Unknown\n");
        s.write("devices/pci0000:00/0000:00:05.0/current_link_width", "255\n");
        Topology t = SysFs.machine(s.root);
        assertEquals("PHB", t.code(0, 1).text());
        assertEquals("eth0", t.nics().get(0).name());
        assertEquals(0, t.nics().get(0).gbps());
        assertEquals(12, link(t, "GPU0", "pci0000:00").gbps());
        assertEquals(1, t.warnings().size(), t.warnings().toString());
    }

    @Test
    void theNumaNodeComesFromTheCpusNearbyIfNeedBe() throws IOException {
        FakeSys s = FakeSys.twoSockets(temp);
        s.write("devices/" + FakeSys.GPU2 + "/numa_node", "-1\n");
        s.write("devices/" + FakeSys.GPU2 + "/local_cpulist", "8-15\n");
        Topology near = SysFs.machine(s.root);
        assertEquals("1", near.gpus().get(2).numaAffinity());
        assertEquals(1, near.warnings().size());
        s.write("devices/" + FakeSys.GPU2 + "/local_cpulist", "0-31\n");
        Topology guess = SysFs.machine(s.root);
        assertEquals("0", guess.gpus().get(2).numaAffinity());
        assertTrue(guess.warnings().toString().contains("NUMA node of 0000:91:00.0"));
    }

    @Test
    void linksBetweenCpus() throws IOException {
        FakeSys s = FakeSys.twoSockets(temp);
        Object[][] cases = {
            {"vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t: 49\n", 16.0},
            {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\n", 24.0},
            {"vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t: 2\n", 32.0},
            {"processor : 0\nCPU implementer : 0x41\n", 6.0},
            {"processor : 0\ncpu\t\t: POWER9, altivec supported\n", 32.0},
            {"garbage", 10.0},
            {"", 10.0},
            {"vendor_id\t: GenuineIntel\ncpu family\t: six\nmodel\t: 99999999999\n", 10.0}
        };
        for (Object[] c : cases) {
            s.cpuinfo((String) c[0]);
            assertEquals(c[1], link(SysFs.machine(s.root), "numa0", "numa1").gbps(), (String) c[0]);
        }
        Path other = temp.resolve("other");
        Files.writeString(other, "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\n");
        assertEquals(40, link(SysFs.machine(s.root, other), "numa0", "numa1").gbps());
    }

    @Test
    void nothingThere() {
        Topology t = SysFs.machine(temp.resolve("missing"));
        assertEquals(0, t.gpus().size());
        assertEquals(1, t.switches().size());
        assertTrue(t.warnings().toString().contains("no NVIDIA GPU"), t.warnings().toString());
    }

    /** Whatever is damaged, it gives a machine. */
    @Test
    void damagedTrees() throws IOException {
        damagedTrees(5);
    }

    @Test
    @Tag("exhaustive")
    void veryManyDamagedTrees() throws IOException {
        damagedTrees(120);
    }

    private void damagedTrees(int rounds) throws IOException {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("SysFsMachineTest.damagedTrees: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        for (int round = 0; round < rounds; round++) {
            FakeSys s = FakeSys.twoSockets(temp.resolve("t" + round));
            List<Path> files = new ArrayList<>();
            try (Stream<Path> all = Files.walk(s.root)) {
                all.filter(p -> !Files.isDirectory(p)).forEach(files::add);
            }
            for (int n = 0; n < 8; n++) {
                Path file = files.get(random.nextInt(files.size()));
                boolean link = Files.isSymbolicLink(file);
                Files.deleteIfExists(file);
                switch (random.nextInt(link ? 3 : 6)) {
                    case 0 -> {
                        // missing
                    }
                    case 1 -> Files.createSymbolicLink(file, Path.of("nowhere"));
                    case 2 -> Files.createSymbolicLink(file, file.getFileName()); // a loop
                    case 3 -> Files.createDirectory(file); // cannot be read as a file
                    case 4 -> Files.write(file, new byte[] {-1, 0, 10, (byte) random.nextInt()});
                    default -> Files.writeString(file, "99999999999999999999");
                }
            }
            Topology t = SysFs.machine(s.root);
            assertNotNull(t);
            assertTrue(t.gpus().size() <= 3);
            for (Gpu gpu : t.gpus()) {
                for (Gpu other : t.gpus()) {
                    assertNotNull(t.code(gpu.id(), other.id()));
                }
            }
            SysFs.cpus(s.root);
        }
    }

    @Test
    void thisMachine() {
        Topology t = SysFs.machine(SysFs.ROOT);
        assertTrue(t.switches().stream().anyMatch(h -> h.kind() == Switch.Kind.NUMA), t.toString());
    }
}
