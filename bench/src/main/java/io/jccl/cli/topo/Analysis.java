package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;

import io.jccl.cli.shell.Output;
import io.jccl.cli.shell.Text;
import io.jccl.topology.Gpu;
import io.jccl.topology.Operation;
import io.jccl.topology.Topology;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Crossover;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.nccl.GraphXml;
import io.jccl.topology.nccl.TopologyXml;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Cluster;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Plan;
import io.jccl.topology.plan.Planner;
import io.jccl.topology.read.Dump;
import io.jccl.topology.read.NvlinkStatus;
import io.jccl.topology.read.P2pMatrix;
import io.jccl.topology.read.ReadOptions;
import io.jccl.topology.read.TopologyReader;
import io.jccl.topology.simulate.Simulation;
import io.jccl.topology.simulate.Simulator;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** Analyses a topology, from its text to the findings. */
public final class Analysis {
    /** In messages about texts of machines that have no nvidia-smi. */
    private static final Pattern OTHER_MACHINE =
            Pattern.compile("amd-smi of AMD,|RCCL, AMD's NCCL|ppu-smi of Alibaba's PPUs");

    /** Chunk size of a simulation, unless it leads to more than this many chunks. */
    private static final long CHUNK = 256 << 10;

    private static final long MOST_CHUNKS = 1024;

    /** Simulated size if none was requested. */
    private static final long SIMULATED = 256L << 20;

    private final Topology topology;
    private final boolean paths;
    private final Request request;
    private final Set<String> warnings = new LinkedHashSet<>();
    private final List<Prediction> predictions = new ArrayList<>();
    private final List<Crossover> crossovers = new ArrayList<>();
    private final List<String> simulation = new ArrayList<>();
    private final List<Integer> selected;
    private final int root;
    private final Findings findings;
    private final @Nullable BestGpus best;
    private @Nullable Plan plan;
    private @Nullable Tuning tuning;
    private @Nullable ClusterPlan clusterPlan;

    private Analysis(Topology topology, @Nullable Dump dump, Request request) throws IOException {
        this.topology = topology;
        this.request = request;
        NvlinkStatus status = dump instanceof NvlinkStatus s ? s : null;
        // A plan must not be based on bandwidths that the reader only assumes.
        paths = !topology.links().isEmpty() && status == null && !(dump instanceof P2pMatrix);
        topology.warnings().forEach(w -> warnings.add(w.toString()));
        List<Integer> named = selected();
        best =
                request.best() == null
                        ? null
                        : BestGpus.of(
                                graph("--best"),
                                named,
                                request.best(),
                                request.operation(),
                                request.algorithms(),
                                request.protocols());
        selected = best == null ? named : best.ties().getFirst();
        root = root();
        plan();
        FindingsRows rows = new FindingsRows(topology);
        findings =
                new Findings(
                        topology.name(),
                        rows.gpus(status),
                        rows.nics(),
                        status == null ? rows.pairs(paths) : List.of(),
                        request.operation(),
                        request.machines(),
                        selected,
                        plan,
                        clusterPlan,
                        predictions,
                        crossovers,
                        tuning,
                        answers(),
                        simulation,
                        List.copyOf(warnings));
    }

    /**
     * Analyses this machine.
     *
     * @param machine reads the machine's topology
     * @param request the request
     * @return the analysis
     * @throws IOException if an additional file cannot be read
     */
    public static Analysis of(Function<ReadOptions, Topology> machine, Request request)
            throws IOException {
        return new Analysis(machine.apply(options("this machine", request)), null, request);
    }

    /**
     * Analyses a file.
     *
     * @param file file to read
     * @param request the request
     * @return the analysis
     * @throws IOException if it cannot be read; the message suggests a remedy
     * @throws TopologyFormatException if it does not contain a topology
     */
    public static Analysis of(Path file, Request request) throws IOException {
        Path name = file.getFileName();
        return of(
                name == null ? file.toString() : name.toString(),
                TopologyText.read("--file", file),
                request);
    }

    /**
     * Analyses a stream.
     *
     * @param name name for messages
     * @param in stream to read
     * @param request the request
     * @return the analysis
     * @throws IOException if it cannot be read; the message suggests a remedy
     * @throws TopologyFormatException if it does not contain a topology
     */
    public static Analysis of(String name, InputStream in, Request request) throws IOException {
        return of(name, TopologyText.read(name, in), request);
    }

    private static Analysis of(String name, String text, Request request) throws IOException {
        if (text.isBlank()) {
            throw new TopologyFormatException(
                    0,
                    0,
                    name
                            + " is empty, expected the output of nvidia-smi topo -m or NCCL's"
                            + " topology XML"
                            + TopologyText.HOW);
        }
        ReadOptions options = options(name, request);
        try {
            TopologyReader.Reading read = TopologyReader.read(text, options);
            return new Analysis(read.topology(), read.dump(), request);
        } catch (TopologyFormatException e) {
            String message = name + ": " + e.getMessage() + lenient(text, options);
            boolean advised = message.contains("nvidia-smi topo -m >");
            throw new IllegalArgumentException(
                    advised || OTHER_MACHINE.matcher(message).find()
                            ? message
                            : message + TopologyText.HOW,
                    e);
        }
    }

