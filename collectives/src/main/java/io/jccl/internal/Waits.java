package io.jccl.internal;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Waits that an interruption does not end; it is kept for whoever waits next. */
public final class Waits {
    private Waits() {}

    /**
     * Waits a moment.
     *
     * @param time how long
     */
    public static void sleep(Duration time) {
        boolean interrupted = Thread.interrupted();
        LockSupport.parkNanos(Deadline.nanos(time));
        if (interrupted) {
            Thread.currentThread().interrupt();
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
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
