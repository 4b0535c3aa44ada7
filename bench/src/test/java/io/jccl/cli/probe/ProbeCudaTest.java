package io.jccl.cli.probe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.probe.Outcome;
import io.jccl.bench.probe.Outcome.Status;
import io.jccl.bench.probe.ProbeJson;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.cli.OnFakes;
import io.jccl.cli.OnFakes.Result;
import io.jccl.testkit.Workers;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A probe of a GPU, on the fakes of CUDA, NCCL and cuBLAS, in JVMs of their own. */
@Timeout(value = 180, unit = TimeUnit.SECONDS)
class ProbeCudaTest {
    private static final String TINY = " --sizes 16,40 --max-bytes 64K --time-budget ";

    @RegisterExtension static final OnFakes FAKES = new OnFakes();

    @TempDir Path output = Path.of("");

    private static Result probe(Map<String, String> environment, String line) throws Exception {
        return FAKES.jccl(environment, ("probe --device " + line).split(" "));
    }

    private static Result injected(String rule, String line) throws Exception {
        return FAKES.injected(rule, ("probe --device " + line).split(" "));
    }

    private static Set<Status> statuses(List<Outcome> outcomes) {
        return outcomes.stream().map(Outcome::status).collect(Collectors.toSet());
    }

    @Test
    void aGpuIsMeasured() throws Exception {
        Path json = output.resolve("gpu.json");
        String only = " --only matmul,elementwise,memory,latency,copy";
        Result r =
                probe(Map.of("JCCL_FAKE_DEVICES", "2"), "cuda:1" + only + TINY + "0.7 -J " + json);
        assertEquals(0, r.status(), r::toString);
        ProbeResult found = ProbeJson.read(json);
        assertEquals("cuda", found.device().kind());
        assertEquals(1, found.device().index());
        assertEquals(2, found.gpus().size());
        assertEquals(Set.of("cudart", "cublas", "nccl"), found.machine().libraries().keySet());
        assertEquals(10, found.matmul().size());
        assertEquals(
                Set.of(Status.MEASURED),
                statuses(found.matmul().stream().map(ProbeResult.Product::outcome).toList()));
        assertEquals(
                Set.of(Status.MEASURED),
                statuses(
                        found.elementwise().stream()
                                .map(ProbeResult.Elementwise::outcome)
                                .toList()));
        assertEquals(
                List.of("add", "cast", "axpy", "adam"),
                found.elementwise().stream()
                        .map(ProbeResult.Elementwise::operation)
                        .distinct()
                        .toList());
        // Each beside the largest copy, by the bytes that are read and written.
        double copy =
                found.memory().stream()
                        .filter(m -> m.bytes() == 64 << 10 && m.access().equals("copy"))
                        .mapToDouble(ProbeResult.Access::gigabytesPerSecond)
                        .findFirst()
                        .orElseThrow();
        for (ProbeResult.Elementwise e : found.elementwise()) {
            Double rate = e.gigabytesPerSecond();
            assertTrue(rate != null, e::toString);
            double part = shareOfCopy(r, e.operation(), e.elements());
            assertEquals(rate / copy, part, 0.01 * rate / copy, e.operation());
        }
        assertEquals(
                Set.of(Status.MEASURED),
                statuses(found.memory().stream().map(ProbeResult.Access::outcome).toList()));
        assertEquals(
                Stream.of("read", "write", "triad", "copy")
                        .flatMap(a -> Stream.of(a + " 16384 L2", a + " 65536 L2"))
                        .toList(),
                found.memory().stream()
                        .map(m -> m.access() + " " + m.bytes() + " " + m.level())
                        .toList());
        Set<String> pairs =
                found.latency().stream()
                        .map(l -> l.from() + " " + l.to())
                        .collect(Collectors.toSet());
        assertTrue(
                pairs.containsAll(
                        Set.of("host cuda:1", "cuda:1 host", "cuda:1 cuda:0", "cuda:0 cuda:1")),
                pairs::toString);
        // A read of cuda:0 by cuda:1, the first of the list, goes from the one to the other.
        assertEquals(
                Set.of("cuda:0 cuda:1", "cuda:1 cuda:0"),
                found.copies().stream()
                        .filter(c -> c.name().equals("device_to_device_memcpy_read_ce"))
                        .map(c -> c.from() + " " + c.to())
                        .collect(Collectors.toSet()));
        assertEquals(
                Set.of("cuda:0 host", "cuda:1 host"),
                found.copies().stream()
                        .filter(c -> c.name().equals("device_to_host_memcpy_ce"))
                        .map(c -> c.from() + " " + c.to())
                        .collect(Collectors.toSet()));
        assertEquals(List.of(), found.allReduce());
        assertEquals(List.of(), found.layers());
        assertFalse(r.text().contains("lacking"), r::toString);
    }

    /** What takes seconds on the fakes. */
    @Tag("exhaustive")
    @Test
    void aLayerAndSumsOverGpusAreMeasured() throws Exception {
        Path json = output.resolve("layer.json");
        String only = " --only layer,allreduce --hidden 16";
        // What has no time left is skipped.
        long seconds = Workers.patience(Duration.ofSeconds(10)).toSeconds();
        Result r =
                probe(
                        Map.of("JCCL_FAKE_DEVICES", "2"),
                        "cuda:1" + only + TINY + seconds + " -J " + json);
        assertEquals(0, r.status(), r::toString);
        ProbeResult found = ProbeJson.read(json);
        assertEquals(
                List.of("nccl 2 8", "nccl 2 720", "nccl 2 64800"),
                found.allReduce().stream()
                        .map(a -> a.engine() + " " + a.ranks() + " " + a.bytes())
                        .toList());
        ProbeResult.Layer layer = found.layers().getFirst();
        assertEquals("layer", layer.part());
        // As the host counts: 12 h^2 weights for 512 tokens, and attention below the diagonal.
        assertEquals(2.0 * 512 * (12 * 16 * 16 + 128 * 16), layer.forwardFlops());
        assertEquals(Set.of(Status.MEASURED), statuses(List.of(layer.forward(), layer.backward())));
        assertFalse(r.text().contains("lacking"), r::toString);
    }

