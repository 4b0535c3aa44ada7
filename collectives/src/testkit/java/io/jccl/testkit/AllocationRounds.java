package io.jccl.testkit;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Checks that the steps of several ranks, threads of this JVM, allocate nothing. Code that is not
 * compiled yet may allocate, and on a busy machine the compiler comes late: all ranks repeat their
 * steps until none allocates, for two minutes at most.
 */
public final class AllocationRounds {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final long LIMIT = TimeUnit.MINUTES.toNanos(2);

    private final long[] least;
    private final CyclicBarrier measured;
    private final long start = System.nanoTime();
    private boolean done;

    /**
     * None so far.
     *
     * @param ranks how many there are
     */
    public AllocationRounds(int ranks) {
        least = new long[ranks];
        Arrays.fill(least, Long.MAX_VALUE);
        measured =
                new CyclicBarrier(
                        ranks,
                        () ->
                                done =
                                        Arrays.stream(least).allMatch(b -> b == 0)
                                                || System.nanoTime() - start > LIMIT);
    }

    /**
     * Repeats the steps. All ranks call it, each on its thread.
     *
     * @param rank of the caller
     * @param steps how often a round runs the step
     * @param step what must not allocate on this thread
     */
    public void repeat(int rank, int steps, Runnable step) {
        do {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < steps; i++) {
                step.run();
            }
            long bytes = THREADS.getCurrentThreadAllocatedBytes() - before;
            least[rank] = Math.min(least[rank], bytes / steps);
            try {
                measured.await(5, TimeUnit.MINUTES);
            } catch (BrokenBarrierException | TimeoutException e) {
                throw new IllegalStateException("another rank failed", e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted", e);
            }
        } while (!done);
    }

    /** Fails unless each rank had a round that allocated nothing. */
    public void assertNone() {
        for (int r = 0; r < least.length; r++) {
            assertEquals(0, least[r], "bytes per step on rank " + r);
        }
    }
}
