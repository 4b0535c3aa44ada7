package io.jccl.cli.perf;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.NcclSteering;
import io.jccl.ReduceOp;
import io.jccl.bench.Collective;
import io.jccl.bench.Patterns;
import io.jccl.bench.PerfConfig;
import io.jccl.bench.PerfRun;
import io.jccl.bench.Report;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.HtmlOption;
import io.jccl.cli.shell.JsonOption;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Sizes;
import io.jccl.cli.shell.Version;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.rendezvous.LaunchEnvironment;
import java.io.IOException;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;
import picocli.CommandLine.TypeConversionException;

/** Measures and checks one collective; the flags and the table are those of nccl-tests. */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        usageHelpAutoWidth = true,
        versionProvider = Version.class,
        footer = {
            "",
            "Each of the t x g ranks is a thread of this process. Under `jccl run` or another"
                    + " launcher each process is one rank.",
            "Exit status: 0, 1 if a value was wrong or a rank failed, 2 for a mistake on the"
                    + " command line.",
        })
public final class PerfCommand implements Callable<Integer> {

    /** Slurm sets these in a batch script too, where nothing was started per rank. */
    private static final List<String> SLURM = List.of("SLURM_PROCID", "SLURM_NTASKS");

    private final Collective collective;
    private final Map<String, String> environment;
    private final PerfRun.Seam seam;

    @Spec private @Nullable CommandSpec spec;

    @Option(
            names = {"-b", "--minbytes"},
            paramLabel = "<size>",
            converter = Sizes.Converter.class,
            description = "Smallest size; K, M, G and T are powers of 1024 (default: 32M).")
    private long minBytes = 32L << 20;

    @Option(
            names = {"-e", "--maxbytes"},
            paramLabel = "<size>",
            converter = Sizes.Converter.class,
            description = "Largest size (default: 32M, or -b if that is larger).")
    private long maxBytes = -1;

    @Option(
            names = {"-i", "--stepbytes"},
            paramLabel = "<size>",
            converter = Sizes.Converter.class,
            description = "Step between sizes, unless -f is given (default: 1M).")
    private long stepBytes = 1L << 20;

    @Option(
            names = {"-f", "--stepfactor"},
            paramLabel = "<factor>",
            converter = Count.class,
            description = "Factor between sizes; 1 means steps (default: 1).")
    private int stepFactor = 1;

