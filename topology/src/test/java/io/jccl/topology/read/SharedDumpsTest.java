package io.jccl.topology.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.topology.Need;
import io.jccl.topology.Topology;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/**
 * Real dumps against what people read in them. They are not part of the repository: the system
 * property {@code jccl.shared} or the variable {@code JCCL_SHARED} names the folder that has them
 * in {@code topo}; else a folder {@code shared} beside the checkout is looked for.
 */
class SharedDumpsTest {
    private static @Nullable Path folder() {
        String named = System.getProperty("jccl.shared", System.getenv("JCCL_SHARED"));
        if (named != null && !named.isEmpty()) {
            Path topo = Path.of(named, "topo");
            assertTrue(Files.isDirectory(topo), "no folder " + topo + ", which was named");
            return topo;
        }
        for (Path p = Path.of("").toAbsolutePath(); p != null; p = p.getParent()) {
            Path topo = p.resolveSibling("shared").resolve("topo");
            if (Files.isDirectory(topo)) {
                return topo;
            }
        }
        return null;
    }

    @TestFactory
    Stream<DynamicTest> everyDumpIsReadAsPeopleReadIt() throws IOException {
        Path folder = folder();
        if (folder == null) {
            throw Need.TOPO.absent(
                    "there is not a folder ../shared/topo with dumps (JCCL_SHARED names another)");
        }
        List<Path> dumps;
        try (Stream<Path> files = Files.list(folder)) {
            dumps = files.filter(f -> f.toString().endsWith(".txt")).sorted().toList();
        }
        assertFalse(dumps.isEmpty(), "no dumps in " + folder);
        return dumps.stream()
                .map(dump -> dynamicTest(dump.getFileName().toString(), () -> compare(dump)));
    }

    private static void compare(Path file) throws IOException {
        String text = Files.readString(file);
        Path json = file.resolveSibling(file.getFileName().toString().replace(".txt", ".json"));
        JsonNode truth = new ObjectMapper().readTree(json.toFile());
        Dump dump = TopologyReader.dump(text, ReadOptions.DEFAULT);
        Topology t = TopologyReader.topology(text, ReadOptions.DEFAULT);
        assertEquals(truth.get("gpus").asInt(), t.gpus().size(), "GPUs");
        assertEquals(truth.get("nics").asInt(), t.nics().size(), "NICs");
        int pairs = 0;
        for (JsonNode link : truth.get("links")) {
            int a = link.get(0).asInt();
            int b = link.get(1).asInt();
            assertEquals(
                    link.get(2).asText(), t.code(a, b).text(), "code of GPU" + a + ", GPU" + b);
            pairs++;
        }
        if (dump instanceof NvlinkStatus) {
            return;
        }
        int n = t.gpus().size();
        assertEquals(n * (n - 1) / 2, pairs, "pairs in the truth");
        if (!(dump instanceof PathMatrix m)) {
            return;
        }
        affinity(truth, "cpuAffinity", m, PathMatrix.GpuRow::cpuAffinity);
        affinity(truth, "numaAffinity", m, PathMatrix.GpuRow::numaAffinity);
        affinity(truth, "gpuNumaId", m, PathMatrix.GpuRow::gpuNumaId);
        List<String> names = new ArrayList<>();
        m.nics().forEach(nic -> names.add(nic.device() != null ? nic.device() : nic.name()));
        for (int i = 0; i < names.size() && !truth.get("nicNames").isNull(); i++) {
            assertEquals(truth.get("nicNames").get(i).asText(), names.get(i), "NIC " + i);
        }
        int ends = t.gpus().size() + t.nics().size();
        for (int i = 0; i < ends; i++) {
            for (int j = 0; j < ends; j++) {
                assertTrue(t.route(i, j) != null, "no route from " + i + " to " + j);
            }
        }
    }

    private static void affinity(
            JsonNode truth,
            String what,
            PathMatrix matrix,
            Function<PathMatrix.GpuRow, @Nullable String> get) {
        JsonNode lists = truth.get(what);
        for (int i = 0; i < matrix.gpus().size(); i++) {
            String read = get.apply(matrix.gpus().get(i));
            if (lists == null || lists.isNull()) {
                assertNull(read, what + " of GPU" + i);
            } else {
                assertEquals(lists.get(i).asText(), read, what + " of GPU" + i);
            }
        }
    }
}
