package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.Main;
import io.jccl.cli.shell.Drives;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.Completion;
import io.jccl.offload.TierStore;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class OffloadCommandTest {
    private static final String SMALL =
            " --layers 5 --layer-bytes 64K --iterations 2 --samples 2 --compute-us 50";

    private record Result(int status, String out, String err) {}

    private static Result run(OffloadCommand command, String line) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status =
                Main.execute(
                        "offload",
                        command,
                        line.strip().split(" +"),
                        new PrintWriter(out),
                        new PrintWriter(err));
        return new Result(status, out.toString(), err.toString());
    }

    private static Result run(String line) {
        return run(new OffloadCommand(), line);
    }

    @Test
    void theTableHasTheTimesAndTheBudget() {
        Result r = run(SMALL);
        assertEquals(0, r.status, r::toString);
        for (String row :
                new String[] {
                    "copy-only  ",
                    "compute-only  ",
                    "overlapped  ",
                    "ideal max(copy, compute)",
                    "overlap efficiency",
                    "checked                            10 layers, all right",
                    "of 196608 bytes",
                    "memory to memory on the CPU",
                }) {
            assertTrue(r.out.contains(row), () -> "no '" + row + "' in " + r.out);
        }
    }

    @ParameterizedTest
    @CsvSource({"'', 3", "--backward --depth 1, 4", "--gemm 32 --depth 2, 3"})
    void jsonAgreesWithItself(String options, int mostSlots) throws Exception {
        String line = SMALL + " --json " + options;
        if (options.contains("--gemm") || options.contains("--ratio")) {
            line = line.replace("--compute-us 50", "");
        }
        Result r = run(line);
        assertEquals(0, r.status, r::toString);
        JsonNode n = new ObjectMapper().readTree(r.out).get("jccl_offload");
        double ideal = n.get("ideal_ms").asDouble();
        assertEquals(
                Math.max(n.get("copy_only_ms").asDouble(), n.get("compute_only_ms").asDouble()),
                ideal);
        assertEquals(
                ideal / n.get("overlapped_ms").asDouble(),
                n.get("overlap_efficiency").asDouble(),
                1e-9);
        assertEquals(2, n.get("sample_efficiencies").size());
        assertTrue(n.get("device_peak_bytes").asLong() <= mostSlots * 65_536L, r.out);
        assertTrue(
                n.get("device_peak_bytes").asLong() <= n.get("device_budget_bytes").asLong(),
                r.out);
        assertTrue(n.get("wrong").isNull());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"--depth 0, 1", "--device-memory 64K, 1", "--ratio 2 --depth 1, 2"})
    void jsonAgreesWithItselfInMoreCases(String options, int mostSlots) throws Exception {
        jsonAgreesWithItself(options, mostSlots);
    }

    @Test
    void theTraceIsJsonAndItsTracksDoNotOverlap(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trace.json");
        Result r = run(SMALL + " --backward --trace " + file);
        assertEquals(0, r.status, r::toString);
        Map<Integer, Double> ends = new HashMap<>();
        Map<Integer, Integer> events = new HashMap<>();
        for (JsonNode e : new ObjectMapper().readTree(Files.readString(file))) {
            if (!e.get("ph").asText().equals("X")) {
                continue;
            }
            int track = e.get("tid").asInt();
            double start = e.get("ts").asDouble();
            assertTrue(start >= ends.getOrDefault(track, 0.0) - 0.0015, e::toString);
            ends.put(track, start + e.get("dur").asDouble());
            events.merge(track, 1, Integer::sum);
        }
        // The compute stream: two passes of five layers, forward and backward.
        assertEquals(20, events.get(1), events::toString);
        assertTrue(events.getOrDefault(3, 0) > 10, events::toString);
        // Gradients.
        assertEquals(10, events.get(4), events::toString);
    }

    @Test
    void aSpoiledLayerIsAnError() {
        OffloadCommand spoiled =
                new OffloadCommand(
                        Drives::scratch,
                        homes -> homes.get(3).setLong(77, 1 + homes.get(3).getLong(77)));
        Result r = run(spoiled, SMALL);
        assertEquals(1, r.status, r::toString);
        assertTrue(r.err.contains("layer 3 on the device has checksum 0x"), r.err);
        assertTrue(r.out.contains("WRONG"), r.out);
    }

    @Test
    void layersComeFromAStore(@TempDir Path folder) {
        Map<String, MemorySegment> drive = new HashMap<>();
        TierStore store =
                new TierStore() {
                    @Override
                    public Place place(String name, DataType type, long count) {
                        MemorySegment at =
                                drive.computeIfAbsent(
                                        name,
                                        k ->
                                                MemorySegment.ofArray(
                                                        new byte[(int) count * type.size()]));
                        return new Place() {
                            @Override
                            public Completion read(Buffer pinned) {
                                pinned.copyFrom(at);
                                return done();
                            }

                            @Override
                            public Completion write(Buffer pinned) {
                                pinned.copyTo(at);
                                return done();
                            }

                            @Override
                            public void close() {}
                        };
                    }
                };
        Result r =
                run(
                        new OffloadCommand(f -> store, homes -> {}),
                        SMALL + " --tier nvme --nvme " + folder);
        assertEquals(0, r.status, r::toString);
        assertEquals(5, drive.size());
        assertTrue(r.out.contains("on tier nvme"), r.out);
        assertTrue(r.out.contains("all right"), r.out);
    }

    @Tag("exhaustive")
    @Test
    void layersComeFromARealDrive(@TempDir Path folder) throws IOException {
        Result r =
                run(
                        "--layers 6 --layer-bytes 3M --device-memory 9M --iterations 2 --samples 1"
                                + " --compute-us 100 --backward --tier nvme --nvme "
                                + folder);
        assertEquals(0, r.status, r::toString);
        assertTrue(r.out.contains("12 layers, all right"), r.out);
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(), left.toList());
        }
    }

    private static Completion done() {
        return new Completion() {
            @Override
            public boolean isDone() {
                return true;
            }

            @Override
            public void await(Duration timeout) {}
        };
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--layers 0 | --layers is 0, expected 1 to 100000",
                "--layer-bytes 100 | --layer-bytes is 100, expected a multiple of 8",
                "--layer-bytes 16M --device-memory 1M | 15728640 bytes are missing",
                "--layer-bytes 1M --device-memory 1M --backward | 1048576 bytes are missing",
                "--device mps | --device is 'mps', expected host or cuda",
                "--tier tape | --tier is 'tape', expected pinned or nvme",
                "--tier nvme | give --nvme <folder>",
                "--tier nvme --nvme /no/such/folder | is not a folder; give an existing folder",
                "--nvme /tmp | --nvme is for --tier nvme",
                "--gemm 8 --ratio 2 | give one of them",
                "--ratio -1 | --ratio is -1.0, expected 0 to 1000",
                "--compute-us -5 | --compute-us is -5.0, expected 0 to 60000000",
                "--chunk 100 | --chunk is 100, expected a multiple of 64",
                "--depth -1 | --depth is -1, expected 0 to 1024",
                "--trace /no/such/folder/t.json | folder /no/such/folder does not exist",
            })
    void mistakesSayWhatIsExpected(String line, String message) {
        Result r = run(line);
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains(message), r::toString);
        assertFalse(r.err.contains("\tat "), r::toString);
    }
}
