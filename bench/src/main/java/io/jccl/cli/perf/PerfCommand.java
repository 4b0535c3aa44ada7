package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclSteering;
import io.jccl.bench.Collective;
import io.jccl.bench.Patterns;
import io.jccl.bench.PerfConfig;
import io.jccl.bench.PerfRun;
import io.jccl.bench.Report;
import io.jccl.cli.shell.AlsoToFiles;
import io.jccl.cli.shell.BindOption;
import io.jccl.cli.shell.CsvOption;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.OutputFiles;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Version;
import io.jccl.device.Device;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** Measures and checks one collective; the flags and the table are those of nccl-tests. */
@Command(
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "Each of the t x g ranks is a thread of this process. Under `jccl run` or another"
                    + " launcher each process is one rank.",
            "Exit status: 0, 1 if a value was wrong, a rank failed or the bandwidth is below"
                    + " NCCL_TESTS_MIN_BW, 2 for a mistake on the command line.",
        })
public final class PerfCommand implements Callable<Integer>, AlsoToFiles {

    /** Slurm sets these in a batch script too, where no process was started for each rank. */
    private static final List<String> SLURM = List.of("SLURM_PROCID", "SLURM_NTASKS");

    private final Collective collective;
    private final Map<String, String> environment;
    private final PerfRun.Seam seam;

    /** Data of groups of different sizes. */
    private final ConcurrentHashMap<Integer, Patterns> patterns = new ConcurrentHashMap<>();

    @Spec private @Nullable CommandSpec spec;

    // Not the standard ones: -V is a flag of nccl-tests.
    @SuppressWarnings("unused") // picocli acts on it
    @Option(
            names = {"-h", "--help"},
            usageHelp = true,
            description = "Show this help message and exit.")
    private boolean help;

    @SuppressWarnings("unused") // picocli acts on it
    @Option(
            names = "--version",
            versionHelp = true,
            description = "Print version information and exit.")
    private boolean version;

    @Mixin private PerfOptions flags = new PerfOptions();

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private CsvOption csv = new CsvOption();

    @Mixin private HtmlOption html = new HtmlOption();

    @Mixin private BindOption bind = new BindOption();