    /** What --lenient would do for a text that was refused. */
    private static String lenient(String text, ReadOptions options) {
        if (options.lenient()) {
            return "";
        }
        try {
            Topology rest = TopologyReader.topology(text, options.withLenient(true));
            if (!rest.gpus().isEmpty()) {
                return "; --lenient reads " + Text.count(rest.gpus().size(), "GPU") + " of it";
            }
        } catch (TopologyFormatException e) {
            // As without.
        }
        return "; --lenient does not help";
    }

    private static ReadOptions options(String name, Request request) throws IOException {
        ReadOptions options =
                ReadOptions.DEFAULT
                        .withName(name)
                        .withFormat(request.format())
                        .withLenient(request.lenient())
                        .withNvlinkGbps(request.nvlinkGbps())
                        .withNicGbps(request.nicGbps());
        if (request.gpuModel() != null) {
            options = options.withGpuModel(request.gpuModel());
        }
        if (request.nvlinkStatus() == null) {
            return options;
        }
        String text = TopologyText.read("--nvlink-status", request.nvlinkStatus());
        String expected =
                "--nvlink-status "
                        + request.nvlinkStatus()
                        + ": expected the output of nvidia-smi nvlink -s";
        try {
            if (TopologyReader.dump(text, ReadOptions.DEFAULT.withLenient(request.lenient()))
                    instanceof NvlinkStatus status) {
                return options.withNvlinks(status);
            }
        } catch (TopologyFormatException e) {
            throw new IllegalArgumentException(
                    expected + ": " + e.getMessage() + lenient(text, options), e);
        }
        throw new IllegalArgumentException(
                expected + ", found a matrix of nvidia-smi topo: give that with --file");
    }

    /**
     * The findings.
     *
     * @return the findings
     */
    public Findings findings() {
        return findings;
    }

    /**
     * The graph, to be drawn.
     *
     * @param option the option that needs it
     * @return the graph
     * @throws IllegalArgumentException if the source has no paths
     */
    public Topology graph(String option) {
        if (!paths) {
            throw new IllegalArgumentException(
                    format(
                            "%s needs a graph, and %s shows no path between its devices: give the"
                                    + " output of nvidia-smi topo -m",
                            option, topology.name()));
        }
        return topology;
    }

    /**
     * The number of machines whose parts the graph has.
     *
     * @return 1 or more
     */
    public int machines() {
        return Math.max(1, topology.machines().size());
    }

    /**
     * The graph in NCCL's XML format.
     *
     * @param machine which of several machines; null for all
     * @return XML
     * @throws IllegalArgumentException if NCCL would not read it, or if the machine does not exist
     */
    public String topologyXml(@Nullable Integer machine) {
        Topology graph = graph("--nccl-xml");
        GraphXml.checkMachines(graph, graph.gpus().size());
        try {
            return machine == null ? TopologyXml.write(graph) : TopologyXml.write(graph, machine);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("--nccl-xml: " + e.getMessage(), e);
        }
    }

    /**
     * The plan in NCCL's XML format.
     *
     * @return XML
     * @throws IllegalArgumentException if there is no plan that NCCL could use
     */
    public String graphXml() {
        if (request.machines() > 1) {
            throw new IllegalArgumentException(
                    "--graph-xml writes the plan of one machine: leave out --nodes");
        }
        if (plan == null || plan.channels().isEmpty()) {
            throw new IllegalArgumentException(
                    "--graph-xml needs a plan, and there is none: " + String.join("; ", warnings));
        }
        // NCCL has no packed trees, so the rings are written.
        boolean rings = plan.channels().stream().allMatch(Channel.Ring.class::isInstance);
        return GraphXml.write(
                rings
                        ? plan
                        : Planner.rings(topology, Operation.ALL_REDUCE, selected, 0).orElseThrow());
    }

    private List<Integer> selected() {
        Map<Integer, Integer> places = new LinkedHashMap<>();
        for (Gpu gpu : topology.gpus()) {
            places.put(gpu.index(), gpu.id());
        }
        if (request.gpus() == null) {
            return List.copyOf(places.values());
        }
        Set<Integer> chosen = new LinkedHashSet<>();
        for (String part : request.gpus().split(",", -1)) {
            for (int index : indices(part.trim())) {
                Integer place = places.get(index);
                if (place == null) {
                    throw new IllegalArgumentException(
                            format(
                                    "--gpus names GPU %s, expected some of %s, the GPUs of %s",
                                    index,
                                    TextLines.ranges(List.copyOf(places.keySet())),
                                    topology.name()));
                }
                if (!chosen.add(place)) {
                    throw new IllegalArgumentException(
                            "--gpus names GPU " + index + " twice; give each once");
                }
            }
        }
        return List.copyOf(chosen);
    }

