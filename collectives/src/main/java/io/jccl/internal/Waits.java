package io.jccl.internal;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.LockSupport;

/** Waits that an interrupt does not end; the interrupt flag is set again afterwards. */
public final class Waits {
    /** Shorter waits would amount to spinning. */
    private static final long LEAST_WAIT_NANOS = 1_000_000;

    private Waits() {}

    /**
     * Sleeps.
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
     * Waits until another thread notifies, the time is over, or a spurious wakeup; the caller
     * checks its condition.
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
     * @param latch the latch
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
     * Waits for a lock.
     *
     * @param lock the lock
     * @param nanos how long at most
     * @return whether the calling thread holds it
     */
    public static boolean acquire(Lock lock, long nanos) {
        long deadline = System.nanoTime() + nanos;
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return lock.tryLock(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
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
     * @param thread the thread
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
