package io.jccl.internal;

import java.util.Arrays;

/** What is said of many measured values. */
public final class Statistics {
    private Statistics() {}

    /**
     * The value in the middle.
     *
     * @param values in any order; left as they are
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
     * The smallest value that so many per cent of them do not exceed (nearest rank).
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
