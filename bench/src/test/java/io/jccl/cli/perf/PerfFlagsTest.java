package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.Collective;
import io.jccl.bench.PerfRun;
import io.jccl.cli.Main;
import io.jccl.cli.shell.Version;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What nccl-tests' flags and variables do here, and what the table, JSON and CSV say of times. */
@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PerfFlagsTest {
    /** The smallest run that there is. */
    private static final String SHORT = " -b 64 -e 64 -n 1 -w 0";

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int execute(Map<String, String> environment, String line) {
        String[] words = line.split(" +");
        Collective collective =
                Collective.ALL.stream()
                        .filter(c -> c.command().equals(words[0]))
                        .findFirst()
                        .orElseThrow();
        return Main.execute(
                collective.command(),
                new PerfCommand(collective, environment, PerfRun.Seam.NONE),
                List.of(words).subList(1, words.length).toArray(String[]::new),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private int execute(String line) {
        return execute(Map.of(), line);
    }

    private void passes(String line) {
        assertEquals(0, execute(line), err::toString);
        assertEquals("", err.toString());
    }

    private List<String[]> rows() {
        return out.toString()
                .lines()
                .filter(l -> !l.startsWith("#"))
                .map(l -> l.trim().split(" +"))
                .toList();
    }

    private void has(String... parts) {
        for (String part : parts) {
            assertTrue(out.toString().contains(part), () -> "no '" + part + "' in " + out);
        }
    }

    private JsonNode json() throws IOException {
        return new ObjectMapper().readTree(out.toString());
    }

    /** The command of the README, at sizes that take little. */
    @Test
    void theDefaultCommandHasItsStructure() {
        passes("all_reduce -b 8 -e 128K -f 2 -g 2");
        List<String> lines = out.toString().lines().toList();
        assertEquals("# jccl version " + Version.TEXT + " host/threads", lines.get(0));
        assertEquals("# Collective test starting: jccl all_reduce", lines.get(1));
        assertTrue(
                lines.get(2)
                        .matches(
                                "# nThread 1 nGpus 2 nRanks 2 minBytes 8 maxBytes 131072 step:"
                                        + " 2\\(factor\\) warmup iters: 1 iters: 20 agg iters: 1"
                                        + " validation: 1 graph: 0 unalign: 0 algorithm: auto"),
                lines.get(2));
        has("# Time: median of batches, mean of the ranks; below 8M batches of about");
        List<String> warm = lines.stream().filter(l -> l.startsWith("# Warm-up: ")).toList();
        assertEquals(1, warm.size());
        assertTrue(
                warm.getFirst()
                        .matches(
                                "# Warm-up: [0-9.]+ s, [0-9]+ operations a rank; windows agreed in"
                                        + " [01] of 1 paths .*"),
                warm.getFirst());
        assertEquals(15, rows().size());
        rows().forEach(r -> assertEquals(13, r.length));
        assertTrue(
                lines.stream().filter(l -> l.startsWith("# WARNING: times may be wrong")).count()
                        <= 1);
        assertEquals("#", lines.getLast());
        assertEquals("# Collective test concluded: jccl all_reduce", lines.get(lines.size() - 2));
    }

    @Tag("exhaustive")
    @Test
    void jsonHasMeanMedianAndSpreadOfEachRow() throws IOException {
        passes("all_gather -b 64 -e 8M -f 131072 -g 2 -w 0 --json");
        JsonNode root = json();
        assertTrue(root.get("config").get("iterations_automatic").asBoolean());
        assertEquals(0, root.get("warm_up").get("operations").asInt());
        assertTrue(root.has("warning"));
        int[] batches = {9, 5};
        for (int row = 0; row < 2; row++) {
            for (String side : List.of("out_of_place", "in_place")) {
                JsonNode n = root.get("results").get(row).get(side);
                assertEquals(batches[row], n.get("batches").size());
                assertEquals(n.get("time").asDouble(), n.get("median").asDouble());
                double before = 0;
                for (String field : List.of("min", "q1", "median", "q3", "max")) {
                    assertTrue(n.get(field).asDouble() >= before, n::toString);
                    before = n.get(field).asDouble();
                }
                double mean = n.get("mean").asDouble();
                assertTrue(mean >= n.get("min").asDouble() && mean <= before, n::toString);
                assertTrue(n.get("cpu_time").asDouble() > 0);
                int iterations = n.get("iterations").asInt();
                assertTrue(row == 1 ? iterations == 20 : iterations >= 36, n::toString);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        "1, 1", "3, 3", "20, 5",
    })
    void givenIterationsAreThoseThatRun(int given, int batches) throws IOException {
        passes("broadcast -b 64 -e 64 -g 2 -w 0 --json -n " + given);
        JsonNode side = json().get("results").get(0).get("out_of_place");
        assertEquals(given, side.get("iterations").asInt());
        assertEquals(batches, side.get("batches").size());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "all_reduce | -p 1 | # -p 1 has no effect: ",
                "all_reduce | -y 1 | # -y 1 has no effect: engine host has no CUDA streams",
                "all_reduce | -G 3 | # -G 3 has no effect: engine host has no CUDA graphs",
                "all_reduce | --cudagraph 3 | # -G 3 has no effect: ",
                "all_reduce | -R 1 | # -R 1 has no effect: engine host has no buffers to",
                "all_reduce | -x 2 | # -x 2 has no effect: engine host has no thread blocks",
                "all_reduce | -R 2 -D 1 | # -D 1 has no effect: JCCL has no kernels that",
                "all_reduce | -V 16 | # -V 16 has no effect: it counts the blocks",
                "all_reduce | --device_cta_count 128 | # -V 128 has no effect: ",
                "all_reduce | -C 1 | # -C 1 has no effect: operations have completed when",
                "hypercube | -m 4 | # -m 4 as a group has no effect: each step of a hypercube",
            })
    void whatHasNoMeaningIsAcceptedAndSaid(String command, String flags, String line) {
        passes(command + SHORT + " -g 2 " + flags);
        assertEquals(
                1, out.toString().lines().filter(l -> l.startsWith(line)).count(), out::toString);
    }

    @Test
    void whatIsNotGivenIsNotMentioned() {
        passes("all_reduce" + SHORT + " -p 0 -y 0 -G 0 -R 0 -D 0 -C 0");
        assertFalse(out.toString().contains("has no effect"), out::toString);
    }

    @Test
    void variablesWithoutMeaningAreSaid() {
        Map<String, String> env = Map.of("NCCL_TESTS_DEVICE", "1", "NCCL_TESTS_OTHER", "x");
        assertEquals(0, execute(env, "all_reduce" + SHORT), err::toString);
        has(
                "# NCCL_TESTS_DEVICE has no effect: engine host has no GPUs",
                "# NCCL_TESTS_OTHER has no effect: JCCL does not know it");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "-V | Missing required parameter for option '--device_cta_count'",
                "-V 0 | -V/--device_cta_count is 0, expected 1 to 128",
                "-V 129 | -V/--device_cta_count is 129, expected 1 to 128",
                "-z 4 | : '4' is not a number from 0 to 3",
                "-a 4 | : '4' is not a number from 0 to 3",
                "-R 3 | : '3' is not a number from 0 to 2",
                "-x 3 | : '3' is not a number from 0 to 2",
                "-S 2 | : '2' is not 0 or 1",
                "-p 10 | : '10' is not 0 or 1",
                "-D 1 | -D/--device_implementation is 1, which needs symmetric windows: add -R 2",
                "-K 2 | -K/--per_iter_skip is 2, but nothing is timed singly: add -I 1",
                "-I 1 -K 20 | -K/--per_iter_skip is 20, expected less than the 20 iterations",
                "-I 1 -n 3 -K 3 | expected less than the 3 iterations",
                "-G 2 -I 1 | -G/--cudagraph and -I/--per_iter_timing exclude each other",
                "-G 2 -z 3 | -G/--cudagraph and -z 3 exclude each other",
                "-u 1048577 | -u/--unalign is 1048577, expected 1048576 or less",
                "-N 0 --json=x | -N/--run_cycles is 0, so the run never ends, and --json",
                "-N 0 --csv=x | and --csv is written at the end",
                "-N -1 | : '-1' is not a whole number from 0",
                "--json --csv | --json and --csv both go to standard output",
                "--csv=/no/such/folder/x | --csv '/no/such/folder/x' cannot be written",
                "-d fp12 | data type 'fp12' is unknown",
            })
    void mistakesAreNamedInOneLine(String flags, String message) {
        assertEquals(2, execute("all_reduce -g 2 " + flags));
        assertTrue(err.toString().contains(message), err::toString);
        assertEquals(1, err.toString().lines().count(), err::toString);
        assertEquals("", out.toString());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "NCCL_TESTS_SPLIT | MOD 0 | expected a number of at least 1",
                "NCCL_TESTS_SPLIT | BY 2 | expected AND, OR, MOD or DIV",
                "NCCL_TESTS_SPLIT_MASK | zz | expected hexadecimal digits",
                "NCCL_TESTS_MIN_BW | fast | expected a bandwidth in GB/s",
                "NCCL_TESTS_MIN_BW | -1 | expected a bandwidth in GB/s",
                "NCCL_TESTS_DEVICE | first | expected the number of a GPU",
                "NCCL_TESTS_DEVICE | 0.5 | expected the number of a GPU",
            })
    void malformedVariablesAreRefused(String name, String value, String message) {
        assertEquals(2, execute(Map.of(name, value), "all_reduce -g 2"));
        String text = err.toString();
        assertTrue(text.contains(name + " is '" + value + "'") && text.contains(message), text);
        assertEquals(1, text.lines().count(), text);
    }

    @ParameterizedTest
    @CsvSource({
        "fp32, float",
        "FP16, half",
        "bf16, bfloat16",
        "f64, double",
        "fp8_e4m3, f8e4m3",
        "fp8e5m2, f8e5m2",
        "float32, float",
        "HALF, half",
        "uint64, uint64"
    })
    void typesHaveSeveralNames(String name, String printed) {
        passes("all_gather -g 2 -d " + name + SHORT);
        assertEquals(printed, rows().getFirst()[2]);
    }

    @ParameterizedTest
    @CsvSource({"SUM, sum", "Mulsum, mulsum", "avg, avg"})
    void reductionsInAnyCase(String name, String printed) {
        passes("all_reduce -g 2 -o " + name + SHORT);
        assertEquals(printed, rows().getFirst()[3]);
    }

    @Test
    void cyclesRepeatAllSizes() throws IOException {
        passes("reduce -b 64 -e 128 -f 2 -g 2 -n 1 -w 0 -r all -N 3 --json");
        JsonNode results = json().get("results");
        assertEquals(12, results.size());
        for (int i = 0; i < 12; i++) {
            JsonNode r = results.get(i);
            assertEquals(64L << i % 2, r.get("size").asLong());
            assertEquals(i / 2 % 3, r.get("cycle").asInt());
            assertEquals(i / 6, r.get("root").asInt());
        }
    }

    /** Three of five ranks reduce among themselves, and two; the values are right in both. */
    @ParameterizedTest
    @ValueSource(strings = {"all_reduce", "alltoallv"})
    void groupsWorkSideBySide(String command) {
        Map<String, String> env = Map.of("NCCL_TESTS_SPLIT", "MOD 2");
        String line = " -b 4K -e 64K -f 16 -g 5 -n 2 -w 0 -r all -c 2";
        assertEquals(0, execute(env, command + line), err::toString);
        boolean rooted = command.equals("reduce") || command.equals("scatter");
        // The smaller group has two ranks, so only they are roots.
        assertEquals(rooted ? 4 : 2, rows().size());
        rows().forEach(r -> assertEquals("0", r[8]));
        has(
                "# Groups: 2 by NCCL_TESTS_SPLIT=MOD 2; ",
                "#  Rank  1 Group  1 Pid ",
                "#  Rank  4 Group  0 Pid ",
                "# Out of bounds values : 0 OK");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"reduce", "sendrecv", "scatter"})
    void groupsWorkSideBySideInMoreOperations(String command) {
        groupsWorkSideBySide(command);
    }

    @Test
    void whatAGroupLacksIsRefused() {
        Map<String, String> env = Map.of("NCCL_TESTS_SPLIT_MASK", "1");
        assertEquals(2, execute(env, "reduce -g 5 -r 2"));
        assertTrue(err.toString().contains("-r/--root is 2, expected 0 to 1"), err::toString);
        assertEquals(2, execute(env, "hypercube -g 5"));
        assertTrue(err.toString().contains("hypercube with 3 ranks"), err::toString);
        assertEquals(0, execute(env, "hypercube -g 4" + SHORT), err::toString);
    }

    @Test
    void theLeastBandwidthIsRequired() throws IOException {
        Map<String, String> much = Map.of("NCCL_TESTS_MIN_BW", "1e9");
        assertEquals(1, execute(much, "all_reduce -g 2" + SHORT));
        assertTrue(out.toString().matches("(?s).*# Avg bus bandwidth    : \\S+ FAILED\n.*"));
        out.getBuffer().setLength(0);
        Map<String, String> none = Map.of("NCCL_TESTS_MIN_BW", "0");
        assertEquals(0, execute(none, "all_reduce -g 2" + SHORT), err::toString);
        assertTrue(out.toString().matches("(?s).*# Avg bus bandwidth    : \\S+ OK\n.*"));
        out.getBuffer().setLength(0);
        assertEquals(1, execute(much, "all_reduce --json -g 2" + SHORT));
        assertFalse(json().get("average_bus_bandwidth").get("okay").asBoolean());
    }

    @Test
    void timestampsAndCpuTimeHaveTheirColumns() {
        passes("all_reduce -g 2 -S -C 1" + SHORT);
        has(" cputime   algbw ", "  timestamp\n", " %Y-%m-%d %H:%M:%S\n");
        String row =
                out.toString().lines().filter(l -> !l.startsWith("#")).findFirst().orElseThrow();
        assertTrue(row.matches(".*  \\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d"), row);
        List<String> heads = out.toString().lines().filter(l -> l.contains("cputime")).toList();
        assertEquals(row.length(), heads.getFirst().length(), out::toString);
    }

    @ParameterizedTest
    @CsvSource({"2, 0"})
    void waitingIsSaidAndWorks(int mode, int warmUp) {
        passes("broadcast -b 64 -e 64 -g 3 -n 3 -m 2 -I -z " + mode + " -w " + warmUp);
        assertEquals(
                1,
                out.toString().lines().filter(l -> l.startsWith("# Blocking Enabled: ")).count());
        assertEquals("0", rows().getFirst()[8]);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, 1", "2, 1", "3, 1"})
    void waitingIsSaidAndWorksInMoreCases(int mode, int warmUp) {
        waitingIsSaidAndWorks(mode, warmUp);
    }

    @Test
    void unalignedBuffersHaveTheSameResults() {
        unaligned("all_reduce", "float", 1);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 3, 64})
    void unalignedBuffersHaveTheSameResultsForAllTypes(int offset) {
        for (String command : List.of("all_reduce", "reduce_scatter", "alltoall", "hypercube")) {
            unaligned(command, "all", offset);
        }
    }

    private void unaligned(String command, String type, int offset) {
        passes(command + " -b 1K -e 256K -f 256 -g 2 -n 1 -w 0 -d " + type + " -u " + offset);
        rows().forEach(r -> assertEquals("00", r[8] + r[12]));
        has(" unalign: " + offset + " ");
    }

    @Test
    void memoryOfTheBuffersIsShown() {
        passes("all_gather -b 1M -e 1M -g 4 -n 1 -w 0 -M");
        // A quarter goes out, all of it comes in.
        has("# Memory usage         : User-Allocated 1.25 MB\n");
    }

    @Test
    void singleTimesWithoutTheFirst() throws IOException {
        passes("all_reduce -b 64 -e 64 -g 2 -n 6 -w 0 -I -K 4 --json");
        JsonNode n = json().get("results").get(0).get("in_place_per_iter");
        assertEquals(4, n.get("skipped_iterations").asInt());
        assertEquals(6, n.get("times_us").size());
        double least =
                Math.min(n.get("times_us").get(4).asDouble(), n.get("times_us").get(5).asDouble());
        assertEquals(least, n.get("min_us").asDouble());
    }

    @Test
    void csvIsPrintedInsteadOfTextOrWrittenBesideIt(@TempDir Path folder) throws IOException {
        String line = "all_gather -b 1K -e 4K -f 2 -g 2 -n 3 -w 0 --csv";
        for (String option : List.of("", "=-", " -")) {
            out.getBuffer().setLength(0);
            passes(line + option);
            table(out.toString());
        }
        Path file = folder.resolve("run.csv");
        out.getBuffer().setLength(0);
        passes(line + "=" + file + " --json=" + folder.resolve("run.json"));
        assertEquals(3, rows().size());
        table(Files.readString(file));
        assertTrue(Files.readString(folder.resolve("run.json")).startsWith("{"));
        out.getBuffer().setLength(0);
        passes(line + "=" + file + " --json");
        assertTrue(out.toString().startsWith("{"), out::toString);
    }

    private static void table(String csv) {
        List<String[]> rows = csv.lines().map(l -> l.split(",", -1)).toList();
        assertEquals(7, rows.size(), csv);
        List<String> head = List.of(rows.getFirst());
        for (String[] row : rows.subList(1, 7)) {
            assertEquals(head.size(), row.length, csv);
            assertEquals("all_gather", row[head.indexOf("collective")]);
            assertEquals("0", row[head.indexOf("nwrong")]);
            assertEquals(row[head.indexOf("median")], row[head.indexOf("time")]);
            assertEquals("3", row[head.indexOf("batches")]);
            assertTrue(Double.parseDouble(row[head.indexOf("bus_bw")]) > 0);
        }
        assertEquals("1024", rows.get(2)[head.indexOf("size")]);
        assertEquals("in_place", rows.get(2)[head.indexOf("placement")]);
    }

    @Test
    void uncheckedValuesAndOneSidedOperationsInCsv() {
        passes("sendrecv -b 64 -e 64 -g 2 -n 1 -w 0 -c 0 --csv");
        List<String> lines = out.toString().lines().toList();
        assertEquals(2, lines.size());
        int at = List.of(lines.getFirst().split(",", -1)).indexOf("nwrong");
        assertEquals("", lines.get(1).split(",", -1)[at]);
    }

    @Test
    void versionIsStillShown() {
        assertEquals(0, execute("all_reduce --version"));
        has("jccl " + Version.TEXT);
        assertEquals(0, execute("all_reduce -h"));
        has("--device_cta_count");
    }
}
