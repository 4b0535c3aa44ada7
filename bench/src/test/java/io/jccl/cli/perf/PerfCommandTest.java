package io.jccl.cli.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.Collective;
import io.jccl.bench.PerfRun;
import io.jccl.cli.Main;
import io.jccl.cli.shell.Version;
import io.jccl.device.Buffer;
import java.io.FilterWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class PerfCommandTest {
    /** Collectives whose types and reductions are all compared in the exhaustive run only. */
    private static final String EXHAUSTIVE =
            "ALL_GATHER|ALL_REDUCE|GATHER|REDUCE|REDUCE_SCATTER|REDUCE_SCATTER_V|SCATTER";

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int execute(String line) {
        return Main.execute(
                line.isEmpty() ? new String[0] : line.split(" "),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private int execute(
            Collective collective, PerfRun.Seam seam, Map<String, String> env, String line) {
        return Main.execute(
                collective.command(),
                new PerfCommand(collective, env, seam),
                line.split(" "),
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private List<String[]> lines() {
        return out.toString()
                .lines()
                .filter(l -> !l.startsWith("#"))
                .map(l -> l.trim().split(" +"))
                .toList();
    }

    @Test
    void printsTheTable() {
        assertEquals(0, execute("all_reduce -b 8 -e 1M -f 2 -g 2 -c 1 -n 2"), err::toString);
        List<String[]> lines = lines();
        assertEquals(18, lines.size());
        long size = 8;
        for (String[] l : lines) {
            assertEquals(13, l.length);
            assertEquals(size, Long.parseLong(l[0]));
            assertEquals(size / 4, Long.parseLong(l[1]));
            assertEquals("float", l[2]);
            assertEquals("sum", l[3]);
            assertEquals("-1", l[4]);
            for (int i = 5; i < 13; i++) {
                assertTrue(Double.parseDouble(l[i]) >= 0);
            }
            assertEquals("0", l[8]);
            assertEquals("0", l[12]);
            // With two ranks the factor is 1.
            assertEquals(l[6], l[7]);
            size *= 2;
        }
        String text = out.toString();
        assertTrue(text.startsWith("# jccl version "), text);
        assertTrue(text.contains("nRanks 2 minBytes 8 maxBytes 1048576 step: 2(factor)"), text);
        assertTrue(text.contains("#  Rank  1 Group  0 Pid "), text);
        assertTrue(text.contains("# Out of bounds values : 0 OK"), text);
        assertTrue(text.contains("# Avg bus bandwidth    : "), text);
        assertEquals("", err.toString());
    }

    /** /dev/full refuses every write as a full disk does; a rank, which is a thread, notices. */
    @Test
    void anErrorOfAFileIsTheLineThatOtherCommandsPrint() {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "there is no /dev/full here");
        assertEquals(1, execute("all_reduce -b 8 -e 8 -g 2 -n 1 -J " + full));
        assertEquals(
                "jccl all_reduce: cannot write /dev/full: No space left on device\n",
                err.toString());
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.MATCH_ANY, names = EXHAUSTIVE)
    void allTypesAndReductionsOfOthersAreRight(Collective collective) {
        allTypesAndReductionsAreRight(collective);
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.MATCH_NONE, names = EXHAUSTIVE)
    void allTypesAndReductionsAreRight(Collective collective) {
        // A hypercube needs a power of two.
        int ranks = collective == Collective.HYPERCUBE ? 4 : 3;
        String line = " -b 1 -e 40000 -f 199 -d all -o all -r all -n 1 -w 0 -m 2 -g " + ranks;
        assertEquals(0, execute(collective.command() + line), err::toString);
        int ops = collective.reduces() ? 6 : 1;
        int roots = collective.rooted() ? 3 : 1;
        boolean barrier = collective == Collective.BARRIER;
        assertEquals(barrier ? 1 : 12 * 3 * ops * roots, lines().size());
        for (String[] l : lines()) {
            assertEquals(barrier ? "N/A" : "0", l[8], () -> String.join(" ", l));
            assertEquals(collective.worksInPlace() ? "0" : "N/A", l[12]);
        }
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "BARRIER")
    void findsWrongValues(Collective collective) {
        // Of unequal blocks rank 0 gets the empty one.
        int receiver =
                EnumSet.of(Collective.SCATTER_V, Collective.REDUCE_SCATTER_V).contains(collective)
                        ? 1
                        : 0;
        PerfRun.Seam seam =
                (rank, sent, result) -> {
                    if (rank == receiver) {
                        // Two wrong bytes in two elements: the first and the last.
                        corrupt(result, 0);
                        corrupt(result, result.byteSize() - 1);
                    }
                };
        String line = "-b 64K -e 64K -g 2 -n 1 -w 0 -c 3";
        assertEquals(1, execute(collective, seam, Map.of(), line));
        String[] l = lines().getFirst();
        assertEquals("2", l[8]);
        assertEquals(collective.worksInPlace() ? "2" : "N/A", l[12]);
        int failed = collective.worksInPlace() ? 2 : 1;
        assertTrue(out.toString().contains("# Out of bounds values : " + failed + " FAILED"));
    }

    @Test
    void findsAnInputThatWasChanged() {
        PerfRun.Seam seam =
                (rank, sent, result) -> {
                    if (sent.count() > 0) {
                        corrupt(sent, 17);
                    }
                };
        assertEquals(
                1, execute(Collective.BROADCAST, seam, Map.of(), "-b 4K -e 4K -g 2 -n 1 -w 0"));
        // Only the root sends.
        assertEquals("1", lines().getFirst()[8]);
        assertEquals("0", lines().getFirst()[12]);
    }

    @Test
    void findsAResultThatWasNeverWritten() {
        PerfRun.Seam seam = (rank, sent, result) -> result.asSegment().fill((byte) 0xff);
        assertEquals(
                1, execute(Collective.ALL_REDUCE, seam, Map.of(), "-b 4K -e 4K -g 2 -n 1 -w 0"));
        assertEquals("2048", lines().getFirst()[8]);
    }

    private static void corrupt(Buffer buffer, long at) {
        var memory = buffer.asSegment();
        byte b = memory.get(java.lang.foreign.ValueLayout.JAVA_BYTE, at);
        memory.set(java.lang.foreign.ValueLayout.JAVA_BYTE, at, (byte) (b ^ 0x10));
    }

    @Test
    void aRankThatFailsIsNamedWithoutAStackTrace() {
        PerfRun.Seam seam =
                (rank, sent, result) -> {
                    if (rank == 1) {
                        throw new IllegalStateException("made to fail");
                    }
                };
        assertEquals(
                1, execute(Collective.ALL_REDUCE, seam, Map.of(), "-b 4K -e 4K -g 3 -n 1 -w 0"));
        String text = err.toString();
        assertTrue(text.startsWith("jccl all_reduce: rank 1 failed"), text);
        assertTrue(text.contains("made to fail"), text);
        assertFalse(text.contains("\tat "), text);
    }

    /** As {@code | head} leaves it. */
    private PrintWriter readUntil(int lines) {
        return new PrintWriter(
                new FilterWriter(out) {
                    @Override
                    public void write(String s, int from, int count) throws IOException {
                        if (lines().size() == lines) {
                            throw new IOException("Broken pipe");
                        }
                        super.write(s, from, count);
                    }
                });
    }

    @Test
    void anEndlessRunEndsWhenNobodyReadsItsTable() {
        String[] words = "all_reduce -N 0 -b 8 -e 8 -g 2 -n 1 -w 0".split(" ");
        assertEquals(141, Main.execute(words, readUntil(2), new PrintWriter(err)));
        assertEquals("", err.toString());
    }

    @Test
    void filesAreWrittenEvenIfNobodyReadsTheTable(@TempDir Path folder) {
        Path csv = folder.resolve("a.csv");
        String[] words = ("all_reduce -b 8 -e 64 -f 2 -g 2 -n 1 -w 0 --csv=" + csv).split(" ");
        assertEquals(0, Main.execute(words, readUntil(1), new PrintWriter(err)));
        assertTrue(Files.exists(csv));
    }

    @Test
    void uncheckedResultsSaySo() {
        assertEquals(0, execute("all_gather -b 4K -e 4K -g 2 -n 1 -w 0 -c 0"));
        assertEquals("N/A", lines().getFirst()[8]);
    }

    @Test
    void blocksAndRootsAreThoseAskedFor() {
        assertEquals(0, execute("gather -b 1000 -e 1000 -g 3 -n 1 -w 0 -r 2"));
        String[] l = lines().getFirst();
        assertEquals("960", l[0]);
        assertEquals("80", l[1]);
        assertEquals("none", l[3]);
        assertEquals("2", l[4]);
    }

    @Test
    void timesSingleIterations() {
        assertEquals(0, execute("broadcast -b 4K -e 4K -g 2 -n 5 -w 0 -I -z 1 -t 1"));
        String[] l = lines().getFirst();
        assertEquals(21, l.length);
        assertTrue(Double.parseDouble(l[9]) <= Double.parseDouble(l[10]));
    }

    @ParameterizedTest
    @ValueSource(strings = {"ring", "tree"})
    void algorithmsAreRight(String algorithm) {
        String line = "all_reduce -b 12 -e 100000 -f 90 -g 3 -n 1 -w 0 -o all --algo " + algorithm;
        assertEquals(0, execute(line), err::toString);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"direct", "rd", "pairwise"})
    void moreAlgorithmsAreRight(String algorithm) {
        algorithmsAreRight(algorithm);
    }

    @Test
    void writesJson(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("run.json");
        String line = "-b 1K -e 4K -f 2 -g 2 -n 3 -I 1 -J " + file;
        Map<String, String> env =
                Map.of("JCCL_X", "1", "OTHER", "2", "JCCL_STORE_SECRET", "3", "SLURM_JWT", "4");
        assertEquals(0, execute(Collective.ALL_TO_ALL, PerfRun.Seam.NONE, env, line));
        JsonNode root = new ObjectMapper().readTree(file.toFile());
        TreeSet<String> keys = new TreeSet<>();
        root.fieldNames().forEachRemaining(keys::add);
        assertEquals(
                new TreeSet<>(
                        List.of(
                                "version",
                                "start_time",
                                "end_time",
                                "args",
                                "env",
                                "nccl_version",
                                "jccl_version",
                                "config",
                                "devices",
                                "results",
                                "run",
                                "warm_up",
                                "warning",
                                "out_of_bounds",
                                "average_bus_bandwidth")),
                keys);
        assertEquals(
                "[\"JCCL_STORE_SECRET=(hidden)\",\"JCCL_X=1\",\"SLURM_JWT=(hidden)\"]",
                root.get("env").toString());
        assertEquals(2, root.get("devices").size());
        assertEquals(3, root.get("results").size());
        JsonNode result = root.get("results").get(1);
        assertEquals(2048, result.get("size").asLong());
        assertEquals(256, result.get("count").asLong());
        assertEquals("float", result.get("type").asText());
        assertEquals("none", result.get("redop").asText());
        assertEquals(-1, result.get("root").asInt());
        for (String side : List.of("out_of_place", "in_place")) {
            assertTrue(result.get(side).get("time").asDouble() > 0);
            assertTrue(result.get(side).get("alg_bw").asDouble() > 0);
            assertTrue(result.get(side).get("bus_bw").asDouble() > 0);
            assertEquals(0, result.get(side).get("nwrong").asInt());
            assertEquals(3, result.get(side + "_per_iter").get("times_us").size());
        }
        assertTrue(root.get("out_of_bounds").get("okay").asBoolean());
        assertEquals(0, root.get("out_of_bounds").get("count").asInt());
        assertNotNull(root.get("average_bus_bandwidth").get("bandwidth"));
        try (var files = Files.list(folder)) {
            assertEquals(List.of(file), files.toList());
        }
    }

    @Test
    void aFileThatCannotBeWrittenStopsTheRunBeforeItStarts(@TempDir Path folder) {
        assertEquals(2, execute("all_reduce -J " + folder.resolve("no/run.json")));
        assertTrue(err.toString().contains("does not exist"), err::toString);
        assertEquals(2, execute("all_reduce -J " + folder));
        assertTrue(err.toString().contains("is a folder"), err::toString);
        Path both = folder.resolve("run");
        assertEquals(2, execute("all_reduce --json=" + both + " --csv=" + both));
        assertTrue(err.toString().contains("--json and --csv are both"), err::toString);
        assertEquals("", out.toString());
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce -b 12Q, '12Q'",
        "all_reduce -b 2M -e 1M, 1048576",
        "all_reduce -n 0, -n/--iters is 0",
        "all_reduce -n x, 'x'",
        "all_reduce -d floaty, 'floaty'",
        "all_reduce -o avrg, 'avrg'",
        "reduce -r 2 -g 2, -r/--root is 2",
        "reduce -r -2, '-2'",
        "all_reduce -z 7, '7'",
        "all_reduce -T 0, '0'",
        "all_reduce -i 0, -i/--stepbytes is 0",
        "all_reduce --algo best, 'best'",
        "all_reduce -t 100 -g 100, 10000 ranks",
        "all_reduce --what, '--what'",
        "all_reduce more, 'more'",
        "allreduce, 'allreduce'",
        "run -n 0 barrier, --nproc': '0' is not a whole number from 1",
        "run -n 2 run -n 2 barrier, run cannot start run",
    })
    void mistakesAreNamedInOneLine(String line, String part) {
        assertEquals(2, execute(line));
        String text = err.toString();
        assertTrue(text.contains(part.replace("''", "'")), text);
        assertEquals(1, text.lines().count(), text);
        assertEquals("", out.toString());
    }

    @Test
    void launchedRanksAreOneAProcess() {
        Map<String, String> env = Map.of("RANK", "0", "WORLD_SIZE", "2");
        assertEquals(2, execute(Collective.BARRIER, PerfRun.Seam.NONE, env, "-g 2"));
        assertTrue(err.toString().contains("RANK is set"), err::toString);
    }

    @Test
    void helpAndVersion() {
        assertEquals(0, execute("--help"));
        for (Collective c : Collective.values()) {
            assertTrue(out.toString().contains("  " + c.command()), c.command());
        }
        assertEquals(0, execute("all_reduce --help"));
        assertTrue(out.toString().contains("--stepfactor"));
        assertEquals(0, execute("--version"));
        assertEquals(0, execute("version"));
        assertTrue(out.toString().contains("jccl " + Version.TEXT));
        assertEquals("", err.toString());
        assertEquals(2, execute(""));
    }
}
