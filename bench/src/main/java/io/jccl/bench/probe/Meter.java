package io.jccl.bench.probe;

import java.util.Arrays;

/**
 * Times an operation: warm until successive windows agree, then the median of batches.
 *
 * <p><b>Threads:</b> those of the work.
 */
final class Meter {
    /** Shorter batches would measure the clock. */
    private static final double BATCH_SECONDS = 2e-3;

    /** Shorter windows agree before the compiler has begun. */
    private static final double WINDOW_SECONDS = 10e-3;

    private static final int FEWEST_BATCHES = 5;
    private static final int MOST_BATCHES = 101;

    /** Enough for a median; longer only where the operation is. */
    private static final double SAMPLE_SECONDS = 0.15;

    private static final double MOST_WARM_SECONDS = 1.5;
    private static final double WARM_SHARE = 0.4;

    /**
     * The compiler's time for code that has not run before: interpreted vector code is very slow.
     */
    private static final double COMPILE_SECONDS = 0.5;

    private static final double MOST_COMPILE_SECONDS = 3;
    private static final double COMPILE_WINDOW_SECONDS = 50e-3;

    /** How much windows may differ. */
    private static final double AGREEMENT = 0.05;

    private static final int WINDOWS = 3;

    /** What is timed. */
    @FunctionalInterface
    interface Work {
        /**
         * Runs the operation and returns when the last one has ended.
         *
         * @param times how often
         */
        void run(int times);
    }

    private final Work work;
    private final long start = System.nanoTime();

    /** Seconds of an operation, by the last batch. */
    private double once;

    private Meter(Work work) {
        this.work = work;
        run(1);
    }

    /**
     * Lets the JVM compile what other operations will run too: at least half a second, then until
     * windows agree.
     *
     * @param work a small operation
     * @param most seconds that may be spent; never more than three
     */
    static void compile(Work work, double most) {
        double limit = Math.min(most, MOST_COMPILE_SECONDS);
        new Meter(work).settle(COMPILE_WINDOW_SECONDS, Math.min(limit, COMPILE_SECONDS), limit);
    }

    /**
     * Measures within a share of time. An operation that takes longer than all of it runs twice:
     * once to warm, once to be measured.
     *
     * @param work what is timed
     * @param share seconds
     * @return times of one operation
     */
    static Timing measure(Work work, double share) {
        Meter meter = new Meter(work);
        boolean steady =
                meter.settle(WINDOW_SECONDS, 0, Math.min(share * WARM_SHARE, MOST_WARM_SECONDS));
        return meter.sample(share, steady);
    }

    /** Runs until windows agree; returns whether they did before the time was over. */
    private boolean settle(double window, double least, double most) {
        double[] windows = new double[WINDOWS];
        int seen = 0;
        boolean steady = false;
        while ((!steady || since(start) < least) && since(start) + once < most) {
            // By the times so far, which may be those of code that is not yet compiled.
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

    /** How many operations fill so many seconds. */
    private int times(double seconds) {
        return (int) Math.clamp(Math.ceil(seconds / once), 1, Integer.MAX_VALUE / 2.0);
    }

    /** Runs a batch; returns the seconds of one operation. */
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
