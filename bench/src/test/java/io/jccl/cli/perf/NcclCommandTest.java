package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.OnFakes;
import io.jccl.cli.OnFakes.Result;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * The commands with {@code --engine nccl} or {@code --device cuda}, in JVMs of their own that find
 * the fakes.
 */
@Timeout(value = 180, unit = TimeUnit.SECONDS)
class NcclCommandTest {
    @RegisterExtension static final OnFakes FAKES = new OnFakes();

    @TempDir Path output = Path.of("");

    private static Result jccl(Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        return FAKES.jccl(environment, arguments);
    }

    /** After which others run in the same JVM. */
    private static Result injected(String rule, String line) throws IOException {
        return FAKES.injected(rule, line.split(" "));
    }

    private static Result jccl(String line) throws IOException, InterruptedException {
        return jccl(Map.of(), line.split(" "));
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce, -m 4",
        "all_gather, -d bfloat16",
        "reduce_scatter, -d half -o all",
        "broadcast, -r 1",
        "reduce, -d int8 -o max",
        "scatter, -r 2",
        "gather, -r 0",
        "alltoall, -d uint64",
        "alltoallv, -m 2",
        "all_gatherv, -d half",
        "reduce_scatterv, -o all",
        "scatterv, -r 1",
        "gatherv, -r 2",
        "sendrecv, -d float",
        "hypercube, -d half",
        "all_reduce, -R 1 -u 3 -x 1 -C -S -K 1 -I",
        "all_reduce, -R 2 -d all",
        "all_gather, -G 3",
        "alltoall, -G 7 -m 2",
        "hypercube, -G 2 -m 2",
        "all_reduce, -z 1",
        "broadcast, -z 2 -I",
        "reduce_scatter, -z 3",
        "barrier, -c 1"
    })
    void valuesAreRightInPlaceAndOutOfPlace(String command, String more) throws Exception {
        Result r =
                jccl(
                        command
                                + " --engine nccl -n 2 -g "
                                + (command.equals("hypercube") ? "4 " : "3 ")
                                + (command.equals("barrier") ? "" : "-b 3K -e 24K -f 8 ")
                                + (more.contains("-w") ? "" : "-w 0 ")
                                + more);
        assertEquals(0, r.status(), r::toString);
        r.has("nccl");
        assertTrue(!r.rows().isEmpty(), r::toString);
        // A barrier moves no values that could be wrong.
        String wrong = command.equals("barrier") ? "N/A" : "0";
        for (String[] row : r.rows()) {
            assertTrue(
                    row.length < 13 || (row[8].equals(wrong) && !row[12].isEmpty()), r::toString);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"all_reduce, -d all -o all -w 1"})
    void valuesAreRightInPlaceAndOutOfPlaceInMoreCases(String command, String more)
            throws Exception {
        valuesAreRightInPlaceAndOutOfPlace(command, more);
    }

    @Test
    void whatHasNoMeaningOnGpusIsSaid() throws Exception {
        Path file = output.resolve("graph.json");
        Result r =
                jccl(
                        "all_reduce --engine nccl -g 2 -b 4K -e 4K -n 3 -w 0 -G 10 -R 2 -D 1 -V 8"
                                + " -p 1 -y 1 -M --csv --json="
                                + file);
        assertEquals(0, r.status(), r::toString);
        JsonNode root = new ObjectMapper().readTree(file.toFile());
        assertEquals(10, root.get("config").get("graph").asInt());
        assertEquals(4, root.get("config").get("notes").size(), root::toString);
        for (String what : List.of("-p 1", "-y 1", "-D 1", "-V 8")) {
            assertTrue(root.get("config").get("notes").toString().contains(what + " has no"));
        }
        // A graph of three iterations, launched ten times in five batches.
        JsonNode side = root.get("results").get(0).get("out_of_place");
        assertEquals(5, side.get("batches").size());
        assertEquals(30, side.get("iterations").asInt());
        assertEquals(2 * 4096, root.get("memory").get("user_allocated").asLong());
    }

    @Tag("exhaustive")
    @Test
    void anotherFirstGpu() throws Exception {
        Map<String, String> three =
                Map.of("JCCL_FAKE_DEVICES", "3", "NCCL_TESTS_DEVICE", "1", "JCCL_ENGINE", "nccl");
        Result r = jccl(three, "all_reduce -g 2 -b 64 -e 64 -n 1 -w 0".split(" "));
        assertEquals(0, r.status(), r::toString);
        assertTrue(r.text().matches("(?s).*#  Rank  0 .* device  1 .*#  Rank  1 .* device  2 .*"));
        Result more = jccl(three, "all_reduce -g 3 -b 64 -e 64 -n 1 -w 0".split(" "));
        assertEquals(2, more.status(), more::toString);
        more.has("needs GPU 3", "sees 3");
    }

    /** What ranks tell each other goes through the engine too. */
    @ParameterizedTest
    @CsvSource({
        "ncclAllGather@0:1:corrupt, allGather of where the ranks run gave rank 0 something else",
        "ncclAllReduce@1:*:corrupt, allReduce"
    })
    void wrongNumbersOfTheRanksAreSaid(String rule, String message) throws Exception {
        Result r = injected(rule, "broadcast --engine nccl -g 2 -b 64 -e 64");
        assertEquals(1, r.status(), r::toString);
        r.has(message, "engine nccl moves wrong data", "jccl selftest");
        assertTrue(!r.text().contains("NumberFormat") && !r.text().contains("For input"));
    }

    /** Two pairs on NVLink, and another machine than the fakes' at that. */
    private Path dump() throws IOException {
        Path dump = output.resolve("dump.txt");
        Files.writeString(
                dump,
                """
                \tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
                GPU0\t X \tNV4\tSYS\tSYS\t0-15\t0
                GPU1\tNV4\t X \tSYS\tSYS\t0-15\t0
                GPU2\tSYS\tSYS\t X \tNV4\t16-31\t1
                GPU3\tSYS\tSYS\tNV4\t X \t16-31\t1
                """);
        return dump;
    }

    @Tag("exhaustive")
    @Test
    void aPlanIsPrintedBesideTheMeasurement() throws Exception {
        Path file = output.resolve("planned.json");
        String common = "all_reduce --engine nccl -g 3 -n 2 -b 4K -e 64K -f 16 --plan " + dump();
        Result r = jccl(common + " -J " + file);
        assertEquals(0, r.status(), r::toString);
        r.has("# Plan: 1 channels on ", "# NCCL ADVISE: NCCL_ALGO=allreduce:", "# Predicted");
        JsonNode json = new ObjectMapper().readTree(file.toFile());
        assertEquals(2, json.get("results").size());
        for (JsonNode line : json.get("results")) {
            assertTrue(line.get("predicted").get("time").asDouble() > 0, json::toString);
        }
        assertEquals("advise", json.get("plan").get("steering").asText());

        // NCCL reads what enforces it once a process.
        String[] enforce = (common + " --steer enforce").split(" ");
        Result enforced = FAKES.jccl(List.of(), Map.of(), enforce);
        assertEquals(0, enforced.status(), enforced::toString);
        enforced.has("# NCCL ENFORCE: NCCL_ALGO=allreduce:");
    }

    @Test
    void plansThatCannotBeAreRefused() throws Exception {
        Path dump = dump();
        Map<String, String> refused =
                Map.of(
                        "all_reduce -g 2 --plan " + dump,
                        "add --engine nccl",
                        "all_reduce --engine nccl -g 2 --steer enforce",
                        "--steer needs a plan",
                        "alltoallv --engine nccl -g 2 --plan " + dump,
                        "nothing is predicted for alltoallv",
                        "all_reduce --engine nccl -g 8 --plan " + dump,
                        "it has 4 GPUs, expected one for each of 8 ranks",
                        "all_reduce --engine nccl -g 2 --plan " + output.resolve("none"),
                        "cannot be read",
                        "all_reduce --engine nccl -g 2 --plan auto --steer no",
                        "neither advise nor enforce");
        for (Map.Entry<String, String> each : refused.entrySet()) {
            Result r = jccl(each.getKey());
            assertEquals(2, r.status(), r::toString);
            r.has(each.getValue());
        }
    }

    @Tag("exhaustive")
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
                        "-n",
                        "2",
                        "-J",
                        file.toString());
        assertEquals(0, r.status(), r::toString);
        JsonNode report = new ObjectMapper().readTree(file.toFile());
        assertTrue(report.toString().contains("nccl"), report::toString);
    }

    @Tag("exhaustive")
    @Test
    void bandwidthOfEveryPairIsMeasured() throws Exception {
        Result r =
                jccl(
                        Map.of("JCCL_FAKE_DEVICES", "3"),
                        "bandwidth",
                        "--engine",
                        "cuda",
                        "-b",
                        "64K",
                        "-i",
                        "1",
                        "-n",
                        "2");
        assertEquals(0, r.status(), r::toString);
        r.has(
                "Device 2: ",
                "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                "SUM device_to_device_memcpy_read_ce",
                "SUM host_to_device_transfer_engine",
                "SUM host_to_device_pageable_memcpy_ce");
        assertTrue(
                r.text().lines().anyMatch(l -> l.matches(" 1 +[0-9.]+ +N/A +[0-9.]+")), r.text());
        Result none = jccl(Map.of("JCCL_FAKE_DEVICES", "0"), "bandwidth", "--device", "cuda");
        assertEquals(2, none.status(), none::toString);
        none.has("sees no GPU");
    }

    @Test
    void bandwidthSaysWhatWentWrongAndGoesOn() throws Exception {
        Result r = injected("cudaHostAlloc:1:error=2", "bandwidth -b 64K -i 1 -t 0,1");
        assertEquals(1, r.status(), r::toString);
        r.has("ERROR: no pinned host memory for 65536 bytes", "SUM device_to_host_memcpy_ce");
    }

    @Tag("exhaustive")
    @Test
    void processesMakeOneTable() throws Exception {
        Result r = jccl("run -n 2 -- all_reduce --engine nccl -b 1K -e 4K -f 2 -n 2 -w 0");
        assertEquals(0, r.status(), r::toString);
        assertEquals(3, r.rows().size(), r::toString);
        r.has("# Out of bounds values : 0 OK");
    }

    @Tag("exhaustive")
    @Test
    void rankWithoutGpuIsToldSo() throws Exception {
        Map<String, String> one = Map.of("JCCL_FAKE_DEVICES", "1");
        Result threads = jccl(one, "all_reduce", "--engine", "nccl", "-g", "2");
        assertTrue(threads.status() != 0, threads::toString);
        threads.has("needs GPU 1", "sees 1", "NCCL_MULTI_RANK_GPU_ENABLE");
        Result processes = jccl(one, "run", "-n", "2", "all_reduce", "--engine", "nccl");
        assertTrue(processes.status() != 0, processes::toString);
        processes.has("needs GPU 1");
    }

    @Tag("exhaustive")
    @Test
    void noGpuAtAllIsSaid() throws Exception {
        Map<String, String> none = Map.of("JCCL_FAKE_DEVICES", "0");
        for (String command : List.of("all_reduce", "selftest")) {
            Result r = jccl(none, command, "--engine", "nccl");
            assertTrue(r.status() != 0, r::toString);
            assertTrue(r.text().contains("GPU") && !r.text().contains("\tat "), r::toString);
        }
    }

    @Tag("exhaustive")
    @Test
    void unknownEngineIsAMistake() throws Exception {
        assertEquals(2, jccl("all_reduce --engine gpu").status());
        assertEquals(2, jccl(Map.of("JCCL_ENGINE", "gpu"), "all_reduce").status());
    }

    @ParameterizedTest
    @CsvSource({"nccl"})
    void selfTestPasses(String engine) throws Exception {
        Result r = jccl("selftest -g 2 --thin 20 --engine " + engine);
        assertEquals(0, r.status(), r::toString);
        r.has("allReduce", " failed, 0 not run: OK");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"host"})
    void selfTestPassesToo(String engine) throws Exception {
        selfTestPasses(engine);
    }

    /** One wrong element on one of the ranks, of one operation only. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "ncclAllReduce, allReduce",
        "ncclReduceScatter, reduceScatter",
        "ncclBroadcast, broadcast",
        "ncclGather, gather"
    })
    void selfTestFailsWithAWrongResult(String function, String operation) throws Exception {
        String rule = function + "@0:*:corrupt";
        Result r = injected(rule, "selftest --engine nccl -g 2 --thin 20");
        assertEquals(1, r.status(), r::toString);
        r.has("# FAILED " + operation, "on rank 0: ", " 0 not run: FAILED");
        int failed = 0;
        for (String[] row : r.text().lines().map(l -> l.split(" +")).toList()) {
            if (row.length == 5 && row[1].matches("[0-9]+")) {
                boolean own = row[0].equals(operation);
                failed += own ? Integer.parseInt(row[3]) : 0;
                // Groups and split communicators run others' operations.
                boolean mixed = row[0].equals("group") || row[0].equals("split");
                assertTrue(own || mixed || row[3].equals("0"), r::toString);
            }
        }
        assertTrue(failed > 0, r::toString);
    }

    @Test
    void selfTestFailsWithAnError() throws Exception {
        String rule = "ncclAllReduce:5:error=1";
        Result r = injected(rule, "selftest --engine nccl -g 2 --thin 20");
        assertEquals(1, r.status(), r::toString);
        r.has("FAILED", "ncclUnhandledCudaError");
    }

    private static final Map<String, String> TWO_GPUS = Map.of("JCCL_FAKE_DEVICES", "2");

    private static JsonNode json(Result r, String name) throws IOException {
        return new ObjectMapper().readTree(r.text().substring(r.text().indexOf('{'))).get(name);
    }

    @Test
    void bandwidthBetweenTheHostAndTwoGpus() throws Exception {
        Result r = jccl(TWO_GPUS, "bandwidth --device cuda -b 100K -i 2 -n 3 --json".split(" "));
        assertEquals(0, r.status(), r::toString);
        JsonNode top = json(r, "jccl_bandwidth");
        assertEquals("cuda", top.get("engine").asText());
        assertEquals(2, top.get("devices").size());
        int peers = 0;
        for (JsonNode test : top.get("testcases")) {
            String name = test.get("name").asText();
            assertEquals("Passed", test.get("status").asText(), r::toString);
            JsonNode matrix = test.get("bandwidth_matrix");
            boolean peer = name.startsWith("device_to_device_");
            assertEquals(peer ? 2 : 1, matrix.size(), name);
            for (int i = 0; i < matrix.size(); i++) {
                assertEquals(2, matrix.get(i).size(), name);
                for (int j = 0; j < 2; j++) {
                    JsonNode value = matrix.get(i).get(j);
                    assertEquals(peer && i == j, value.isNull(), name);
                    assertTrue(value.isNull() || value.asDouble() > 0, r::toString);
                }
            }
            peers += peer ? 1 : 0;
        }
        assertEquals(4, peers, r::toString);
    }

    @Tag("exhaustive")
    @Test
    void bandwidthAsTables() throws Exception {
        Result r = jccl(TWO_GPUS, "bandwidth", "-b", "64K", "-i", "1", "-n", "1");
        assertEquals(0, r.status(), r::toString);
        r.has(
                "Device 0: ",
                "Device 1: ",
                "Running device_to_device_bidirectional_memcpy_read_ce.",
                "Running device_to_device_bidirectional_memcpy_write_ce.",
                "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)",
                "N/A",
                "SUM device_local_copy ");
        assertTrue(!r.text().contains("WAIVED") && !r.text().contains("ERROR"), r::toString);
    }

    /** A case that fails is an error of its own; the others run. */
    @Test
    void bandwidthWithACopyThatFails() throws Exception {
        Result r =
                injected(
                        "cudaMemcpyAsync:3:error=1",
                        "bandwidth --engine cuda -b 64K -t"
                                + " host_to_device_memcpy_ce,device_to_host_memcpy_ce");
        assertEquals(1, r.status(), r::toString);
        r.has("ERROR: ", "cudaMemcpyAsync", "SUM device_to_host_memcpy_ce ");
    }

    @ParameterizedTest
    @CsvSource({"offload --device cuda, JCCL_FAKE_DEVICES=0, sees no GPU, 2"})
    void whatAGpuLacksIsSaid(String line, String setting, String message, int status)
            throws Exception {
        String[] pair = setting.split("=", 2);
        Result r = jccl(Map.of(pair[0], pair[1]), line.split(" ", -1));
        assertEquals(status, r.status(), r::toString);
        r.has(message);
        assertTrue(!r.text().contains("\tat "), r::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "bandwidth --device cuda -b 64M -t device_local_copy, JCCL_FAKE_MEMORY=1048576, bytes, 1",
        "bandwidth --device cuda -b 1M, JCCL_FAKE_DEVICES=0, sees no GPU, 2",
        "all_reduce --engine nccl -g 1, JCCL_FAKE_DEVICES=0, sees no GPU, 2",
        "selftest --engine nccl, JCCL_FAKE_DEVICES=0, sees no GPU, 2",
        "offload --device cuda --layer-bytes 64M --layers 2, JCCL_FAKE_MEMORY=1048576, the device"
                + " itself has no room, 2"
    })
    void whatAGpuLacksIsSaidByOthers(String line, String setting, String message, int status)
            throws Exception {
        whatAGpuLacksIsSaid(line, setting, message, status);
    }

    @ParameterizedTest
    @CsvSource("--backward --depth 1")
    void layersThroughAGpu(String options) throws Exception {
        List<String> line =
                new ArrayList<>(
                        List.of(
                                ("offload --device cuda --layers 5 --layer-bytes 64K"
                                                + " --iterations 2 --samples 2 --compute-us 50"
                                                + " --json")
                                        .split(" ")));
        if (!options.isEmpty()) {
            line.addAll(List.of(options.split(" ")));
        }
        Path trace = output.resolve("trace.json");
        line.addAll(List.of("--trace", trace.toString()));
        Result r = jccl(Map.of(), line.toArray(String[]::new));
        assertEquals(0, r.status(), r::toString);
        JsonNode n = json(r, "jccl_offload");
        assertEquals("cuda", n.get("engine").asText());
        assertTrue(n.get("wrong").isNull(), r::toString);
        assertTrue(n.get("copy_only_ms").asDouble() > 0, r::toString);
        assertTrue(n.get("overlapped_ms").asDouble() > 0, r::toString);
        assertTrue(
                n.get("device_peak_bytes").asLong() <= n.get("device_budget_bytes").asLong(),
                r::toString);
        assertTrue(new ObjectMapper().readTree(trace.toFile()).size() > 10, r::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"''", "--device-memory 200K", "--depth 0", "--chunk 4096"})
    void moreLayersThroughAGpu(String options) throws Exception {
        layersThroughAGpu(options);
    }

    /** Of a copy, and of the kernel that is a layer's work. */
    @ParameterizedTest
    @CsvSource({"cudaMemcpyAsync, cudaMemcpyAsync", "cuLaunchKernel, spin"})
    void anErrorOfTheRuntimeEndsTheOffloadRun(String call, String message) throws Exception {
        Result r =
                injected(
                        call + ":20:error=1",
                        "offload --device cuda --layers 5 --layer-bytes 64K --compute-us 50");
        assertEquals(1, r.status(), r::toString);
        r.has(message);
        assertTrue(!r.text().contains("\tat "), r::toString);
    }
}
