package io.jccl.bench;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Where results go. Only rank 0 has any; one thread uses it. */
public interface Report {
    /**
     * One rank, as the header lists it.
     *
     * @param rank its number
     * @param pid its process
     * @param host its machine
     * @param engine what carries its data
     * @param index its device among those of the machine's kind
     * @param model its processor
     */
    record RankInfo(int rank, long pid, String host, String engine, int index, String model) {}

    /**
     * Times of single iterations, in microseconds.
     *
     * @param times all of them, in order; each is the slowest rank's
     * @param min smallest
     * @param max largest
     * @param avg mean
     * @param p50 median
     * @param p95 95th percentile, nearest rank
     * @param p99 99th percentile, nearest rank
     * @param stdev standard deviation
     * @param cv standard deviation in per cent of the mean
     */
    record Iterations(
            List<Double> times,
            double min,
            double max,
            double avg,
            double p50,
            double p95,
            double p99,
            double stdev,
            double cv) {

        /**
         * Sums up times.
         *
         * @param times microseconds, at least one
         * @return their statistics
         */
        static Iterations of(double[] times) {
            double[] sorted = times.clone();
            Arrays.sort(sorted);
            int n = sorted.length;
            double avg = Arrays.stream(sorted).sum() / n;
            double squares = 0;
            for (double t : sorted) {
                squares += (t - avg) * (t - avg);
            }
            double stdev = Math.sqrt(squares / n);
            return new Iterations(
                    Arrays.stream(times).boxed().toList(),
                    sorted[0],
                    sorted[n - 1],
                    avg,
                    sorted[n / 2],
                    percentile(sorted, 95),
                    percentile(sorted, 99),
                    stdev,
                    avg > 0 ? 100 * stdev / avg : 0);
        }

        private static double percentile(double[] sorted, int percent) {
            int rank = Math.ceilDiv(sorted.length * percent, 100);
            return sorted[Math.min(sorted.length, Math.max(1, rank)) - 1];
        }
    }

    /**
     * A measurement.
     *
     * @param micros time of one operation, averaged over iterations and ranks
     * @param algBw algorithm bandwidth in 1e9 bytes a second
     * @param busBw bus bandwidth in 1e9 bytes a second
     * @param wrong wrong elements on all ranks, or -1 if not checked
     * @param iterations single times, if asked for
     */
    record Measurement(
            double micros,
            double algBw,
            double busBw,
            long wrong,
            @Nullable Iterations iterations) {}

    /**
     * A line of the table.
     *
     * @param bytes size of the larger side
     * @param count elements in a block
     * @param type name of the data type
     * @param op name of the reduction, or none
     * @param root root, or -1
     * @param algorithm what the engine used
     * @param outOfPlace into another buffer
     * @param inPlace into the same buffer, or null where that is undefined
     */
    record Line(
            long bytes,
            long count,
            String type,
            String op,
            int root,
            String algorithm,
            Measurement outOfPlace,
            @Nullable Measurement inPlace) {}

    /**
     * The end of the table.
     *
     * @param outOfBounds how many checks found a wrong value, each rank's counted
     * @param busBw mean bus bandwidth over all measurements
     */
    record Summary(long outOfBounds, double busBw) {}

    /** Before the first line. */
    void begin(PerfConfig config, String engine, List<RankInfo> ranks) throws IOException;

    /** After each size. */
    void line(Line line) throws IOException;

    /** After the last line. */
    void end(Summary summary) throws IOException;
}
