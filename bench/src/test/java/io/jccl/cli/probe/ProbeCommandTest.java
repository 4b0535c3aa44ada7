package io.jccl.cli.probe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.PerfRun;
import io.jccl.bench.probe.Outcome;
import io.jccl.bench.probe.ProbeConfig;
import io.jccl.bench.probe.ProbeJson;
import io.jccl.bench.probe.ProbeReport;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.bench.probe.ProbeSection;
import io.jccl.cli.Main;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What a probe of the host finds, at sizes that take no time. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class ProbeCommandTest {
    private static final String TINY =
            "--sizes 33,16 --hidden 16 --max-bytes 64K --time-budget 1.5 --threads 2";

    @TempDir private static Path folder = Path.of("");

    private static Run all = new Run(0, "", "");
    private static Path file = Path.of("");
    private static Path sums = Path.of("");

    private record Run(int status, String out, String err) {
        static Run of(Consumer<Buffer> spoil, String line) {
            return of(Map.of(), spoil, line);
        }

        static Run of(Map<String, String> environment, Consumer<Buffer> spoil, String line) {
            StringWriter out = new StringWriter();
            StringWriter err = new StringWriter();
            int status =
                    Main.execute(
                            "probe",
                            new ProbeCommand(environment, spoil),
                            line.split(" "),
                            new PrintWriter(out),
                            new PrintWriter(err));
            return new Run(status, out.toString(), err.toString());
        }

        static Run of(String line) {
            return of(product -> {}, line);
        }
    }

    @BeforeAll
    static void probe() {
        file = folder.resolve("probe.json");
        all = Run.of(TINY + " -J " + file);
        assertEquals(0, all.status, all::toString);
        sums = folder.resolve("sums.json");
        // More than the warm-up, for which the others leave no time.
        Run r = Run.of("--only allreduce --max-bytes 64K --threads 2 --time-budget 3 -J " + sums);
        assertEquals(0, r.status, r::toString);
    }

    private static double seconds(Outcome outcome) {
        assertEquals(Outcome.Status.MEASURED, outcome.status(), outcome::toString);
        assertNotNull(outcome.timing(), outcome::toString);
        assertTrue(
                0 < outcome.timing().minSeconds()
                        && outcome.timing().minSeconds() <= outcome.timing().medianSeconds()
                        && outcome.timing().medianSeconds() <= outcome.timing().maxSeconds()
                        && outcome.timing().batches() > 0
                        && outcome.timing().operations() > 0,
                outcome::toString);
        return outcome.timing().medianSeconds();
    }

    private static void assertRate(double amount, Outcome outcome, @Nullable Double rate) {
        double expected = amount / seconds(outcome);
        assertNotNull(rate);
        assertEquals(expected, rate, 1e-9 * expected);
    }

    @Test
    void everyPartHasItsFigures() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        assertEquals(List.of(), r.faults());
        assertEquals(
                List.of("tf32 16", "float16 16", "float64 16"),
                r.matmul().stream()
                        .filter(p -> p.outcome().status() == Outcome.Status.LACKING)
                        .map(p -> p.type() + " " + p.size())
                        .toList());
        List<ProbeResult.Product> products =
                r.matmul().stream().filter(p -> p.teraflops() != null).toList();
        assertEquals(
                List.of("float32 16", "bfloat16 16", "float32 33", "bfloat16 33"),
                products.stream().map(p -> p.type() + " " + p.size()).toList());
        for (ProbeResult.Product p : products) {
            assertRate(2e-12 * p.size() * p.size() * p.size(), p.outcome(), p.teraflops());
        }
        // Two sizes, three loops, one thread and two.
        assertEquals(12, r.memory().size());
        for (ProbeResult.Access m : r.memory()) {
            seconds(m.outcome());
            assertTrue(m.gigabytesPerSecond() != null && m.gigabytesPerSecond() > 0, m::toString);
        }
        assertEquals(
                Set.of(16L << 10, 64L << 10),
                Set.copyOf(r.memory().stream().map(ProbeResult.Access::bytes).toList()));
        assertEquals(
                List.of("add 4096 12", "cast 4096 6", "axpy 4096 12", "adam 4096 28"),
                r.elementwise().stream()
                        .map(e -> e.operation() + " " + e.elements() + " " + e.bytesPerElement())
                        .toList());
        for (ProbeResult.Elementwise e : r.elementwise()) {
            double bytes = 1e-9 * e.elements() * e.bytesPerElement();
            assertRate(bytes, e.outcome(), e.gigabytesPerSecond());
        }
        assertEquals(1, r.latency().size());
        for (ProbeResult.Copy c : r.copies()) {
            assertRate(1e-9 * c.bytes(), c.outcome(), c.gigabytesPerSecond());
        }
        assertEquals(
                List.of("device_local_copy", "host_to_device_transfer_engine"),
                r.copies().stream().map(ProbeResult.Copy::name).toList());
        assertEquals(1, r.layers().size());
        ProbeResult.Layer layer = r.layers().getFirst();
        assertEquals("layer", layer.part());
        // 12 h^2 weights for 512 tokens, and attention below the diagonal.
        double flops = 2.0 * 512 * (12 * 16 * 16 + 128 * 16);
        assertEquals(flops, layer.forwardFlops());
        assertRate(1e-12 * flops, layer.forward(), layer.forwardTeraflops());
        assertRate(2e-12 * flops, layer.backward(), layer.backwardTeraflops());
    }

    /** Both need two CPUs. */
    @Test
    void coresAndRanksAreMeasuredOrSaidToBeTooFew() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        ProbeResult.Latency core = r.latency().getFirst();
        if (Runtime.getRuntime().availableProcessors() > 1) {
            assertNotNull(core.nanoseconds());
            assertEquals(0.5e9 * seconds(core.outcome()), core.nanoseconds(), 1e-6);
            List<ProbeResult.AllReduce> rows = ProbeJson.read(sums).allReduce();
            assertEquals(
                    List.of(8L, 720L, 64800L),
                    rows.stream().map(ProbeResult.AllReduce::bytes).toList());
            for (ProbeResult.AllReduce a : rows) {
                seconds(a.outcome());
                assertEquals("host 2", a.engine() + " " + a.ranks());
            }
        } else {
            assertEquals(Outcome.Status.LACKING, core.outcome().status());
        }
        Outcome skipped = r.allReduce().getFirst().outcome();
        assertEquals(Outcome.Status.SKIPPED, skipped.status());
        assertTrue(
                String.valueOf(skipped.note())
                        .matches(
                                "its warm-up may take 2 s, more than .*; raise --time-budget"
                                        + "|this process may use one CPU: .*"),
                skipped::toString);
    }

    @Test
    void theMachineIsDescribed() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        assertEquals(ProbeResult.SCHEMA, r.schema());
        assertEquals("host", r.device().kind());
        assertEquals(2, r.device().threads());
        assertEquals(Runtime.getRuntime().availableProcessors(), r.machine().availableCpus());
        assertEquals(Runtime.version().toString(), r.machine().java());
        assertEquals(List.of(TINY.split(" ")), r.arguments().subList(0, 10));
        assertTrue(r.seconds() > 0);
    }

    @Test
    void ceilingsAreTheBestOfWhatWasMeasured() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        assertEquals(2, r.roofline().compute().size());
        for (ProbeResult.Roofline.Compute c : r.roofline().compute()) {
            assertEquals(
                    r.matmul().stream()
                            .filter(p -> p.type().equals(c.type()))
                            .mapToDouble(ProbeResult.Product::teraflops)
                            .max()
                            .orElseThrow(),
                    c.teraflops());
        }
        for (ProbeResult.Roofline.Bandwidth b : r.roofline().bandwidth()) {
            assertEquals(
                    r.memory().stream()
                            .filter(m -> m.level().equals(b.level()))
                            .mapToDouble(ProbeResult.Access::gigabytesPerSecond)
                            .max()
                            .orElseThrow(),
                    b.gigabytesPerSecond());
        }
        ProbeResult.Roofline.Point sum =
                r.roofline().points().stream()
                        .filter(p -> p.name().equals("add 4096"))
                        .findFirst()
                        .orElseThrow();
        assertEquals(1 / 12.0, sum.flopsPerByte());
        // But for the cast, which computes nothing.
        assertEquals(4 + 3 + 2, r.roofline().points().size());
    }

    @Test
    void textHasATableOfEachPart() {
        for (String heading :
                List.of(
                        "# Memory bandwidth by working set",
                        "# Elementwise operations",
                        "# Products of n x n matrices",
                        "# Latency",
                        "# Copies",
                        "# allReduce",
                        "# A Transformer layer",
                        "# Roofline")) {
            assertEquals(1, all.out.lines().filter(l -> l.startsWith(heading)).count(), all.out);
        }
        assertTrue(all.out.contains("lacking: the host's products take float32"), all.out);
        assertFalse(all.out.contains("null") || all.out.contains("NaN"), all.out);
    }

    /** Numbers stand below the ends of their headings. */
    @Test
    void columnsAreAligned() {
        List<String> lines = all.out.lines().toList();
        int at = lines.indexOf("# Elementwise operations") + 1;
        int end = lines.get(at).length();
        assertTrue(lines.get(at).endsWith("GB/s"), lines.get(at));
        assertEquals(end, lines.get(at + 1).length(), all.out);
        assertEquals(end, lines.get(at + 2).length(), all.out);
    }

    @Test
    void jsonGoesThereAndBack() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        ObjectNode tree = (ObjectNode) new ObjectMapper().readTree(file.toFile());
        ObjectNode unsigned = tree.deepCopy();
        assertTrue(unsigned.remove("run").path("command").asText().startsWith("jccl probe "));
        assertEquals(unsigned.toPrettyString(), ProbeJson.of(r).toPrettyString());
        tree.put("of_a_later_version", 1);
        Path later = folder.resolve("later.json");
        Files.writeString(later, tree.toString());
        assertEquals(r, ProbeJson.read(later));

        tree.put("schema", 2);
        Files.writeString(later, tree.toString());
        assertRefused(later, "has schema 2, expected 1");
        Files.writeString(later, "{\"schema\": 1, \"matmul\": 3}");
        assertRefused(later, "is not one: ");
        Files.writeString(later, "no JSON");
        assertRefused(later, "is not one: ");
    }

    private static void assertRefused(Path path, String why) {
        IOException e = assertThrows(IOException.class, () -> ProbeJson.read(path));
        String message = String.valueOf(e.getMessage());
        assertTrue(message.contains(why), message);
        assertTrue(message.endsWith("write one with jccl probe --json=" + path), message);
    }

    @Test
    void everyFieldIsDocumented() throws IOException {
        String page = Files.readString(Path.of("../docs/probe.md"));
        Set<String> missing = new TreeSet<>();
        names(new ObjectMapper().readTree(file.toFile()), missing);
        names(new ObjectMapper().readTree(sums.toFile()), missing);
        assertTrue(missing.size() > 60, missing::toString);
        missing.removeIf(name -> page.contains("`" + name + "`"));
        assertEquals(Set.of(), missing);
    }

    private static void names(JsonNode node, Set<String> to) {
        node.properties()
                .forEach(e -> {
                    to.add(e.getKey());
                    names(e.getValue(), to);
                });
        node.forEach(child -> names(child, to));
    }

    @Test
    void chartsHoldWhatWasMeasured() throws IOException {
        ProbeResult r = ProbeJson.read(file);
        ProbeReport report = ProbeReport.of(r);
        assertEquals(r.roofline(), report.roofline());
        ProbeReport.Chart products = report.charts().getFirst();
        assertEquals(Set.of("float32", "bfloat16"), products.lines().keySet());
        for (ProbeReport.Chart chart : report.charts()) {
            chart.lines()
                    .values()
                    .forEach(line ->
                            line.forEach(p ->
                                    assertTrue(
                                            p.low() <= p.y() && p.y() <= p.high() && p.x() > 0,
                                            chart.title() + p)));
        }
        ProbeReport.Point first =
                Objects.requireNonNull(products.lines().get("float32")).getFirst();
        assertEquals(16, first.x());
        assertEquals(
                r.matmul().stream()
                        .filter(p -> p.teraflops() != null)
                        .findFirst()
                        .orElseThrow()
                        .teraflops(),
                first.y());
        assertEquals(
                Set.of(
                        "read, threads: 1",
                        "write, threads: 1",
                        "triad, threads: 1",
                        "read, threads: 2",
                        "write, threads: 2",
                        "triad, threads: 2"),
                report.charts().get(1).lines().keySet());
    }

    @Test
    void aWrongProductIsSaidAndFails() throws IOException {
        Path json = folder.resolve("wrong.json");
        Run r =
                Run.of(
                        c -> c.set(c.count() / 2, c.get(c.count() / 2) + 1),
                        "--only matmul --types float32 --sizes 20 --time-budget 1 -J " + json);
        assertEquals(1, r.status, r::toString);
        assertTrue(r.out.contains("# WRONG OR FAILED: matmul float32 20: wrong: row 10"), r.out);
        ProbeResult.Product p = ProbeJson.read(json).matmul().getFirst();
        assertEquals(Outcome.Status.WRONG, p.outcome().status());
        assertNull(p.teraflops());
    }

    @Test
    void aWrongSumOverRanksIsFound() {
        assumeTrue(Runtime.getRuntime().availableProcessors() > 1, "needs two CPUs");
        ProbeConfig config =
                new ProbeConfig(
                        Device.host(),
                        Set.of(ProbeSection.ALLREDUCE),
                        List.of(16),
                        List.of(),
                        List.of(16),
                        64 << 10,
                        2,
                        1,
                        List.of());
        List<ProbeResult.AllReduce> rows =
                new AllReduceSums(
                                (rank, sent, result) -> {
                                    if (result.count() > 1000) {
                                        result.set(5, result.get(5) + 1);
                                    }
                                })
                        .run(config, PerfRun.MOST_WARM_UP_SECONDS);
        assertEquals(
                List.of(Outcome.Status.MEASURED, Outcome.Status.MEASURED, Outcome.Status.WRONG),
                rows.stream().map(r -> r.outcome().status()).toList());
        assertNull(rows.getLast().busGigabytesPerSecond());
    }

    @Test
    void ranksOfALauncherAreRefused() {
        Map<String, String> rank =
                Map.of("RANK", "1", "WORLD_SIZE", "4", "MASTER_ADDR", "a", "MASTER_PORT", "1");
        Run r = Run.of(rank, product -> {}, "--only copy");
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains("a launcher started 4 ranks"), r.err);
        Map<String, String> batch = Map.of("SLURM_PROCID", "0", "SLURM_NTASKS", "4");
        Run ok = Run.of(batch, product -> {}, "--only copy --max-bytes 4K --time-budget 0.2");
        assertEquals(0, ok.status, ok::toString);
    }

    @Test
    void onlyWhatIsAskedForRuns() throws IOException {
        Path json = folder.resolve("only.json");
        Run r = Run.of("--only elementwise,copy --max-bytes 4K --time-budget 0.5 -J " + json);
        assertEquals(0, r.status, r::toString);
        ProbeResult found = ProbeJson.read(json);
        assertEquals(2, found.copies().size());
        assertEquals(4, found.elementwise().size());
        assertEquals(List.of(), found.matmul());
        assertEquals(List.of(), found.layers());
        assertEquals(List.of(), found.allReduce());
    }

    @Test
    void whatDoesNotFitTheTimeIsLeftOut() throws IOException {
        Path json = folder.resolve("skipped.json");
        String line =
                "--only matmul,layer --types float32 --sizes 16,8192 --hidden 16,8192"
                        + " --time-budget 0.1 -J ";
        Run r = Run.of(line + json);
        assertEquals(0, r.status, r::toString);
        ProbeResult found = ProbeJson.read(json);
        Outcome large = found.matmul().get(1).outcome();
        assertEquals(Outcome.Status.SKIPPED, large.status());
        assertTrue(String.valueOf(large.note()).endsWith("raise --time-budget"), large::toString);
        assertEquals(Outcome.Status.SKIPPED, found.layers().get(1).forward().status());
    }

    @Test
    void jsonIsPrintedInsteadOfText() throws IOException {
        Run r = Run.of("--only copy --max-bytes 4K --time-budget 0.5 --json");
        assertEquals(0, r.status, r::toString);
        assertEquals(1, new ObjectMapper().readTree(r.out).get("schema").asInt());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "--device gpu | --device is 'gpu', expected host, cuda or cuda:NUMBER",
                "--device cuda:x | --device is 'cuda:x', expected",
                "--only matmul,disk | --only has 'disk', expected matmul, layer, memory,",
                "--types int8 | --types has 'int8', expected float32, tf32, bfloat16, float16",
                "--sizes 0 | --sizes has 0, expected 1 to 32768",
                "--sizes 99999 | --sizes has 99999, expected 1 to 32768",
                "--sizes x | is not a whole number from 0 to",
                "--hidden 0 | --hidden has 0, expected 1 to 16384",
                "--max-bytes 8 | --max-bytes is 8, expected 64 to 1T",
                "--max-bytes much | is not a number of bytes; give",
                "--threads 0 | --threads is 0, expected 1 to 1024",
                "--time-budget 0 | --time-budget is 0.0, expected 0.1 to 86400 seconds",
                "--time-budget NaN | --time-budget is NaN, expected",
                "--json=/no/such/folder/x | folder /no/such/folder does not exist",
            })
    void mistakesAreNamed(String line, String message) {
        Run r = Run.of(line.strip());
        assertEquals(2, r.status, r::toString);
        assertTrue(r.err.contains(message), r::toString);
    }
}