    private List<Integer> indices(String part) {
        int dash = part.indexOf('-');
        try {
            if (dash < 0) {
                return List.of(Integer.parseInt(part));
            }
            int from = Integer.parseInt(part.substring(0, dash).trim());
            int to = Integer.parseInt(part.substring(dash + 1).trim());
            if (from <= to && to - from < 1_000_000) {
                return IntStream.rangeClosed(from, to).boxed().toList();
            }
        } catch (NumberFormatException e) {
            // Reported below, with other errors.
        }
        throw new IllegalArgumentException(
                "--gpus has '" + part + "', expected numbers of GPUs such as 0,2,5 or 0-3");
    }

    /** Rank of the root. */
    private int root() {
        if (request.root() == null) {
            return 0;
        }
        for (int rank = 0; rank < selected.size(); rank++) {
            if (topology.gpus().get(selected.get(rank)).index() == request.root()) {
                return rank;
            }
        }
        List<Integer> all = selected.stream().map(p -> topology.gpus().get(p).index()).toList();
        throw new IllegalArgumentException(
                format(
                        "--root is GPU %s, expected one of those that take part: %s",
                        request.root(), TextLines.ranges(all)));
    }

    private void plan() {
        if (selected.size() * (long) request.machines() < 2) {
            warnings.add(
                    selected.isEmpty()
                            ? "no plan: there is no GPU"
                            : "no plan: a single GPU exchanges no data");
            return;
        }
        if (!paths) {
            warnings.add(
                    "no plan: "
                            + topology.name()
                            + " shows no path between GPUs; nvidia-smi topo -m does");
            return;
        }
        Cluster cluster = new Cluster(topology, request.machines(), request.network());
        Operation op = request.operation();
        String problem = "";
        try {
            if (request.machines() == 1) {
                plan = Planner.plan(topology, op, selected, root);
            } else {
                clusterPlan = Planner.plan(cluster, op, selected);
            }
        } catch (IllegalArgumentException e) {
            problem = String.valueOf(e.getMessage());
            warnings.add(problem.startsWith("no plan ") ? problem : "no plan: " + problem);
        }
        // The model has plans of its own, from the first GPU on, and of all operations.
        List<Integer> byRoot = new ArrayList<>(selected);
        byRoot.addFirst(byRoot.remove(root));
        try {
            predict(CostModel.nccl().tune(cluster, byRoot, op));
        } catch (IllegalArgumentException e) {
            if (!problem.equals(e.getMessage())) {
                warnings.add(String.valueOf(e.getMessage()));
            }
        }
        if (request.simulate()) {
            play();
        }
    }

    private Answers answers() throws IOException {
        Verdict verdict = null;
        if (request.measured() != null) {
            String name = request.measured().toString();
            MeasuredLog log =
                    MeasuredLog.of(name, TopologyText.read("--measured", request.measured()));
            if (tuning == null) {
                throw new IllegalArgumentException(
                        format(
                                "--measured %s cannot be compared: %s",
                                name, String.join("; ", warnings)));
            }
            verdict =
                    Verdict.of(
                            name,
                            log,
                            tuning,
                            topology,
                            selected,
                            request.operation(),
                            request.machines());
        }
        List<EnvAdvice> environment =
                request.advise()
                        ? EnvAdvice.of(
                                topology,
                                selected,
                                request.machines(),
                                tuning,
                                request.environment())
                        : null;
        return new Answers(best, verdict, environment);
    }

    private void predict(Tuning all) {
        Tuning left = all.only(request.algorithms(), request.protocols());
        tuning = left;
        for (long size : request.sizes()) {
            predictions.add(left.choose(size));
        }
        crossovers.addAll(left.crossovers(CostModel.MIN_BYTES, CostModel.MAX_BYTES));
    }

    private void play() {
        long bytes = request.sizesGiven() ? Collections.max(request.sizes()) : SIMULATED;
        long chunk = Math.max(CHUNK, bytes / MOST_CHUNKS);
        Simulation s;
        if (plan != null) {
            s = Simulator.run(plan, bytes, chunk);
        } else if (clusterPlan != null) {
            s = Simulator.run(clusterPlan, bytes, chunk);
        } else {
            return;
        }
        simulation.add(
                format(
                        "%d bytes over %d ranks in chunks of at most %d, links shared, no latency:",
                        bytes, s.ranks(), chunk));
        simulation.add(
                format(
                        "%.1f us, busbw %.1f GB/s, %d transfers",
                        s.timeUs(), s.busbwGBps(), s.transfers()));
        s.busiest()
                .ifPresent(a ->
                        simulation.add(
                                format(
                                        "busiest link: %s, %.0f%% of the time",
                                        Output.oneLine(a.name()), 100 * a.use())));
        simulation.add(
                s.correct()
                        ? "every rank ends with the right data"
                        : format(
                                "WRONG: %s faults, %s transfers stuck: %s",
                                s.faultCount(), s.stuck(), s.faults()));
        if (!s.correct()) {
            warnings.add("the simulation of the plan ended with wrong data");
        }
    }
}
