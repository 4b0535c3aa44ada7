package io.jccl.cli.perf;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Algorithm;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.bench.Collective;
import io.jccl.bench.PerfConfig;
import io.jccl.bench.PerfConfig.Average;
import io.jccl.bench.PerfConfig.Blocking;
import io.jccl.bench.PerfConfig.Memory;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.bench.Split;
import io.jccl.cli.shell.Amounts;
import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Engine;
import io.jccl.cli.shell.RankOptions;
import io.jccl.cli.shell.Sizes;
import io.jccl.device.DataType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import picocli.CommandLine;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** The flags and variables of nccl-tests. */
final class PerfOptions {
    /** The first GPU of a process. */
    static final String DEVICE = "NCCL_TESTS_DEVICE";

    /** Least mean bus bandwidth. */
    private static final String MIN_BW = "NCCL_TESTS_MIN_BW";

    /** The variables that have an effect; others are noted. */
    private static final Set<String> VARIABLES = Set.of(DEVICE, MIN_BW, Split.VARIABLE, Split.MASK);

    private static final int NOT_GIVEN = -1;

    @Option(
            names = {"-b", "--minbytes"},
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            description = "Smallest size; K, M, G and T are powers of 1024 (default: 32M).")
    private long minBytes = 32L << 20;

    @Option(
            names = {"-e", "--maxbytes"},
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
            description = "Largest size (default: 32M, or -b if that is larger).")
    private long maxBytes = NOT_GIVEN;

    @Option(
            names = {"-i", "--stepbytes"},
            paramLabel = "<size>",
            converter = Amounts.Bytes.class,
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
            description =
                    "Timed iterations per size (default: 20; below 8M as many as a median of 9"
                            + " batches needs).")
    private int iterations = NOT_GIVEN;

    @Option(
            names = {"-w", "--warmup_iters"},
            paramLabel = "<count>",
            converter = Count.class,
            description =
                    "Iterations before the timed ones, per size. Unless it is 0, up to two"
                            + " seconds of warm-up come first, until the JVM has compiled the timed code"
                            + " (default: 1).")
    private int warmups = 1;

