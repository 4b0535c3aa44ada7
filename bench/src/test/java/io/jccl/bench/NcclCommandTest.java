package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The commands with {@code --engine nccl}, in JVMs of their own that find the doubles. */
@Timeout(value = 180, unit = TimeUnit.SECONDS)
class NcclCommandTest {
    /** With a space, as paths may have. */
    @TempDir private static Path folder = Path.of("");

    private static Path doubles = Path.of("");

    @TempDir Path output = Path.of("");

    @BeforeAll
    static void buildDoubles() throws Exception {
        boolean compiler =
                Arrays.stream(System.getenv().getOrDefault("PATH", "").split(":", -1))
                        .anyMatch(f -> Files.isExecutable(Path.of(f.isEmpty() ? "." : f, "cc")));
        Assumptions.assumeTrue(compiler, "no C compiler (cc) on the PATH to build doubles");
        doubles = folder.resolve("the doubles");
        Path build = Path.of("..", "collectives", "src", "test", "c", "build").toAbsolutePath();
        Result r =
                result(
                        new ProcessBuilder("sh", build.toString(), doubles.toString())
                                .redirectErrorStream(true),
                        folder);
        assertEquals(0, r.status, r::toString);
    }

    private record Result(int status, String text) {
        void has(String... parts) {
            for (String part : parts) {
                assertTrue(text.contains(part), () -> "no '" + part + "' in " + this);
            }
        }

        List<String[]> rows() {
            return text.lines()
                    .filter(l -> l.matches(" +[0-9]+ .*"))
                    .map(l -> l.trim().split(" +"))
                    .toList();
        }
    }

    private static Result result(ProcessBuilder builder, Path folder)
            throws IOException, InterruptedException {
        File log = Files.createTempFile(folder, "log", ".txt").toFile();
        Process p = builder.redirectErrorStream(true).redirectOutput(log).start();
        if (!p.waitFor(120, TimeUnit.SECONDS)) {
            p.destroyForcibly().waitFor();
        }
        return new Result(p.exitValue(), Files.readString(log.toPath()));
    }

    private static Result jccl(Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "--illegal-native-access=deny",
                        "--enable-native-access=io.jccl.bindings",
                        "-Djccl.nccl=" + doubles.resolve("libnccl.so.2"),
                        "-Djccl.cudart=" + doubles.resolve("libcudart.so.13"),
                        "-p",
                        System.getProperty("jdk.module.path"),
                        "-m",
                        "io.jccl.bench/" + Main.class.getName()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeAll(List.of("JCCL_LAUNCHER", "JCCL_ENGINE", "RANK"));
        builder.environment().putAll(environment);
        return result(builder, folder);
    }

