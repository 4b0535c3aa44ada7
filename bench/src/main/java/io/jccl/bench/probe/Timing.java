package io.jccl.bench.probe;

import java.util.Arrays;

/**
 * Seconds per operation over batches.
 *
 * @param medianSeconds median of the batches' means
 * @param minSeconds the fastest batch
 * @param maxSeconds the slowest batch
 * @param batches number of timed batches
 * @param operations operations per batch
 * @param steady whether the last three warm-up windows agreed within 5 percent; always true for
 *     results of another benchmark with its own warm-up
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
