package io.jccl.bench.jmh;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.Communicator;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** No operation allocates on the Java heap, on either rank, once it has run for a while. */
class AllocationTest {
    private static final int RANKS = 2;

    /** Operations that share few of their code paths. */
    private static final String DIFFERENT = "ALL_REDUCE|ALL_TO_ALLV|SEND_RECV|GROUP";

    private static final int WARM_UP = 5_000;
    private static final int MEASURED = 10_000;
    private static final long PATIENCE_NANOS = TimeUnit.MINUTES.toNanos(1);
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.MATCH_NONE, names = DIFFERENT)
    void allocatesNothingInMoreOperations(Operation operation) {
        allocatesNothing(operation);
    }

    @ParameterizedTest
    @EnumSource(mode = EnumSource.Mode.MATCH_ANY, names = DIFFERENT)
    void allocatesNothing(Operation operation) {
        double[] bytesPerOperation = new double[RANKS];
        long start = System.nanoTime();
        boolean[] done = new boolean[1];
        CyclicBarrier measured =
                new CyclicBarrier(
                        RANKS,
                        () ->
                                done[0] =
                                        Arrays.stream(bytesPerOperation).allMatch(b -> b < 0.5)
                                                || System.nanoTime() - start > PATIENCE_NANOS);
        Communicator.runLocal(
                RANKS,
                comm -> {
                    try (Operation.Prepared prepared = operation.prepare(comm, 1024)) {
                        Runnable body = prepared.body();
                        repeat(body, WARM_UP);
                        // On a busy machine the compiler comes late: all ranks measure again.
                        do {
                            long before = THREADS.getCurrentThreadAllocatedBytes();
                            repeat(body, MEASURED);
                            long after = THREADS.getCurrentThreadAllocatedBytes();
                            bytesPerOperation[comm.rank()] = (after - before) / (double) MEASURED;
                            await(measured);
                        } while (!done[0]);
                    }
                });
        for (int r = 0; r < RANKS; r++) {
            // One object of the smallest size, 16 bytes, in every 32nd operation would fail; what
            // the JVM itself allocates now and then on a thread does not.
            assertTrue(
                    bytesPerOperation[r] < 0.5,
                    operation + " allocates " + bytesPerOperation[r] + " bytes on rank " + r);
        }
    }

    private static void await(CyclicBarrier barrier) {
        try {
            barrier.await(2, TimeUnit.MINUTES);
        } catch (InterruptedException | BrokenBarrierException | TimeoutException e) {
            throw new IllegalStateException("another rank failed", e);
        }
    }

    private static void repeat(Runnable body, int times) {
        for (int i = 0; i < times; i++) {
            body.run();
        }
    }
}
