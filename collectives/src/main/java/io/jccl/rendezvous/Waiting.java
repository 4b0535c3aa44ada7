package io.jccl.rendezvous;

import io.jccl.CollectiveTimeoutException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Waits for a value by looking again, ever less often. */
final class Waiting {
    private static final long FIRST_NANOS = 100_000;
    private static final long LONGEST_NANOS = 50_000_000;

    private Waiting() {}

    /** A timeout as nanoseconds that can be added to a clock: at most 100 years, at least 0. */
    static long nanos(Duration timeout) {
        Duration longest = Duration.ofDays(36_500);
        return timeout.isNegative()
                ? 0
                : (timeout.compareTo(longest) > 0 ? longest : timeout).toNanos();
    }

    /** Waits for the end of a thread; keeps an interruption for later. */
    static void join(Thread thread, Duration timeout) {
        long deadline = System.nanoTime() + nanos(timeout);
        boolean interrupted = false;
        long left = nanos(timeout);
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

    static String absent(String key, Store store, Duration timeout) {
        return "nobody has set '" + key + "' in " + store + " within " + timeout;
    }

    static byte[] await(Store store, String key, Duration timeout) {
        long began = System.nanoTime();
        long pause = FIRST_NANOS;
        boolean interrupted = false;
        try {
            while (true) {
                byte[] value = store.get(key);
                if (value != null) {
                    return value;
                }
                if (System.nanoTime() - began > nanos(timeout)) {
                    throw new CollectiveTimeoutException(absent(key, store, timeout));
                }
                interrupted |= Thread.interrupted();
                LockSupport.parkNanos(pause);
                pause = Math.min(pause * 2, LONGEST_NANOS);
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
