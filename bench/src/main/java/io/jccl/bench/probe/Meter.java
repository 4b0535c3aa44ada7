package io.jccl.bench.probe;

import io.jccl.device.Stream;
import java.util.Arrays;

/**
 * Times an operation: warm-up until successive windows agree, then the median of batches.
 *
 * <p><b>Threads:</b> the threads of the work.
 */
final class Meter {
    /** Shorter batches would be limited by the clock's resolution. */
    private static final double BATCH_SECONDS = 2e-3;

    /** Shorter windows would agree before compilation has started. */
    private static final double WINDOW_SECONDS = 10e-3;

    private static final int FEWEST_BATCHES = 5;
    private static final int MOST_BATCHES = 101;

    /** Enough for a median; longer only if the operation is. */
    private static final double SAMPLE_SECONDS = 0.15;

    private static final double MOST_WARM_SECONDS = 1.5;
    private static final double WARM_SHARE = 0.4;

    /** Time for compiling new code: interpreted vector code is very slow. */
    private static final double COMPILE_SECONDS = 0.5;

    private static final double MOST_COMPILE_SECONDS = 3;
    private static final double COMPILE_WINDOW_SECONDS = 50e-3;

    /** Relative difference of windows that agree. */
    private static final double AGREEMENT = 0.05;

    private static final int WINDOWS = 3;

    /** The timed operation. */
    @FunctionalInterface
    interface Work {
        /**
         * Runs the operation and returns when the last one has ended.
         *
         * @param times number of runs
         */
        void run(int times);

        /** An operation that is enqueued some times and then waited for. */
        static Work enqueued(Runnable one, Stream stream) {
            return times -> {
                for (int i = 0; i < times; i++) {
                    one.run();
                }
                stream.synchronize();
            };
        }
    }

    private final Work work;
    private final long start = System.nanoTime();

    /** Seconds per operation in the last batch. */
    private double once;

    private Meter(Work work) {
        this.work = work;
        run(1);
    }

    /**
     * Lets the JVM compile code shared with other operations: at least half a second, then until
     * windows agree.
     *
     * @param work a small operation
     * @param most maximum seconds; never more than three
     */
    static void compile(Work work, double most) {
        double limit = Math.min(most, MOST_COMPILE_SECONDS);
        new Meter(work).settle(COMPILE_WINDOW_SECONDS, Math.min(limit, COMPILE_SECONDS), limit);
    }

    /**
     * Measures within a time limit. An operation that takes longer than the limit runs twice:
     * warm-up and measurement.
     *
     * @param share seconds
     */
    static Timing measure(Work work, double share) {
        Meter meter = new Meter(work);
        boolean steady =
                meter.settle(WINDOW_SECONDS, 0, Math.min(share * WARM_SHARE, MOST_WARM_SECONDS));
        return meter.sample(share, steady);
    }

    /** Runs until windows agree; returns whether they did before the time limit. */
    private boolean settle(double window, double least, double most) {
        double[] windows = new double[WINDOWS];
        int seen = 0;
        boolean steady = false;
        while ((!steady || since(start) < least) && since(start) + once < most) {
            // Based on the times so far, possibly of code that is not compiled yet.
            windows[seen++ % WINDOWS] = run(times(window));
            steady = seen >= WINDOWS && spread(windows) < AGREEMENT;
        }
        return steady;
    }

    private Timing sample(double share, boolean steady) {
        int each = times(BATCH_SECONDS);
        double[] batches = new double[MOST_BATCHES];
        int count = 0;
        long sampling = System.nanoTime();
        do {
            batches[count++] = run(each);
        } while (count < MOST_BATCHES
                && since(start) + once * each < share
                && (count < FEWEST_BATCHES || since(sampling) < SAMPLE_SECONDS));
        return Timing.of(Arrays.copyOf(batches, count), each, steady);
    }

    /** Number of operations that fill the given seconds. */
    private int times(double seconds) {
        return (int) Math.clamp(Math.ceil(seconds / once), 1, Integer.MAX_VALUE / 2.0);
    }

    /** Runs a batch; returns seconds per operation. */
    private double run(int times) {
        long began = System.nanoTime();
        work.run(times);
        once = Math.max(1, System.nanoTime() - began) / 1e9 / times;
        return once;
    }

    private static double since(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private static double spread(double[] values) {
        double least = Arrays.stream(values).min().orElseThrow();
        double most = Arrays.stream(values).max().orElseThrow();
        return (most - least) / least;
    }
}
