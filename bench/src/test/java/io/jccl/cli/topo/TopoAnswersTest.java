package io.jccl.cli.topo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.networknt.schema.JsonSchema;
import com.networknt.schema.JsonSchemaFactory;
import com.networknt.schema.SpecVersion;
import io.jccl.cli.Main;
import io.jccl.topology.LinkKind;
import io.jccl.topology.Nic;
import io.jccl.topology.Operation;
import io.jccl.topology.Processor;
import io.jccl.topology.Source;
import io.jccl.topology.Switch;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Protocol;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What {@code --best}, {@code --measured} and {@code --env} answer. */
class TopoAnswersTest {
    private static final Path DGX1 = Path.of("..", "docs", "examples", "dgx-1.txt");

    /** 8x A100-SXM4-40GB, from microsoft/superbenchmark, tests/data/nccl_allreduce.log. */
    private static final String A100 =
            """
            #       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
                  262144         65536   float     sum    47.53    5.52    9.65    N/A    47.94    5.47    9.57    N/A
                 8388608       2097152   float     sum    162.0   51.79   90.63    N/A    160.0   52.44   91.77    N/A
              1073741824     268435456   float     sum   8159.5  131.59  230.29    N/A   8176.5  131.32  229.81    N/A
            # Avg bus bandwidth    : 68.4048
            """;

    private static final String RANKS =
            IntStream.range(0, 8)
                    .mapToObj(i -> "#  Rank  " + i + " Pid 7 on node device " + i + "\n")
                    .reduce("# Collective test starting: all_reduce_perf\n", String::concat);

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @TempDir private Path folder;

    private int execute(String... arguments) {
        out.getBuffer().setLength(0);
        err.getBuffer().setLength(0);
        String[] all =
                Stream.concat(Stream.of("topo"), Stream.of(arguments)).toArray(String[]::new);
        return Main.execute(all, new PrintWriter(out), new PrintWriter(err));
    }

    private JsonNode json(String... arguments) throws IOException {
        List<String> all = new ArrayList<>(List.of(arguments));
        all.add("--json");
        assertEquals(0, execute(all.toArray(String[]::new)), err::toString);
        return validated(out.toString());
    }

    private static JsonNode validated(String text) throws IOException {
        try (InputStream in = Files.newInputStream(Path.of("../docs/topo.schema.json"))) {
            JsonSchema schema =
                    JsonSchemaFactory.getInstance(SpecVersion.VersionFlag.V202012).getSchema(in);
            JsonNode document = new ObjectMapper().readTree(text);
            assertEquals(Set.of(), schema.validate(document), text);
            return document;
        }
    }

