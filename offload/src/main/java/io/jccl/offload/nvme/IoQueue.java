package io.jccl.offload.nvme;

import io.jccl.device.Buffer;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The reads and writes of a store that are pending, and the threads that run them, block by block.
 *
 * <p>A thread between {@link #enter} and {@link #leave} is in the exclusive section: no other is,
 * and writes wait for its end before they begin.
 *
 * <p><b>Threads:</b> any. Its monitor is taken before that of a ticket or a region.
 */
final class IoQueue {
    /** Buffers whose views are kept; in sets of 4, so that a few that collide are all kept. */
    private static final int VIEWS = 1024;

    private static final int WAYS = 4;

    private final StoreFiles files;
    private final NvmeOptions options;
    private final String store;
    private final Thread[] workers;

    // All below is guarded by this.
    private final ArrayDeque<IoTicket> waiting;
    private final ArrayDeque<IoTicket> spare;
    private final @Nullable MemoryView[] views = new MemoryView[VIEWS];
    private int evict;
    private int pending;
    private int pendingWrites;
    private boolean exclusive;
    private boolean closed;

    /** Why writes are refused. */
    private @Nullable JcclException broken;

    private long bytesRead;
    private long bytesWritten;
    private long copiedBlocks;

    /**
     * A queue whose threads are not started.
     *
     * @param store name of the store in messages
     */
    IoQueue(StoreFiles files, NvmeOptions options, String store) {
        this.files = files;
        this.options = options;
        this.store = store;
        waiting = new ArrayDeque<>(options.pendingOperations() + 1);
        spare = new ArrayDeque<>(options.pendingOperations() + 1);
        workers = new Thread[options.queueDepth()];
        for (int w = 0; w < workers.length; w++) {
            workers[w] =
                    Thread.ofPlatform()
                            .daemon()
                            .name("jccl-nvme-" + files.folder.getFileName() + "-" + w)
                            .unstarted(new IoWorker(this, files, w));
        }
    }

    void start() {
        for (Thread t : workers) {
            t.start();
        }
    }

    // ---- Called by the store

    /** Adds an operation, once there is room for it and, for a write, no exclusive section. */
    synchronized IoTicket submit(
            boolean write, Region region, long first, Buffer buffer, MemorySegment memory) {
        checkOpen();
        long deadline = Deadline.after(options.timeout());
        while (pending >= options.pendingOperations() || (write && exclusive)) {
            pause(deadline, "the queue of ");
        }
        if (write) {
            checkWritable();
        }
        int size = region.type.size();
        long count = buffer.count();
        IoTicket t = spare.pollLast();
        if (t == null) {
            t = new IoTicket(this);
        }
        t.write = write;
        t.region = region;
        t.from = first * size;
        t.to = (first + count) * size;
        t.nextBlock = (int) (t.from / files.blockBytes);
        t.endBlock = count == 0 ? t.nextBlock : (int) ((t.to - 1) / files.blockBytes) + 1;
        t.remaining = t.endBlock - t.nextBlock;
        t.cancelRequested = false;
        t.failure = null;
        t.begin();
        if (t.remaining == 0) {
            t.end();
            return t;
        }
        t.view = view(buffer, memory);
        pending++;
        pendingWrites += write ? 1 : 0;
        waiting.addLast(t);
        notifyAll();
        return t;
    }

    private MemoryView view(Buffer buffer, MemorySegment memory) {
        int home = (System.identityHashCode(buffer) * WAYS) & (VIEWS - 1);
        for (int i = home; i < home + WAYS; i++) {
            MemoryView v = views[i];
            if (v != null && v.isOf(buffer, memory)) {
                return v;
            }
        }
        MemoryView fresh = new MemoryView(buffer, workers.length, files.blockBytes);
        views[home + (evict++ & (WAYS - 1))] = fresh;
        return fresh;
    }

    /**
     * Enters the exclusive section once no other thread is in it.
     *
     * @param drain whether to wait for the pending writes too
     * @param what the caller does, for messages
     */
    synchronized void enter(boolean drain, String what) {
        checkOpen();
        long deadline = Deadline.after(options.timeout());
        while (exclusive || (drain && pendingWrites > 0)) {
            pause(deadline, what + ": ");
        }
        exclusive = true;
    }

    synchronized void leave() {
        exclusive = false;
        notifyAll();
    }

    /** Refuses writes from now on. */
    synchronized void refuseWrites(JcclException why) {
        broken = why;
    }

    synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the store in " + files.folder + " is closed");
        }
    }

    synchronized void checkWritable() {
        JcclException why = broken;
        if (why != null) {
            throw new JcclException(
                    "the store in " + files.folder + " has to be opened again: " + why.getMessage(),
                    why);
        }
    }

    private synchronized void pause(long deadline, String what) {
        long left = deadline - System.nanoTime();
        if (left <= 0) {
            throw new JcclTimeoutException(
                    what
                            + store
                            + " has made no progress for "
                            + options.timeout()
                            + ": "
                            + pending
                            + " operations are pending, "
                            + pendingWrites
                            + " of them writes");
        }
        Waits.on(this, left);
        checkOpen();
    }

    synchronized NvmeStore.Stats stats() {
        return new NvmeStore.Stats(bytesRead, bytesWritten, copiedBlocks, files.fileEnd());
    }

    /**
     * Cancels what is not in progress, after waiting for an exclusive section, and ends the
     * threads.
     *
     * @return false if it was closed before
     */
    synchronized boolean close() {
        if (closed) {
            return false;
        }
        long deadline = Deadline.after(options.timeout());
        for (long left = 1; exclusive && left > 0; ) {
            left = deadline - System.nanoTime();
            if (left > 0) {
                Waits.on(this, left);
            }
        }
        closed = true;
        while (!waiting.isEmpty()) {
            cancel(waiting.getFirst());
        }
        notifyAll();
        return true;
    }

    /**
     * Waits for the threads up to the configured timeout; returns how many have not ended, with the
     * one in an exclusive section.
     */
    int join() {
        long deadline = Deadline.after(options.timeout());
        int blocked = 0;
        for (Thread t : workers) {
            Waits.join(t, Duration.ofNanos(Math.max(1, deadline - System.nanoTime())));
            blocked += t.isAlive() ? 1 : 0;
        }
        synchronized (this) {
            return blocked + (exclusive ? 1 : 0);
        }
    }

    // ---- Called by tickets

    synchronized boolean cancel(IoTicket t) {
        if (drop(t)) {
            t.cancelRequested = true;
            if (t.remaining == 0) {
                end(t);
            }
        }
        return t.cancelRequested;
    }

    /** Drops the blocks that are not under way, and returns whether there were any. */
    private synchronized boolean drop(IoTicket t) {
        int dropped = t.endBlock - t.nextBlock;
        if (dropped == 0) {
            return false;
        }
        waiting.removeFirstOccurrence(t);
        if (t.write) {
            Objects.requireNonNull(t.region).incomplete(t.nextBlock, t.endBlock);
        }
        t.nextBlock = t.endBlock;
        t.remaining -= dropped;
        return true;
    }

    private synchronized void end(IoTicket t) {
        pending--;
        pendingWrites -= t.write ? 1 : 0;
        t.view = null;
        if (t.end()) {
            spare.addLast(t);
        }
        notifyAll();
    }

    synchronized void recycle(IoTicket t) {
        if (spare.size() < options.pendingOperations()) {
            spare.addLast(t);
        }
    }

    // ---- Called by workers

    /** Waits for a block to move; returns false once the queue is closed. */
    synchronized boolean take(IoWorker worker) {
        while (waiting.isEmpty() && !closed) {
            try {
                wait();
            } catch (InterruptedException e) {
                // Only close() ends the worker.
            }
        }
        if (waiting.isEmpty()) {
            return false;
        }
        IoTicket t = waiting.getFirst();
        worker.ticket = t;
        worker.block = t.nextBlock++;
        if (t.nextBlock == t.endBlock) {
            waiting.removeFirst();
        }
        return true;
    }

    /** A block has moved, or failed. */
    synchronized void moved(IoTicket t, boolean copied, @Nullable JcclException failure) {
        copiedBlocks += copied ? 1 : 0;
        if (failure != null) {
            if (t.failure == null) {
                t.failure = failure;
            }
            drop(t);
        }
        if (--t.remaining == 0) {
            if (t.write) {
                bytesWritten += t.to - t.from;
            } else {
                bytesRead += t.to - t.from;
            }
            end(t);
        }
    }
}
