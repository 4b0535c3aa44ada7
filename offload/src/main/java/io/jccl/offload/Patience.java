package io.jccl.offload;

import java.time.Duration;

/** Deadlines on the clock of {@link System#nanoTime}. */
final class Patience {
    private static final Duration FOREVER = Duration.ofDays(36_500);

    private Patience() {}

    /** When a timeout that begins now is over. */
    static long deadline(Duration timeout) {
        return System.nanoTime()
                + (timeout.compareTo(FOREVER) > 0
                        ? Long.MAX_VALUE / 2
                        : Math.max(0, timeout.toNanos()));
    }

    /** What is left until a deadline; at least a nanosecond. */
    static Duration left(long deadline) {
        return Duration.ofNanos(Math.max(1, deadline - System.nanoTime()));
    }
}
