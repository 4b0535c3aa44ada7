package io.jccl.offload.nvme;

import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import io.jccl.offload.Completion;
import java.time.Duration;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * A read or a write of an {@link NvmeStore} that is waiting, in progress or done. The buffer must
 * stay open, and for a write unchanged, until it is done.
 *
 * <p>{@linkplain #close Closing} a ticket returns it to its store for reuse, so that a loop of
 * reads and writes creates no objects. Closing is optional. A closed ticket must not be used.
 *
 * <p><b>Threads:</b> any.
 */
public final class IoTicket implements Completion, AutoCloseable {
    private final IoQueue queue;

    // What to do: set by the queue before any worker sees the ticket.
    boolean write;
    @Nullable Region region;
    @Nullable MemoryView view;

    /** First byte in the region, and the byte after the last. */
    long from;

    long to;

    // Guarded by the queue.
    int nextBlock;
    int endBlock;

    /** Blocks that are waiting or in progress. */
    int remaining;

    boolean cancelRequested;
    @Nullable JcclException failure;

    // Guarded by this.
    private boolean done = true;
    private boolean cancelled;
    private @Nullable JcclException error;
    private boolean closed;

    IoTicket(IoQueue queue) {
        this.queue = queue;
    }

    synchronized void begin() {
        done = false;
        cancelled = false;
        error = null;
        closed = false;
    }

    /**
     * Ends it.
     *
     * @return whether it was closed before, so that it can be used again
     */
    synchronized boolean end() {
        done = true;
        cancelled = cancelRequested;
        error = failure;
        notifyAll();
        return closed;
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException(
                    "the ticket is closed: it can be used only until it is closed");
        }
    }

    @Override
    public synchronized boolean isDone() {
        checkOpen();
        return done;
    }

    /**
     * {@inheritDoc}
     *
     * @throws io.jccl.offload.OffloadMemoryException if the drive is full
     * @throws CorruptStoreException if the content of the file is not what was written to it
     */
    @Override
    public synchronized void await(Duration timeout) {
        checkOpen();
        long deadline = Deadline.after(timeout);
        for (long left = 1; !done && left > 0; ) {
            left = deadline - System.nanoTime();
            if (left > 0) {
                Waits.on(this, left);
            }
        }
        if (!done) {
            throw new JcclTimeoutException(
                    "%s is not done after %s; it continues: wait again, or cancel it"
                            .formatted(this, timeout));
        }
        if (error != null) {
            throw error;
        }
        if (cancelled) {
            throw new CancellationException(this + " was cancelled");
        }
    }

    /**
     * Drops the blocks that have not been started; the operation is done when the others have
     * finished. After a cancelled read the buffer has some of the elements. After a cancelled write
     * the region is incomplete, and cannot be committed until it has been written again or
     * {@linkplain NvmeStore#rollback rolled back}.
     *
     * @return whether blocks were dropped by this or an earlier call
     */
    public boolean cancel() {
        synchronized (this) {
            checkOpen();
        }
        return queue.cancel(this);
    }

    /**
     * The error of a failed operation.
     *
     * @return null if it has not ended, or succeeded
     */
    public synchronized @Nullable JcclException error() {
        checkOpen();
        return error;
    }

    /** Returns the ticket for reuse; the operation itself continues to its end. */
    @Override
    public void close() {
        boolean reuse;
        synchronized (this) {
            reuse = done && !closed;
            closed = true;
        }
        if (reuse) {
            queue.recycle(this);
        }
    }

    @Override
    public void recycle() {
        close();
    }

    @Override
    public String toString() {
        Region r = region;
        return (write ? "write to " : "read of ")
                + (r == null ? "no region" : "bytes " + from + " to " + to + " of " + r);
    }
}
