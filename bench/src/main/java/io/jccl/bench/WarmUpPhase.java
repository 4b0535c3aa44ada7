package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Runs operations until the JVM has compiled them, before anything is measured. Each combination of
 * data type and reduction is a separate path. Sizes of a path take turns: after a phase of tiny
 * operations alone, the JVM may have compiled the code again without the loops of large ones. All
 * ranks decide by the same numbers, so they stop at the same operation.
 */
final class WarmUpPhase {
    /** For all paths together. */
    static final double MOST_SECONDS = 2;

    /** Sizes from here on run the vector loops of large ones. */
    private static final long LARGE = 64 << 10;

    /** Larger sizes run the same loops. */
    private static final long MOST_BYTES = 1 << 20;

    /**
     * The vector loops of large sizes are fully optimized after 600 calls: operations of this size
     * make those in milliseconds, while uncompiled ones of a mebibyte take seconds.
     */
    private static final long CALLS_BYTES = 4096;

    /** Small and large sizes of a path that take part. */
    private static final int MOST_SIZES = 8;

    private static final double WINDOW_NANOS = 20e6;

    /** No longer than a window, or little would run where the compiler gets little time. */
    private static final double PAUSE_NANOS = 20e6;

    /** A window is at most this many times as long as the one before. */
    private static final int GROWTH = 8;

    /** The JVM fully optimizes a method after 5,000 to 15,000 calls; loops sooner. */
    private static final long FEWEST_SMALL = 20_000;

    private static final long FEWEST_LARGE = 2_000;

    private static final long SEED = 98;

    private final PerfConfig config;
    private final Communicator comm;
    private final Patterns patterns;
    private final Exchange exchange;
    private final Stream stream;
    private final BatchTimer timer;
    private final CompilerThreads compilers = new CompilerThreads();
    private final long start = System.nanoTime();

    /** Nanoseconds since the first rank started, as of the last exchange. */
    private double passed;

    /** Whether this rank's JVM compiled after the last window. */
    private boolean compiled;

    /** Whether any rank's did. */
    private boolean anyCompiled;

    WarmUpPhase(PerfConfig config, Communicator comm, Patterns patterns, Exchange exchange) {
        this.config = config;
        this.comm = comm;
        this.patterns = patterns;
        this.exchange = exchange;
        this.stream = comm.device().defaultStream();
        this.timer = new BatchTimer(config.timing(), comm);
    }

    /** Runs all paths. All ranks call it. */
    Report.WarmUp run() {
        List<Long> sizes = sizes(config.sizes());
        int kinds = config.collective().reduces() ? config.ops().size() : 1;
        int paths = sizes.isEmpty() ? 0 : config.types().size() * kinds;
        int left = paths;
        int steady = 0;
        long operations = 0;
        for (DataType type : config.types()) {
            for (int k = 0; k < kinds && paths > 0; k++) {
                ReduceOp.Kind kind = config.collective().reduces() ? config.ops().get(k) : null;
                double until = passed + (MOST_SECONDS * 1e9 - passed) / left;
                Windows w = run(type, kind, sizes, until);
                operations += w.operations();
                steady += w.agree() ? 1 : 0;
                left--;
            }
        }
        return new Report.WarmUp(passed / 1e9, operations, paths, steady);
    }

    /**
     * Sizes to warm up for those of a run: large ones first, whose loops take the compiler longest.
     */
    static List<Long> sizes(List<Long> measured) {
        List<Long> sizes = new ArrayList<>(some(measured, LARGE, MOST_BYTES));
        sizes.addAll(some(measured, 0, LARGE - 1));
        if (!sizes.isEmpty() && Collections.max(sizes) > CALLS_BYTES) {
            sizes.add(CALLS_BYTES);
        }
        return sizes;
    }

