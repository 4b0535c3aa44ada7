package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.OnFakes;
import io.jccl.cli.OnFakes.Result;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * {@code matmul --engine nccl} on the fakes of CUDA, NCCL and cuBLAS, in JVMs of their own. Ranks
 * are GPUs 0, 1, ..., by which rules of what goes wrong name them.
 */
@Timeout(value = 180, unit = TimeUnit.SECONDS)
class NcclMatmulTest {
    @RegisterExtension static final OnFakes FAKES = new OnFakes();

    @TempDir Path output = Path.of("");

    private static Result matmul(Map<String, String> environment, String line)
            throws IOException, InterruptedException {
        return FAKES.jccl(environment, ("matmul --engine nccl " + line).split(" "));
    }

    private static Result injected(String rule, String line) throws IOException {
        return FAKES.injected(rule, line.split(" "));
    }

    private static void assertFails(Result r, String... parts) {
        assertEquals(1, r.status(), r::toString);
        r.has(parts);
        assertFalse(r.text().contains("\tat "), r::toString);
        assertFalse(r.text().contains("checked: right"), r::toString);
    }

    /** Sizes that are no multiples of ranks or tiles; as little device memory as makes many. */
    @ParameterizedTest
    @CsvSource({"2, 2, 1M", "257, 4, 96K"})
    void everyElementIsRight(int size, int ranks, String memory) throws Exception {
        Path json = output.resolve("matmul.json");
        String line = "-n " + size + " -g " + ranks + " --device-memory " + memory;
        Result r = matmul(Map.of(), line + " -J " + json);
        assertEquals(0, r.status(), r::toString);
        long all = (long) size * size;
        r.has("nccl, cuBLAS", "right (2 random vectors, " + all + " elements)");
        JsonNode n = new ObjectMapper().readTree(json.toFile());
        assertEquals("nccl", n.get("engine").asText());
        assertEquals(all, n.get("elementsChecked").asLong());
        JsonNode plan = n.get("plan");
        assertEquals(plan.get("receivedBytes"), n.get("receivedBytes"), r::toString);
        assertEquals(plan.get("toDeviceBytes"), n.get("toDeviceBytes"), r::toString);
        assertTrue(
                n.get("devicePeakBytes").asLong() <= n.get("deviceBudgetBytes").asLong(),
                r::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"200, 2, 128K", "101, 3, 64K"})
    void everyElementIsRightInMoreShapes(int size, int ranks, String memory) throws Exception {
        everyElementIsRight(size, ranks, memory);
    }

    @Test
    void matricesMayLiveOnADrive() throws Exception {
        String line = "-n 150 -g 2 --device-memory 64K --tier nvme --nvme " + output;
        Result r = matmul(Map.of(), line);
        assertEquals(0, r.status(), r::toString);
        r.has("files under", "right (2 random vectors, 22500 elements)");
        try (Stream<Path> left = Files.list(output)) {
            assertEquals(List.of(), left.toList(), "left behind");
        }
    }

    @Tag("exhaustive")
    @Test
    void ranksMayBeProcesses() throws Exception {
        Result r =
                FAKES.jccl(
                        Map.of(),
                        "run -n 2 -- matmul -n 150 --engine nccl --device-memory 64K".split(" "));
        assertEquals(0, r.status(), r::toString);
        r.has("2 ranks, nccl, cuBLAS", "right (2 random vectors, 22500 elements)");
    }

    /** A wrong element that a GPU computed is found. */
    @Test
    void aWrongProductIsFound() throws Exception {
        Result r = injected("cublasGemmEx@1:2:corrupt", "matmul --engine nccl -n 200 -g 2");
        assertFails(r, "wrong result on rank 1: element (", "WRONG on 1 ranks");
    }

