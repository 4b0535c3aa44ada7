package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Takes chunks from a {@link CopyQueue} in its own thread, and enqueues them on the stream.
 *
 * <p><b>Threads:</b> any.
 */
final class Dispatcher {
    private final CopyQueue queue;
    private final Stream stream;
    private final ChunkCopier copier;
    private final EventPool events;
    private final @Nullable Reaper reaper;
    private final Thread thread;

    /**
     * A dispatcher that is not started.
     *
     * @param reaper waits for the events of a GPU; null on the host device
     */
    Dispatcher(
            CopyQueue queue,
            Stream stream,
            ChunkCopier copier,
            EventPool events,
            @Nullable Reaper reaper) {
        this.queue = queue;
        this.stream = stream;
        this.copier = copier;
        this.events = events;
        this.reaper = reaper;
        thread = Thread.ofPlatform().daemon().name("jccl-" + queue.name).unstarted(this::run);
    }

    void start() {
        thread.start();
    }

    /** Waits for the end of the thread, unless it is the caller; returns whether it has ended. */
    boolean join(long nanos) {
        if (Thread.currentThread() == thread) {
            return true;
        }
        Waits.join(thread, Duration.ofNanos(nanos));
        return !thread.isAlive();
    }

    private void run() {
        for (Chunk c = queue.next(); c != null; c = queue.next()) {
            enqueue(c);
        }
    }

    private void enqueue(Chunk c) {
        Transfer t = Objects.requireNonNull(c.transfer);
        boolean cuda = reaper != null;
        int run = c.run;
        boolean isLast = c.isLast;
        Event event = null;
        boolean inStream = false;
        try {
            if (cuda || isLast) {
                event = events.take();
                queue.follow(c, t, event);
            }
            Event after = t.after;
            if (c.waitFirst && after != null) {
                stream.waitFor(after);
            } else if (after != null && c.from == 0) {
                after.query();
            }
            if (cuda) {
                inStream = true;
                queue.began(t);
                copier.copy(c, t);
            } else {
                stream.launchHostFunction(c);
                inStream = true;
            }
            if (event != null) {
                event.record(stream);
            }
        } catch (Throwable e) {
            if (inStream && !cuda) {
                // The chunk completes by itself; only the event is missing, and the transfer's
                // followers wait for its end instead.
                return;
            }
            if (inStream) {
                copier.settle();
            }
            queue.failed(c, e);
            return;
        }
        if (isLast) {
            queue.enqueued(t, run);
        }
        if (reaper != null) {
            reaper.add(c);
        }
    }
}
