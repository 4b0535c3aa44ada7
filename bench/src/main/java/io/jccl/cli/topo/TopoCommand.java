package io.jccl.cli.topo;

import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.FileOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Subcommand;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.draw.Dot;
import io.jccl.topology.draw.Html;
import io.jccl.topology.draw.Svg;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.Network;
import io.jccl.topology.read.Format;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.ThisMachine;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintWriter;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** Shows how the GPUs of a machine are linked, plans collectives and predicts their performance. */
@Command(
        footer = {
            "",
            "Instead of the text, one of the files may go to standard output: - names it.",
            "GB/s are 10^9 bytes per second, of links in one direction. Bandwidths and times are"
                    + " predictions.",
            "Exit status: 0; 1 if something failed; 2 for a mistake in the arguments or a text that"
                    + " is not a topology.",
        })
public final class TopoCommand extends Subcommand {
    /** Denotes standard input. */
    private static final String STANDARD = "-";

    /** Sizes from latency-bound to bandwidth-bound. */
    private static final List<Long> LADDER =
            List.of(8L, 1L << 10, 32L << 10, 1L << 20, 32L << 20, 256L << 20, 1L << 30, 8L << 30);

    private final InputStream input;
    private final Function<ReadOptions, Topology> machine;

    @Option(
            names = "--file",
            paramLabel = "<file>",
            description =
                    "Output of nvidia-smi topo -m, topo -p2p or nvlink -s, or NCCL's topology XML; -"
                            + " is standard input (default: this machine).")
    private @Nullable String file;

    @Option(
            names = "--format",
            paramLabel = "<auto|smi|nccl-xml>",
            converter = TopoValues.Formats.class,
            description = "Format of the file (default: auto, detected from the text).")
    private Format format = Format.AUTO;

    @Option(
            names = "--lenient",
            description = "Use the readable part of a damaged dump, and warn about the rest.")
    private boolean lenient;

    @Option(
            names = "--gpus",
            paramLabel = "<list>",
            description =
                    "The participating GPUs, by rank, as numbered in the dump: 0,2,5 or 0-3"
                            + " (default: all).")
    private @Nullable String gpus;

    @Option(
            names = "--best",
            paramLabel = "<count>",
            description =
                    "Choose the given number of GPUs with the highest bandwidth together, and"
                            + " report the value for CUDA_VISIBLE_DEVICES.")
    private @Nullable Integer best;

    @Option(
            names = "--measured",
            paramLabel = "<file>",
            description =
                    "Output of nccl-tests or of a jccl benchmark, as text or JSON: compare each"
                            + " size with the prediction, and list what to check.")
    private @Nullable Path measured;

    @Option(
            names = "--env",
            description =
                    "Print which NCCL_* variables are worth setting or unsetting here, and why.")
    private boolean env;

    @Option(
            names = "--op",
            paramLabel = "<operation>",
            description =
                    "all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, gather,"
                            + " scatter or sendrecv (default: all_reduce).")
    private Operation operation = Operation.ALL_REDUCE;

    @Option(
            names = "--root",
            paramLabel = "<gpu>",
            description =
                    "Number of the root GPU of broadcast, reduce, gather, scatter (default: the"
                            + " first).")
    private @Nullable Integer root;

    @Option(
            names = "--size",
            paramLabel = "<size>",
            split = ",",
            converter = Amounts.Bytes.class,
            description =
                    "Sizes to predict; K, M, G and T are powers of 1024 (default: from 8 to 8G).")
    private List<Long> sizes = new ArrayList<>();

    @Option(
            names = "--nodes",
            paramLabel = "<count>",
            description = "Number of such machines, connected by their NICs (default: 1).")
    private int nodes = 1;

    @Option(
            names = "--oversubscription",
            paramLabel = "<ratio>",
            description =
                    "With --nodes: rate of the NICs at a leaf switch over the rate of its uplinks"
                            + " (default: 1, none).")
    private double oversubscription = 1;

    @Option(
            names = "--unit",
            paramLabel = "<machines>",
            description =
                    "With --oversubscription: machines that share their leaf switches, one after"
                            + " another in the order of ranks (default: 1).")
    private int unit = 1;

    @Option(
            names = "--algo",
            paramLabel = "<names>",
            split = ",",
            converter = TopoValues.Algorithms.class,
            description =
                    "Predict only these of NCCL's algorithms: ring, tree, nvls, nvls_tree, pat or"
                            + " direct (default: all).")
    private List<Algorithm> algorithms = new ArrayList<>();

