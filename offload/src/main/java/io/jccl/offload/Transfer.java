package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Deadline;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A copy between a device and the host, made by a {@link TransferEngine} chunk by chunk. Both
 * buffers must stay open, and the source unchanged, until it is done.
 *
 * {@snippet class="snippets.Offload" region="transfer"}
 *
 * <p>Once done it can be {@linkplain #restart started again}, which creates no objects: a loop that
 * copies between the same buffers in every step needs one transfer for each pair.
 *
 * <p><b>Threads:</b> any.
 */
public final class Transfer implements Completion {
    final CopyQueue queue;
    final Buffer source;
    final Buffer target;
    final long bytes;
    final long number;
    @Nullable Boolean staged;
    private Buffer @Nullable [] pieces;

    /** Runs once it is done, on the thread that detects that; must not start transfers. */
    @Nullable Runnable whenDone;

    // All below is guarded by the queue.
    int priority;
    @Nullable Event after;

    /** The neighbours in the queue, while {@link #queued}. */
    @Nullable Transfer next;

    @Nullable Transfer previous;
    boolean queued;

    /** Whether some of its chunks, but not all, were taken from the queue. */
    boolean begun;

    /** Order among transfers of one priority. */
    long ticket;

    /** How often it was started. */
    int run;

    /** First byte that no chunk has taken yet. */
    long taken;

    int inFlight;

    /** Whether the queue's stream waits for {@link #after}. */
    boolean waited;

    /** Whether the last chunk is in the stream, and {@link #event} recorded after it. */
    boolean enqueued;

    @Nullable Event event;

    /** Callers that are about to make a stream wait for {@link #event}. */
    int users;

    boolean done = true;
    boolean cancelled;
    @Nullable Throwable error;
    long startedNanos;
    long finishedNanos;

    Transfer(CopyQueue queue, Buffer source, Buffer target, long number) {
        this.queue = queue;
        this.source = source;
        this.target = target;
        this.bytes = source.byteSize();
        this.number = number;
    }

    /** Starts a run; called by the queue. */
    void begin(long place) {
        run++;
        ticket = place;
        taken = 0;
        waited = false;
        enqueued = false;
        event = null;
        done = false;
        cancelled = false;
        error = null;
        startedNanos = 0;
        finishedNanos = 0;
    }

    /** The buffers of a chunk, source before target; kept for the next start. */
    Buffer piece(boolean ofTarget, long from, long size) {
        Buffer whole = ofTarget ? target : source;
        if (size == bytes) {
            return whole;
        }
        Buffer[] all = pieces;
        if (all == null) {
            int chunks = (int) ((bytes + queue.chunkBytes - 1) / queue.chunkBytes);
            all = new Buffer[2 * chunks];
            int element = source.dataType().size();
            for (int i = 0; i < chunks; i++) {
                long at = i * queue.chunkBytes;
                long count = Math.min(queue.chunkBytes, bytes - at) / element;
                all[2 * i] = source.slice(at / element, count);
                all[2 * i + 1] = target.slice(at / element, count);
            }
            pieces = all;
        }
        return all[2 * (int) (from / queue.chunkBytes) + (ofTarget ? 1 : 0)];
    }

    /**
     * Starts the same copy again, with the priority and the event that it had.
     *
     * @return this transfer
     * @throws IllegalStateException if it is not done, or its engine is closed
     */
    public Transfer restart() {
        queue.submit(this);
        return this;
    }

    @Override
    public boolean isDone() {
        synchronized (queue) {
            return done;
        }
    }

    /**
     * {@inheritDoc}
     *
     * @throws IllegalStateException if one of the buffers was closed too early
     */
    @Override
    public void await(Duration timeout) {
        queue.await(this, timeout);
    }

    /**
     * Drops the chunks that are not in the stream yet; the others are copied. Afterwards the
     * content of the target is undefined.
     *
     * @return whether it was cancelled by this or an earlier call; false if it had ended before, or
     *     all its chunks were in the stream
     */
    public boolean cancel() {
        return queue.cancel(this);
    }

    /**
     * Orders work that is enqueued on a stream from now on after this transfer. The calling thread
     * waits until the last chunk is in the transfer's own stream, that is, for the transfers queued
     * before it, but not until it is copied.
     *
     * <p>The work also runs if the transfer fails or is cancelled: {@link #await} reports that.
     *
     * @param stream a stream of the engine's device
     */
    public void before(Stream stream) {
        before(stream, Deadline.FOREVER);
    }

    /** The same, with a limit of the time that the calling thread waits. */
    void before(Stream stream, Duration timeout) {
        queue.before(this, stream, timeout);
    }

    /**
     * Bytes to copy.
     *
     * @return 0 or more
     */
    public long byteSize() {
        return bytes;
    }

    /**
     * When the first chunk was put into the stream; on the host device when its copy began.
     *
     * @return a time of {@link System#nanoTime}, or 0 if that has not happened
     */
    public long startedNanos() {
        synchronized (queue) {
            return startedNanos;
        }
    }

    /**
     * When the last chunk was seen to be complete.
     *
     * @return a time of {@link System#nanoTime}, or 0 if that has not happened
     */
    public long finishedNanos() {
        synchronized (queue) {
            return finishedNanos;
        }
    }

    @Override
    public String toString() {
        return queue.name + " transfer " + number + " of " + bytes + " bytes";
    }
}