    @Option(
            names = {"-m", "--agg_iters"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Operations per iteration, submitted as one group (default: 1).")
    private int aggregated = 1;

    @Option(
            names = {"-N", "--run_cycles"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Times that all sizes are measured; 0 never ends (default: 1).")
    private int cycles = 1;

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
            converter = PerfValues.Ops.class,
            description =
                    "sum, prod, min, max, avg, mulsum or all; ignored where nothing is reduced"
                            + " (default: sum).")
    private PerfValues.Choice<ReduceOp.Kind> op =
            new PerfValues.Choice<>(List.of(ReduceOp.Kind.SUM));

    @Option(
            names = {"-d", "--datatype"},
            paramLabel = "<type>",
            converter = PerfValues.Types.class,
            description =
                    "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,"
                            + " f8e4m3, f8e5m2, fp32 and the like, or all (default: float).")
    private PerfValues.Choice<DataType> type = new PerfValues.Choice<>(List.of(DataType.FLOAT32));

    @Option(
            names = {"-r", "--root"},
            paramLabel = "<rank>",
            converter = PerfValues.Root.class,
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
            description = "Ranks per thread; on the host each has its own thread (default: 1).")
    private int devices = 1;

    @Option(
            names = {"-z", "--blocking"},
            paramLabel = "<0|1|2|3>",
            converter = PerfValues.UpTo3.class,
            description =
                    "1: wait for each iteration, and for the other ranks; 2: without the other"
                            + " ranks; 3: wait for them outside the time (default: 0).")
    private int blocking;

    @Option(
            names = {"-a", "--average"},
            paramLabel = "<0|1|2|3>",
            converter = PerfValues.UpTo3.class,
            description =
                    "Whose time counts: 0 rank 0's, 1 the mean, 2 the shortest, 3 the longest"
                            + " (default: 1).")
    private int average = 1;

    @Option(
            names = {"-I", "--per_iter_timing"},
            paramLabel = "<0|1>",
            arity = "0..1",
            fallbackValue = "1",
            converter = PerfValues.Flag.class,
            description =
                    "Also times each iteration: smallest, largest, 99th percentile and coefficient"
                            + " of variation of the slowest rank's times.")
    private int perIteration;

    @Option(
            names = {"-K", "--per_iter_skip"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "With -I: leave out the first iterations of its statistics (default: 0).")
    private int skipped;

    @Option(
            names = {"-C", "--report_cputime"},
            paramLabel = "<0|1>",
            arity = "0..1",
            fallbackValue = "1",
            converter = PerfValues.Flag.class,
            description =
                    "Show the time in which a rank submits an operation in place of the time in which"
                            + " it completes.")
    private int cpuTime;

    @Option(
            names = {"-S", "--report_timestamps"},
            paramLabel = "<0|1>",
            arity = "0..1",
            fallbackValue = "1",
            converter = PerfValues.Flag.class,
            description = "Add the time of day to each line.")
    private int timestamps;

    @Option(
            names = {"-M", "--memory"},
            paramLabel = "<0|1>",
            arity = "0..1",
            fallbackValue = "1",
            converter = PerfValues.Flag.class,
            description = "Show the memory of a rank's buffers, and on GPUs of its communicator.")
    private int memory;

    @Option(
            names = {"-u", "--unalign"},
            paramLabel = "<count>",
            converter = Count.class,
            description = "Elements before the first one of both buffers (default: 0).")
    private int unalign;

    @Mixin private GpuFlags gpu = new GpuFlags();

    @Option(
            names = {"-T", "--timeout"},
            paramLabel = "<seconds>",
            converter = PerfValues.Seconds.class,
            description = "How long a rank waits for the others in one operation (default: 600).")
    private Duration timeout = CommunicatorOptions.DEFAULT.timeout();

    int localRanks() {
        return threads * devices;
    }

    boolean isEndless() {
        return cycles == 0;
    }

    /**
     * What follows from the flags, the variables and the engine.
     *
     * @throws ParameterException if they contradict each other; the message suggests a remedy
     */
    PerfConfig config(
            CommandLine line,
            Collective collective,
            Engine engine,
            Algorithm algorithm,
            Map<String, String> environment) {
        check(line);
        boolean barrier = collective == Collective.BARRIER;
        boolean nccl = engine == Engine.NCCL;
        long largest = maxBytes >= 0 ? maxBytes : Math.max(32L << 20, minBytes);
        List<Long> sizes;
        Split split;
        try {
            sizes =
                    barrier
                            ? List.of(0L)
                            : Sizes.sequence(minBytes, largest, stepBytes, stepFactor);
            split = Split.of(environment);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(line, e.getMessage(), e);
        }
        CommunicatorOptions options = new CommunicatorOptions(timeout, algorithm);
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
                timing(nccl),
                barrier ? 0 : checks,
                barrier ? List.of(DataType.INT8) : type.values(),
                op.values(),
                root,
                new Memory(unalign, nccl ? gpu.registration() : 0, memory == 1),
                split,
                number(line, environment, MIN_BW, "a bandwidth in GB/s, such as 10"),
                nccl ? gpu.configured(options) : options,
                notes(collective, engine, environment),
                List.copyOf(arguments));
    }

    private Timing timing(boolean nccl) {
        return new Timing(
                iterations == NOT_GIVEN ? PerfConfig.ITERATIONS : iterations,
                iterations == NOT_GIVEN,
                warmups,
                aggregated,
                cycles,
                Blocking.values()[blocking],
                perIteration == 1,
                skipped,
                nccl ? gpu.graphLaunches() : 0,
                Average.values()[average],
                cpuTime == 1,
                timestamps == 1);
    }

    private void check(CommandLine line) {
        atLeastOne(line, "-n/--iters", iterations == NOT_GIVEN ? 1 : iterations);
        atLeastOne(line, "-m/--agg_iters", aggregated);
        atLeastOne(line, "-f/--stepfactor", stepFactor);
        atLeastOne(line, "-t/--nthreads", threads);
        atLeastOne(line, "-g/--ngpus", devices);
        require(
                line,
                stepBytes >= 1,
                "-i/--stepbytes is 0, expected 1 or more; give a step such as -i 1M");
        long all = (long) threads * devices;
        require(
                line,
                all <= RankOptions.MOST_RANKS,
                format(
                        "-t %s x -g %s makes %s ranks, expected %s at most; give fewer",
                        threads, devices, all, RankOptions.MOST_RANKS));
        int timed = iterations == NOT_GIVEN ? PerfConfig.ITERATIONS : iterations;
        require(
                line,
                skipped == 0 || perIteration == 1,
                "-K/--per_iter_skip is " + skipped + ", but nothing is timed singly: add -I 1");
        require(
                line,
                skipped < timed,
                format(
                        "-K/--per_iter_skip is %s, expected less than the %s iterations; give"
                                + " fewer, or a larger -n",
                        skipped, timed));
        gpu.check(line, perIteration == 1, blocking);
        require(
                line,
                unalign <= 1 << 20,
                "-u/--unalign is " + unalign + ", expected 1048576 or less; give fewer elements");
    }

    /** Flags that are accepted and have no effect. */
    private List<String> notes(
            Collective collective, Engine engine, Map<String, String> environment) {
        List<String> notes = new ArrayList<>();
        gpu.note(notes, engine);
        if (cpuTime != 0 && engine != Engine.NCCL) {
            notes.add("-C 1 has no effect: operations have completed when they are submitted");
        }
        if (aggregated > 1 && !collective.isGrouped()) {
            notes.add(
                    format(
                            "-m %s as a group has no effect: each step of a %s needs the one"
                                    + " before it",
                            aggregated, collective.command()));
        }
        for (String name : new TreeSet<>(environment.keySet())) {
            if (name.equals(DEVICE) && engine != Engine.NCCL) {
                notes.add(name + " has no effect: engine " + engine.text() + " has no GPUs");
            } else if (name.startsWith("NCCL_TESTS_") && !VARIABLES.contains(name)) {
                notes.add(name + " has no effect: JCCL does not know it");
            }
        }
        return List.copyOf(notes);
    }

    /** The first GPU of this process, or -1 if none was chosen. */
    static int firstDevice(CommandLine line, Map<String, String> environment) {
        double first = number(line, environment, DEVICE, "the number of a GPU, such as 0");
        require(
                line,
                first == Math.rint(first) && first <= Short.MAX_VALUE,
                DEVICE + " is '" + environment.get(DEVICE) + "', expected the number of a GPU");
        return (int) first;
    }

    private static double number(
            CommandLine line, Map<String, String> environment, String name, String expected) {
        String text = environment.get(name);
        if (text == null) {
            return NOT_GIVEN;
        }
        try {
            double value = Double.parseDouble(text.strip());
            if (value >= 0 && value < Double.POSITIVE_INFINITY) {
                return value;
            }
        } catch (NumberFormatException e) {
            // Reported below, as numbers out of range are.
        }
        throw new ParameterException(
                line,
                name + " is '" + text + "', expected " + expected + "; set it so, or unset it");
    }

    private static void atLeastOne(CommandLine line, String option, int value) {
        require(
                line,
                value >= 1,
                option + " is " + value + ", expected 1 or more; give a larger number");
    }

    private static void require(CommandLine line, boolean right, String message) {
        if (!right) {
            throw new ParameterException(line, message);
        }
    }
}
