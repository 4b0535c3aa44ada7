package io.jccl.device.host;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Host work in order: on the caller, or on a thread of its own behind a bounded queue. A full queue
 * makes the caller wait.
 */
public final class HostStream implements Stream {
    private static final int CAPACITY = 1024;
    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);
    private static final AtomicInteger NUMBER = new AtomicInteger();

    private final HostDevice device;

    /** The worker; null if work runs on the caller. */
    private final @Nullable Thread worker;

    // All guarded by this. Counters only grow; a slot is counter % CAPACITY.
    private final @Nullable Runnable[] queue;
    private final boolean[] always;
    private long enqueued;
    private long taken;
    private long completed;
    private @Nullable Throwable error;
    private boolean closed;

    private HostStream(HostDevice device, boolean threaded) {
        this.device = device;
        this.queue = new Runnable[threaded ? CAPACITY : 0];
        this.always = new boolean[queue.length];
        this.worker =
                threaded
                        ? Thread.ofPlatform()
                                .daemon()
                                .name("jccl-stream-" + NUMBER.incrementAndGet())
                                .unstarted(this::work)
                        : null;
    }

    static HostStream inline(HostDevice device) {
        return new HostStream(device, false);
    }

    public static HostStream threaded(HostDevice device) {
        HostStream s = new HostStream(device, true);
        Objects.requireNonNull(s.worker).start();
        return s;
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

    public boolean isInline() {
        return worker == null;
    }

    /** Runs or enqueues work; an earlier error on the stream drops it. */
    public void submit(Runnable work) {
        submit(work, false);
    }

    /** Runs or enqueues work that no earlier error drops. */
    void submitAlways(Runnable work) {
        submit(work, true);
    }

    private void submit(Runnable work, boolean evenAfterError) {
        if (worker == null) {
            work.run();
            return;
        }
        synchronized (this) {
            boolean interrupted = false;
            while (!closed && enqueued - completed >= CAPACITY) {
                try {
                    wait();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
            checkOpen();
            int slot = (int) (enqueued++ % CAPACITY);
            queue[slot] = work;
            always[slot] = evenAfterError;
            notifyAll();
        }
    }

    private void work() {
        while (true) {
            Runnable next;
            boolean skip;
            synchronized (this) {
                while (taken == enqueued && !closed) {
                    try {
                        wait();
                    } catch (InterruptedException e) {
                        // Only close() ends this thread.
                    }
                }
                if (taken == enqueued) {
                    return;
                }
                int slot = (int) (taken++ % CAPACITY);
                next = Objects.requireNonNull(queue[slot]);
                queue[slot] = null;
                skip = error != null && !always[slot];
            }
            Throwable thrown = null;
            try {
                if (skip) {
                    if (next instanceof StreamTask w) {
                        w.drop();
                    }
                } else {
                    next.run();
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
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the stream is closed");
        }
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public synchronized boolean query() {
        return completed == enqueued;
    }

    @Override
    public void synchronize() {
        synchronize(Deadline.FOREVER);
    }

    @Override
    public synchronized void synchronize(Duration timeout) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        if (!awaitIdle(deadline)) {
            throw new JcclTimeoutException(
                    "the stream still has "
                            + (enqueued - completed)
                            + " operations to complete after "
                            + timeout);
        }
        Throwable t = error;
        error = null;
        switch (t) {
            case null -> {}
            case JcclException e -> throw e;
            case Error e -> throw e;
            default -> throw new JcclException("an operation on " + this + " failed: " + t, t);
        }
    }

    private boolean awaitIdle(long deadline) {
        long target = enqueued;
        boolean interrupted = false;
        try {
            while (completed < target) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                try {
                    wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
            return true;
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void copy(Buffer source, Buffer target) {
        CopyChecks.checkCopy(source, target);
        var from = source.asSegment();
        var to = target.asSegment();
        if (from.asOverlappingSlice(to).isPresent()) {
            throw CopyChecks.overlapping(source, target);
        }
        submit(() -> to.copyFrom(from));
    }

    @Override
    public void launchHostFunction(Runnable function) {
        submit(Objects.requireNonNull(function, "function"));
    }

    @Override
    public void waitFor(Event event) {
        if (!(event instanceof HostEvent e)) {
            throw new IllegalArgumentException(
                    "the event is no event of the host device: " + event);
        }
        submitAlways(e.waiting());
    }

    @Override
    public void close() {
        if (worker == null) {
            return;
        }
        synchronized (this) {
            if (closed) {
                return;
            }
            awaitIdle(System.nanoTime() + Deadline.nanos(CLOSE_WAIT));
            closed = true;
            notifyAll();
        }
        boolean interrupted = false;
        try {
            if (Thread.currentThread() != worker) {
                worker.join(CLOSE_WAIT);
            }
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public String toString() {
        return worker == null ? "default stream" : worker.getName();
    }
}
