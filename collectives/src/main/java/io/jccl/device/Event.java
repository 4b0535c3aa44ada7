package io.jccl.device;

import java.time.Duration;

/**
 * A mark in a stream that completes when the work before it has.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p><b>Threads:</b> any thread may use an event; recording it from two threads at once leaves
 * undefined which recording is the last.
 */
public interface Event extends AutoCloseable {
    /**
     * Records the mark behind all work enqueued on a stream so far. A new recording replaces the
     * one before it.
     *
     * @param stream a stream of the same device
     */
    void record(Stream stream);

    /**
     * Whether the last recording has completed.
     *
     * @return true if it has, or if the event was never recorded
     */
    boolean query();

    /**
     * Waits on the calling thread for the last recording.
     *
     * @param timeout how long to wait at most
     * @throws io.jccl.error.JcclTimeoutException if the time passes first
     * @throws io.jccl.error.JcclException if the thread is interrupted and the event does not
     *     complete within one second; the thread's interrupt flag is set afterwards
     */
    void synchronize(Duration timeout);

    /**
     * Time between the completions of two recorded events.
     *
     * @param start the earlier event
     * @return time from start's completion to this event's
     * @throws IllegalStateException if either has not completed or was never recorded
     */
    Duration elapsedSince(Event start);

    /** Releases the event; closing twice does nothing. */
    @Override
    void close();
}