    @Option(
            names = "--proto",
            paramLabel = "<names>",
            split = ",",
            converter = TopoValues.Protocols.class,
            description =
                    "Predict only these of NCCL's protocols: ll, ll128 or simple (default: all).")
    private List<Protocol> protocols = new ArrayList<>();

    @Option(
            names = "--no-nvls",
            description = "Predict without reduction in the NVSwitches, as NCCL_NVLS_ENABLE=0.")
    private boolean noNvls;

    @Option(
            names = "--nvlink-gbps",
            paramLabel = "<GB/s>",
            description =
                    "Bandwidth of one NVLink in one direction, in GB/s (bytes, not bits): 25 is"
                            + " A100's.")
    private @Nullable Double nvlinkGbps;

    @Option(
            names = "--nic-gbps",
            paramLabel = "<GB/s>",
            description =
                    "Bandwidth of one NIC in one direction, in GB/s (bytes, not bits): a port of 400"
                            + " Gbit/s has 50.")
    private @Nullable Double nicGbps;

    @Option(
            names = "--gpu-model",
            paramLabel = "<name>",
            description = "Model of the GPUs, such as H100, which the dump does not contain.")
    private @Nullable String gpuModel;

    @Option(
            names = "--nvlink-status",
            paramLabel = "<file>",
            description = "Output of nvidia-smi nvlink -s of the same machine.")
    private @Nullable Path nvlinkStatus;

    private Network network = Network.FULL;

    @Mixin private JsonOption json = new JsonOption();

    @Option(names = "--svg", paramLabel = "<file>", description = "Write a picture as SVG.")
    private @Nullable Path svg;

    @Option(
            names = "--html",
            paramLabel = "<file>",
            description = "Write a page with the picture, channels to show and hide, and tables.")
    private @Nullable Path html;

    @Option(names = "--dot", paramLabel = "<file>", description = "Write the graph for Graphviz.")
    private @Nullable Path dot;

    @Option(
            names = "--nccl-xml",
            paramLabel = "<file>",
            description = "Write the topology as NCCL reads it (NCCL_TOPO_FILE).")
    private @Nullable Path ncclXml;

    @Option(
            names = "--machine",
            paramLabel = "<number>",
            description =
                    "With --nccl-xml: write only this machine, from 0 on, of a rack with NVLink"
                            + " between machines; NCCL_TOPO_FILE takes one (default: all).")
    private @Nullable Integer machineOfRack;

    @Option(
            names = "--graph-xml",
            paramLabel = "<file>",
            description = "Write the rings as NCCL reads them (NCCL_GRAPH_FILE).")
    private @Nullable Path graphXml;

    @Option(names = "--explain", description = "Explain the plan.")
    private boolean explain;

    @Option(
            names = "--simulate",
            description = "Simulate the plan, chunk by chunk, and check that the data arrives.")
    private boolean simulate;

    public TopoCommand() {
        this(System.in, ThisMachine::read);
    }

    /**
     * Creates the command for a test.
     *
     * @param input standard input
     * @param machine reads this machine
     */
    public TopoCommand(InputStream input, Function<ReadOptions, Topology> machine) {
        this.input = input;
        this.machine = machine;
    }

    private Set<Algorithm> algorithms() {
        Set<Algorithm> all =
                algorithms.isEmpty() ? EnumSet.allOf(Algorithm.class) : EnumSet.copyOf(algorithms);
        if (noNvls) {
            all.removeAll(EnumSet.of(Algorithm.NVLS, Algorithm.NVLS_TREE));
        }
        return all;
    }

    @Override
    public Integer call() throws IOException {
        List<FileOption> files = files();
        check();
        OutputFiles outputs = new OutputFiles(line());
        files.forEach(outputs::add);
        outputs.checkNotRead();
        Analysis analysis;
        try {
            analysis = analyse();
        } catch (IOException wrong) {
            throw mistake(wrong);
        }
        Findings findings = analysis.findings();
        // All are rendered before the first is written.
        Map<Path, String> texts = new LinkedHashMap<>();
        String printed = null;
        for (FileOption option : files) {
            if (option.isPrinted()) {
                printed = text(option.name(), analysis);
            }
            Path file = option.file();
            if (file != null) {
                // Several may go to one pipe.
                texts.merge(file, text(option.name(), analysis), String::concat);
            }
        }
        Output.write(texts);
        PrintWriter out = out();
        out.print(printed != null ? printed : TextReport.of(findings, explain));
        out.flush();
        PrintWriter err = err();
        if (ncclXml != null && machineOfRack == null && analysis.machines() > 1) {
            err.println(
                    "warning: --nccl-xml has "
                            + analysis.machines()
                            + " machines, as NCCL writes them to NCCL_TOPO_DUMP_FILE; for"
                            + " NCCL_TOPO_FILE, which takes one, give --machine 0 to "
                            + (analysis.machines() - 1));
        }
        findings.warnings().forEach(w -> err.println("warning: " + Output.oneLine(w)));
        err.flush();
        return 0;
    }

