package io.jccl.device.host;

import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** An event of a host stream. */
final class HostEvent implements Event {
    /** One recording, which runs after the work it marks; the latest replaces earlier ones. */
    private final class Mark implements Runnable {
        /** The stream while the recording has not completed; then null. */
        @Nullable HostStream on;

        /** How often it was recorded and has not run. */
        int pending;

        long nanos;

        /** The error of work before it on the stream. */
        @Nullable Throwable error;

        /** Streams and threads that wait for it or will; if there are none it can be reused. */
        int waiters;

        /** The task of streams that wait for it; stateless, so one is shared. */
        final Runnable waiting = this::await;

        @Override
        public void run() {
            complete(this);
        }

        boolean isDone() {
            return pending == 0;
        }

        private void await() {
            synchronized (HostEvent.this) {
                try {
                    HostEvent.this.await(this, Long.MAX_VALUE);
                } finally {
                    waiters--;
                }
            }
        }
    }

    private @Nullable Mark last;

    /**
     * The previous one, reused when no thread waits for it: two that alternate create no garbage.
     */
    private @Nullable Mark previous;

    private boolean closed;

    @Override
    public void record(Stream stream) {
        HostStream host = HostStream.of(stream);
        Mark mark;
        @Nullable Mark replaced;
        @Nullable Mark old;
        synchronized (this) {
            if (closed) {
                throw new IllegalStateException("the event is closed");
            }
            replaced = last;
            old = previous;
            mark = reusable(last, host);
            if (mark == null) {
                mark = reusable(previous, null);
                previous = last;
                if (mark == null) {
                    mark = new Mark();
                }
                last = mark;
            }
            mark.on = host;
            mark.pending++;
        }
        try {
            host.submitAlways(mark);
        } catch (RuntimeException | Error e) {
            // The stream is closed, or there is no thread for it: the last recording remains.
            withdraw(mark, replaced, old);
            throw e;
        }
    }

    private synchronized void withdraw(Mark mark, @Nullable Mark replaced, @Nullable Mark old) {
        end(mark);
        if (last == mark) {
            last = replaced;
            previous = old;
        }
        notifyAll();
    }

    /**
     * A recording for which nothing waits; if it has not completed, it can be recorded again only
     * on its stream, where it then completes later.
     */
    private static @Nullable Mark reusable(@Nullable Mark mark, @Nullable HostStream stream) {
        if (mark == null || mark.waiters > 0) {
            return null;
        }
        return mark.isDone() || mark.on == stream ? mark : null;
    }

    private synchronized void complete(Mark mark) {
        HostStream on = mark.on;
        mark.error = on == null ? null : on.error();
        mark.nanos = System.nanoTime();
        end(mark);
        notifyAll();
    }

    private static void end(Mark mark) {
        if (--mark.pending == 0) {
            // The event does not keep the stream reachable.
            mark.on = null;
        }
    }

    @Override
    public synchronized boolean query() {
        return last == null || last.isDone();
    }

    @Override
    public synchronized @Nullable Throwable error() {
        return last == null || !last.isDone() ? null : last.error;
    }

    @Override
    public synchronized void synchronize(Duration timeout) {
        Mark mark = last;
        if (mark == null || mark.isDone()) {
            return;
        }
        boolean done = false;
        mark.waiters++;
        try {
            done = await(mark, System.nanoTime() + Deadline.nanos(timeout));
        } finally {
            mark.waiters--;
        }
        if (!done) {
            throw new JcclTimeoutException(
                    "the event did not complete within " + timeout + "; its stream is still busy");
        }
    }

    /** The recording that a stream waiting for this event now waits for: the latest. */
    synchronized Runnable waiting() {
        Mark mark = last;
        if (mark == null || mark.isDone()) {
            return HostEvent::nothing;
        }
        mark.waiters++;
        return mark.waiting;
    }

    private static void nothing() {}

    private boolean await(Mark mark, long deadline) {
        long interrupted = 0;
        try {
            while (!mark.isDone()) {
                long now = System.nanoTime();
                long left = deadline == Long.MAX_VALUE ? Long.MAX_VALUE : deadline - now;
                if (left <= 0) {
                    return false;
                }
                if (interrupted != 0) {
                    if (Interrupts.overdue(interrupted, now)) {
                        throw Interrupts.error("the wait for an event", "its stream is still busy");
                    }
                    left = Math.min(left, Interrupts.GRACE_NANOS);
                }
                try {
                    wait(left / 1_000_000, (int) (left % 1_000_000));
                } catch (InterruptedException e) {
                    interrupted = Interrupts.caught(interrupted, System.nanoTime());
                }
            }
            return true;
        } finally {
            Interrupts.restore(interrupted);
        }
    }

    @Override
    public Duration elapsedSince(Event start) {
        if (!(start instanceof HostEvent s)) {
            throw new IllegalArgumentException("start is not an event of the host device");
        }
        return Duration.ofNanos(completedAt() - s.completedAt());
    }

    private synchronized long completedAt() {
        if (last == null || !last.isDone()) {
            throw new IllegalStateException(
                    last == null
                            ? "the event was never recorded"
                            : "the event has not completed; synchronize it first");
        }
        return last.nanos;
    }

    @Override
    public synchronized void close() {
        closed = true;
    }
}
