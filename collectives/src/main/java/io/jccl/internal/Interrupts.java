package io.jccl.internal;

import io.jccl.error.JcclException;
import java.util.concurrent.TimeUnit;

/**
 * What an interrupt does to a thread that waits: what it waits for may still come within {@link
 * #GRACE_NANOS}, and then nothing but the thread's flag tells of the interrupt. After that the wait
 * ends with an error.
 *
 * <p>A wait keeps one number, the time at which it noticed an interrupt, 0 for none: so waiting
 * allocates nothing. While it waits the flag is cleared, since parking returns at once with it.
 */
public final class Interrupts {
    /** How long what an interrupted thread waits for may still take. */
    public static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private Interrupts() {}

    /**
     * Clears the thread's flag.
     *
     * @param since what the last call returned, at first 0
     * @param now of {@link System#nanoTime}
     * @return when the first interrupt was noticed; 0 if there was none
     */
    public static long notice(long since, long now) {
        return Thread.interrupted() ? caught(since, now) : since;
    }

    /**
     * The same after an {@link InterruptedException}, which has cleared the flag.
     *
     * @param since what the last call returned, at first 0
     * @param now of {@link System#nanoTime}
     * @return when the first interrupt was noticed
     */
    public static long caught(long since, long now) {
        return since == 0 ? now | 1 : since;
    }

    /**
     * Whether an interrupt came, and so long ago that the wait has to end.
     *
     * @param since of {@link #notice}
     * @param now of {@link System#nanoTime}
     * @return true if the wait ends
     */
    public static boolean overdue(long since, long now) {
        return since != 0 && now - since > GRACE_NANOS;
    }

    /**
     * Gives the thread its flag back when the wait has ended, however it did.
     *
     * @param since of {@link #notice}
     */
    public static void restore(long since) {
        if (since != 0) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * The error that ends a wait.
     *
     * @param wait who waited for what
     * @param consequence what becomes of the rest
     * @return the error
     */
    public static JcclException error(String wait, String consequence) {
        return new JcclException(
                wait
                        + " was interrupted, and what it waited for did not come within "
                        + TimeUnit.NANOSECONDS.toSeconds(GRACE_NANOS)
                        + " s: "
                        + consequence);
    }
}
