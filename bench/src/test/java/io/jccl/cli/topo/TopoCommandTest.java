package io.jccl.cli.topo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.networknt.schema.JsonSchema;
import com.networknt.schema.JsonSchemaFactory;
import com.networknt.schema.SpecVersion;
import io.jccl.bench.report.Page;
import io.jccl.cli.Main;
import io.jccl.topology.Topology;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.StringReader;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.xml.sax.InputSource;

@Timeout(value = 120, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TopoCommandTest {
    private static final Path ROOT = Path.of("..").toAbsolutePath().normalize();
    private static final Path EXAMPLE = ROOT.resolve("docs/examples/dgx-1.txt");
    private static final Path FIXTURES = Path.of("src/test/resources/topo").toAbsolutePath();

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir private Path folder;

    private int execute(String... arguments) {
        return Main.execute(prefixed(arguments), new PrintWriter(out), new PrintWriter(err));
    }

    private static String[] prefixed(String... arguments) {
        return Stream.concat(Stream.of("topo"), Arrays.stream(arguments)).toArray(String[]::new);
    }

    /** With a machine and standard input of the test's own. */
    private int execute(
            byte[] input, Function<ReadOptions, Topology> machine, String... arguments) {
        return Main.execute(
                "topo",
                new TopoCommand(new ByteArrayInputStream(input), machine),
                arguments,
                new PrintWriter(out),
                new PrintWriter(err));
    }

    private JsonNode json(Path file, String... arguments) throws IOException {
        List<String> all = new ArrayList<>(List.of("--file", file.toString(), "--json"));
        all.addAll(List.of(arguments));
        out.getBuffer().setLength(0);
        assertEquals(0, execute(all.toArray(String[]::new)), err::toString);
        return validated(out.toString());
    }

    private static JsonNode validated(String text) throws IOException {
        try (InputStream in = Files.newInputStream(ROOT.resolve("docs/topo.schema.json"))) {
            JsonSchema schema =
                    JsonSchemaFactory.getInstance(SpecVersion.VersionFlag.V202012).getSchema(in);
            JsonNode document = new ObjectMapper().readTree(text);
            assertEquals(Set.of(), schema.validate(document), text);
            return document;
        }
    }

    private static Path fixture(String name) {
        return FIXTURES.resolve(name + ".txt");
    }

    @Test
    void textOfTheExample() throws IOException {
        assertEquals(
                0, execute("--file", EXAMPLE.toString(), "--explain", "--simulate"), err::toString);
        Path golden = ROOT.resolve("docs/examples/dgx-1.out");
        assertEquals(Files.readString(golden), out.toString());
        assertTrue(err.toString().startsWith("warning: the GPU generation is a guess"));
        out.toString().lines().forEach(line -> assertTrue(line.length() <= 120, line));
    }

    @Test
    void aThinNetwork() throws IOException {
        String[] cluster = {"--nodes", "4", "--nic-gbps", "50", "--gpu-model", "H100"};
        JsonNode full = json(fixture("hgx"), cluster);
        assertTrue(
                full.at("/plan/assumptions").toString().contains("no oversubscription"),
                full.at("/plan/assumptions").toString());
        JsonNode thin =
                json(
                        fixture("hgx"),
                        Stream.concat(
                                        Arrays.stream(cluster),
                                        Stream.of("--oversubscription", "8", "--unit", "2"))
                                .toArray(String[]::new));
        // 8 NICs of 50 GB/s, of which 2/8 is left.
        assertEquals(100, thin.at("/plan/bandwidthGBps").asDouble(), 0.01);
        assertTrue(full.at("/plan/bandwidthGBps").asDouble() > 300);
        out.getBuffer().setLength(0);
        assertEquals(
                0,
                execute(
                        "--file",
                        fixture("hgx").toString(),
                        "--nodes",
                        "4",
                        "--nic-gbps",
                        "50",
                        "--oversubscription",
                        "8",
                        "--unit",
                        "2"),
                err::toString);
        assertTrue(
                out.toString()
                        .replaceAll("\\s+", " ")
                        .contains("units of 2 machines and an oversubscription of 8.0 leave"),
                out.toString());
    }

    @Test
    void jsonOfTheExample() throws IOException {
        JsonNode report = json(EXAMPLE);
        assertEquals(8, report.get("gpus").size());
        assertEquals("0-19,40-59", report.at("/gpus/3/cpuAffinity").asText());
        assertEquals("1", report.at("/gpus/4/numaAffinity").asText());
        assertEquals("N/A", report.at("/gpus/4/gpuNumaId").asText());
        assertEquals("NIC2", report.at("/nics/2/name").asText());
        assertEquals("mlx5_2", report.at("/nics/2/device").asText());
        // 28 pairs of GPUs, 32 of a GPU and a NIC.
        assertEquals(60, report.get("links").size());
        JsonNode link = report.at("/links/2");
        assertEquals(
                "{\"a\":\"GPU0\",\"b\":\"GPU3\",\"code\":\"NV2\",\"kind\":\"nvlink\",\"count\":2,"
                        + "\"gbps\":40.0}",
                link.toString());
        JsonNode near = report.at("/links/28");
        assertEquals("NIC0", near.get("b").asText());
        assertEquals("PIX", near.get("code").asText());
        assertEquals("pcie", near.get("kind").asText());
        JsonNode plan = report.get("plan");
        assertEquals(120, plan.get("bandwidthGBps").asDouble(), 1e-6);
        assertEquals(120, plan.get("boundGBps").asDouble(), 1e-6);
        assertEquals(1, plan.get("ratio").asDouble(), 1e-6);
        assertEquals(6, plan.get("channels").size());
        for (JsonNode channel : plan.get("channels")) {
            Set<Integer> visited = new HashSet<>();
            channel.get("ring").forEach(g -> visited.add(g.asInt()));
            assertEquals(8, visited.size());
        }
        assertEquals(1L << 30, plan.at("/predictions/6/bytes").asLong());
    }

    @TestFactory
    Stream<DynamicTest> everyFixtureFitsTheSchema() throws IOException {
        List<Path> fixtures;
        try (Stream<Path> files = Files.list(FIXTURES)) {
            fixtures = files.sorted().toList();
        }
        assertTrue(fixtures.size() >= 8);
        return fixtures.stream()
                .flatMap(f ->
                        Stream.of("all_reduce", "broadcast", "alltoall")
                                .map(op ->
                                        dynamicTest(
                                                f.getFileName() + " " + op,
                                                () ->
                                                        new TopoCommandTest()
                                                                .json(
                                                                        f,
                                                                        "--lenient",
                                                                        "--op",
                                                                        op))));
    }

    /** See the reader's test of the same folder for what it is and when it may be missing. */
    @TestFactory
    Stream<DynamicTest> everyRealDumpFitsTheSchema() throws IOException {
        Path topo = shared();
        if (topo == null) {
            String required =
                    System.getProperty(
                            "jccl.test.require",
                            System.getenv().getOrDefault("JCCL_TEST_REQUIRE", ""));
            String reason =
                    "there is not a folder ../shared/topo with dumps (JCCL_SHARED names another)";
            List<String> needs = Arrays.stream(required.split(",", -1)).map(String::strip).toList();
            if (needs.contains("topo") || needs.contains("all")) {
                throw new AssertionError("JCCL_TEST_REQUIRE lists topo, but " + reason);
            }
            return Assumptions.abort(reason);
        }
        List<Path> dumps;
        try (Stream<Path> files = Files.list(topo)) {
            dumps = files.filter(f -> f.toString().endsWith(".txt")).sorted().toList();
        }
        assertFalse(dumps.isEmpty(), "no dumps in " + topo);
        return dumps.stream()
                .map(dump ->
                        dynamicTest(
                                String.valueOf(dump.getFileName()),
                                () -> new TopoCommandTest().compare(dump)));
    }

    private static @Nullable Path shared() {
        String named = System.getProperty("jccl.shared", System.getenv("JCCL_SHARED"));
        if (named != null && !named.isEmpty()) {
            Path topo = Path.of(named, "topo");
            assertTrue(Files.isDirectory(topo), "no folder " + topo + ", which was named");
            return topo;
        }
        for (Path p = ROOT; p != null; p = p.getParent()) {
            Path topo = p.resolveSibling("shared").resolve("topo");
            if (Files.isDirectory(topo)) {
                return topo;
            }
        }
        return null;
    }

    private void compare(Path dump) throws IOException {
        JsonNode report = json(dump);
        String truthFile = String.valueOf(dump.getFileName()).replace(".txt", ".json");
        JsonNode truth = new ObjectMapper().readTree(dump.resolveSibling(truthFile).toFile());
        assertEquals(truth.get("gpus").asInt(), report.get("gpus").size());
        for (JsonNode pair : truth.get("links")) {
            String a = report.at("/gpus/" + pair.get(0).asInt() + "/name").asText();
            String b = report.at("/gpus/" + pair.get(1).asInt() + "/name").asText();
            JsonNode link = null;
            for (JsonNode l : report.get("links")) {
                if (l.get("a").asText().equals(a) && l.get("b").asText().equals(b)) {
                    link = l;
                }
            }
            assertNotNull(link, a + " " + b);
            assertEquals(pair.get(2).asText(), link.get("code").asText(), a + " " + b);
        }
        boolean severalGpus = truth.get("gpus").asInt() > 1;
        String command = truth.get("command").asText();
        boolean paths = command.contains("topo -m") && severalGpus;
        assertEquals(paths, report.get("plan").isObject(), command);
        if (paths) {
            assertTrue(report.at("/plan/ratio").asDouble() > 0);
        }
    }

    @Test
    void cellsThatAreEmptyOrNotThere() throws IOException {
        JsonNode empty = json(fixture("empty-cells"));
        assertEquals("", empty.at("/gpus/0/cpuAffinity").textValue());
        assertEquals("", empty.at("/gpus/1/numaAffinity").textValue());
        assertTrue(empty.at("/gpus/0/gpuNumaId").isNull());
        assertTrue(json(fixture("soc")).at("/gpus/0/numaAffinity").isNull());
    }

    @Test
    void codesAsPrintedAndTheirKinds() throws IOException {
        JsonNode soc = json(fixture("soc"));
        assertEquals("SOC", soc.at("/links/1/code").asText());
        assertEquals("smp", soc.at("/links/1/kind").asText());
        assertEquals("mlx4_0", soc.at("/links/6/b").asText());
        JsonNode unknown = json(fixture("unknown-code"));
        assertEquals("C2C", unknown.at("/links/0/code").asText());
        assertEquals("unknown", unknown.at("/links/0/kind").asText());
        assertTrue(unknown.at("/links/0/gbps").isNull());
        assertTrue(unknown.get("warnings").toString().contains("C2C"));
    }

    @Test
    void dumpsWithoutPathsHaveNoPlan() throws IOException {
        JsonNode p2p = json(fixture("p2p"));
        assertTrue(p2p.get("plan").isNull());
        assertEquals("CNS", p2p.at("/links/1/code").asText());
        assertEquals("p2p", p2p.at("/links/1/kind").asText());
        assertTrue(p2p.at("/links/1/gbps").isNull());
        assertTrue(p2p.get("warnings").toString().contains("no plan: "));
        JsonNode nvlink = json(fixture("nvlink-s"));
        assertTrue(nvlink.get("plan").isNull());
        assertEquals(0, nvlink.get("links").size());
        assertEquals(18, nvlink.at("/gpus/1/nvlinks").asInt());
        assertEquals(26.562, nvlink.at("/gpus/1/nvlinkGbps").asDouble());
        assertEquals("NVIDIA H100 80GB HBM3", nvlink.at("/gpus/1/model").asText());
        JsonNode one = json(fixture("one"));
        assertTrue(one.get("plan").isNull());
        assertEquals(1, one.get("links").size());
    }

    @Test
    void gpusAreNumberedAsInTheDump() throws IOException {
        JsonNode report = json(fixture("skipping"), "--gpus", "5,0");
        assertEquals("[5,0]", report.at("/plan/gpus").toString());
        assertEquals("GPU5", report.at("/gpus/2/name").asText());
        JsonNode rings = json(EXAMPLE, "--gpus", "4-6,1", "--op", "broadcast", "--root", "5");
        assertEquals("[4,5,6,1]", rings.at("/plan/gpus").toString());
        for (JsonNode channel : rings.at("/plan/channels")) {
            JsonNode tree = channel.get("tree");
            if (tree != null) {
                assertEquals(5, tree.get("root").asInt());
            }
        }
        assertEquals("broadcast", rings.at("/plan/op").asText());
    }

    @Test
    void sizes() throws IOException {
        JsonNode report = json(EXAMPLE, "--size", "4K,1G", "--size", "17");
        List<Long> bytes = new ArrayList<>();
        report.at("/plan/predictions").forEach(p -> bytes.add(p.get("bytes").asLong()));
        assertEquals(List.of(4096L, 1L << 30, 17L), bytes);
    }

    @Test
    void bandwidthsAndModelsThatAreTold() throws IOException {
        assertEquals(25, json(EXAMPLE, "--nvlink-gbps", "25").at("/links/0/gbps").asDouble());
        JsonNode b200 = json(fixture("hgx"), "--gpu-model", "B200");
        assertEquals("10.0", b200.at("/gpus/0/computeCapability").asText());
        assertEquals(18 * 40.1, b200.at("/links/0/gbps").asDouble(), 1e-6);
        JsonNode nic = json(fixture("hgx"), "--nic-gbps", "50");
        assertEquals(50, nic.at("/nics/7/gbps").asDouble());
        JsonNode status = json(fixture("hgx"), "--nvlink-status", fixture("nvlink-s").toString());
        assertEquals("9.0", status.at("/gpus/0/computeCapability").asText());
        assertEquals("NVIDIA H100 80GB HBM3", status.at("/gpus/0/model").asText());
    }

    @Test
    void aCluster() throws IOException {
        JsonNode report =
                json(fixture("hgx"), "--nodes", "4", "--nic-gbps", "50", "--gpu-model", "H100");
        assertEquals(4, report.at("/plan/machines").asInt());
        assertTrue(report.at("/plan/channels").size() >= 8);
        assertTrue(report.at("/plan/channels/0/rail/nicIn").asText().startsWith("NIC"));
        assertTrue(report.at("/plan/ratio").asDouble() > 0.8);
        out.getBuffer().setLength(0);
        assertEquals(
                0,
                execute(
                        "--file",
                        fixture("hgx").toString(),
                        "--nodes=4",
                        "--simulate",
                        "--explain",
                        "--size=64M"));
        assertTrue(out.toString().contains("on each of 4 machines"), out::toString);
        assertTrue(out.toString().contains("every rank ends with the right data"), out::toString);
    }

    /** There is no plan over machines for these, but a prediction. */
    @Test
    void aClusterExchanges() {
        String[] line = {"--file", fixture("hgx").toString(), "--nodes=2", "--nic-gbps=50"};
        for (String op : List.of("alltoall", "gather", "scatter", "sendrecv")) {
            out.getBuffer().setLength(0);
            err.getBuffer().setLength(0);
            List<String> all = new ArrayList<>(List.of(line));
            all.addAll(List.of("--size=1G", "--op", op));
            assertEquals(0, execute(all.toArray(String[]::new)), err::toString);
            assertTrue(out.toString().contains("Prediction for " + op), out::toString);
            assertTrue(err.toString().contains("warning: no plan over machines for " + op));
        }
    }

    /** GPU 4 of the example has an NVLink to GPU 0 only, which has one to each of the others. */
    @Test
    void theRootDecidesThePrediction() throws IOException {
        for (String root : List.of("0", "4")) {
            JsonNode plan =
                    json(EXAMPLE, "--gpus", "0-4", "--op", "scatter", "--root", root).get("plan");
            double planned = plan.get("bandwidthGBps").asDouble();
            double predicted = plan.at("/algorithms/0/busbwGBps").asDouble();
            assertEquals(planned, predicted, 0.1 * planned, root);
        }
    }

    @Test
    void standardInputInAnyEncoding() throws IOException {
        String dump = Files.readString(EXAMPLE);
        for (byte[] bytes :
                List.of(
                        dump.getBytes(StandardCharsets.UTF_8),
                        ("\ufeff" + dump).getBytes(StandardCharsets.UTF_8),
                        ("\ufeff" + dump.replace("\n", "\r\n"))
                                .getBytes(StandardCharsets.UTF_16LE))) {
            out.getBuffer().setLength(0);
            assertEquals(
                    0,
                    execute(bytes, o -> fail("reads this machine"), "--file", "-"),
                    err::toString);
            assertTrue(out.toString().startsWith("standard input: 8 GPUs, 4 NICs\n"));
        }
    }

    private static Topology fail(String reason) {
        throw new AssertionError(reason);
    }

    @Test
    void thisMachineWithWhatIsTold() throws IOException {
        String dump = Files.readString(EXAMPLE);
        assertEquals(
                0,
                execute(
                        new byte[0],
                        o -> TopologyReader.topology(dump, o),
                        "--nvlink-gbps=25",
                        "--gpu-model=V100"),
                err::toString);
        assertTrue(out.toString().startsWith("this machine: 8 GPUs, 4 NICs\n"), out::toString);
        assertTrue(out.toString().contains(" 25.0 GB/s"), out::toString);
        assertEquals("", err.toString());
    }

    @Test
    void thisMachineWhateverItHas() {
        assertEquals(0, execute(), err::toString);
        assertTrue(out.toString().startsWith("this machine: "), out::toString);
    }

    @Test
    void filesAreWritten() throws Exception {
        String[] names = {"svg", "html", "dot", "nccl-xml", "graph-xml", "json"};
        List<String> arguments = new ArrayList<>(List.of("--file", EXAMPLE.toString()));
        for (String name : names) {
            arguments.addAll(List.of("--" + name, folder.resolve("out." + name).toString()));
        }
        assertEquals(0, execute(arguments.toArray(String[]::new)), err::toString);
        assertTrue(out.toString().startsWith("dgx-1.txt: 8 GPUs"), "the text is still there");
        assertEquals(Set.of(names), listed());
        for (String name : List.of("svg", "nccl-xml", "graph-xml")) {
            parse(Files.readString(folder.resolve("out." + name)));
        }
        String html = Files.readString(folder.resolve("out.html"));
        parse(html.substring(html.indexOf("<html")));
        assertTrue(html.contains("<h2>Predictions</h2>") && html.contains("<h2>Warnings</h2>"));
        assertTrue(html.contains("(--gpu-model), or add the output of nvidia-smi nvlink -s"), html);
        // In the style of the other reports.
        List<String> rules =
                Page.style()
                        .lines()
                        .filter(l -> l.matches("(body|h1|dl|dt|\\.warning|table|:root) .*"))
                        .toList();
        assertEquals(9, rules.size(), rules::toString);
        rules.forEach(rule -> assertTrue(html.contains(rule), rule));
        assertTrue(Files.readString(folder.resolve("out.dot")).startsWith("digraph "));
        validated(Files.readString(folder.resolve("out.json")));
        // What was written for NCCL is read back as the same machine.
        JsonNode again = json(folder.resolve("out.nccl-xml"), "--format", "nccl-xml");
        assertEquals(120, again.at("/plan/bandwidthGBps").asDouble(), 1e-6);
        assertEquals("NV2", again.at("/links/2/code").asText());
        assertEquals(8, json(folder.resolve("out.nccl-xml")).get("gpus").size(), "seen by itself");
    }

    private Set<String> listed() throws IOException {
        Set<String> names = new HashSet<>();
        try (Stream<Path> files = Files.list(folder)) {
            files.forEach(f -> names.add(f.getFileName().toString().replace("out.", "")));
        }
        return names;
    }

    private static void parse(String xml) throws Exception {
        DocumentBuilderFactory.newInstance()
                .newDocumentBuilder()
                .parse(new InputSource(new StringReader(xml)));
    }

    /** The bound of rings is not one of NVLS, and any algorithm can be predicted. */
    @Test
    void algorithmsWithTheirBounds() throws IOException {
        Path hgx = fixture("hgx");
        JsonNode algorithms = json(hgx).at("/plan/algorithms");
        assertEquals("nvls", algorithms.at("/0/algorithm").asText());
        algorithms.forEach(a ->
                assertTrue(
                        a.get("busbwGBps").asDouble() <= a.get("boundGBps").asDouble(),
                        a::toString));
        double nvls = algorithms.at("/0/busbwGBps").asDouble();
        assertTrue(nvls > json(hgx).at("/plan/boundGBps").asDouble(), algorithms::toString);
        JsonNode ring = json(hgx, "--algo", "Ring", "--proto", "Simple");
        assertEquals(1, ring.at("/plan/algorithms").size());
        ring.at("/plan/predictions")
                .forEach(p -> {
                    assertEquals("ring", p.get("algorithm").asText());
                    assertEquals("simple", p.get("protocol").asText());
                });
        json(hgx, "--no-nvls")
                .at("/plan/predictions")
                .forEach(p -> assertNotEquals("nvls", p.get("algorithm").asText()));
        out.getBuffer().setLength(0);
        assertEquals(0, execute("--file", hgx.toString()), err::toString);
        assertTrue(out.toString().contains("possible where GPUs reduce"), out::toString);
        assertTrue(out.toString().contains("Ring or tree: a ring takes"), out::toString);
        out.getBuffer().setLength(0);
        assertEquals(0, execute("--file", hgx.toString(), "--algo", "pat"), err::toString);
        assertTrue(err.toString().contains("cannot use [PAT]"), err::toString);
    }

    @Test
    void aGraphForNcclHasRingsEvenWhereTreesAreBetter() throws IOException {
        Path xml = folder.resolve("graph.xml");
        String[] line = {
            "--file", EXAMPLE.toString(), "--gpus", "0-4", "--graph-xml", xml.toString()
        };
        assertEquals(0, execute(line), err::toString);
        assertTrue(Files.readString(xml).contains("<graphs"));
    }

    @Test
    void simulationOfOtherOperations() {
        for (String op : List.of("broadcast", "alltoall", "all_gather", "reduce_scatter")) {
            out.getBuffer().setLength(0);
            String[] line = {
                "--file", fixture("hgx").toString(), "--op", op, "--simulate", "--size", "16M"
            };
            assertEquals(0, execute(line), err::toString);
            assertTrue(out.toString().contains("every rank ends with the right data"), op + out);
        }
    }

    @Test
    void lenientUsesWhatIsLeft() throws IOException {
        JsonNode report = json(fixture("asymmetric"), "--lenient");
        assertEquals(3, report.get("gpus").size());
        assertFalse(report.get("warnings").isEmpty());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "--file ROOT/none.txt | there is no such file",
                "--file ROOT | it is a folder",
                "--file FIXTURES/asymmetric.txt | line 2, column 10",
                "--file ROOT/pom.xml | nvidia-smi topo -m > dump.txt",
                "--file ROOT/README.md | nvidia-smi topo -m > dump.txt",
                "--file EXAMPLE --format nccl-xml | dgx-1.txt",
                "--file EXAMPLE --format xml | auto, smi or nccl-xml",
                "--file EXAMPLE --gpus 0,8 | GPU 8, expected some of 0-7",
                "--file FIXTURES/skipping.txt --gpus 1 | expected some of 0,2,5",
                "--file EXAMPLE --gpus 0,0 | twice",
                "--file EXAMPLE --gpus a | --gpus has 'a', expected numbers",
                "--file EXAMPLE --gpus 3-1 | --gpus has '3-1'",
                "--file EXAMPLE --gpus 0, | --gpus has ''",
                "--file EXAMPLE --root 9 | --root is GPU 9",
                "--file EXAMPLE --gpus 0-3 --root 4 | expected one of those that take part: 0-3",
                "--file EXAMPLE --size 1X | '1X' is not a number of bytes",
                "--file EXAMPLE --size 0 | --size is 0",
                "--file EXAMPLE --op sum | unknown operation sum",
                "--file EXAMPLE --nodes 0 | --nodes is 0",
                "--file EXAMPLE --nodes x | 'x' is not",
                "--file EXAMPLE --nodes 300000000 | --nodes is 300000000, expected 1 to 1000000",
                "--file EXAMPLE --nvlink-gbps 0 | --nvlink-gbps is 0.0, expected GB/s",
                "--file EXAMPLE --nic-gbps NaN | --nic-gbps is NaN",
                "--file EXAMPLE --gpu-model Voodoo2 | Voodoo2",
                "--file EXAMPLE --nvlink-status ROOT/none | there is no such file",
                "--file EXAMPLE --nvlink-status EXAMPLE | expected the output of nvidia-smi nvlink -s",
                "--file EXAMPLE --svg ROOT | --svg 'ROOT' cannot be written: it is a folder",
                "--file EXAMPLE --json ROOT/none/x | folder ROOT/none does not exist",
                "--file EXAMPLE --svg FOLDER/x --dot FOLDER/x | FOLDER/x'; give two files",
                "--file EXAMPLE --json - --dot - | --json and --dot both go to standard output",
                "--file ROOT/README.md --json ROOT/README.md | is also a file to read",
                "--file FIXTURES/p2p.txt --svg FOLDER/x | --svg needs a graph",
                "--file FIXTURES/nvlink-s.txt --nccl-xml FOLDER/x | --nccl-xml needs a graph",
                "--file FIXTURES/one.txt --graph-xml FOLDER/x | --graph-xml needs a plan",
                "--file FIXTURES/hgx.txt --oversubscription 2 | give --nodes",
                "--file FIXTURES/hgx.txt --nodes 2 --unit 2 | give it too",
                "--file FIXTURES/hgx.txt --nodes 2 --oversubscription 0.5 | expected 1 (none)",
                "--file FIXTURES/hgx.txt --nodes 2 --graph-xml FOLDER/x | leave out --nodes",
                "--file EXAMPLE --machine 0 | --machine is for --nccl-xml",
                "--file EXAMPLE --nccl-xml FOLDER/x --machine 1 | machine is 1, expected 0 to 0",
                "--file EXAMPLE --algo bush | 'bush' is not an algorithm",
                "--file EXAMPLE --best 4 --algo nvls | --best finds no 4 GPUs: ",
                "--file EXAMPLE --algo CollNetDirect | CollNet depends on the network",
                "--file EXAMPLE --proto ll256 | 'll256' is not a protocol",
                "--file EXAMPLE --no-nvls --algo nvls,NVLSTree | --no-nvls leaves nothing",
                "--lenient | give --file",
                "--format smi | give --file",
                "--file | Missing required parameter",
                "EXAMPLE | Unmatched argument",
            })
    void mistakesAreStatusTwoAndOneLine(String arguments, String message) throws IOException {
        String[] words =
                Arrays.stream(arguments.split(" ", -1)).map(this::placed).toArray(String[]::new);
        assertEquals(2, execute(words), () -> out + "\n" + err);
        assertTrue(err.toString().contains(placed(message)), err::toString);
        assertTrue(err.toString().startsWith("jccl topo: "), err::toString);
        assertEquals(1, err.toString().strip().lines().count(), err::toString);
        assertEquals("", out.toString());
        assertEquals(Set.of(), listed(), "nothing is half written");
    }

    private String placed(String text) {
        return text.replace("ROOT", ROOT.toString())
                .replace("EXAMPLE", EXAMPLE.toString())
                .replace("FIXTURES", FIXTURES.toString())
                .replace("FOLDER", folder.toString());
    }

    @ParameterizedTest
    @CsvSource({"--dot, digraph", "--svg, <svg", "--html, <!DOCTYPE", "--nccl-xml, <system"})
    void aFileMayBeStandardOutput(String option, String start) throws IOException {
        assertEquals(0, execute("--file", EXAMPLE.toString(), option, "-"), err::toString);
        String text = out.toString();
        assertTrue(text.startsWith(start), () -> text.substring(0, 80));
        Path file = folder.resolve("x");
        execute("--file", EXAMPLE.toString(), option, file.toString());
        assertEquals(Files.readString(file), text);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", " \n\t\n"})
    void emptyInputSaysHowToGetSome(String text) {
        assertEquals(
                2,
                execute(
                        text.getBytes(StandardCharsets.UTF_8),
                        o -> fail("this machine"),
                        "--file",
                        "-"));
        assertTrue(err.toString().contains("standard input is empty"), err::toString);
        assertTrue(err.toString().contains("nvidia-smi topo -m > dump.txt"), err::toString);
    }

    @Test
    void noTerminalCommandsFromADump() throws IOException {
        Path dump = folder.resolve("e\u001b[31mvil.txt");
        Files.writeString(dump, Files.readString(fixture("one")).replace("NIC0", "N\u0007IC"));
        execute("--file", dump.toString(), "--lenient");
        assertFalse((out + err.toString()).contains("\u001b"), out + err.toString());
        assertFalse((out + err.toString()).contains("\u0007"), out + err.toString());
    }

    @Test
    void helpNamesEveryOption() {
        assertEquals(0, execute("--help"));
        for (String option :
                "file format lenient gpus op root size nodes algo proto no-nvls nvlink-gbps nic-gbps gpu-model nvlink-status json svg html dot nccl-xml machine graph-xml explain simulate"
                        .split(" ", -1)) {
            assertTrue(out.toString().contains("--" + option), option);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = {"report", "compute"})
    void theCacheIsTrainedWithoutFailure(String kind) {
        int status =
                Main.execute(
                        new String[] {"warm-up", kind, EXAMPLE.toString()},
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(0, status, err::toString);
    }
}
