package io.jccl.engine.nccl;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.internal.Waits;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * How far a rank's GPU is: which of its operations have completed. Measured by a single event that
 * is recorded after all work of the stream used last, so operations have no extra cost.
 *
 * <p><b>Threads:</b> one calls {@link #look}. CUDA may keep it: it does not return from recording
 * an event as long as a stream is full, which is for ever if that waits for a lost rank. Any thread
 * may call the rest.
 */
final class GpuProgress {
    /** What was seen of the GPU this long ago is still true. */
    private static final long FRESH_NANOS = 1_000_000_000;

    /** Attempts to find a moment between two operations; enqueuing takes microseconds. */
    private static final int LOOKS = 1000;

    private final NcclRank rank;
    private final InFlightOps issued;
    private final long marker;

    /** Held while a thread is inside CUDA. */
    private final ReentrantLock lock = new ReentrantLock();

    /** The operation that the marker follows, or is about to follow, and since when. */
    private volatile long marked;

    private volatile long markedAt;
    private volatile long completed;

    /** Whether a thread is inside CUDA, since when, and when one was the last time. */
    private volatile boolean looking;

    private volatile long looksSince;
    private volatile long lookedAt;

    /** The number of operations at the last call of {@link #note}, and whether it was new. */
    private long noted;

    private boolean active;

    GpuProgress(NcclRank rank, InFlightOps issued, long marker) {
        this.rank = rank;
        this.issued = issued;
        this.marker = marker;
    }

    /** The number of the last operation that is known to have completed. */
    long completed() {
        return completed;
    }

    /** The number of the last operation that the GPU is known to have been given. */
    long marked() {
        return marked;
    }

    /** Since when it has had that. */
    long markedAt() {
        return markedAt;
    }

    /** Whether the GPU has not yet completed what it was given. */
    boolean isPending() {
        return marked > completed;
    }

    /** Whether all operations have completed. */
    boolean isComplete() {
        return issued.count() <= Math.max(completed, issued.reached());
    }

    /**
     * Whether the rest is known to be true now: another communicator may keep the thread that
     * looks.
     */
    boolean isFresh(long now) {
        return now - lookedAt < FRESH_NANOS || (looking && now - looksSince > FRESH_NANOS);
    }

    /** Takes in what other threads know; by one thread. */
    void note(long now) {
        reached(issued.reached());
        long count = issued.count();
        active = count != noted;
        if (active && looking) {
            markedAt = now; // a stream that takes more operations completes others
        }
        noted = count;
    }

    /** Whether there were new operations at the last call of {@link #note}; by that thread. */
    boolean isActive() {
        return active;
    }

    /** Notes that the operations up to a number have completed. */
    synchronized void reached(long number) {
        if (number > completed) {
            completed = number;
            rank.seenComplete(number);
        }
    }

    /** Asks CUDA, and records the event for what was enqueued since. */
    void look(long now) {
        if (!lock.tryLock()) {
            return;
        }
        try {
            if (!rank.isOver()) {
                looksSince = now;
                looking = true;
                rank.device().adopt();
                mark(now);
            }
        } finally {
            lookedAt = System.nanoTime();
            looking = false;
            lock.unlock();
        }
    }

    private void mark(long now) {
        CudaApi cuda = CudaRuntime.api();
        if (isPending()) {
            int result = cuda.cudaEventQuery(marker);
            if (result == cudart_h.cudaErrorNotReady()) {
                cuda.cudaGetLastError();
                return;
            }
            CudaRuntime.check(result, "cudaEventQuery");
            reached(marked);
        }
        // A thread notes an operation and its stream after it has entered, so if none is inside
        // after both were read, that operation has been enqueued.
        for (int i = 0; i < LOOKS; i++) {
            long last = issued.count();
            CudaStream stream = issued.lastStream();
            if (!rank.handle().isInside()) {
                mark(now, last, stream);
                return;
            }
            Thread.onSpinWait();
        }
    }

    /** Records the event after an operation, if it is new; all before it are in their streams. */
    private void mark(long now, long last, @Nullable CudaStream stream) {
        if (last > completed && stream != null) {
            markedAt = now;
            marked = last;
            if (!stream.recordIfNotCapturing(marker)) {
                marked = completed;
            }
        }
    }

    /** Waits, for a limited time, until no thread uses the event any more; whether that is so. */
    boolean awaitEnd() {
        return Waits.acquire(lock, NcclHandle.ABORT_WAIT.toNanos());
    }
}