    /** Sizes within bounds, larger ones as the upper bound, not too many. */
    private static List<Long> some(List<Long> measured, long least, long most) {
        long[] all =
                measured.stream()
                        .mapToLong(s -> most == MOST_BYTES ? Math.min(s, most) : s)
                        .filter(s -> s >= least && s <= most)
                        .distinct()
                        .toArray();
        List<Long> some = new ArrayList<>();
        int n = Math.min(all.length, MOST_SIZES);
        for (int i = 0; i < n; i++) {
            some.add(all[(int) ((long) i * (all.length - 1) / Math.max(1, n - 1))]);
        }
        return some;
    }

    private Windows run(
            DataType type, ReduceOp.@Nullable Kind kind, List<Long> sizes, double until) {
        Windows windows = new Windows(sizes.getLast() < LARGE ? FEWEST_SMALL : FEWEST_LARGE);
        patterns.retain(type, kind);
        int root = config.collective().rooted() ? Math.max(0, config.root()) : -1;
        try (Buffers buffers = new Buffers(comm, config, type, sizes)) {
            List<Trial> trials = new ArrayList<>();
            for (long size : sizes) {
                Shape shape = config.collective().layout().shape(size, type.size(), comm.size());
                Trial.Case c = new Trial.Case(kind, Trial.op(kind, comm.rank()), root, shape);
                trials.add(new Trial(config, comm, patterns, buffers, c, false));
                if (config.collective().worksInPlace()) {
                    trials.add(new Trial(config, comm, patterns, buffers, c, true));
                }
            }
            Runnable[] iterations = trials.stream().map(Trial::iteration).toArray(Runnable[]::new);
            int m = config.timing().aggregated();
            int[] repeats = new int[iterations.length];
            Arrays.fill(repeats, 1);
            // Once: filling buffers takes longer than the operations to warm up.
            trials.forEach(t -> t.prepare(SEED));
            stream.synchronize();
            while (!windows.agree() && passed < until) {
                double[] times = window(iterations, repeats, until);
                windows.add(
                        geometricMean(times),
                        (long) Arrays.stream(repeats).sum() * m,
                        !anyCompiled);
                // The same time for each: uncompiled loops over large sizes would leave no calls
                // to the rest of the path.
                double each =
                        Math.min(WINDOW_NANOS, Math.max(0, until - passed)) / iterations.length;
                for (int t = 0; t < repeats.length; t++) {
                    double fit = each / Math.max(1, times[t]);
                    repeats[t] = (int) Math.clamp(fit, 1.0, (double) repeats[t] * GROWTH);
                }
            }
        }
        return windows;
    }

    /** Runs each iteration some times; returns the slowest rank's nanoseconds for one. */
    private double[] window(Runnable[] iterations, int[] repeats, double until) {
        double[] mine = new double[iterations.length + 2];
        for (int t = 0; t < iterations.length; t++) {
            // By the loop that will measure, which must be warm as well.
            mine[t] = 1e3 * timer.batches(iterations[t], new int[] {repeats[t]}, 1).units()[0];
        }
        mine[iterations.length] = (double) (System.nanoTime() - start);
        mine[iterations.length + 1] = compiled ? 1 : 0;
        double[] all = exchange.combine(ReduceOp.MAX, mine);
        // The code between measurements: encountered for the first time it would make the JVM throw
        // away the code that it has compiled, and compile again while the first sizes are timed.
        comm.barrier(stream);
        exchange.average(config.timing().average(), Arrays.copyOf(mine, BatchTimer.MORE_BATCHES));
        exchange.average(config.timing().average(), mine[0]);
        exchange.combine(ReduceOp.SUM, 0, 0);
        stream.synchronize();
        passed = all[iterations.length];
        anyCompiled = all[iterations.length + 1] > 0;
        // Ranks on all cores leave none to the compiler, which they are waiting for.
        double most = Math.min(PAUSE_NANOS, until - passed);
        compiled = compilers.sleepWhileBusy((long) Math.max(0, most));
        return Arrays.copyOf(all, iterations.length);
    }

    /** So that short operations count as much as long ones. */
    private static double geometricMean(double[] times) {
        double sum = 0;
        for (double t : times) {
            sum += Math.log(Math.max(1, t));
        }
        return Math.exp(sum / times.length);
    }
}
