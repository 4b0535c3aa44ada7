package io.jccl.device;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A marker in a stream that completes when all work enqueued before it has completed.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p><b>Threads:</b> any thread may use an event; if two threads record it concurrently, it is
 * undefined which recording is the last.
 */
public interface Event extends AutoCloseable {
    /**
     * Records the event after all work enqueued on a stream so far. A new recording replaces the
     * previous one.
     *
     * @param stream a stream of the same device
     */
    void record(Stream stream);

    /**
     * Whether the last recording has completed.
     *
     * @return true if so, or if the event was never recorded
     */
    boolean query();

    /**
     * The error of an operation before the last recording that its host stream had not yet thrown.
     * A recording completes also after an error, and streams that wait for it continue: who uses
     * results of the stream's work asks for it.
     *
     * @return the error; null if there was none, the recording has not completed, or the event is
     *     one of a GPU
     */
    default @Nullable Throwable error() {
        return null;
    }

    /**
     * Waits on the calling thread for the last recording.
     *
     * @param timeout maximum time to wait
     * @throws io.jccl.error.JcclTimeoutException if the event has not completed when the timeout
     *     passes
     * @throws io.jccl.error.JcclException if the thread is interrupted and the event does not
     *     complete within one second; the thread's interrupt flag is set afterwards
     */
    void synchronize(Duration timeout);

    /**
     * Time between the completion of two recorded events.
     *
     * @param start the earlier event
     * @return time from the completion of {@code start} to that of this event
     * @throws IllegalStateException if either has not completed or was never recorded
     */
    Duration elapsedSince(Event start);

    /** Releases the event. Closing twice has no effect. */
    @Override
    void close();
}
