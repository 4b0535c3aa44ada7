package io.jccl.offload;

/**
 * How long passes take with a number of layers fetched ahead, from the times of each layer's fetch
 * and work alone. One fetch runs at a time, so does one layer's work; a fetch needs a slot whose
 * layer has run.
 */
final class DepthModel {
    private static final int PASSES = 3;

    /** A depth is enough if a deeper one gains less. */
    private static final double GAIN = 0.01;

    private DepthModel() {}

    /**
     * Time of some passes.
     *
     * @param fetch nanoseconds to fetch, per layer
     * @param work nanoseconds to compute, per layer
     * @param depth layers ahead, 0 or more
     * @param cyclic whether fetches for the next pass begin in the one before
     * @return nanoseconds
     */
    static double time(long[] fetch, long[] work, int depth, boolean cyclic) {
        int n = fetch.length;
        double[] worked = new double[n * PASSES];
        double fetched = 0;
        double now = 0;
        for (int k = 0; k < worked.length; k++) {
            int first = cyclic ? 0 : k / n * n;
            int freed = k - depth - 1;
            double start = freed >= first ? worked[freed] : first == 0 ? 0 : worked[first - 1];
            fetched = Math.max(fetched, start) + fetch[k % n];
            now = Math.max(now, fetched) + work[k % n];
            worked[k] = now;
        }
        return now;
    }

    /** The smallest depth up to {@code most} that is about as fast as that. */
    static int choose(long[] fetch, long[] work, int most, boolean cyclic) {
        double best = time(fetch, work, most, cyclic);
        int depth = 0;
        while (depth < most && time(fetch, work, depth, cyclic) > best * (1 + GAIN)) {
            depth++;
        }
        return depth;
    }
}