    @Option(
            names = {"-n", "--iters"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Timed iterations per size (default: 20).")
    private int iterations = 20;

    @Option(
            names = {"-w", "--warmup_iters"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Iterations before the timed ones, per size. Unless it is 0, a quarter second"
                            + " more goes first, so that the JVM has compiled what is timed"
                            + " (default: 1).")
    private int warmups = 1;

    @Option(
            names = {"-m", "--agg_iters"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Operations per iteration, submitted as one group (default: 1).")
    private int aggregated = 1;

    @Option(
            names = {"-c", "--check"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Times each result is checked, each with other data; 0 is off (default: 1).")
    private int checks = 1;

    @Option(
            names = {"-o", "--op"},
            paramLabel = "<op>",
            converter = Ops.class,
            description =
                    "sum, prod, min, max, avg, mulsum or all; ignored where nothing is reduced"
                            + " (default: sum).")
    private Choice<ReduceOp.Kind> op = new Choice<>(List.of(ReduceOp.Kind.SUM));

    @Option(
            names = {"-d", "--datatype"},
            paramLabel = "<type>",
            converter = Types.class,
            description =
                    "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,"
                            + " f8e4m3, f8e5m2 or all (default: float).")
    private Choice<DataType> type = new Choice<>(List.of(DataType.FLOAT32));

    @Option(
            names = {"-r", "--root"},
            paramLabel = "<rank>",
            converter = Root.class,
            description = "Root, or all; ignored where there is none (default: 0).")
    private int root;

    @Option(
            names = {"-t", "--nthreads"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Threads (default: 1).")
    private int threads = 1;

    @Option(
            names = {"-g", "--ngpus"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Ranks per thread; on the host each has a thread of its own (default: 1).")
    private int devices = 1;

    @Option(
            names = {"-z", "--blocking"},
            paramLabel = "<0|1>",
            converter = Flag.class,
            description =
                    "1 adds a barrier to each timed iteration. Operations of the host engine block"
                            + " either way: on its default stream each has completed when the call"
                            + " returns (default: 0).")
    private int blocking;

    @Option(
            names = {"-I", "--per_iter_timing"},
            paramLabel = "<0|1>",
            arity = "0..1",
            fallbackValue = "1",
            converter = Flag.class,
            description =
                    "Also times each iteration: smallest, largest, 99th percentile and coefficient"
                            + " of variation of the slowest rank's times.")
    private int perIteration;

    @Mixin private JsonOption json = new JsonOption();

    @Mixin private HtmlOption html = new HtmlOption();

    @Option(
            names = {"-T", "--timeout"},
            paramLabel = "<seconds>",
            converter = Seconds.class,
            description = "How long a rank waits for the others in one operation (default: 600).")
    private Duration timeout = CommunicatorOptions.DEFAULT.timeout();

    @Option(
            names = "--algo",
            paramLabel = "<name>",
            converter = Algorithms.class,
            description =
                    "auto, direct, ring, tree, rd or pairwise; used wherever it serves the"
                            + " operation (default: auto).")
    private Algorithm algorithm = Algorithm.AUTO;

    @Option(
            names = "--engine",
            paramLabel = "<host|nccl|mpi>",
            converter = Engine.Converter.class,
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
                            + " jccl topo reads, and prints predicted beside measured times.")
    private @Nullable String plan;

    @Option(
            names = "--steer",
            paramLabel = "<advise|enforce>",
            converter = Steering.class,
            description =
                    "advise: prints what the plan would tell NCCL; enforce: also sets it, and puts"
                            + " ranks on GPUs in the plan's order (default: advise).")
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
        PerfConfig config = config(line);
        boolean local = launched(line, config.localRanks()).isEmpty();
        int ranks = local ? config.localRanks() : 0;
        if (ranks > 0 && config.root() >= ranks) {
            throw new ParameterException(line, rootMessage(config.root(), ranks));
        }
        json.checkWritable(line);
        html.checkWritable(line);
        AtomicLong failures = new AtomicLong();
        try (Forecast forecast = forecast(line, config, ranks)) {
            CommunicatorOptions options = config.options();
            if (forecast != null) {
                options = options.withSteering(forecast.steering());
            }
            if (local) {
                Patterns patterns = new Patterns(ranks);
                List<? extends Device> devices = engine(line).devices(ranks);
                if (forecast != null && steer == NcclSteering.Mode.ENFORCE) {
                    devices = forecast.steering().ordered(devices);
                }
                Communicator.runLocal(
                        devices,
                        options,
                        c -> runRank(config, c, patterns, forecast, line, failures));
            } else {
                try (Communicator c = engine(line).join(environment, options)) {
                    if (config.root() >= c.size()) {
                        throw new ParameterException(line, rootMessage(config.root(), c.size()));
                    }
                    Patterns patterns = new Patterns(c.size());
                    runRank(config, c, patterns, forecast, line, failures);
                }
            }
        }
        return failures.get() == 0 ? 0 : 1;
    }

    /** Null if none was asked for. */
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
            throw new ParameterException(line, Engine.VARIABLE + ": " + e.getMessage(), e);
        }
    }

    private void runRank(
            PerfConfig config,
            Communicator comm,
            Patterns patterns,
            @Nullable Forecast forecast,
            CommandLine line,
            AtomicLong failures)
            throws IOException {
        List<Report> reports = new ArrayList<>();
        if (comm.rank() == 0) {
            PrintWriter text = json.text(line.getOut());
            reports.add(new TableReport(text));
            if (forecast != null) {
                reports.add(new ForecastReport(forecast, text));
            }
            if (json.isAsked() || html.isAsked()) {
                reports.add(new JsonReport(json, html, line.getOut(), environment, forecast));
            }
        }
        Progress progress = comm.rank() == 0 ? Progress.to(line.getErr()) : Progress.none();
        Report.Summary summary = new PerfRun(config, comm, patterns, reports, progress, seam).run();
        failures.accumulateAndGet(summary.outOfBounds(), Math::max);
    }

    private PerfConfig config(CommandLine line) {
        atLeast(line, 1, "-n/--iters", iterations);
        atLeast(line, 1, "-m/--agg_iters", aggregated);
        atLeast(line, 1, "-f/--stepfactor", stepFactor);
        atLeast(line, 1, "-t/--nthreads", threads);
        atLeast(line, 1, "-g/--ngpus", devices);
        if (stepBytes < 1) {
            throw new ParameterException(
                    line, "-i/--stepbytes is 0, expected 1 or more; give a step such as -i 1M");
        }
        long all = (long) threads * devices;
        if (all > RankOptions.MOST_RANKS) {
            throw new ParameterException(
                    line,
                    "-t "
                            + threads
                            + " x -g "
                            + devices
                            + " makes "
                            + all
                            + " ranks, expected "
                            + RankOptions.MOST_RANKS
                            + " at most; give fewer");
        }
        boolean barrier = collective == Collective.BARRIER;
        long largest = maxBytes >= 0 ? maxBytes : Math.max(32L << 20, minBytes);
        List<Long> sizes;
        try {
            sizes =
                    barrier
                            ? List.of(0L)
                            : Sizes.sequence(minBytes, largest, stepBytes, stepFactor);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
        List<String> arguments = new ArrayList<>(List.of("jccl", collective.command()));
        arguments.addAll(line.getParseResult().originalArgs());
        return new PerfConfig(
                collective,
                threads,
                devices,
                barrier ? 0 : minBytes,
                barrier ? 0 : largest,
                stepBytes,
                stepFactor,
                sizes,
                iterations,
                warmups,
                aggregated,
                barrier ? 0 : checks,
                blocking == 1,
                perIteration == 1,
                barrier ? List.of(DataType.INT8) : type.values,
                op.values,
                root,
                new CommunicatorOptions(timeout, algorithm),
                List.copyOf(arguments));
    }

    /** The launcher's variables that are set; empty if ranks are threads of this process. */
    private List<String> launched(CommandLine line, int localRanks) {
        if (engine(line) == Engine.MPI) {
            if (localRanks > 1) {
                throw new ParameterException(
                        line,
                        "-t x -g makes "
                                + localRanks
                                + " ranks, expected 1, because with --engine mpi each process is one"
                                + " rank; start them with mpirun -n "
                                + localRanks);
            }
            return List.of("--engine mpi");
        }
        List<String> all = LaunchEnvironment.ranksAndSizes(environment);
        List<String> set = all.stream().filter(name -> !SLURM.contains(name)).toList();
        if (!set.isEmpty() && localRanks > 1) {
            throw new ParameterException(
                    commandLine(),
                    "-t x -g makes "
                            + localRanks
                            + " ranks, expected 1, because "
                            + set.getFirst()
                            + " is set and so each process is one rank; leave out -t and -g, or"
                            + " unset "
                            + set.getFirst());
        }
        return set.isEmpty() && localRanks == 1 && all.contains(SLURM.getFirst()) ? all : set;
    }

    /** How many processes the launcher started; 0 if it does not say. */
    private int launchedSize() {
        try {
            return LaunchEnvironment.ranksAndSizes(environment).isEmpty()
                    ? 0
                    : LaunchEnvironment.of(environment).size();
        } catch (IllegalArgumentException e) {
            // Joining says what is wrong.
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
        return "-r/--root is "
                + root
                + ", expected 0 to "
                + (ranks - 1)
                + " or all, as there "
                + (ranks == 1 ? "is 1 rank" : "are " + ranks + " ranks")
                + "; give one of those, or more ranks with -g";
    }

    private static void atLeast(CommandLine line, int least, String option, int value) {
        if (value < least) {
            throw new ParameterException(
                    line,
                    option
                            + " is "
                            + value
                            + ", expected "
                            + least
                            + " or more; give a larger number");
        }
    }

    /** One value or all of them. */
    record Choice<T>(List<T> values) {}

    /** 0 or 1, as nccl-tests writes no and yes. */
    static final class Flag implements ITypeConverter<Integer> {
        @Override
        public Integer convert(String value) {
            return switch (value) {
                case "0" -> 0;
                case "1" -> 1;
                default ->
                        throw new TypeConversionException(
                                "'" + value + "' is neither 0 nor 1; give one of them");
            };
        }
    }

    /** A rank, or all of them as -1. */
    static final class Root implements ITypeConverter<Integer> {
        @Override
        public Integer convert(String value) {
            try {
                int number = value.equals("all") ? -1 : Integer.parseInt(value);
                if (number >= -1) {
                    return number;
                }
            } catch (NumberFormatException e) {
                // Reported below, as numbers out of range are.
            }
            throw new TypeConversionException(
                    "'" + value + "' is no rank; give a number from 0, or all");
        }
    }

    /** A time. */
    static final class Seconds implements ITypeConverter<Duration> {
        @Override
        public Duration convert(String value) {
            try {
                double seconds = Double.parseDouble(value);
                if (seconds >= 0.001 && seconds <= 1e9) {
                    return Duration.ofMillis(Math.round(seconds * 1000));
                }
            } catch (NumberFormatException e) {
                // Reported below, as numbers out of range are.
            }
            throw new TypeConversionException(
                    "'" + value + "' is no time; give seconds, from 0.001 to 1e9, such as 30");
        }
    }

    /** Data types by their nccl-tests names. */
    static final class Types implements ITypeConverter<Choice<DataType>> {
        @Override
        public Choice<DataType> convert(String value) {
            if (value.equals("all")) {
                return new Choice<>(List.of(DataType.values()));
            }
            try {
                return new Choice<>(List.of(DataType.ofLabel(value)));
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage() + " or all");
            }
        }
    }

    /** Reductions by their nccl-tests names. */
    static final class Ops implements ITypeConverter<Choice<ReduceOp.Kind>> {
        @Override
        public Choice<ReduceOp.Kind> convert(String value) {
            List<ReduceOp.Kind> found =
                    Arrays.stream(ReduceOp.Kind.values())
                            .filter(k -> value.equals("all") || ReduceOp.label(k).equals(value))
                            .toList();
            if (found.isEmpty()) {
                throw new TypeConversionException(
                        "reduction '"
                                + value
                                + "' is unknown, expected sum, prod, min, max, avg, mulsum or all");
            }
            return new Choice<>(found);
        }
    }

    /** Whether a plan is enforced. */
    static final class Steering implements ITypeConverter<NcclSteering.Mode> {
        @Override
        public NcclSteering.Mode convert(String value) {
            return switch (value) {
                case "advise" -> NcclSteering.Mode.ADVISE;
                case "enforce" -> NcclSteering.Mode.ENFORCE;
                default ->
                        throw new TypeConversionException(
                                "'" + value + "' is neither advise nor enforce; give one of them");
            };
        }
    }

    /** Algorithms by name. */
    static final class Algorithms implements ITypeConverter<Algorithm> {
        @Override
        public Algorithm convert(String value) {
            try {
                return Algorithm.ofName(value);
            } catch (IllegalArgumentException e) {
                throw new TypeConversionException(e.getMessage());
            }
        }
    }
}
