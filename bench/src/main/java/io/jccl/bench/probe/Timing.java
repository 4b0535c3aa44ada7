package io.jccl.bench.probe;

import java.util.Arrays;

/**
 * Seconds that one operation took, over batches.
 *
 * @param medianSeconds median of the batches' means
 * @param minSeconds the fastest batch
 * @param maxSeconds the slowest batch
 * @param batches how many were timed
 * @param operations operations of each
 * @param steady whether three windows before them agreed within 5 per cent; always true of figures
 *     that another benchmark warmed
 */
public record Timing(
        double medianSeconds,
        double minSeconds,
        double maxSeconds,
        int batches,
        int operations,
        boolean steady) {
    static Timing of(double[] seconds, int operations, boolean steady) {
        double[] sorted = seconds.clone();
        Arrays.sort(sorted);
        int n = sorted.length;
        double median = n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
        return new Timing(median, sorted[0], sorted[n - 1], n, operations, steady);
    }
}
