package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.Capture;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's handle of one communicator, the threads that use it, and its end: it is destroyed or
 * aborted once, on a thread that may hang. An abort releases a thread that waits inside NCCL for
 * another rank; one that only enqueues is allowed to leave first.
 *
 * <p>If the communicator is non-blocking, only one thread at a time may be inside NCCL, since every
 * call, including {@code ncclCommGetAsyncError}, joins a thread of NCCL and frees its job.
 */
final class NcclHandle {
    static final Duration ABORT_WAIT = Duration.ofSeconds(10);

    /** Time for a thread to leave NCCL by itself before it counts as waiting there. */
    private static final long LEAVE_NANOS = 1_000_000_000L;

    private final NcclApi nccl;
    private final CudaDevice device;

    /** For threads' names. */
    private final String name;

    private final boolean blocking;

    /** NCCL's handle; 0 after it was destroyed. */
    private volatile long comm;

    private final AtomicBoolean aborting = new AtomicBoolean();

    /** Reaches 0 when NCCL has returned from its last call for this communicator. */
    private final CountDownLatch ended = new CountDownLatch(1);

    /** Whether the user's thread is inside NCCL, where an abort must not interfere. */
    private volatile boolean inside;

    /** Whether a thread has begun to close the communicator. */
    private volatile boolean closing;

    /** Held by other threads than the user's while they use the handle. */
    private final ReentrantLock lock = new ReentrantLock();

    /** Held while inside NCCL with a non-blocking communicator. */
    private final ReentrantLock turn = new ReentrantLock();

    /** The last call that waits for other ranks. */
    private volatile @Nullable NcclTask task;

    /** Graphs with operations of this communicator: NCCL's finalize waits for their end. */
    private final Set<Capture> graphs = ConcurrentHashMap.newKeySet();

    NcclHandle(NcclApi nccl, CudaDevice device, long comm, boolean blocking, String name) {
        this.nccl = nccl;
        this.device = device;
        this.comm = comm;
        this.blocking = blocking;
        this.name = name;
    }

    boolean isBlocking() {
        return blocking;
    }

    /**
     * Starts a call that may wait for other ranks. For a non-blocking communicator, no other thread
     * may call NCCL until {@link #leave}.
     */
    NcclTask start(String operation, IntSupplier call, LongSupplier child) {
        if (!blocking) {
            turn.lock();
        }
        NcclTask t = new NcclTask(nccl, device, operation, call, !blocking, this::comm, child);
        task = t;
        return t;
    }

    /** Notes that an operation goes to a stream, and to a graph if the stream is being captured. */
    void enqueuing(CudaStream stream) {
        Capture c = stream.capture();
        if (c != null && graphs.add(c)) {
            graphs.removeIf(Capture::isGone);
        }
    }

    /** Graphs that must be closed before the communicator. */
    List<Capture> graphs() {
        return graphs.stream().filter(g -> !g.isGone()).toList();
    }

    /**
     * The state; success while the user's thread is inside NCCL with a non-blocking communicator.
     */
    int state() {
        if (blocking) {
            return Pending.state(nccl, comm);
        }
        if (!turn.tryLock()) {
            return nccl_h.ncclSuccess();
        }
        try {
            return Pending.state(nccl, comm);
        } finally {
            turn.unlock();
        }
    }

    /** NCCL's handle; 0 after it was destroyed. */
    long comm() {
        return comm;
    }

    ReentrantLock lock() {
        return lock;
    }

    /** Whether a thread is inside NCCL. */
    boolean isInside() {
        return inside;
    }

    /** Delays an abort until {@link #leave}, if that follows soon. */
    void enter() {
        if (!blocking) {
            turn.lock();
        }
        inside = true;
    }

    /** Ends {@link #enter}; harmless if this thread has not entered. */
    void leave() {
        inside = false;
        if (!blocking && turn.isHeldByCurrentThread()) {
            turn.unlock();
        }
    }