    /** The last column of an operation's row. */
    private static double shareOfCopy(Result r, String operation, long elements) {
        r.has("of a copy");
        String begin = " +" + operation + " +float +" + (elements >> 10) + "K +.*";
        String row = r.text().lines().filter(l -> l.matches(begin)).findFirst().orElseThrow();
        return Double.parseDouble(row.substring(row.lastIndexOf(' ') + 1));
    }

    @Tag("exhaustive")
    @Test
    void oneGpuHasNoPeers() throws Exception {
        Path json = output.resolve("one.json");
        Result r =
                probe(
                        Map.of("JCCL_FAKE_DEVICES", "1"),
                        "cuda --only allreduce,copy --max-bytes 64K --time-budget 3 -J " + json);
        assertEquals(0, r.status(), r::toString);
        ProbeResult found = ProbeJson.read(json);
        assertEquals("needs two GPUs", found.allReduce().getFirst().outcome().note());
        assertEquals(
                4,
                found.copies().stream()
                        .filter(c -> c.outcome().status() == Status.LACKING)
                        .count());
    }

    /** In each way that products are computed. */
    @ParameterizedTest
    @CsvSource("tf32")
    void aWrongProductIsFound(String type) throws Exception {
        Result r =
                injected(
                        "cublasGemmEx@0:*:corrupt",
                        "cuda --only matmul --types " + type + " --sizes 40 --time-budget 1");
        assertEquals(1, r.status(), r::toString);
        r.has("# WRONG OR FAILED: matmul " + type + " 40: wrong: row 20 of the product");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"float32", "float64"})
    void aWrongProductOfAnotherTypeIsFound(String type) throws Exception {
        aWrongProductIsFound(type);
    }

    /** In the output of the pass that goes along the gradient; one value counts among few only. */
    @Test
    void aWrongProductOfALayerIsFound() throws Exception {
        // After the 4 products of a forward pass and the 8 of a backward pass.
        String rule = "cublasGemmEx@0:16:corrupt";
        Result r = injected(rule, "cuda --only layer --hidden 1 --time-budget 1");
        assertEquals(1, r.status(), r::toString);
        r.has("# WRONG OR FAILED: layer 1 forward: wrong: the gradient differs");
    }

    /** A type that this cuBLAS refuses is lacking; an error is a failure. */
    @Test
    void errorsStandInTheirRows() throws Exception {
        String line = "cuda --only matmul --types tf32,float64 --sizes 16 --time-budget 1";
        Result lacking = injected("cublasGemmEx@0:1:error=15", line);
        assertEquals(0, lacking.status(), lacking::toString);
        lacking.has("lacking: cublasGemmEx failed: CUBLAS_STATUS_NOT_SUPPORTED");
        Result failed = injected("cublasGemmEx@0:1:error=13", line);
        assertEquals(1, failed.status(), failed::toString);
        failed.has("matmul tf32 16: failed: cublasGemmEx failed: CUBLAS_STATUS_EXECUTION_FAILED");
        assertTrue(failed.text().lines().anyMatch(l -> l.matches(" +float64 +16 +[0-9.]+ .*")));
    }

    @Tag("exhaustive")
    @Test
    void withoutCublasTheRestIsMeasured() throws Exception {
        String nowhere = output.resolve("libcublas.so.13").toString();
        Path json = output.resolve("rest.json");
        String line =
                "probe --device cuda --only matmul,layer,copy --sizes 16 --hidden 16"
                        + " --max-bytes 64K --time-budget 2 -J "
                        + json;
        Result r = FAKES.jccl(List.of("-Djccl.cublas=" + nowhere), Map.of(), line.split(" "));
        assertEquals(0, r.status(), r::toString);
        ProbeResult found = ProbeJson.read(json);
        for (Outcome o :
                List.of(
                        found.matmul().getFirst().outcome(),
                        found.layers().getFirst().backward())) {
            assertEquals(Status.LACKING, o.status());
            assertTrue(String.valueOf(o.note()).startsWith("cuBLAS was not loaded"), o::toString);
        }
        assertTrue(found.copies().stream().anyMatch(c -> c.gigabytesPerSecond() != null));
    }

    /** After a kernel's error nothing can be measured any more. */
    @Tag("exhaustive")
    @Test
    void aDeviceThatIsLostEndsTheProbe() throws Exception {
        Result r =
                probe(
                        Map.of("JCCL_FAKE_INJECT", "cublasGemmEx@0:3:async=719"),
                        "cuda --only matmul,copy --max-bytes 64K --sizes 16 --time-budget 1");
        assertEquals(1, r.status(), r::toString);
        r.has("cudaErrorLaunchFailure", "restart it");
    }

    @Tag("exhaustive")
    @Test
    void aDeviceThatIsNotThereIsAMistake() throws Exception {
        Result r = probe(Map.of("JCCL_FAKE_DEVICES", "2"), "cuda:2 --only copy");
        assertEquals(2, r.status(), r::toString);
        r.has("--device is cuda:2, but this process sees 2 GPUs, numbered from 0");
        Result none = probe(Map.of("JCCL_FAKE_DEVICES", "0"), "cuda --only copy");
        assertEquals(2, none.status(), none::toString);
        none.has("sees no GPU; use --device host, or run jccl doctor");
    }
}
