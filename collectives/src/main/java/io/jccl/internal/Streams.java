package io.jccl.engine;

import io.jccl.device.Buffer;
import java.time.Duration;

/** What streams of all engines have in common. */
public final class Streams {
    /** Longer than anybody waits; also what waiting without a timeout is. */
    public static final Duration FOREVER = Duration.ofDays(36_500);

    private Streams() {}

    /** A timeout in nanoseconds, to be added to {@link System#nanoTime} or compared with it. */
    public static long nanos(Duration timeout) {
        // Half of the range of nanoTime differences is plenty: 146 years.
        return timeout.compareTo(FOREVER) >= 0
                ? Long.MAX_VALUE / 2
                : Math.max(0, timeout.toNanos());
    }

    /** Refuses a copy between buffers that do not fit each other. */
    public static void checkCopy(Buffer source, Buffer target) {
        if (source.dataType() != target.dataType() || source.count() != target.count()) {
            throw new IllegalArgumentException(
                    "source holds "
                            + source.count()
                            + " elements of "
                            + source.dataType().label()
                            + ", target "
                            + target.count()
                            + " of "
                            + target.dataType().label());
        }
    }

    /** The error of a copy within the same memory. */
    public static IllegalArgumentException overlapping(Buffer source, Buffer target) {
        return new IllegalArgumentException(
                "source at 0x"
                        + Long.toHexString(source.address())
                        + " and target at 0x"
                        + Long.toHexString(target.address())
                        + " overlap");
    }
}
