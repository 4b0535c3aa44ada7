package io.jccl.testkit;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * Checks that the steps of one or several ranks, threads of this JVM, allocate nothing. Code that
 * is not compiled yet may allocate, and on a busy machine the compiler comes late: all ranks repeat
 * rounds of steps until each has had one without allocations, for two minutes at most.
 */
public final class AllocationRounds {
    private static final long LIMIT = TimeUnit.MINUTES.toNanos(2);

    private final double enough;
    private final Supplier<AllocatedBytes> counter;
    private final double[] least;
    private final CyclicBarrier measured;
    private final long start = System.nanoTime();
    private boolean done;

    /**
     * No rounds so far; what ranks allocate on their own threads counts, down to one byte a step.
     *
     * @param ranks how many there are
     */
    public AllocationRounds(int ranks) {
        this(ranks, 1);
    }

    /**
     * No rounds so far; what ranks allocate on their own threads counts.
     *
     * @param ranks how many there are
     * @param enough less than these bytes a step are none
     */
    public AllocationRounds(int ranks, double enough) {
        this(ranks, enough, AllocatedBytes::own);
    }

    /**
     * No rounds so far.
     *
     * @param ranks how many there are
     * @param enough less than these bytes a step are none
     * @param others which threads count beside a rank's own
     */
    public AllocationRounds(int ranks, double enough, Predicate<Thread> others) {
        this(ranks, enough, () -> AllocatedBytes.from(others));
    }

    private AllocationRounds(int ranks, double enough, Supplier<AllocatedBytes> counter) {
        this.enough = enough;
        this.counter = counter;
        least = new double[ranks];
        Arrays.fill(least, Double.POSITIVE_INFINITY);
        measured =
                new CyclicBarrier(
                        ranks,
                        () ->
                                done =
                                        Arrays.stream(least).allMatch(b -> b < enough)
                                                || System.nanoTime() - start > LIMIT);
    }

    /**
     * Repeats the steps. All ranks call it, each on its thread.
     *
     * @param rank of the caller
     * @param steps how often a round runs the step
     * @param step what must not allocate
     */
    public void repeat(int rank, int steps, Runnable step) {
        repeat(rank, steps, step, () -> {});
    }

    /**
     * Repeats the steps, and what may allocate after each round of them.
     *
     * @param rank of the caller
     * @param steps how often a round runs the step
     * @param step what must not allocate
     * @param afterwards runs after each round
     */
    public void repeat(int rank, int steps, Runnable step, Runnable afterwards) {
        do {
            AllocatedBytes allocated = counter.get();
            for (int i = 0; i < steps; i++) {
                step.run();
            }
            least[rank] = Math.min(least[rank], allocated.since() / (double) steps);
            afterwards.run();
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
        assertNone("a step");
    }

    /**
     * Fails unless each rank had a round that allocated nothing.
     *
     * @param step names the step in the message
     */
    public void assertNone(String step) {
        for (int r = 0; r < least.length; r++) {
            double bytes = least[r];
            assertTrue(bytes < enough, step + " allocates " + bytes + " bytes on rank " + r);
        }
    }
}