    /** Eight GPUs on NVSwitches, as nvidia-smi prints them. */
    private Path switched(int links) throws IOException {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            b.append("\tGPU").append(i);
        }
        b.append("\tCPU Affinity\tNUMA Affinity\n");
        for (int i = 0; i < 8; i++) {
            b.append("GPU").append(i);
            for (int j = 0; j < 8; j++) {
                b.append('\t').append(i == j ? " X " : "NV" + links);
            }
            b.append("\t0-63\t0\n");
        }
        return Files.writeString(folder.resolve("box.txt"), b);
    }

    private Path file(String text) throws IOException {
        return Files.writeString(folder.resolve("log"), text);
    }

    @Test
    void bestOfACubeMesh() throws IOException {
        JsonNode best = json("--file", DGX1.toString(), "--best", "4").get("best");
        assertEquals("[[0,1,2,3],[4,5,6,7]]", best.get("gpus").toString());
        assertEquals(70, best.get("subsets").asInt());
        assertTrue(best.get("worstGBps").asDouble() < 0.3 * best.get("busbwGBps").asDouble());
        assertEquals(0, execute("--file", DGX1.toString(), "--best", "4"), err::toString);
        String text = out.toString();
        assertTrue(text.contains("\n  export CUDA_VISIBLE_DEVICES=4,5,6,7\n"), text);
        assertTrue(text.contains("these 2 of 70 subsets are equal"), text);
        assertTrue(text.contains("Plan for all_reduce over 4 GPUs (0-3)"), text);
        // No other subset is as good.
        for (String other : List.of("0,1,2,4", "0,3,4,7", "1,2,5,6")) {
            double gbps =
                    json("--file", DGX1.toString(), "--gpus", other)
                            .at("/plan/algorithms/0/busbwGBps")
                            .asDouble();
            assertTrue(gbps < best.get("busbwGBps").asDouble() * (1 - 1e-6), other);
        }
        // Only from those named.
        JsonNode few = json("--file", DGX1.toString(), "--gpus", "1-6", "--best", "2").get("best");
        few.get("gpus")
                .forEach(pair -> {
                    int a = pair.get(0).asInt();
                    int b = pair.get(1).asInt();
                    assertTrue(a >= 1 && b <= 6, pair::toString);
                });
        assertEquals(15, few.get("subsets").asInt());
    }

    @Test
    void allSubsetsOfASwitchAreEqual() throws IOException {
        JsonNode best = json("--file", switched(18).toString(), "--best", "4").get("best");
        assertEquals(70, best.get("gpus").size());
        assertEquals(70, new HashSet<>(best.get("gpus").valueStream().toList()).size());
        assertEquals(0, execute("--file", switched(18).toString(), "--best", "4"));
        assertTrue(out.toString().contains("all 70 subsets of 4 GPUs are equal"), out::toString);
    }

    /** The choice rests on the algorithms and protocols that may be used. */
    @Test
    void bestWithSomeAlgorithms() throws IOException {
        double last = Double.POSITIVE_INFINITY;
        for (String options :
                List.of("", " --no-nvls", " --algo=tree", " --algo=tree --proto=ll")) {
            String line = "--file " + switched(18) + " --gpu-model H100 --best 8" + options;
            double best = json(line.split(" ", -1)).at("/best/busbwGBps").asDouble();
            assertTrue(best < last, options);
            last = best;
        }
    }

    @Test
    void refusalsNameLenient() throws IOException {
        String dump = Files.readString(DGX1);
        Path bad = file(dump.replaceFirst("NV2", "N V"));
        assertEquals(2, execute("--file", bad.toString()));
        assertTrue(err.toString().contains("--lenient reads 8 GPUs of it"), err::toString);
        assertEquals(0, execute("--file", bad.toString(), "--lenient"), err::toString);
        assertEquals(2, execute("--file", file("nothing here").toString()));
        assertTrue(err.toString().contains("--lenient does not help"), err::toString);
        Path text = file("no status of NVLinks");
        assertEquals(2, execute("--file", DGX1.toString(), "--nvlink-status", text.toString()));
        assertTrue(
                err.toString().contains("nvidia-smi nvlink -s")
                        && err.toString().contains("--lenient does not help"),
                err::toString);
    }

    /** Nothing is advised that yields nothing. */
    @Test
    void refusalsAdviseWhatHelps() throws IOException {
        String clouds =
                "<system version='1'><cpu numaid='0'>"
                        + "<pci busid='0000:00:16.0'/></cpu></system>";
        assertEquals(2, execute("--file", file(clouds).toString()));
        assertTrue(err.toString().contains("--lenient does not help"), err::toString);
        assertTrue(err.toString().contains("nvidia-smi topo -m > dump.txt"), err::toString);
        for (String other :
                List.of(
                        "=== ROCm System Management Interface ===\n  GPU0  GPU1\n",
                        "\tGPU0\tGPU1\nGPU0\t X \tICN4\nGPU1\tICN4\t X \n",
                        clouds.replace("version='1'", "version='2'"))) {
            assertEquals(2, execute("--file", file(other).toString()));
            assertFalse(err.toString().contains("make one on the machine"), err::toString);
        }
    }

    @Test
    void bestIsChecked() {
        for (String count : List.of("1", "9", "-2")) {
            assertEquals(2, execute("--file", DGX1.toString(), "--best", count));
            assertTrue(err.toString().contains("expected 2 to 8 GPUs"), err::toString);
        }
        assertEquals(2, execute("--file", DGX1.toString(), "--best", "4", "--nodes", "2"));
        assertTrue(err.toString().contains("leave out --nodes"), err::toString);
        Topology.Builder b = new Topology.Builder("many");
        for (int i = 0; i < 20; i++) {
            b.addGpu(i, 80);
        }
        Topology many = b.build();
        List<Integer> all = IntStream.range(0, 20).boxed().toList();
        IllegalArgumentException e =
                assertThrows(
                        IllegalArgumentException.class,
                        () ->
                                BestGpus.of(
                                        many,
                                        all,
                                        10,
                                        Operation.ALL_REDUCE,
                                        EnumSet.allOf(Algorithm.class),
                                        EnumSet.allOf(Protocol.class)));
        assertTrue(String.valueOf(e.getMessage()).contains("184756 subsets"), e.getMessage());
    }

    /** The page has a plot, in a document of its own, with the log on it if there is one. */
    @Test
    void thePageHasAPlot() throws IOException {
        Path page = folder.resolve("page.html");
        for (boolean measured : new boolean[] {false, true}) {
            List<String> arguments =
                    new ArrayList<>(
                            List.of("--file", switched(12).toString(), "--gpu-model", "A100"));
            arguments.addAll(List.of("--html", page.toString()));
            if (measured) {
                arguments.addAll(List.of("--measured", file(RANKS + A100).toString()));
            }
            assertEquals(0, execute(arguments.toArray(String[]::new)), err::toString);
            String html = Files.readString(page);
            Matcher plot =
                    Pattern.compile("src=\"data:image/svg\\+xml;base64,([^\"]+)\"").matcher(html);
            assertTrue(plot.find());
            String svg =
                    new String(Base64.getDecoder().decode(plot.group(1)), StandardCharsets.UTF_8);
            assertTrue(svg.startsWith("<svg") && svg.contains("8 MiB, ring ll128: "), svg);
            assertTrue(svg.contains("prefers-color-scheme: dark"), svg);
            assertEquals(measured, svg.contains("8 MiB, measured: 90.63 GB/s"), svg);
        }
    }

    /**
     * As nccl-tests prints it, with a launcher's prefix, and with the columns of newer versions.
     */
    @ParameterizedTest
    @ValueSource(strings = {"", "0: ", " 3: ", "[1,0]<stdout>:", "pod-0 nccl "})
    void aHealthyMachineIsAsExpected(String prefix) throws IOException {
        for (String table : List.of(A100, A100.replace("sum  ", "sum      -1  "))) {
            String log = (RANKS + table).replaceAll("(?m)^(?=.)", prefix);
            MeasuredLog read = MeasuredLog.of("log", log);
            assertEquals("all_reduce", read.command());
            assertEquals(8, read.ranks());
            assertEquals(
                    List.of(
                            new MeasuredLog.Line(262144, 47.53, 9.65),
                            new MeasuredLog.Line(8388608, 162.0, 90.63),
                            new MeasuredLog.Line(1073741824, 8159.5, 230.29)),
                    read.lines());
        }
        JsonNode report =
                json(
                        "--file",
                        switched(12).toString(),
                        "--gpu-model",
                        "A100",
                        "--measured",
                        file(RANKS + A100).toString());
        report.get("measured")
                .forEach(s -> assertEquals("as_expected", s.get("verdict").asText(), s::toString));
        assertEquals(0, report.get("causes").size());
    }

    /** A ring's figures on a machine whose switches reduce. */
    @Test
    void withoutNvlsTheLikeliestCauseIsThat() throws IOException {
        String[] line = {
            "--file",
            switched(18).toString(),
            "--gpu-model",
            "H100",
            "--measured",
            file(A100.replace("8159.5  131.59  230.29", "5375.0  199.76  349.58")).toString()
        };
        JsonNode report = json(line);
        assertEquals("slow", report.at("/measured/2/verdict").asText());
        assertTrue(report.at("/causes/0/cause").asText().startsWith("NVLS is off"));
        report.get("causes").forEach(c -> assertFalse(c.get("check").asText().isEmpty()));
        assertEquals(0, execute(line));
        assertTrue(out.toString().contains("1. NVLS is off"), out::toString);
        // Far less than a ring has: then it is not that.
        json(
                "--file",
                switched(18).toString(),
                "--gpu-model",
                "H100",
                "--measured",
                file(A100.replace("8159.5  131.59  230.29", "75000.0  14.3  25.1")).toString());
        JsonNode slow = new ObjectMapper().readTree(out.toString());
        assertTrue(slow.at("/causes/0/cause").asText().startsWith("P2P is off"), slow::toString);
    }

    /** Without another algorithm there is nothing that a machine with NVLS off would use. */
    @Test
    void slowWithNvlsAlone() throws IOException {
        String slow =
                file(A100.replace("8159.5  131.59  230.29", "5375.0  199.76  349.58")).toString();
        for (String options : List.of("--algo=nvls", "--algo=nvls_tree --nodes=2 --nic-gbps=50")) {
            List<String> line = new ArrayList<>(List.of("--measured", slow, "--gpu-model", "H100"));
            line.addAll(List.of("--file", "src/test/resources/topo/hgx.txt"));
            line.addAll(List.of(options.split(" ", -1)));
            JsonNode causes = json(line.toArray(String[]::new)).get("causes");
            assertFalse(causes.isEmpty(), options);
            assertFalse(causes.toString().contains("NVLS is off"), causes::toString);
        }
    }

    @Test
    void jsonIsReadToo() {
        String tests =
                """
                {"args": ["./all_gather_perf", "-g", "8"], "devices": [{}, {}],
                 "results": [{"size": 1024, "out_of_place": {"time": 20.5, "bus_bw": 0.05}},
                             {"size": 1024, "out_of_place": {"time": 19.5, "bus_bw": 0.06}},
                             {"size": 2048, "out_of_place": null}]}
                """;
        MeasuredLog log = MeasuredLog.of("log", tests);
        assertEquals("all_gather", log.command());
        assertEquals(2, log.ranks());
        // Of two cycles the faster.
        assertEquals(List.of(new MeasuredLog.Line(1024, 19.5, 0.06)), log.lines());
        String own =
                """
                {"config": {"collective": "broadcast", "nranks": 4},
                 "results": [{"size": 64, "out_of_place": {"time": 2.0, "bus_bw": 0.03}}]}
                """;
        assertEquals("broadcast", MeasuredLog.of("log", own).command());
        assertEquals(4, MeasuredLog.of("log", own).ranks());
        assertNull(MeasuredLog.of("log", A100).command());
    }

    @Test
    void logsOfSomethingElseAreRefused() throws IOException {
        String box = switched(12).toString();
        refused("no measurement", "--file", box, "--measured", file("hello\n").toString());
        refused("is not JSON", "--file", box, "--measured", file("{hello").toString());
        refused(
                "give --op all_reduce",
                "--file",
                box,
                "--op",
                "broadcast",
                "--measured",
                file(RANKS + A100).toString());
        refused(
                "is of 8 ranks, and the prediction of 4",
                "--file",
                box,
                "--gpus",
                "0-3",
                "--measured",
                file(RANKS + A100).toString());
        String none = folder + "/none";
        refused(
                "--measured '" + none + "' cannot be read: there is no such file; try",
                "--file",
                box,
                "--measured",
                none);
    }

    private void refused(String why, String... arguments) {
        assertEquals(2, execute(arguments), out::toString);
        assertTrue(err.toString().contains(why), err::toString);
        assertEquals("", out.toString());
    }

    /** Two GPUs on PCIe ports of one CPU; and two NICs, one of them far. */
    private static Topology pcie(int gpus, String vendor) {
        Topology.Builder b = new Topology.Builder("box");
        for (int i = 0; i < gpus; i++) {
            b.addGpu(i, 80);
        }
        b.add(new Nic(b.nextId(), "mlx5_0", "mlx5_0", 25));
        b.add(new Nic(b.nextId(), "mlx5_1", "mlx5_1", 25));
        int near = b.addSwitch("numa0", Switch.Kind.NUMA);
        int far = b.addSwitch("numa1", Switch.Kind.NUMA);
        b.processor(near, new Processor("x86_64", vendor, 25, 1));
        b.link(near, far, LinkKind.SMP, 1, 24, Source.DEFAULT);
        for (int i = 0; i < gpus + 2; i++) {
            int bridge = b.addSwitch("bridge" + i, Switch.Kind.HOST_BRIDGE);
            b.link(bridge, i <= gpus ? near : far, LinkKind.HOST_BRIDGE, 1, 48, Source.DEFAULT);
            b.link(i, bridge, LinkKind.PCIE, 1, 24, Source.DEFAULT);
        }
        return b.build();
    }

    private static List<String> lines(List<EnvAdvice> advice) {
        advice.forEach(a -> assertFalse(a.why().isBlank()));
        return advice.stream().map(EnvAdvice::line).toList();
    }

    /** What a plan has and NCCL has not is not called NCCL's. */
    @Test
    void whoCanRunThePlan() {
        assertEquals(0, execute("--file", DGX1.toString(), "--gpus", "0-3"), err::toString);
        assertTrue(out.toString().contains("NCCL cannot run trees that branch"), out::toString);
        assertTrue(out.toString().contains("NCCL chooses ring for large"), out::toString);
        assertEquals(0, execute("--file", DGX1.toString()), err::toString);
        assertFalse(out.toString().contains("cannot run"), out::toString);
        // Here rings are as good as trees, and the plan has rings.
        assertEquals(0, execute("--file", DGX1.toString(), "--gpus", "0-3", "--op", "broadcast"));
        assertTrue(out.toString().contains("Not all are NCCL's: tree copies"), out::toString);
        assertEquals(0, execute("--file", DGX1.toString(), "--op", "all_gather"), err::toString);
        assertTrue(out.toString().contains("Not all are NCCL's: direct copies"), out::toString);
        String[] few = {"--file", DGX1.toString(), "--gpus", "0,1,4,6", "--op", "broadcast"};
        assertEquals(0, execute(few), err::toString);
        assertTrue(out.toString().contains("Not all are NCCL's: tree is the plan"), out::toString);
        assertFalse(out.toString().contains("NCCL chooses"), out::toString);
    }

    /** Over PCIe NCCL's trees are one chain, which is no wider than its ring. */
    @Test
    void treesOverPcieAreNotChosen() throws IOException {
        String pairs =
                """
                        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
                GPU0     X      NV12    SYS     SYS     0-23            0
                GPU1    NV12     X      SYS     SYS     24-47           1
                GPU2    SYS     SYS      X      NV12    48-71           2
                GPU3    SYS     SYS     NV12     X      72-95           3
                """;
        assertEquals(0, execute("--file", file(pairs).toString()), err::toString);
        assertTrue(out.toString().contains("at most what is predicted below"), out::toString);
        assertTrue(out.toString().contains("NCCL chooses ring for large"), out::toString);
        assertFalse(out.toString().contains("tree simple"), out::toString);
    }

    /** Of small sizes a log has the time, and 0.00 GB/s. */
    @Test
    void ratiosComeFromTimes() throws IOException {
        String small = "8  2  float  sum  34.7  0.00  0.00  N/A  34.7  0.00  0.00  N/A\n";
        String[] line = {
            "--file",
            switched(12).toString(),
            "--gpu-model",
            "A100",
            "--measured",
            file(RANKS + A100 + small).toString()
        };
        assertEquals(0, execute(line), err::toString);
        assertTrue(
                Pattern.compile("\n  8 +0.00 +0.00 +\\+-65% +1.0\\d +as expected")
                        .matcher(out.toString())
                        .find(),
                out::toString);
    }

    /** NCCL's own rule: P2P through CPUs for two GPUs on AMD only. */
    @Test
    void whatToSet() {
        Map<String, String> none = Map.of();
        String p2p = "export NCCL_P2P_LEVEL=SYS";
        List<Integer> two = List.of(0, 1);
        List<Integer> four = List.of(0, 1, 2, 3);
        assertEquals(
                List.of(p2p), lines(EnvAdvice.of(pcie(2, "GenuineIntel"), two, 1, null, none)));
        assertEquals(List.of(), lines(EnvAdvice.of(pcie(2, "AuthenticAMD"), two, 1, null, none)));
        assertEquals(
                List.of(p2p), lines(EnvAdvice.of(pcie(4, "AuthenticAMD"), four, 1, null, none)));
        // Over machines: only the NIC that is near.
        assertEquals(
                List.of("export NCCL_IB_HCA==mlx5_0"),
                lines(EnvAdvice.of(pcie(2, "AuthenticAMD"), two, 2, null, none)));
    }

    @Test
    void whatToUnset() throws IOException {
        Map<String, String> set =
                Map.of("NCCL_P2P_DISABLE", "1", "NCCL_ALGO", "Tree", "NCCL_DEBUG", "INFO");
        List<EnvAdvice> advice = EnvAdvice.of(pcie(2, "AuthenticAMD"), List.of(0, 1), 1, null, set);
        assertEquals(List.of("unset NCCL_ALGO", "unset NCCL_P2P_DISABLE"), lines(advice));
        assertTrue(advice.getFirst().why().startsWith("is Tree: "), advice::toString);
        // Values that change nothing.
        Map<String, String> harmless =
                Map.of(
                        "NCCL_P2P_DISABLE", "0",
                        "NCCL_SHM_DISABLE", "0",
                        "NCCL_IB_DISABLE", "0",
                        "NCCL_NVLS_ENABLE", "1",
                        "NCCL_ALGO", "");
        assertEquals(
                List.of(),
                lines(EnvAdvice.of(pcie(2, "AuthenticAMD"), List.of(0, 1), 1, null, harmless)));
        Map<String, String> off = Map.of("NCCL_NVLS_ENABLE", "0");
        assertEquals(
                List.of("unset NCCL_NVLS_ENABLE"),
                lines(EnvAdvice.of(pcie(2, "AuthenticAMD"), List.of(0, 1), 1, null, off)));
        // Of a machine elsewhere nothing is known of its environment.
        assertEquals(0, execute("--file", switched(18).toString(), "--env"), err::toString);
        assertTrue(out.toString().contains("\n  unset NCCL_NVLS_ENABLE\n"), out::toString);
        assertFalse(out.toString().contains("NCCL_IB_DISABLE"), out::toString);
    }
}
