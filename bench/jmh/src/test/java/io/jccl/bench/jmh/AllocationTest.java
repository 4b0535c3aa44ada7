package io.jccl.bench.jmh;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.Communicator;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** No operation allocates on the Java heap, on either rank, once it has run for a while. */
class AllocationTest {
    private static final int RANKS = 2;
    private static final int WARM_UP = 5_000;
    private static final int MEASURED = 10_000;
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    @ParameterizedTest
    @EnumSource
    void allocatesNothing(Operation operation) {
        double[] bytesPerOperation = new double[RANKS];
        Communicator.runLocal(
                RANKS,
                comm -> {
                    try (Operation.Prepared prepared = operation.prepare(comm, 1024)) {
                        Runnable body = prepared.body();
                        repeat(body, WARM_UP);
                        long before = THREADS.getCurrentThreadAllocatedBytes();
                        repeat(body, MEASURED);
                        long after = THREADS.getCurrentThreadAllocatedBytes();
                        bytesPerOperation[comm.rank()] = (after - before) / (double) MEASURED;
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

    private static void repeat(Runnable body, int times) {
        for (int i = 0; i < times; i++) {
            body.run();
        }
    }
}
