package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.NcclCommunicator;
import io.jccl.ReduceOp;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.cli.shell.Progress;
import io.jccl.cli.shell.Sizes;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a benchmark: goes through types, reductions, roots and sizes in step with the others.
 * Whatever ranks must agree on is exchanged through the communicator itself.
 */
public final class PerfRun {
    /** Where a test may tamper with results before they are checked. */
    @FunctionalInterface
    public interface Seam {
        /** Tampers with nothing. */
        Seam NONE = (rank, sent, result) -> {};

        /**
         * Called after an operation that is about to be checked.
         *
         * @param rank the rank
         * @param sent its sent data; empty in place
         * @param result its received data
         */
        void received(int rank, Buffer sent, Buffer result);
    }

    /** Seconds that a run may warm up before it measures. */
    public static final double MOST_WARM_UP_SECONDS = WarmUpPhase.MOST_SECONDS;

    private static final long TIMED_SEED = 99;

    /** The fixed cost of a case, expressed in bytes; for progress. */
    private static final long CASE_BYTES = 1 << 20;

    /** Samples of an iteration's time; a few may be longer by accident. */
    private static final int PROBES = 5;

    private static final int PROBE_ITERATIONS = 8;

    /** Nanoseconds for repeated measurements of all sizes together. */
    private static final double MOST_REPEATED = 2e9;

    /** The share of the remaining ones, for one size. */
    private static final double REPEATED_SHARE = 0.25;

    private static final long MOST_COMPILING = 20_000_000;

    /** This rank's times, and those combined over all ranks. */
    private record Sample(BatchTimer.Times mine, Report.Spread spread) {}

    private final PerfConfig config;
    private final Timing timing;
    private final Collective collective;
    private final Communicator world;
    private final IntFunction<Patterns> patternsOf;
    private final List<Report> reports;
    private final Progress progress;
    private final Seam seam;
    private final Exchange exchange;

    /** Those of this rank's group. */
    private Communicator comm;

    private Patterns patterns;
    private Stream stream;
    private @Nullable Doubts doubts;
    private long bufferBytes;
    private long failedChecks;
    private final CompilerThreads compilers = new CompilerThreads();

    /** Nanoseconds that measurements were repeated, on all ranks the same. */
    private double repeated;

    private double busBwSum;
    private double bytesDone; // for progress
    private int measurements;

    /**
     * Prepares a run; {@link #run} does it.
     *
     * @param config what to do, the same on all ranks
     * @param world all ranks, which the caller still owns
     * @param patterns data for a number of ranks; ranks that are threads share it
     * @param reports where results go
     * @param progress where to show progress
     * @param seam for tests
     */
    public PerfRun(
            PerfConfig config,
            Communicator world,
            IntFunction<Patterns> patterns,
            List<Report> reports,
            Progress progress,
            Seam seam) {
        this.config = config;
        this.timing = config.timing();
        this.collective = config.collective();
        this.world = world;
        this.patternsOf = patterns;
        this.reports = reports;
        this.progress = progress;
        this.seam = seam;
        this.exchange = new Exchange(world, Math.max(64, timing.iterations()));
        this.comm = world;
        this.patterns = patterns.apply(world.size());
        this.stream = world.device().defaultStream();
    }

    /**
     * Measures. All ranks call it once.
     *
     * @return the end of this rank's table
     * @throws IOException if a report cannot be written
     * @throws io.jccl.error.JcclException if an operation fails, or ranks exchange wrong numbers
     */
    public Report.Summary run() throws IOException {
        int group = config.split().group(world.rank());
        try (exchange;
                Communicator own =
                        config.split().isAsked() ? world.split(group, world.rank()) : null) {
            if (own != null) {
                comm = own;
                patterns = patternsOf.apply(own.size());
                stream = own.device().defaultStream();
            }
            return runAll(group);
        }
    }

    private Report.Summary runAll(int group) throws IOException {
        List<Report.RankInfo> infos = exchange.gather(group);
        if (world.rank() == 0) {
            boolean host = comm.device().kind() == Device.Kind.HOST;
            doubts = new Doubts(new MachineLoad(Path.of("/proc")), infos, host);
        }
        double cpuBefore = cpuSeconds();
        long memoryBefore = communicatorMemory();
        for (Report r : reports) {
            r.begin(config, comm.engine(), infos);
        }
        progress.show("warming up " + collective.command());
        Report.WarmUp warmUp =
                timing.warmups() == 0
                        ? Report.WarmUp.NONE
                        : new WarmUpPhase(config, comm, patterns, exchange).run();
        progress.erase();
        for (Report r : reports) {
            r.warmed(warmUp);
        }
        for (DataType type : config.types()) {
            try (Buffers buffers = new Buffers(comm, config, type, config.sizes())) {
                bufferBytes = Math.max(bufferBytes, buffers.bytes());
                if (collective.reduces()) {
                    for (ReduceOp.Kind kind : config.ops()) {
                        runRoots(buffers, kind);
                    }
                } else {
                    runRoots(buffers, null);
                }
            }
        }
        progress.erase();
        Report.Summary summary = summary(infos, cpuBefore, memoryBefore);
        for (Report r : reports) {
            r.end(summary);
        }
        return summary;
    }