    @Option(
            names = "--algo",
            paramLabel = "<name>",
            description =
                    "auto, direct, ring, tree, rd or pairwise; used for operations that support"
                            + " it (default: auto).")
    private Algorithm algorithm = Algorithm.AUTO;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            description =
                    "host: CPU ranks in memory; mpi: CPU ranks of an MPI job, as mpirun starts them;"
                            + " nccl: one GPU for each rank, the first ones of the process, or that"
                            + " of LOCAL_RANK (default: host, or JCCL_ENGINE).")
    private @Nullable Engine engine;

    @Option(
            names = "--plan",
            paramLabel = "<auto|file>",
            description =
                    "With --engine nccl: plans on this machine's links, or on those of a file that"
                            + " jccl topo reads, and prints predicted next to measured times.")
    private @Nullable String plan;

    @Option(
            names = "--steer",
            paramLabel = "<advise|enforce>",
            converter = PerfValues.Steering.class,
            description =
                    "advise: prints the NCCL settings of the plan; enforce: also sets them, and"
                            + " puts ranks on GPUs in the plan's order (default: advise).")
    private NcclSteering.@Nullable Mode steer;

    public PerfCommand(Collective collective) {
        this(collective, System.getenv(), PerfRun.Seam.NONE);
    }

    public PerfCommand(Collective collective, Map<String, String> environment, PerfRun.Seam seam) {
        this.collective = collective;
        this.environment = environment;
        this.seam = seam;
    }

    @Override
    public Integer call() throws Exception {
        CommandLine line = commandLine();
        Engine chosen = engine(line);
        PerfConfig config = flags.config(line, collective, chosen, algorithm, environment);
        boolean local = launched(line, flags.localRanks()).isEmpty();
        int ranks = local ? flags.localRanks() : 0;
        if (ranks > 0) {
            checkRanks(line, config, ranks);
        }
        checkOutputs(line);
        int first = PerfOptions.firstDevice(line, environment);
        AtomicBoolean failed = new AtomicBoolean();
        try (Forecast forecast = forecast(line, config, ranks)) {
            CommunicatorOptions options = config.options().withBinding(bind.in(environment, line));
            if (forecast != null) {
                options = options.withSteering(forecast.steering());
            }
            if (local) {
                List<? extends Device> devices = chosen.devices(ranks, Math.max(0, first));
                if (forecast != null && steer == NcclSteering.Mode.ENFORCE) {
                    devices = forecast.steering().ordered(devices);
                }
                Communicator.runLocal(
                        devices, options, c -> runRank(config, c, forecast, line, failed));
            } else {
                boolean placed = chosen == Engine.NCCL && first >= 0;
                chosen.run(
                        placed ? chosen.join(first, options) : chosen.join(environment, options),
                        c -> {
                            checkRanks(line, config, c.size());
                            runRank(config, c, forecast, line, failed);
                        });
            }
        }
        return failed.get() ? 1 : 0;
    }

    /** Roots and numbers of ranks, in each group. */
    private void checkRanks(CommandLine line, PerfConfig config, int ranks) {
        int[] groups = config.split().sizes(ranks);
        int smallest = Arrays.stream(groups).min().orElse(ranks);
        if (config.root() >= smallest) {
            throw new ParameterException(line, rootMessage(config.root(), smallest));
        }
        try {
            Arrays.stream(groups).forEach(collective::checkRanks);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
    }

    private void checkOutputs(CommandLine line) throws IOException {
        if (flags.isEndless() && (json.isAsked() || csv.isAsked() || html.isAsked())) {
            throw new ParameterException(
                    line,
                    "-N/--run_cycles is 0, so the run never ends, and "
                            + (json.isAsked()
                                    ? JsonOption.NAME
                                    : csv.isAsked() ? CsvOption.NAME : HtmlOption.NAME)
                            + " is written at the end; give a number of cycles");
        }
        new OutputFiles(line).add(json).add(csv).add(html).checkNotRead();
    }

    /** Null if none was requested. */
    private @Nullable Forecast forecast(CommandLine line, PerfConfig config, int localRanks) {
        if (plan == null) {
            if (steer != null) {
                throw new ParameterException(line, "--steer needs a plan: add --plan auto");
            }
            return null;
        }
        if (engine(line) != Engine.NCCL) {
            throw new ParameterException(
                    line, "--plan is about links of GPUs: add --engine nccl, or leave it out");
        }
        int ranks = localRanks > 0 ? localRanks : launchedSize();
        try {
            return Forecast.of(
                    plan,
                    collective,
                    ranks,
                    steer == null ? NcclSteering.Mode.ADVISE : steer,
                    Math.max(1, config.maxBytes()));
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
    }

    private Engine engine(CommandLine line) {
        try {
            return Engine.of(engine, environment);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
    }

    @Override
    public boolean writesFiles() {
        return json.file() != null || html.isAsked() || csv.file() != null;
    }

    private void runRank(
            PerfConfig config,
            Communicator comm,
            @Nullable Forecast forecast,
            CommandLine line,
            AtomicBoolean failed)
            throws IOException {
        List<Report> reports = new ArrayList<>();
        if (comm.rank() == 0) {
            PrintWriter text = csv.text(json.text(line.getOut()));
            reports.add(new TableReport(text, !writesFiles()));
            if (forecast != null) {
                reports.add(new ForecastReport(forecast, text));
            }
            if (json.isAsked() || html.isAsked()) {
                reports.add(new JsonReport(json, html, line.getOut(), environment, forecast));
            }
            if (csv.isAsked()) {
                reports.add(new CsvReport(csv, line.getOut()));
            }
        }
        Progress progress = comm.rank() == 0 ? Progress.to(line.getErr()) : Progress.none();
        IntFunction<Patterns> data = n -> patterns.computeIfAbsent(n, Patterns::new);
        Report.Summary summary = new PerfRun(config, comm, data, reports, progress, seam).run();
        if (summary.outOfBounds() > 0 || Boolean.FALSE.equals(summary.enough())) {
            failed.set(true);
        }
    }

    /** The launcher's variables that are set; empty if ranks are threads of this process. */
    private List<String> launched(CommandLine line, int localRanks) {
        if (engine(line) == Engine.MPI) {
            if (localRanks > 1) {
                throw new ParameterException(
                        line,
                        format(
                                "-t x -g makes %s ranks, expected 1, because with --engine mpi"
                                        + " each process is one rank; start them with mpirun -n %s",
                                localRanks, localRanks));
            }
            return List.of("--engine mpi");
        }
        List<String> all = LaunchEnvironment.ranksAndSizes(environment);
        List<String> set = all.stream().filter(name -> !SLURM.contains(name)).toList();
        if (!set.isEmpty() && localRanks > 1) {
            throw new ParameterException(
                    commandLine(),
                    format(
                            "-t x -g makes %s ranks, expected 1, because %s is set and so each"
                                    + " process is one rank; leave out -t and -g, or unset %s",
                            localRanks, set.getFirst(), set.getFirst()));
        }
        return set.isEmpty() && localRanks == 1 && all.contains(SLURM.getFirst()) ? all : set;
    }

    /** How many processes the launcher started; 0 if it does not report it. */
    private int launchedSize() {
        try {
            return LaunchEnvironment.ranksAndSizes(environment).isEmpty()
                    ? 0
                    : LaunchEnvironment.of(environment).size();
        } catch (IllegalArgumentException e) {
            // Joining reports the error.
            return 0;
        }
    }

    private CommandLine commandLine() {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        return spec.commandLine();
    }

    private static String rootMessage(int root, int ranks) {
        return format(
                "-r/--root is %s, expected 0 to %s or all, as there %s; give one of those, or"
                        + " more ranks with -g",
                root, ranks - 1, ranks == 1 ? "is 1 rank" : "are " + ranks + " ranks");
    }
}
