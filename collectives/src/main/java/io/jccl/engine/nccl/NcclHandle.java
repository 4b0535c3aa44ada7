package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.cuda.Capture;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaStream;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import java.util.function.LongUnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's handle of one communicator, who uses it, and its end: it is destroyed or aborted once, on
 * a thread that may hang. An abort is what frees a thread that waits inside NCCL for another rank;
 * one that merely enqueues is let out first.
 *
 * <p>If the communicator does not block, its threads are let into NCCL one at a time, since every
 * call, {@code ncclCommGetAsyncError} too, joins a thread of NCCL's and frees its job.
 */
final class NcclHandle {
    static final Duration ABORT_WAIT = Duration.ofSeconds(10);

    /** How long a thread may take to leave NCCL by itself before it counts as waiting there. */
    private static final long LEAVE_NANOS = 1_000_000_000L;

    private final NcclApi nccl;
    private final CudaDevice device;

    /** For threads' names. */
    private final String name;

    private final boolean blocking;

    /** NCCL's handle; 0 when it was destroyed. */
    private volatile long comm;

    private final AtomicBoolean aborting = new AtomicBoolean();

    /** Open when NCCL has returned from its last call for this communicator. */
    private final CountDownLatch ended = new CountDownLatch(1);

    /** Whether the user's thread is inside NCCL, where an abort must not meet it. */
    private volatile boolean inside;

    /** Held by whoever uses the handle outside the user's thread. */
    private final ReentrantLock lock = new ReentrantLock();

    /** Held while inside NCCL with a communicator that does not block. */
    private final ReentrantLock turn = new ReentrantLock();

    /** The last call that waits for others. */
    private volatile @Nullable NcclTask task;

    /** Graphs with operations of this communicator: NCCL does not end before they do. */
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
     * Starts a call that may wait for other ranks. Until {@link #leave} no other thread calls for a
     * communicator that does not block.
     */
    NcclTask start(String operation, IntSupplier call, LongSupplier child) {
        if (!blocking) {
            turn.lock();
        }
        NcclTask t = new NcclTask(nccl, device, operation, call, !blocking, this::comm, child);
        task = t;
        return t;
    }

    /** An operation is enqueued on a stream, and becomes part of a graph if that is captured. */
    void enqueuing(CudaStream stream) {
        Capture c = stream.capture();
        if (c != null && graphs.add(c)) {
            graphs.removeIf(Capture::isGone);
        }
    }

    /** Graphs that have to be closed before the communicator. */
    List<Capture> graphs() {
        return graphs.stream().filter(g -> !g.isGone()).toList();
    }

    /** The state, success if the user's thread is just using a communicator that does not block. */
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

    /** NCCL's handle; 0 when it was destroyed. */
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

    /** Keeps an abort out until {@link #leave}, if that comes soon. */
    void enter() {
        if (!blocking) {
            turn.lock();
        }
        inside = true;
    }

    /** Does nothing if this thread has not entered. */
    void leave() {
        inside = false;
        if (!blocking && turn.isHeldByCurrentThread()) {
            turn.unlock();
        }
    }

    /** Aborts on a thread of its own: NCCL may take long, or for ever. */
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

    /** Lets NCCL go, once all its work is enqueued; on a thread of its own. */
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
        // NCCL waits for graphs even then, and they cannot run any more.
        String reason = ": communicator " + name + ", which it uses, has failed";
        graphs.forEach(g -> g.end(reason));
        long wait = blocking ? LEAVE_NANOS : ABORT_WAIT.toNanos();
        long deadline = System.nanoTime() + wait;
        while ((inside || isBusy()) && System.nanoTime() < deadline) {
            LockSupport.parkNanos(100_000);
        }
        end(nccl::ncclCommAbort);
    }

    private void end(LongUnaryOperator last) {
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            if (c != 0) {
                // It is the end either way, and the reason for it has been reported.
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

    /** Lets the watchdog finish its last look, which may write to the store. */
    void awaitLook() {
        boolean interrupted = Thread.interrupted();
        try {
            if (lock.tryLock(1, TimeUnit.SECONDS)) {
                lock.unlock();
            }
        } catch (InterruptedException e) {
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Whether NCCL is done with this communicator; waits for that, but not for ever. */
    boolean awaitEnd() {
        // NCCL that hangs still has our memory: better to leak it.
        long deadline = System.nanoTime() + ABORT_WAIT.toNanos();
        boolean done = Waits.await(ended, ABORT_WAIT.toNanos());
        while (done && (inside || isBusy()) && System.nanoTime() < deadline) {
            Waits.park(100_000);
        }
        return done && !inside && !isBusy();
    }
}
