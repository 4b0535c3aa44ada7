package io.jccl.internal;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.TimeUnit;

/**
 * Interruption of a waiting thread: if the awaited event occurs within {@link #GRACE_NANOS} of the
 * interrupt, the wait succeeds and only the thread's interrupt flag remains set. Otherwise the wait
 * ends with an error.
 *
 * <p>A wait keeps one number, the time at which it noticed an interrupt, or 0: waiting allocates
 * nothing. The flag is cleared during the wait, since parking returns immediately while it is set.
 */
public final class Interrupts {
    /** How long an interrupted thread still waits. */
    public static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private Interrupts() {}

    /**
     * Clears the thread's interrupt flag.
     *
     * @param since result of the previous call, initially 0
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
     * Whether an interrupt was noticed so long ago that the wait has to end.
     *
     * @param since of {@link #notice}
     * @param now of {@link System#nanoTime}
     * @return true if the wait ends
     */
    public static boolean overdue(long since, long now) {
        return since != 0 && now - since > GRACE_NANOS;
    }

    /**
     * Sets the thread's interrupt flag again after the wait, whatever its result.
     *
     * @param since of {@link #notice}
     */
    public static void restore(long since) {
        if (since != 0) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * An access to files.
     *
     * @param <T> its result
     */
    @FunctionalInterface
    public interface FileAccess<T> {
        /**
         * Accesses the files.
         *
         * @return the result
         * @throws IOException if that fails
         */
        T run() throws IOException;
    }

    /**
     * Accesses files by channels, which an interrupt of the thread would close: the interrupt flag
     * is cleared meanwhile and set again afterwards.
     *
     * @param <T> its result
     * @param access what to do; it runs again if an interrupt comes during it
     * @return its result
     * @throws IOException if it fails
     */
    public static <T> T shield(FileAccess<T> access) throws IOException {
        boolean interrupted = Thread.interrupted();
        try {
            while (true) {
                try {
                    return access.run();
                } catch (ClosedByInterruptException e) {
                    interrupted |= Thread.interrupted();
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /**
     * The error that ends a wait.
     *
     * @param wait the waiting thread and the awaited event
     * @param consequence the state of the operation
     * @return the error
     */
    public static JcclException error(String wait, String consequence) {
        return new JcclException(
                "%s was interrupted, and what it waited for did not come within %s s: %s"
                        .formatted(wait, TimeUnit.NANOSECONDS.toSeconds(GRACE_NANOS), consequence));
    }
}
