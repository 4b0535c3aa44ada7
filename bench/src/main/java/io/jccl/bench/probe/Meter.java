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

    private static final int FEWEST_BATCHES = 5;
    private static final int MOST_BATCHES = 101;

    /** Enough for a median; longer only where the operation is. */
    private static final double SAMPLE_SECONDS = 0.15;

    /** The compiler has had its time after that. */
    private static final double MOST_WARM_SECONDS = 1.5;

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

    private Meter() {}

    /**
     * Measures within a share of time. An operation that takes longer than all of it runs twice:
     * once to warm, once to be measured.
     *
     * @param work what is timed
     * @param share seconds
     * @return times of one operation
     */
    static Timing measure(Work work, double share) {
        long start = System.nanoTime();
        double once = seconds(work, 1);
        int each = 1;
        // Grows by the first times, which are the slow ones of code that is not yet compiled.
        double warm = Math.min(share * 0.4, MOST_WARM_SECONDS);
        double[] windows = new double[WINDOWS];
        int seen = 0;
        boolean steady = false;
        while (!steady && since(start) + once * each < warm) {
            double time = seconds(work, each);
            once = time / each;
            each = (int) Math.clamp(Math.ceil(BATCH_SECONDS / once), 1, Integer.MAX_VALUE / 2.0);
            windows[seen++ % WINDOWS] = once;
            steady = seen >= WINDOWS && spread(windows) < AGREEMENT;
        }
        double[] batches = new double[MOST_BATCHES];
        int count = 0;
        long sampling = System.nanoTime();
        do {
            once = seconds(work, each) / each;
            batches[count++] = once;
        } while (count < MOST_BATCHES
                && since(start) + once * each < share
                && (count < FEWEST_BATCHES || since(sampling) < SAMPLE_SECONDS));
        return Timing.of(Arrays.copyOf(batches, count), each, steady);
    }

    private static double seconds(Work work, int times) {
        long began = System.nanoTime();
        work.run(times);
        return Math.max(1, System.nanoTime() - began) / 1e9;
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