    private Report.Summary summary(
            List<Report.RankInfo> infos, double cpuBefore, long memoryBefore) {
        double busBw = measurements == 0 ? 0 : busBwSum / measurements;
        Boolean enough = config.minBusBw() < 0 ? null : busBw >= 0.9 * config.minBusBw();
        Report.MemoryUse memory = null;
        if (config.buffers().reported()) {
            long grown = Math.max(0, communicatorMemory() - memoryBefore);
            double[] most =
                    exchange.combine(
                            ReduceOp.MAX,
                            (double) Math.max(0, memoryBefore),
                            (double) bufferBytes,
                            (double) grown);
            memory =
                    new Report.MemoryUse(
                            memoryBefore < 0 ? -1 : (long) most[0],
                            (long) most[1],
                            memoryBefore < 0 ? -1 : (long) most[2]);
        }
        // Threads of a process and processes of another machine count nothing of their own.
        Report.RankInfo me = infos.get(world.rank());
        boolean first =
                infos.stream()
                        .filter(r -> r.pid() == me.pid() && r.host().equals(me.host()))
                        .allMatch(r -> r.rank() >= me.rank());
        boolean counts = first && me.host().equals(infos.getFirst().host());
        double used = counts ? Math.max(0, cpuSeconds() - cpuBefore) : 0;
        double own = exchange.combine(ReduceOp.SUM, used)[0];
        String warning = doubts == null ? null : doubts.warning(own);
        return new Report.Summary(failedChecks, busBw, enough, memory, warning);
    }

    private static double cpuSeconds() {
        return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toMillis()
                / 1e3;
    }

    /** Device memory that NCCL holds, or -1 where it is unknown. */
    private long communicatorMemory() {
        try {
            return config.buffers().reported() && comm instanceof NcclCommunicator nccl
                    ? nccl.memory(NcclCommunicator.MemoryStatistic.TOTAL)
                    : -1;
        } catch (UnsupportedOperationException e) {
            // An older NCCL does not count it.
            return -1;
        }
    }

    private int[] roots() {
        // Groups go through the same roots, or they would wait for each other.
        int smallest = Arrays.stream(config.split().sizes(world.size())).min().orElse(1);
        return !collective.rooted()
                ? new int[] {-1}
                : config.root() < 0
                        ? IntStream.range(0, smallest).toArray()
                        : new int[] {config.root()};
    }

    /** The fraction of the time that has passed: about that of the bytes, and of the cases. */
    private double share() {
        long kinds = collective.reduces() ? config.ops().size() : 1;
        long repeats = config.types().size() * kinds * roots().length * timing.cycles();
        double all = 0;
        for (long size : config.sizes()) {
            all += repeats * (double) (size + CASE_BYTES);
        }
        return bytesDone / all;
    }

    private void runRoots(Buffers buffers, ReduceOp.@Nullable Kind kind) throws IOException {
        patterns.retain(buffers.type(), kind);
        for (int root : roots()) {
            for (int cycle = 0; timing.cycles() == 0 || cycle < timing.cycles(); cycle++) {
                for (long size : config.sizes()) {
                    Shape shape =
                            collective.layout().shape(size, buffers.type().size(), comm.size());
                    ReduceOp op = Trial.op(kind, comm.rank());
                    runCase(buffers, new Trial.Case(kind, op, root, shape), cycle);
                    bytesDone += size + CASE_BYTES;
                }
            }
        }
    }

    private void runCase(Buffers buffers, Trial.Case c, int cycle) throws IOException {
        DataType type = buffers.type();
        long bytes = c.shape().larger() * type.size();
        String op = c.kind() == null ? "none" : ReduceOp.label(c.kind());
        String what =
                "running "
                        + collective.command()
                        + " "
                        + Sizes.format(bytes)
                        + " "
                        + type.label()
                        + (c.kind() == null ? "" : " " + op);
        if (timing.cycles() == 0) {
            progress.show(what); // forever
        } else {
            progress.at(what, share());
        }
        Report.Measurement out = measure(buffers, c, bytes, false);
        Report.Measurement in = collective.worksInPlace() ? measure(buffers, c, bytes, true) : null;
        progress.erase();
        long count = c.shape().count();
        Report.Line line =
                new Report.Line(
                        cycle,
                        LocalDateTime.now(ZoneId.systemDefault()),
                        bytes,
                        count,
                        type.label(),
                        op,
                        c.root(),
                        comm.algorithmFor(collective.method(), count * type.size())
                                .name()
                                .toLowerCase(Locale.ROOT),
                        out,
                        in);
        for (Report r : reports) {
            r.line(line);
        }
    }

