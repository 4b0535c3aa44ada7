package io.jccl.internal;

import java.util.Arrays;

/** Statistics of measured values. */
public final class Statistics {
    private Statistics() {}

    /**
     * The median.
     *
     * @param values in any order; not modified
     * @return the mean of the two in the middle if their number is even; NaN if there are none
     */
    public static double median(double... values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        int half = sorted.length / 2;
        return sorted.length == 0
                ? Double.NaN
                : sorted.length % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    }

    /**
     * A percentile: the smallest value that the given percentage of values do not exceed (nearest
     * rank).
     *
     * @param sorted at least one value, ascending
     * @param percent 0 to 100
     * @return one of the values
     */
    public static double percentile(double[] sorted, int percent) {
        long rank = Math.ceilDiv((long) sorted.length * percent, 100);
        return sorted[(int) Math.max(rank, 1) - 1];
    }
}
