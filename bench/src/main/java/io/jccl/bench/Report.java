package io.jccl.bench;

import io.jccl.internal.Statistics;
import java.io.IOException;
import java.time.LocalDateTime;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A destination of results. Only rank 0 has any; used by one thread. */
public interface Report {
    /**
     * One rank, as the header lists it.
     *
     * @param rank its number
     * @param group its group
     * @param pid its process
     * @param host its machine
     * @param engine its communication backend
     * @param index its device among those of the machine's kind
     * @param model its processor
     * @param cpus CPUs that it may run on, as the kernel lists them; empty if unknown
     * @param processors how many of them the JVM counts, which also considers quotas
     */
    record RankInfo(
            int rank,
            int group,
            long pid,
            String host,
            String engine,
            int index,
            String model,
            String cpus,
            int processors) {}

    /**
     * The warm-up before the first measurement.
     *
     * @param seconds its duration
     * @param operations number on each rank; 0 if not requested
     * @param paths combinations of data type and reduction
     * @param steady how many of them had windows that agreed at the end
     */
    record WarmUp(double seconds, long operations, int paths, int steady) {
        /** None. */
        static final WarmUp NONE = new WarmUp(0, 0, 0, 0);
    }

    /**
     * Times of batches of iterations, in microseconds per operation.
     *
     * @param times each batch's
     * @param iterations in all batches
     * @param mean over iterations
     * @param median of the batches
     * @param min fastest batch
     * @param max slowest batch
     * @param q1 first quartile of the batches
     * @param q3 third quartile of the batches
     */
    record Spread(
            List<Double> times,
            int iterations,
            double mean,
            double median,
            double min,
            double max,
            double q1,
            double q3) {
        /** Largest interquartile range of steady batches, relative to their median. */
        static final double WIDE = 0.2;

        /** Whether the quartiles of the batches differ by more than {@link #WIDE}. */
        boolean isWide() {
            return q3 - q1 > WIDE * median;
        }

        /**
         * Summarizes batches.
         *
         * @param times microseconds per operation, at least one
         * @param lengths iterations of each batch
         * @return their statistics
         */
        static Spread of(double[] times, int[] lengths) {
            double[] sorted = times.clone();
            Arrays.sort(sorted);
            int n = sorted.length;
            double sum = 0;
            for (int i = 0; i < n; i++) {
                sum += times[i] * lengths[i];
            }
            int iterations = Arrays.stream(lengths).sum();
            return new Spread(
                    Arrays.stream(times).boxed().toList(),
                    iterations,
                    sum / iterations,
                    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
                    sorted[0],
                    sorted[n - 1],
                    Statistics.percentile(sorted, 25),
                    Statistics.percentile(sorted, 75));
        }
    }

    /**
     * Times of single iterations, in microseconds.
     *
     * @param times all of them, in order; each is the slowest rank's
     * @param skipped how many of the first are excluded from the statistics
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
            int skipped,
            double min,
            double max,
            double avg,
            double p50,
            double p95,
            double p99,
            double stdev,
            double cv) {

        /**
         * Summarizes times.
         *
         * @param times microseconds
         * @param skipped how many of the first to exclude, fewer than all
         * @return the statistics of the others
         */
        static Iterations of(double[] times, int skipped) {
            double[] sorted = Arrays.copyOfRange(times, skipped, times.length);
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
                    skipped,
                    sorted[0],
                    sorted[n - 1],
                    avg,
                    sorted[n / 2],
                    Statistics.percentile(sorted, 95),
                    Statistics.percentile(sorted, 99),
                    stdev,
                    avg > 0 ? 100 * stdev / avg : 0);
        }
    }

    /**
     * A measurement.
     *
     * @param micros time of one operation: the median of batches
     * @param cpuMicros time in which a rank has submitted one operation
     * @param algBw algorithm bandwidth in 1e9 bytes per second
     * @param busBw bus bandwidth in 1e9 bytes a second
     * @param wrong wrong elements on all ranks, or -1 if not checked
     * @param spread times of the batches
     * @param iterations single times, if requested
     */
    record Measurement(
            double micros,
            double cpuMicros,
            double algBw,
            double busBw,
            long wrong,
            Spread spread,
            @Nullable Iterations iterations) {}

    /**
     * A line of the table.
     *
     * @param cycle which pass over the sizes, from 0
     * @param time when it was measured
     * @param bytes size of the larger side
     * @param count elements in a block
     * @param type name of the data type
     * @param op name of the reduction, or none
     * @param root root, or -1
     * @param algorithm the engine's algorithm
     * @param outOfPlace into another buffer
     * @param inPlace into the same buffer, or null where that is undefined
     */
    record Line(
            int cycle,
            LocalDateTime time,
            long bytes,
            long count,
            String type,
            String op,
            int root,
            String algorithm,
            Measurement outOfPlace,
            @Nullable Measurement inPlace) {}

    /**
     * Memory, of the rank with the most.
     *
     * @param initialization bytes that the communicator took, or -1 if unknown
     * @param buffers bytes of the buffers
     * @param collective bytes that operations took in addition, or -1 if unknown
     */
    record MemoryUse(long initialization, long buffers, long collective) {}

    /**
     * The end of the table.
     *
     * @param outOfBounds number of checks that found a wrong value, each rank's counted
     * @param busBw mean bus bandwidth over all measurements
     * @param enough whether that reaches the required value; null if none was set
     * @param memory if requested
     * @param warning why the times may be wrong and what to do; null if there is no such reason
     */
    record Summary(
            long outOfBounds,
            double busBw,
            @Nullable Boolean enough,
            @Nullable MemoryUse memory,
            @Nullable String warning) {}

    /** Before the warm-up. */
    void begin(PerfConfig config, String engine, List<RankInfo> ranks) throws IOException;

    /** After the warm-up, before the first line. */
    void warmed(WarmUp warmUp) throws IOException;

    /** After each size. */
    void line(Line line) throws IOException;

    /** After the last line. */
    void end(Summary summary) throws IOException;
}
