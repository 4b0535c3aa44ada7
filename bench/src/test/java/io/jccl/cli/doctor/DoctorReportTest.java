package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bindings.Discovery;
import io.jccl.bindings.NativeLibrary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DoctorReportTest {
    private static final List<String> SECTIONS =
            List.of(
                    "Host engine",
                    "System",
                    "CPU",
                    "Memory",
                    "NVIDIA driver",
                    "GPUs",
                    "InfiniBand and RoCE",
                    "Libraries",
                    "Configuration",
                    "Container",
                    "Required",
                    "Problems");

    @TempDir private Path root;

    private FakeMachine machine() {
        return new FakeMachine(root);
    }

    private static JsonNode json(Report report) throws IOException {
        return new ObjectMapper().readTree(report.json());
    }

    private static List<String> sections(String text) {
        List<String> titles = new ArrayList<>();
        String before = "";
        for (String line : text.split("\n", -1)) {
            if (before.isEmpty() && !line.isEmpty() && !line.startsWith("jccl doctor")) {
                titles.add(line);
            }
            before = line;
        }
        return titles;
    }

    @Test
    void textHasAllSectionsOnAnyMachine() {
        assertEquals(SECTIONS, sections(machine().report(Requirement.MPI).text()));
        assertEquals(SECTIONS, sections(machine().eightGpus().report(Requirement.NCCL).text()));
    }

    @Test
    void textSaysWhatMatters() {
        String text = machine().eightGpus().report(Requirement.NCCL).text();
        for (String part :
                List.of(
                        "jccl doctor 1.2.3",
                        "threads             works: ran",
                        "NUMA node 1         CPUs 4-7, 1.0 GiB, 512.0 MiB free",
                        "locked (memlock)    unlimited soft, unlimited hard",
                        "kernel module       580.65.06 (open)",
                        "0000:c3:00.0        NVIDIA H100 80GB HBM3, GPU-7",
                        "port 1: InfiniBand, ACTIVE, 400 Gb/sec (4X NDR)",
                        "NCCL                2.30.7 from /usr/lib/x86_64-linux-gnu/libnccl.so.2.30.7"
                                + " (the OS loader)",
                        "nccl                usable: NCCL 2.30.7, 8 GPUs",
                        "No problems found")) {
            assertTrue(text.contains(part), () -> part + " in " + text);
        }
    }

    @Test
    void aProblemIsOneLine() {
        FakeMachine m =
                machine()
                        .shm(64 << 20, 64 << 20)
                        .file("/.dockerenv", "")
                        .missing(
                                NativeLibrary.NCCL,
                                "not found",
                                new Discovery.Attempt("the OS loader", "libnccl.so.2", "absent"));
        String text = m.report().text();
        assertTrue(
                text.lines()
                        .anyMatch(l ->
                                l.startsWith("  warning  /dev/shm has 64.0 MiB, little")
                                        && l.contains(
                                                "To do: start the container with --shm-size=1g")
                                        && l.endsWith("[shm-small]")),
                text);
        assertTrue(text.contains("the OS loader, libnccl.so.2: absent"), text);
    }

    @Test
    void textShowsNoControlCharacters() {
        FakeMachine m =
                machine()
                        .variable("NCCL_IB_HCA", "a\u001b[31mred\nProblems\n")
                        .file("/etc/os-release", "PRETTY_NAME=\"A\u0007B\"\n");
        String text = m.report().text();
        assertTrue(text.contains("NCCL_IB_HCA=a?[31mred?Problems?"), text);
        assertTrue(text.contains("A?B"), text);
    }

    @Test
    void jsonHasTheDocumentedFields() throws IOException {
        JsonNode root = json(machine().eightGpus().report(Requirement.NCCL));
        for (String pointer :
                List.of(
                        "/schema",
                        "/jccl_version",
                        "/exit_status",
                        "/host_engine/works",
                        "/host_engine/threads/detail",
                        "/host_engine/folder",
                        "/host_engine/space/total_bytes",
                        "/os/kernel",
                        "/os/libc",
                        "/java/native_access",
                        "/java/vector_api",
                        "/cpu/available_to_java",
                        "/cpu/limit",
                        "/cpu/numa_nodes/1/cpus",
                        "/cpu/numa_nodes/1/total_bytes",
                        "/memory/limit_bytes",
                        "/memory/dev_shm/free_bytes",
                        "/memory/memlock_bytes/soft",
                        "/memory/open_files/hard",
                        "/driver/version",
                        "/driver/cuda/driver_version",
                        "/driver/cuda/devices/0/name",
                        "/driver/libcuda",
                        "/driver/device_nodes/0/readable",
                        "/gpus/7/pci",
                        "/gpus/7/numa_node",
                        "/gpus/7/link/max_width",
                        "/network/devices/0/ports/0/rate",
                        "/libraries/0/path",
                        "/libraries/0/how",
                        "/libraries/0/attempts/0/outcome",
                        "/configuration/files/0/state",
                        "/container/detected",
                        "/required/0/usable")) {
            assertFalse(root.at(pointer).isMissingNode(), pointer);
            assertFalse(root.at(pointer).isNull(), pointer);
        }
        assertEquals("580.65.06", root.at("/driver/version").asText());
        assertEquals("13.0", root.at("/driver/cuda/driver_version").asText());
        assertEquals(-1, root.at("/memory/memlock_bytes/soft").asLong());
        assertEquals("nccl", root.at("/libraries/0/name").asText());
        assertTrue(root.at("/problems").isArray());
        assertEquals(0, root.at("/problems").size());
    }

    @Test
    void everyFieldIsDocumented() throws IOException {
        FakeMachine m = machine().eightGpus().file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n");
        m.variable("NCCL_DEBUG", "WARN").property("jccl.shm.dir", "/dev/shm").jvm(false, false);
        m.copies(NativeLibrary.NCCL, new Libraries.Copy("/wheel/libnccl.so.2", null));
        TreeSet<String> fields = new TreeSet<>();
        ObjectNode root = (ObjectNode) json(m.report(Requirement.NCCL));
        // Its keys are pointers.
        root.replace("unknown", root.nullNode());
        collectFields(root, fields);
        String page = Files.readString(Path.of("..", "docs", "doctor.md"));
        assertEquals(
                List.of(), fields.stream().filter(f -> !page.contains("`" + f + "`")).toList());
    }

    private static void collectFields(JsonNode node, Set<String> to) {
        node.fieldNames().forEachRemaining(to::add);
        node.forEach(child -> collectFields(child, to));
    }

    @Test
    void jsonGivesReasonsForWhatIsUnknown() throws IOException {
        JsonNode root = json(machine().cpus(2, 1, 1).gpu("07", 0, "").report());
        assertTrue(root.at("/memory/total_bytes").isNull());
        assertEquals("no /proc/meminfo", root.get("unknown").get("/memory/total_bytes").asText());
        assertTrue(root.at("/gpus/0/model").isNull());
        assertEquals(
                "no /proc/driver/nvidia/gpus/0000:07:00.0/information",
                root.get("unknown").get("/gpus/0/model").asText());
        // Every reason belongs to a field that is null.
        root.get("unknown")
                .fieldNames()
                .forEachRemaining(pointer -> assertTrue(root.at(pointer).isNull(), pointer));
    }

    @Test
    void jsonLibrariesThatAreMissing() throws IOException {
        JsonNode root = json(machine().missing(NativeLibrary.NCCL, "gone").report());
        JsonNode nccl = root.at("/libraries/0");
        assertFalse(nccl.get("found").asBoolean());
        assertTrue(nccl.get("version").isNull());
        assertEquals("gone", nccl.get("reason").asText());
    }

    @Test
    void jsonProblems() throws IOException {
        JsonNode p = json(machine().jvm(true, false).report()).at("/problems/0");
        assertEquals("warning", p.get("severity").asText());
        assertEquals("vector-api", p.get("id").asText());
        assertTrue(p.get("action").asText().contains("--add-modules"), p::toString);
        assertTrue(p.get("found").asText().contains("Vector API"), p::toString);
    }
}
