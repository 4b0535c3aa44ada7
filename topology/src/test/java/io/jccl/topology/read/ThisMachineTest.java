package io.jccl.topology.read;

import static io.jccl.topology.read.SysFsMachineTest.link;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.topology.Gpu;
import io.jccl.topology.Source;
import io.jccl.topology.Topology;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ThisMachineTest {
    private static final String MATRIX =
            """
            \tGPU0\tGPU1\tGPU2\tmlx5_0\tCPU Affinity\tNUMA Affinity
            GPU0\t X \tNV4\tSYS\tPIX\t0-7,16-23\t0
            GPU1\tNV4\t X \tSYS\tPIX\t0-7,16-23\t0
            GPU2\tSYS\tSYS\t X \tSYS\t8-15,24-31\t1
            mlx5_0\tPIX\tPIX\tSYS\t X \t\t

            Legend:

              X    = Self
              SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
              PIX  = Connection traversing at most a single PCIe bridge
              NV#  = Connection traversing a bonded set of # NVLinks
            """;

    private static final String QUERY =
            """
            0, NVIDIA A100-SXM4-40GB, 00000000:13:00.0, 8.0
            1, NVIDIA A100-SXM4-40GB, 00000000:14:00.0, 8.0
            2, NVIDIA A100-SXM4-40GB, 00000000:91:00.0, 8.0
            """;

    @TempDir Path temp;

    /** What each command gives; one that is not here is not installed. */
    private final Map<String, CommandRunner.Output> said = new HashMap<>();

    private final CommandRunner commands =
            (command, limit) -> {
                String line = String.join(" ", command);
                for (Map.Entry<String, CommandRunner.Output> entry : said.entrySet()) {
                    if (line.startsWith("nvidia-smi " + entry.getKey())) {
                        return entry.getValue();
                    }
                }
                throw new IOException("Cannot run program \"nvidia-smi\": error=2");
            };

    private Path sys = Path.of("");

    @BeforeEach
    void makeSys() throws IOException {
        sys = FakeSys.twoSockets(temp.resolve("fake")).root;
    }

    private void say(String command, String out) {
        said.put(command, new CommandRunner.Output(0, out, "", false));
    }

    private Topology read() {
        return ThisMachine.read(ReadOptions.DEFAULT.withName("here"), commands, sys);
    }

    @Test
    void allTogether() {
        say("topo -m", MATRIX);
        say("--query-gpu", QUERY);
        say(
                "nvlink -s",
                """
                GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
                \t Link 0: 25 GB/s
                \t Link 1: 25 GB/s
                \t Link 2: 25 GB/s
                \t Link 3: 25 GB/s
                GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
                \t Link 0: 25 GB/s
                \t Link 1: 25 GB/s
                \t Link 2: 25 GB/s
                \t Link 3: 25 GB/s
                """);
        Topology t = read();
        assertEquals("here", t.name());
        Gpu gpu = t.gpus().get(2);
        assertEquals("0000:91:00.0", gpu.busId());
        assertEquals("NVIDIA A100-SXM4-40GB", gpu.model());
        assertEquals(80, gpu.sm());
        assertEquals(Source.DEVICE, gpu.smSource());
        assertEquals("8-15,24-31", gpu.cpuAffinity());
        // Only what nvidia-smi lists: the network card is not there.
        assertEquals(List.of("mlx5_0"), t.nics().stream().map(n -> n.name()).toList());
        assertEquals(50, t.nics().get(0).gbps());
        // The true tree, with speeds.
        assertEquals(24, link(t, "GPU1", "pcie-switch0").gbps());
        assertEquals(Source.DEVICE, link(t, "GPU1", "pcie-switch0").source());
        assertEquals(22, link(t, "numa0", "numa1").gbps());
        assertEquals(4, link(t, "GPU0", "GPU1").count());
        assertTrue(link(t, "GPU0", "GPU1").gbps() >= 80, t.links().toString());
        assertEquals("NV4", t.code(0, 1).text());
        assertEquals("PIX", t.code(0, 3).text());
        assertTrue(t.switches().stream().noneMatch(h -> h.name().equals("pci0000:80")));
        assertFalse(t.warnings().toString().contains("/sys"), t.warnings().toString());
    }

    @Test
    void theCallersModelTakesPrecedence() {
        say("topo -m", MATRIX);
        say("--query-gpu", QUERY);
        Topology t = ThisMachine.read(ReadOptions.DEFAULT.withGpuModel("H100"), commands, sys);
        Gpu gpu = t.gpus().getFirst();
        assertEquals("0000:13:00.0", gpu.busId());
        assertEquals("H100", gpu.model());
        assertEquals(90, gpu.sm());
        assertEquals(Source.USER, gpu.smSource());
        assertEquals(4 * 20.6, link(t, "GPU0", "GPU1").gbps(), 1e-9);
    }

    @Test
    void codesStayAsPrintedEvenIfTheTreeSaysOtherwise() {
        say("topo -m", MATRIX.replace("PIX", "PHB"));
        say("--query-gpu", QUERY);
        Topology t = read();
        assertEquals("PHB", t.code(0, 3).text());
        assertEquals(24, link(t, "mlx5_0", "pcie-switch0").gbps());
    }

    @Test
    void withoutNvidiaSmiThereIsThePcieSide() {
        Topology t = read();
        assertEquals(3, t.gpus().size());
        assertEquals(2, t.nics().size());
        String warnings = t.warnings().toString();
        assertTrue(warnings.contains("cannot be run"), warnings);
        assertTrue(warnings.contains("--file"), warnings);
    }

    @Test
    void aDriverThatDoesNotAnswer() {
        String text =
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make"
                        + " sure that the latest NVIDIA driver is installed and running.\n";
        said.put("topo -m", new CommandRunner.Output(9, text, "", false));
        Topology t = read();
        assertEquals(3, t.gpus().size());
        String warnings = t.warnings().toString();
        assertTrue(warnings.contains("status 9"), warnings);
        assertTrue(warnings.contains("couldn't communicate with the NVIDIA driver"), warnings);
    }

    @Test
    void garbageIsNoMatrix() {
        say("topo -m", "??? \u0007 nothing of the kind\n");
        say("--query-gpu", "more, garbage\n");
        Topology t = read();
        assertEquals(3, t.gpus().size());
        String warnings = t.warnings().toString();
        assertTrue(warnings.contains("cannot be read"), warnings);
        assertTrue(warnings.contains("more, garbage"), warnings);
        say("topo -m", " \n");
        assertTrue(read().warnings().toString().contains("printed nothing"));
    }

    @Test
    void itMayHang() {
        said.put("topo -m", new CommandRunner.Output(-1, "", "", true));
        assertTrue(read().warnings().toString().contains("did not end within 20 s"));
    }

    @Test
    void whatIsNotInSysLeavesTheEstimate() {
        say("topo -m", MATRIX);
        say("--query-gpu", QUERY.replace("91:00.0", "92:00.0"));
        Topology t = read();
        assertEquals(3, t.gpus().size());
        assertEquals(1, t.nics().size());
        assertEquals("NV4", t.code(0, 1).text());
        assertNull(t.gpus().get(2).busId());
        String warnings = t.warnings().toString();
        assertTrue(warnings.contains("GPU2 (0000:92:00.0) is not to be found in /sys"), warnings);
        // Without the query nothing can be looked up.
        said.remove("--query-gpu");
        assertTrue(read().warnings().toString().contains("estimates"));
        // A NIC that /sys has under another name.
        say("--query-gpu", QUERY);
        say("topo -m", MATRIX.replace("mlx5_0", "mlx5_9"));
        assertTrue(read().warnings().toString().contains("mlx5_9"));
    }

    @Test
    void theUserGoesFirst() {
        say("topo -m", MATRIX);
        say("--query-gpu", QUERY);
        ReadOptions told = ReadOptions.DEFAULT.withNvlinkGbps(23).withNicGbps(46);
        Topology t = ThisMachine.read(told, commands, sys);
        assertEquals(92, link(t, "GPU0", "GPU1").gbps());
        assertEquals(Source.USER, link(t, "GPU0", "GPU1").source());
        assertEquals(46, t.nics().get(0).gbps());
    }

    @Test
    void xmlIsReadByItsLooks() {
        String xml =
                "\ufeff<?xml version=\"1.0\"?>\n"
                        + io.jccl.topology.nccl.TopologyXml.write(
                                io.jccl.topology.Machines.dgx1v());
        Topology t = TopologyReader.topology(xml, ReadOptions.DEFAULT.withNvlinkGbps(25));
        assertEquals(8, t.gpus().size());
        assertEquals("NV2", t.code(0, 3).text());
        assertEquals(50, link(t, "GPU0", "GPU3").gbps());
        assertEquals("machine", t.name());
    }

    // ---- Processes

    private String script(String body) throws IOException {
        Path file = temp.resolve("nvidia-smi");
        Files.writeString(file, "#!/bin/sh\n" + body + "\n");
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
        return file.toString();
    }

    private CommandRunner.Output run(String body, Duration limit) throws IOException {
        return CommandRunner.system().run(List.of(script(body), "topo", "-m"), limit);
    }

    @Test
    void processesAreReadToTheEnd() throws IOException {
        CommandRunner.Output o =
                run(
                        "i=0; while [ $i -lt 20000 ]; do echo \"$1 $2 line $i\"; i=$((i+1)); done;"
                                + " echo problem >&2; exit 3",
                        Duration.ofSeconds(60));
        assertEquals(3, o.exit());
        assertFalse(o.timedOut());
        assertEquals(20_000, o.out().lines().count());
        assertTrue(o.out().endsWith("topo -m line 19999\n"));
        assertEquals("problem\n", o.err());
    }

    @Test
    void processesThatHangAreStoppedWithTheirChildren() throws IOException {
        long start = System.nanoTime();
        // The child keeps the output open.
        CommandRunner.Output o = run("echo started; sleep 600", Duration.ofSeconds(1));
        double seconds = (System.nanoTime() - start) / 1e9;
        assertTrue(o.timedOut());
        assertEquals("started\n", o.out());
        assertTrue(seconds < 30, "seconds: " + seconds);
    }

    @Test
    void programsThatAreNotThere() {
        assertThrows(
                IOException.class,
                () ->
                        CommandRunner.system()
                                .run(List.of("no-such-program-here"), Duration.ofSeconds(5)));
    }

    @Test
    void aScriptInPlaceOfNvidiaSmi() throws IOException {
        Path matrix = temp.resolve("matrix");
        Files.writeString(matrix, MATRIX);
        String script =
                script(
                        "case \"$1\" in topo) cat "
                                + matrix
                                + ";; *) echo \"no such option: $1\" >&2; exit 2;; esac");
        CommandRunner scripted =
                (command, limit) -> {
                    List<String> line = new java.util.ArrayList<>(command);
                    line.set(0, script);
                    return CommandRunner.system().run(line, limit);
                };
        Topology t = ThisMachine.read(ReadOptions.DEFAULT, scripted, sys);
        assertEquals("NV4", t.code(0, 1).text());
        assertTrue(
                t.warnings().toString().contains("no such option: --query-gpu"),
                t.warnings().toString());
    }

    @Test
    void here() {
        Topology t = ThisMachine.read();
        assertEquals("this machine", t.name());
    }
}
