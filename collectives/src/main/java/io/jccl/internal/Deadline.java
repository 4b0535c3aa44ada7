package io.jccl.internal;

import java.time.Duration;

/** Timeouts in terms of {@link System#nanoTime}. */
public final class Deadline {
    /** A timeout that never expires: waiting without one. */
    public static final Duration FOREVER = Duration.ofDays(36_500);

    private Deadline() {}

    /**
     * A timeout in nanoseconds, to be added to {@link System#nanoTime} or compared with it.
     *
     * @param timeout any; a negative one counts as zero
     * @return 0 to about 146 years
     */
    public static long nanos(Duration timeout) {
        // Half of the range of nanoTime differences: 146 years.
        return timeout.compareTo(FOREVER) >= 0
                ? Long.MAX_VALUE / 2
                : Math.max(0, timeout.toNanos());
    }

    /**
     * The time at which a timeout that begins now expires.
     *
     * @param timeout any; a negative one counts as zero
     * @return a time of {@link System#nanoTime}
     */
    public static long after(Duration timeout) {
        return System.nanoTime() + nanos(timeout);
    }

    /**
     * The time left until a deadline.
     *
     * @param deadline from {@link #after}
     * @return at least a nanosecond
     */
    public static Duration left(long deadline) {
        return Duration.ofNanos(Math.max(1, deadline - System.nanoTime()));
    }
}