    private void check() {
        require(
                nodes >= 1 && nodes <= Cluster.MOST,
                "--nodes is " + nodes + ", expected 1 to " + Cluster.MOST + " machines");
        rate("--nvlink-gbps", nvlinkGbps, "an NVLink has 18 to 50");
        rate("--nic-gbps", nicGbps, "a port of 400 Gbit/s has 50");
        for (long size : sizes) {
            require(size >= 1, "--size is 0, expected 1 byte or more");
        }
        network = network();
        if (best != null && nodes > 1) {
            throw mistake("--best chooses GPUs of one machine: leave out --nodes");
        }
        require(
                !algorithms().isEmpty(),
                "--no-nvls leaves nothing of --algo " + algorithms + ": leave out one");
        if (machineOfRack != null && ncclXml == null) {
            throw mistake("--machine is for --nccl-xml, and there is none: give it as well");
        }
        if (file == null && (format != Format.AUTO || lenient)) {
            throw mistake(
                    (lenient ? "--lenient" : "--format")
                            + " is for a dump, and there is none: give --file as well");
        }
    }

    private Network network() {
        if (oversubscription == 1 && unit == 1) {
            return Network.FULL;
        }
        require(
                nodes != 1 && oversubscription != 1,
                nodes == 1
                        ? "--oversubscription and --unit are for several machines: give --nodes"
                        : "--unit is for --oversubscription, and there is none: give it too");
        try {
            return new Network(unit, oversubscription);
        } catch (IllegalArgumentException e) {
            throw mistake("--oversubscription or --unit: " + e.getMessage(), e);
        }
    }

    private void rate(String option, @Nullable Double value, String example) {
        if (value != null && !(value > 0 && value <= 100_000)) {
            throw mistake(
                    option
                            + " is "
                            + value
                            + ", expected GB/s (10^9 bytes per second) in one direction, above 0: "
                            + example);
        }
    }

    private List<FileOption> files() {
        return List.of(
                json,
                FileOption.of("--svg", svg),
                FileOption.of("--html", html),
                FileOption.of("--dot", dot),
                FileOption.of("--nccl-xml", ncclXml),
                FileOption.of("--graph-xml", graphXml));
    }

    private Analysis analyse() throws IOException {
        Request request =
                new Request(
                        format,
                        lenient,
                        gpuModel,
                        nvlinkGbps == null ? 0 : nvlinkGbps,
                        nicGbps == null ? 0 : nicGbps,
                        nvlinkStatus,
                        gpus,
                        operation,
                        root,
                        sizes.isEmpty() ? LADDER : sizes,
                        !sizes.isEmpty(),
                        nodes,
                        network,
                        algorithms(),
                        protocols.isEmpty()
                                ? EnumSet.allOf(Protocol.class)
                                : EnumSet.copyOf(protocols),
                        best,
                        measured,
                        env,
                        file == null ? System.getenv() : null,
                        simulate);
        if (file == null) {
            return Analysis.of(machine, request);
        }
        return STANDARD.equals(file)
                ? Analysis.of("standard input", input, request)
                : Analysis.of(Path.of(file), request);
    }

    private String text(String option, Analysis analysis) {
        Findings f = analysis.findings();
        return switch (option) {
            case JsonOption.NAME -> Json.of(f);
            case "--svg" ->
                    f.clusterPlan() != null
                            ? Svg.of(f.clusterPlan())
                            : Svg.of(analysis.graph(option), f.plan());
            case "--html" -> {
                List<List<String>> table = PredictionText.predictions(f);
                String plot = PredictionPlot.of(f);
                yield f.clusterPlan() != null
                        ? Html.of(f.clusterPlan(), table, plot, f.warnings())
                        : Html.of(analysis.graph(option), f.plan(), table, plot, f.warnings());
            }
            case "--dot" ->
                    f.clusterPlan() != null
                            ? Dot.of(f.clusterPlan())
                            : Dot.of(analysis.graph(option), f.plan());
            case "--nccl-xml" -> analysis.topologyXml(machineOfRack);
            case "--graph-xml" -> analysis.graphXml();
            default -> throw new IllegalStateException(option);
        };
    }
}