    private Report.Measurement measure(Buffers buffers, Trial.Case c, long bytes, boolean inPlace) {
        Trial trial = new Trial(config, comm, patterns, buffers, c, inPlace);
        trial.prepare(TIMED_SEED);
        Runnable iteration = trial.iteration();
        for (int i = 0; i < timing.warmups(); i++) {
            iteration.run();
        }
        Sample sample = sample(iteration, bytes);
        if (timing.isAutomatic(bytes)) {
            double until = repeated + (MOST_REPEATED - repeated) * REPEATED_SHARE;
            long start = System.nanoTime();
            double before = repeated;
            while (isUnsteady(sample.spread(), before, start) && repeated < until) {
                sample = sample(iteration, bytes);
            }
        }
        BatchTimer.Times mine = sample.mine();
        Report.Spread spread = sample.spread();
        double micros = spread.median();
        double cpuMicros = exchange.average(timing.average(), mine.submitted())[0];
        Report.Iterations iterations =
                timing.perIteration()
                        ? Report.Iterations.of(
                                exchange.combine(ReduceOp.MAX, mine.units()), timing.skipped())
                        : null;
        double algBw = micros == 0 ? 0 : bytes * collective.algFactor(comm.size()) / micros / 1e3;
        double busBw = algBw * collective.busFactor(comm.size());
        busBwSum += busBw;
        measurements++;
        if (doubts != null) {
            doubts.add(spread);
        }
        return new Report.Measurement(
                micros, cpuMicros, algBw, busBw, check(trial), spread, iterations);
    }

    private Sample sample(Runnable iteration, long bytes) {
        int[] batches = BatchTimer.lengths(timing, bytes, probe(iteration, bytes));
        int[] units = batches;
        if (timing.perIteration()) {
            units = new int[timing.iterations()];
            Arrays.fill(units, 1);
        }
        comm.barrier(stream);
        stream.synchronize();
        BatchTimer.Times mine = new BatchTimer(timing, comm).time(iteration, units);
        double[] own = timing.perIteration() ? means(mine.units(), batches) : mine.units();
        double[] combined = exchange.average(timing.average(), own);
        int replayed = timing.graphLaunches() > 0 ? timing.iterations() : 1;
        int[] lengths = Arrays.stream(batches).map(n -> n * replayed).toArray();
        return new Sample(mine, Report.Spread.of(combined, lengths));
    }

    /** Whether batches differ or a rank's JVM compiles; ranks agree on that, and on the time. */
    private boolean isUnsteady(Report.Spread spread, double before, long start) {
        boolean again = compilers.sleepWhileBusy(MOST_COMPILING) || spread.isWide();
        double passed = before + System.nanoTime() - start;
        double[] all = exchange.combine(ReduceOp.MAX, again ? 1 : 0, passed);
        if (all[0] > 0) {
            repeated = all[1];
        }
        return all[0] > 0;
    }

    /** An iteration's approximate microseconds, if they determine the number of iterations. */
    private double probe(Runnable iteration, long bytes) {
        if (!timing.isAutomatic(bytes)) {
            return 0;
        }
        double[] times = new double[PROBES];
        for (int p = 0; p < PROBES; p++) {
            stream.synchronize();
            long start = System.nanoTime();
            for (int i = 0; i < PROBE_ITERATIONS; i++) {
                iteration.run();
            }
            stream.synchronize();
            times[p] = (System.nanoTime() - start) / 1e3 / PROBE_ITERATIONS;
        }
        Arrays.sort(times);
        return exchange.combine(ReduceOp.MAX, times[PROBES / 2])[0];
    }

    private static double[] means(double[] times, int[] lengths) {
        double[] means = new double[lengths.length];
        int at = 0;
        for (int b = 0; b < lengths.length; b++) {
            means[b] = Arrays.stream(times, at, at + lengths[b]).average().orElse(0);
            at += lengths[b];
        }
        return means;
    }

    /** Wrong elements on all ranks, or -1 if nothing was checked. */
    private long check(Trial trial) {
        long wrong = config.checks() == 0 ? -1 : 0;
        for (int i = 1; i <= config.checks() && wrong == 0; i++) {
            trial.prepare(i);
            trial.runOnce();
            long mine = trial.verify(i, seam);
            double[] all = exchange.combine(ReduceOp.SUM, (double) mine, mine > 0 ? 1 : 0);
            wrong = (long) all[0];
            failedChecks += (long) all[1];
        }
        return wrong;
    }
}
