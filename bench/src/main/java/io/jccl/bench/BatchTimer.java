package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.bench.PerfConfig.Blocking;
import io.jccl.bench.PerfConfig.Timing;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.internal.Closing;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Times iterations in batches, on one rank.
 *
 * <p>On the host, and whenever a rank waits after each iteration, the clock is read between
 * batches. On a GPU batches are delimited by events in the stream, so that measuring only waits for
 * the end.
 */
final class BatchTimer {
    /** Batches per median, an odd number. */
    private static final int BATCHES = 5;

    /** The same for short operations. */
    static final int MORE_BATCHES = 9;

    private static final double BATCH_MICROS = 1000;
    private static final int FEWEST = 4;
    private static final int MOST = 4000;

    /**
     * The times of one rank.
     *
     * @param units microseconds per operation of each unit: batches, or single iterations
     * @param submitted microseconds per operation for submission
     */
    record Times(double[] units, double submitted) {}

    private final Timing timing;
    private final Communicator comm;
    private final Stream stream;

    BatchTimer(Timing timing, Communicator comm) {
        this.timing = timing;
        this.comm = comm;
        this.stream = comm.device().defaultStream();
    }

    /**
     * Computes the lengths of batches.
     *
     * @param timing timing settings
     * @param bytes size of the operation
     * @param micros estimated time of an iteration, the same on all ranks
     * @return iterations, or launches of the graph, of each batch
     */
    static int[] lengths(Timing timing, long bytes, double micros) {
        if (timing.isAutomatic(bytes)) {
            int each = (int) Math.clamp(BATCH_MICROS / Math.max(micros, 1e-3), FEWEST, MOST);
            int[] lengths = new int[MORE_BATCHES];
            Arrays.fill(lengths, each);
            return lengths;
        }
        int n = timing.graphLaunches() > 0 ? timing.graphLaunches() : timing.iterations();
        int[] lengths = new int[Math.min(n, BATCHES)];
        for (int i = 0; i < lengths.length; i++) {
            lengths[i] = n / lengths.length + (i < n % lengths.length ? 1 : 0);
        }
        return lengths;
    }

    /**
     * Runs and times an operation.
     *
     * @param lengths iterations of each unit, or launches of a graph of all of them
     */
    Times time(Runnable iteration, int[] lengths) {
        if (timing.graphLaunches() == 0) {
            return batches(iteration, lengths, timing.aggregated());
        }
        int n = timing.iterations();
        try (Graph graph =
                Graph.capture(
                        stream,
                        () -> {
                            for (int i = 0; i < n; i++) {
                                iteration.run();
                            }
                        })) {
            comm.barrier(stream);
            stream.synchronize();
            return batches(() -> graph.launch(stream), lengths, n * timing.aggregated());
        }
    }

    /**
     * Runs and times an operation, without a graph.
     *
     * @param lengths iterations of each unit
     * @param operations operations per iteration
     */
    Times batches(Runnable iteration, int[] lengths, int operations) {
        return timing.blocking() == Blocking.NONE && comm.device().kind() == Device.Kind.CUDA
                ? byEvents(iteration, lengths, operations)
                : byClock(iteration, lengths, operations);
    }

    private Times byClock(Runnable iteration, int[] lengths, int operations) {
        double[] units = new double[lengths.length];
        long apart = 0;
        long start = System.nanoTime();
        for (int u = 0; u < lengths.length; u++) {
            long before = System.nanoTime();
            long waited = run(iteration, lengths[u]);
            if (timing.blocking() == Blocking.NONE) {
                stream.synchronize();
            }
            units[u] = (System.nanoTime() - before - waited) / 1e3 / lengths[u] / operations;
            apart += waited;
        }
        // Blocking operations have completed once they are submitted.
        long all = System.nanoTime() - start - apart;
        return new Times(units, all / 1e3 / Arrays.stream(lengths).sum() / operations);
    }

    /** The loop that the JVM has compiled after warm-up; returns nanoseconds to be subtracted. */
    private long run(Runnable iteration, int times) {
        long waited = 0;
        for (int i = 0; i < times; i++) {
            iteration.run();
            waited += afterIteration();
        }
        return waited;
    }

    /** Waits as {@code -z} specifies; returns nanoseconds to be subtracted. */
    private long afterIteration() {
        if (timing.blocking() == Blocking.NONE) {
            return 0;
        }
        stream.synchronize();
        if (timing.blocking() == Blocking.WAIT) {
            return 0;
        }
        long before = System.nanoTime();
        comm.barrier(stream);
        stream.synchronize();
        return timing.blocking() == Blocking.BARRIER ? 0 : System.nanoTime() - before;
    }

    private Times byEvents(Runnable iteration, int[] lengths, int operations) {
        List<Event> events = new ArrayList<>();
        try {
            for (int i = 0; i <= lengths.length; i++) {
                events.add(comm.device().newEvent());
            }
            long start = System.nanoTime();
            events.getFirst().record(stream);
            for (int u = 0; u < lengths.length; u++) {
                for (int i = 0; i < lengths[u]; i++) {
                    iteration.run();
                }
                events.get(u + 1).record(stream);
            }
            long submitted = System.nanoTime() - start;
            stream.synchronize();
            double[] units = new double[lengths.length];
            for (int u = 0; u < units.length; u++) {
                Duration time = events.get(u + 1).elapsedSince(events.get(u));
                units[u] = time.toNanos() / 1e3 / lengths[u] / operations;
            }
            return new Times(units, submitted / 1e3 / Arrays.stream(lengths).sum() / operations);
        } finally {
            Closing.all(events);
        }
    }
}