    /** Called after a thread has entered: throws if no operation may begin any more. */
    void checkGoesOn() {
        if (closing) {
            leave();
            throw new IllegalStateException(
                    "another thread closes the communicator (" + name + ")");
        }
        Watchdog.checkGoesOn(this);
    }

    /**
     * Lets no operation begin, which NCCL's end would not wait for, nor an abort end it.
     *
     * @throws JcclException if another thread does not leave NCCL
     */
    void beginClose() {
        closing = true;
        long deadline = System.nanoTime() + LEAVE_NANOS;
        while (inside) {
            if (System.nanoTime() - deadline > 0) {
                throw new JcclException(
                        "the communicator was closed while another thread waited inside NCCL");
            }
            Waits.park(100_000);
        }
    }

    /** Aborts on a separate thread, since NCCL may take long or never return. */
    void startAbort() {
        if (aborting.compareAndSet(false, true)) {
            start("abort", this::abortNative);
        }
    }

    /** Runs NCCL's last call for this communicator on a thread that may hang. */
    private void start(String what, Runnable last) {
        Thread.ofPlatform()
                .daemon()
                .name("jccl-" + what + "-" + name)
                .start(() -> {
                    device.adopt();
                    last.run();
                    ended.countDown();
                });
    }

    /** Destroys the communicator on a separate thread, once all its work is enqueued. */
    void startDestroy() {
        if (aborting.compareAndSet(false, true)) {
            start("destroy", () -> end(nccl::ncclCommDestroy));
        }
    }

    private void abortNative() {
        NcclTask t = task;
        if (t != null) {
            t.giveUp();
        }
        Thread graphsEnd = endGraphs();
        long began = System.nanoTime();
        long wait = blocking ? LEAVE_NANOS : ABORT_WAIT.toNanos();
        while (((inside || isBusy()) && System.nanoTime() - began < wait)
                || (graphsEnd.isAlive() && System.nanoTime() - began < LEAVE_NANOS)) {
            LockSupport.parkNanos(100_000);
        }
        end(nccl::ncclCommAbort);
        Waits.join(graphsEnd, Deadline.FOREVER);
    }

    /**
     * NCCL waits for graphs even in an abort, and they can no longer run: so they end first. A
     * launch keeps its graph until the stream has room, which it may have only after NCCL has begun
     * to abort: so they end on a thread of their own.
     */
    private Thread endGraphs() {
        String reason = ": communicator " + name + ", which it uses, has failed";
        return Thread.ofPlatform()
                .daemon()
                .name("jccl-abort-graphs-" + name)
                .start(() -> {
                    device.adopt();
                    graphs.forEach(g -> g.end(reason));
                });
    }

    private void end(LongUnaryOperator last) {
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            if (c != 0) {
                // The result does not matter: the communicator ends, and the reason has been
                // reported.
                var unused = last.applyAsLong(c);
            }
        } finally {
            lock.unlock();
        }
    }

    private boolean isBusy() {
        NcclTask t = task;
        return t != null && !t.isOver();
    }

    /** Whether NCCL has returned from its last call for this communicator. */
    boolean hasEnded() {
        return ended.getCount() == 0;
    }

    /** Waits for the watchdog's last poll, which may write to the store. */
    void awaitLook() {
        if (Waits.acquire(lock, LEAVE_NANOS)) {
            lock.unlock();
        }
    }

    /**
     * Waits, for a limited time, until NCCL no longer uses this communicator; whether that is so.
     */
    boolean awaitEnd() {
        // NCCL still uses our memory if it hangs: better to leak it.
        long deadline = System.nanoTime() + ABORT_WAIT.toNanos();
        boolean done = Waits.await(ended, ABORT_WAIT.toNanos());
        while (done && (inside || isBusy()) && System.nanoTime() < deadline) {
            Waits.park(100_000);
        }
        return done && !inside && !isBusy();
    }
}