    private static Result jccl(String line) throws IOException, InterruptedException {
        return jccl(Map.of(), line.split(" "));
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce, -d all -o all",
        "all_reduce, -m 4",
        "all_gather, -d bfloat16",
        "reduce_scatter, -d half -o all",
        "broadcast, -r 1",
        "reduce, -d int8 -o max",
        "scatter, -r 2",
        "gather, -r 0",
        "alltoall, -d uint64",
        "alltoallv, -m 2",
        "sendrecv, -d float",
        "barrier, -c 1"
    })
    void valuesAreRightInPlaceAndOutOfPlace(String command, String more) throws Exception {
        Result r =
                jccl(
                        command
                                + " --engine nccl -g 3 -n 2 -w 1 "
                                + (command.equals("barrier") ? "" : "-b 3K -e 24K -f 8 ")
                                + more);
        assertEquals(0, r.status, r::toString);
        r.has("nccl");
        assertTrue(!r.rows().isEmpty(), r::toString);
        // A barrier moves no values that could be wrong.
        String wrong = command.equals("barrier") ? "N/A" : "0";
        for (String[] row : r.rows()) {
            assertTrue(
                    row.length < 13 || (row[8].equals(wrong) && !row[12].isEmpty()), r::toString);
        }
    }

    @Test
    void reportIsWritten() throws Exception {
        Path file = output.resolve("a report.json");
        Result r =
                jccl(
                        Map.of("JCCL_ENGINE", "nccl"),
                        "all_reduce",
                        "-g",
                        "2",
                        "-b",
                        "8",
                        "-e",
                        "1K",
                        "-J",
                        file.toString());
        assertEquals(0, r.status, r::toString);
        JsonNode report = new ObjectMapper().readTree(file.toFile());
        assertTrue(report.toString().contains("nccl"), report::toString);
    }

    @Test
    void bandwidthOfEveryPairIsMeasured() throws Exception {
        Result r =
                jccl(
                        Map.of("JCCL_DOUBLE_DEVICES", "3"),
                        "bandwidth",
                        "--engine",
                        "cuda",
                        "-b",
                        "64K",
                        "-i",
                        "1",
                        "-n",
                        "2");
        assertEquals(0, r.status, r::toString);
        r.has(
                "Device 2: ",
                "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                "SUM device_to_device_memcpy_read_ce",
                "SUM host_to_device_transfer_engine",
                "SUM host_to_device_pageable_memcpy_ce");
        assertTrue(r.text.lines().anyMatch(l -> l.matches(" 1 +[0-9.]+ +N/A +[0-9.]+")), r.text);
        Result none = jccl(Map.of("JCCL_DOUBLE_DEVICES", "0"), "bandwidth", "--engine", "cuda");
        assertEquals(1, none.status, none::toString);
        none.has("sees no GPU");
    }

    @Test
    void bandwidthSaysWhatWentWrongAndGoesOn() throws Exception {
        Map<String, String> error = Map.of("JCCL_DOUBLE_INJECT", "cudaHostAlloc:1:error=2");
        Result r = jccl(error, "bandwidth", "-b", "64K", "-i", "1", "-t", "0,1");
        assertEquals(1, r.status, r::toString);
        r.has("ERROR: no pinned host memory for 65536 bytes", "SUM device_to_host_memcpy_ce");
    }

    @Test
    void processesMakeOneTable() throws Exception {
        Result r = jccl("run -n 2 -- all_reduce --engine nccl -b 1K -e 4K -f 2 -n 2");
        assertEquals(0, r.status, r::toString);
        assertEquals(3, r.rows().size(), r::toString);
        r.has("# Out of bounds values : 0 OK");
    }

    @Test
    void rankWithoutGpuIsToldSo() throws Exception {
        Map<String, String> one = Map.of("JCCL_DOUBLE_DEVICES", "1");
        Result threads = jccl(one, "all_reduce", "--engine", "nccl", "-g", "2");
        assertTrue(threads.status != 0, threads::toString);
        threads.has("needs GPU 1", "sees 1", "NCCL_MULTI_RANK_GPU_ENABLE");
        Result processes = jccl(one, "run", "-n", "2", "all_reduce", "--engine", "nccl");
        assertTrue(processes.status != 0, processes::toString);
        processes.has("needs GPU 1");
    }

    @Test
    void noGpuAtAllIsSaid() throws Exception {
        Map<String, String> none = Map.of("JCCL_DOUBLE_DEVICES", "0");
        for (String command : List.of("all_reduce", "selftest")) {
            Result r = jccl(none, command, "--engine", "nccl");
            assertTrue(r.status != 0, r::toString);
            assertTrue(r.text.contains("GPU") && !r.text.contains("\tat "), r::toString);
        }
    }

    @Test
    void unknownEngineIsAMistake() throws Exception {
        assertEquals(2, jccl("all_reduce --engine gpu").status);
        assertEquals(2, jccl(Map.of("JCCL_ENGINE", "gpu"), "all_reduce").status);
    }

    @ParameterizedTest
    @CsvSource({"host", "nccl"})
    void selfTestPasses(String engine) throws Exception {
        Result r = jccl("selftest -g 2 --thin 20 --engine " + engine);
        assertEquals(0, r.status, r::toString);
        r.has("allReduce", " failed, 0 not run: OK");
    }

    @Test
    void selfTestFailsWithAnError() throws Exception {
        Map<String, String> error = Map.of("JCCL_DOUBLE_INJECT", "ncclAllReduce:5:error=1");
        Result r = jccl(error, "selftest", "--engine", "nccl", "-g", "2", "--thin", "20");
        assertEquals(1, r.status, r::toString);
        r.has("FAILED", "ncclUnhandledCudaError");
    }
}
