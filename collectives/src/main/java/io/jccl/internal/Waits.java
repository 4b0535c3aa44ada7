package io.jccl.internal;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Waits that an interruption does not end; it is kept for whoever waits next. */
public final class Waits {
    /** Waiting for less would be spinning. */
    private static final long LEAST_WAIT_NANOS = 1_000_000;

    private Waits() {}

    /**
     * Waits a moment.
     *
     * @param time how long
     */
    public static void sleep(Duration time) {
        park(Deadline.nanos(time));
    }

    /**
     * The same, without an allocation.
     *
     * @param nanos how long
     */
    public static void park(long nanos) {
        boolean interrupted = Thread.interrupted();
        LockSupport.parkNanos(nanos);
        restore(interrupted);
    }

    /**
     * Waits until another thread notifies, or the time is over, or without either; the caller looks
     * whether what it waits for is there.
     *
     * @param monitor that the caller holds
     * @param nanos how long at most
     */
    public static void on(Object monitor, long nanos) {
        boolean interrupted = Thread.interrupted();
        try {
            TimeUnit.NANOSECONDS.timedWait(monitor, Math.max(nanos, LEAST_WAIT_NANOS));
        } catch (InterruptedException e) {
            interrupted = true;
        }
        restore(interrupted);
    }

    /**
     * Waits for a latch.
     *
     * @param latch which
     * @param nanos how long at most
     * @return whether it is open
     */
    public static boolean await(CountDownLatch latch, long nanos) {
        long deadline = System.nanoTime() + nanos;
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return latch.await(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } finally {
            restore(interrupted);
        }
    }

    /**
     * Waits for the end of a thread.
     *
     * @param thread which
     * @param timeout how long at most
     */
    public static void join(Thread thread, Duration timeout) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        boolean interrupted = false;
        long left = Deadline.nanos(timeout);
        while (left > 0 && thread.isAlive()) {
            try {
                TimeUnit.NANOSECONDS.timedJoin(thread, left);
            } catch (InterruptedException e) {
                interrupted = true;
            }
            left = deadline - System.nanoTime();
        }
        restore(interrupted);
    }

    private static void restore(boolean interrupted) {
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
