package io.jccl.device.host;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import io.jccl.internal.Waits;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Runs host work in order: on the caller's thread, or on its own thread with a bounded queue. If
 * the queue is full, the caller waits.
 */
public final class HostStream implements Stream {
    private static final int CAPACITY = 1024;
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);
    private static final AtomicInteger NUMBER = new AtomicInteger();

    private final HostDevice device;

    /** Null if work runs on the caller's thread. */
    private final @Nullable Queue queue;

    private final Leaks.@Nullable Watched watched;

    /** Copies that have run; guarded by itself. */
    private final ArrayDeque<Copy> spare = new ArrayDeque<>();

    private HostStream(HostDevice device, @Nullable Queue queue) {
        this.device = device;
        this.queue = queue;
        this.watched = queue == null ? null : Leaks.watch(this, queue.name, queue::retire);
    }

    static HostStream inline(HostDevice device) {
        return new HostStream(device, null);
    }

    public static HostStream threaded(HostDevice device) {
        return new HostStream(device, new Queue());
    }

    public static HostStream of(Stream stream) {
        if (stream instanceof HostStream s) {
            return s;
        }
        throw new IllegalArgumentException(
                "the stream belongs to device "
                        + Objects.requireNonNull(stream, "stream").device()
                        + ", expected one of the host device");
    }

    /** Whether work runs on the caller's thread; throws if the stream is closed. */
    public boolean isInline() {
        if (queue != null) {
            queue.checkOpen();
        }
        return queue == null;
    }

    /** Runs or enqueues work; it is dropped after an earlier error on the stream. */
    public void submit(Runnable work) {
        submit(work, false);
    }

    /** The error that the next wait for the stream throws. */
    @Nullable Throwable error() {
        return queue == null ? null : queue.error();
    }

    /** Runs or enqueues work that also runs after an earlier error. */
    void submitAlways(Runnable work) {
        submit(work, true);
    }

    private void submit(Runnable work, boolean evenAfterError) {
        if (queue == null) {
            work.run();
        } else {
            queue.submit(work, evenAfterError);
        }
    }

    /** Ends the thread once its queue is empty, without waiting; later work starts another. */
    public void retire() {
        if (queue != null) {
            queue.retire();
        }
    }

    /**
     * The queue and the thread that runs it. It does not refer to the stream, so that a stream that
     * was never closed can be garbage-collected, which ends the thread.
     */
    private static final class Queue implements Runnable {
        final String name = "jccl-stream-" + NUMBER.incrementAndGet();

        // All guarded by this. Counters only grow; a slot is counter % CAPACITY.
        private final @Nullable Runnable[] works = new Runnable[CAPACITY];
        private final boolean[] always = new boolean[CAPACITY];
        private long enqueued;
        private long taken;
        private long completed;
        private @Nullable Throwable error;
        private volatile boolean closed;

        /** Whether the thread ends when its queue is empty. */
        private boolean retired;

        /** Null before the first work and after its end. */
        private @Nullable Thread worker;

        synchronized void submit(Runnable work, boolean evenAfterError) {
            while (!closed && enqueued - completed >= CAPACITY) {
                Waits.on(this, Long.MAX_VALUE);
            }
            checkOpen();
            if (worker == null) {
                worker = Thread.ofPlatform().daemon().name(name).start(this);
            }
            int slot = (int) (enqueued++ % CAPACITY);
            works[slot] = work;
            always[slot] = evenAfterError;
            notifyAll();
        }

        void checkOpen() {
            if (closed) {
                throw new IllegalStateException("the stream is closed");
            }
        }

        synchronized void retire() {
            if (!retired) {
                retired = true;
                notifyAll();
            }
        }

        @Override
        public void run() {
            while (awaitWork()) {
                // A separate frame, so that the last task does not stay reachable from this thread.
                runNext();
            }
        }

        private synchronized boolean awaitWork() {
            while (taken == enqueued && !retired) {
                try {
                    wait();
                } catch (InterruptedException e) {
                    // Only close() and retire() end this thread.
                }
            }
            boolean some = taken < enqueued;
            if (!some) {
                worker = null;
            }
            return some;
        }

        private void runNext() {
            Runnable next;
            @Nullable Throwable earlier;
            synchronized (this) {
                int slot = (int) (taken++ % CAPACITY);
                next = Objects.requireNonNull(works[slot]);
                works[slot] = null;
                earlier = always[slot] ? null : error;
            }
            Throwable thrown = null;
            try {
                if (earlier == null) {
                    next.run();
                } else if (next instanceof StreamTask w) {
                    w.drop(earlier);
                }
            } catch (Throwable t) {
                thrown = t;
            }
            synchronized (this) {
                completed++;
                if (error == null) {
                    error = thrown;
                }
                notifyAll();
            }
        }

        synchronized @Nullable Throwable error() {
            return error;
        }

        synchronized boolean isIdle() {
            return completed == enqueued;
        }

        synchronized void synchronize(Duration timeout) {
            if (!awaitIdle(timeout, true)) {
                throw new JcclTimeoutException(
                        "the stream still has %s operations to complete after %s"
                                .formatted(enqueued - completed, timeout));
            }
            Throwable t = error;
            error = null;
            switch (t) {
                case null -> {}
                case JcclException e -> throw e;
                case Error e -> throw e;
                default -> throw new JcclException("an operation on " + name + " failed: " + t, t);
            }
        }

        private boolean awaitIdle(Duration timeout, boolean heedInterrupt) {
            long deadline = System.nanoTime() + Deadline.nanos(timeout);
            long target = enqueued;
            long interrupted = 0;
            try {
                while (completed < target) {
                    long now = System.nanoTime();
                    long left = deadline - now;
                    if (left <= 0) {
                        return false;
                    }
                    if (heedInterrupt && interrupted != 0) {
                        if (Interrupts.overdue(interrupted, now)) {
                            throw Interrupts.error(
                                    "the wait for " + name,
                                    (target - completed)
                                            + " operations are left on it and continue");
                        }
                        left = Math.min(left, Interrupts.GRACE_NANOS);
                    }
                    try {
                        wait(left / 1_000_000 + 1);
                    } catch (InterruptedException e) {
                        interrupted = Interrupts.caught(interrupted, System.nanoTime());
                    }
                }
                return true;
            } finally {
                Interrupts.restore(interrupted);
            }
        }

        void close() {
            Thread last;
            synchronized (this) {
                if (closed) {
                    return;
                }
                last = worker;
                // Work that closes its own stream would wait for itself.
                if (Thread.currentThread() == last || !awaitIdle(CLOSE_WAIT, false)) {
                    last = null;
                }
                closed = true;
                retired = true;
                notifyAll();
            }
            try {
                if (last != null) {
                    last.join(CLOSE_WAIT);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public boolean query() {
        return queue == null || queue.isIdle();
    }

    @Override
    public void synchronize() {
        synchronize(Deadline.FOREVER);
    }

    @Override
    public void synchronize(Duration timeout) {
        Objects.requireNonNull(timeout, "timeout");
        if (queue != null) {
            queue.synchronize(timeout);
        }
    }

    @Override
    public void copy(Buffer source, Buffer target) {
        CopyChecks.checkCopy(source, target);
        MemorySegment from = source.asSegment();
        MemorySegment to = target.asSegment();
        if (CopyChecks.overlap(from, to)) {
            throw CopyChecks.overlapping(source, target);
        }
        Copy copy;
        synchronized (spare) {
            copy = spare.pollLast();
        }
        if (copy == null) {
            copy = new Copy(spare);
        }
        copy.from = from;
        copy.to = to;
        submit(copy);
    }

    /** A copy, used again once it has run. */
    private static final class Copy implements Runnable {
        private final ArrayDeque<Copy> spare;
        private MemorySegment from = MemorySegment.NULL;
        private MemorySegment to = MemorySegment.NULL;

        Copy(ArrayDeque<Copy> spare) {
            this.spare = spare;
        }

        @Override
        public void run() {
            to.copyFrom(from);
            from = MemorySegment.NULL;
            to = MemorySegment.NULL;
            synchronized (spare) {
                spare.addLast(this);
            }
        }
    }

    @Override
    public void launchHostFunction(Runnable function) {
        submit(Objects.requireNonNull(function, "function"));
    }

    @Override
    public void waitFor(Event event) {
        if (!(event instanceof HostEvent e)) {
            throw new IllegalArgumentException(
                    "the event is not an event of the host device: " + event);
        }
        submitAlways(e.waiting());
    }

    @Override
    public void close() {
        if (queue != null) {
            queue.close();
            Objects.requireNonNull(watched).closed();
        }
    }

    @Override
    public String toString() {
        return queue == null ? "default stream" : queue.name;
    }
}
