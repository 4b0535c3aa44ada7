package io.jccl.offload;

import io.jccl.error.JcclTimeoutException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Waits in its own thread for the events of chunks in a GPU's stream, oldest first, and reports
 * each to the {@link CopyQueue}. Its monitor is never taken inside the queue's.
 *
 * <p><b>Threads:</b> any.
 */
final class Reaper {
    /** How long it waits for an event before it checks whether it was stopped. */
    private static final Duration POLL = Duration.ofMillis(200);

    private final CopyQueue queue;
    private final Thread thread;

    // Guarded by this.
    private final ArrayDeque<Chunk> pending = new ArrayDeque<>();
    private boolean stopped;

    Reaper(CopyQueue queue) {
        this.queue = queue;
        thread =
                Thread.ofPlatform()
                        .daemon()
                        .name("jccl-" + queue.name + "-done")
                        .unstarted(this::run);
    }

    void start() {
        thread.start();
    }

    /** A chunk is in the stream, and its event recorded after it. */
    synchronized void add(Chunk c) {
        pending.add(c);
        notifyAll();
    }

    /** Ends the thread; chunks that are pending are not reported any more. */
    synchronized void stop() {
        stopped = true;
        notifyAll();
    }

    private void run() {
        for (Chunk c = next(); c != null; c = next()) {
            Throwable error = null;
            try {
                if (!awaitEvent(c)) {
                    return;
                }
            } catch (Throwable e) {
                error = e;
            }
            queue.reaped(c, error);
        }
    }

    private synchronized @Nullable Chunk next() {
        while (pending.isEmpty() && !stopped) {
            try {
                wait();
            } catch (InterruptedException e) {
                // Only stop() ends this thread.
            }
        }
        return stopped ? null : pending.removeFirst();
    }

    /** Returns false if it was stopped first. */
    private boolean awaitEvent(Chunk c) {
        while (true) {
            try {
                Objects.requireNonNull(c.event).synchronize(POLL);
                return true;
            } catch (JcclTimeoutException e) {
                synchronized (this) {
                    if (stopped) {
                        return false;
                    }
                }
            }
        }
    }
}