    /** One rank's call, or what it started on the GPU, fails: all ranks end, and say why. */
    @ParameterizedTest
    @CsvSource({"cublasGemmEx@1:1:async=719, cudaErrorLaunchFailure"})
    void anErrorOnOneRankEndsAll(String rule, String message) throws Exception {
        // After an error of the device, no command of the same JVM would find it.
        Result r =
                rule.contains("async")
                        ? matmul(Map.of("JCCL_FAKE_INJECT", rule), "-n 200 -g 2")
                        : injected(rule, "matmul --engine nccl -n 200 -g 2");
        assertFails(r, message);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "cublasGemmEx@1:1:error=13, cublasGemmEx failed: CUBLAS_STATUS_EXECUTION_FAILED",
        "cublasCreate_v2@1:1:error=1, cublasCreate failed: CUBLAS_STATUS_NOT_INITIALIZED",
        "cublasGemmEx@0:2:error=13, cublasGemmEx failed: CUBLAS_STATUS_EXECUTION_FAILED"
    })
    void anErrorOfAnotherCallEndsAll(String rule, String message) throws Exception {
        anErrorOnOneRankEndsAll(rule, message);
    }

    /** Each rank a process: the other one names the rank that failed or died. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("kill, 137, rank 1 is lost")
    void aFailedProcessEndsTheOthers(String action, int status, String message) throws Exception {
        Map<String, String> rule = Map.of("JCCL_FAKE_INJECT", "cublasGemmEx@1:2:" + action);
        Result r = FAKES.jccl(rule, "run -n 2 -- matmul -n 150 --engine nccl".split(" "));
        assertEquals(status, r.status(), r::toString);
        // Which process ends first after an error is not said: rank 1 still frees what it has.
        r.has(message, "failed first, with status " + status);
    }

    @Tag("exhaustive")
    @Test
    void aProcessThatFailsEndsTheOthers() throws Exception {
        String cause = "io.jccl.bindings.CublasException: cublasGemmEx failed";
        aFailedProcessEndsTheOthers("error=13", 1, "was aborted by rank 1: " + cause);
    }

    @Tag("exhaustive")
    @Test
    void aMissingLibraryIsNamedWithWhatToDo() throws Exception {
        String nowhere = output.resolve("libcublas.so.13").toString();
        Result r =
                FAKES.jccl(
                        List.of("-Djccl.cublas=" + nowhere),
                        Map.of(),
                        "matmul --engine nccl -n 100 -g 2".split(" "));
        assertFails(r, "cuBLAS was not loaded", nowhere, "correct or remove the setting");
    }

    /** The device has less than --device-memory, or cuBLAS itself finds no room. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "7340032, '-n 1500 --device-memory 32M', which has no room for them: free memory there"
    })
    void aFullDeviceIsSaid(String memory, String line, String message) throws Exception {
        Map<String, String> small = Map.of("JCCL_FAKE_MEMORY", memory);
        assertFails(matmul(small, line + " -g 2"), message);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"9437184, '-n 1500 --device-memory 32M', the device itself has no room"})
    void aFullDeviceIsSaidInMoreCases(String memory, String line, String message) throws Exception {
        aFullDeviceIsSaid(memory, line, message);
    }

    /** The work of layers that stream through the device. */
    @Test
    void layersOfProductsRunBesideTheirCopies() throws Exception {
        String line =
                "offload --device cuda --layers 4 --layer-bytes 64K --iterations 2 --samples 2"
                        + " --gemm 64";
        Result r = FAKES.jccl(Map.of(), line.split(" "));
        assertEquals(0, r.status(), r::toString);
        r.has("layers, all right");
        Result failed = injected("cublasGemmEx:3:error=13", line);
        assertFails(failed, "CUBLAS_STATUS_EXECUTION_FAILED");
    }

    @Test
    void memoryThatHoldsNoTileIsAMistake() throws Exception {
        Result r = matmul(Map.of(), "-n 640 -g 2 --device-memory 1K");
        assertEquals(2, r.status(), r::toString);
        r.has("--device-memory is 1024 bytes", "raise it");
    }
}
