package io.jccl.engine.nccl;

import io.jccl.bindings.NcclApi;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * NCCL's handle of one communicator, who uses it, and its end: it is destroyed or aborted once, on
 * a thread that may hang, and never while the user's thread or the watchdog is inside NCCL with it.
 */
final class NcclHandle {
    static final Duration ABORT_WAIT = Duration.ofSeconds(10);

    private final NcclApi nccl;

    /** For threads' names. */
    private final String name;

    /** NCCL's handle; 0 when it was destroyed. */
    private volatile long comm;

    private final AtomicBoolean aborting = new AtomicBoolean();

    /** Open when NCCL has returned from its last call for this communicator. */
    private final CountDownLatch ended = new CountDownLatch(1);

    /** Whether the user's thread is inside NCCL, where an abort must not meet it. */
    private volatile boolean inside;

    /** Held by whoever uses the handle outside the user's thread. */
    private final ReentrantLock lock = new ReentrantLock();

    NcclHandle(NcclApi nccl, long comm, String name) {
        this.nccl = nccl;
        this.comm = comm;
        this.name = name;
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

    /** Keeps an abort out until {@link #leave}. */
    void enter() {
        inside = true;
    }

    void leave() {
        inside = false;
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
                    last.run();
                    ended.countDown();
                });
    }

    /** Lets NCCL go, once all its work is enqueued; on a thread of its own. */
    void startDestroy() {
        if (aborting.compareAndSet(false, true)) {
            start("destroy", this::destroyNative);
        }
    }

    private void destroyNative() {
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            nccl.ncclCommDestroy(c);
        } finally {
            lock.unlock();
        }
    }

    private void abortNative() {
        long deadline = System.nanoTime() + ABORT_WAIT.toNanos();
        while (inside && System.nanoTime() < deadline) {
            LockSupport.parkNanos(100_000);
        }
        lock.lock();
        try {
            long c = comm;
            comm = 0;
            if (c != 0) {
                nccl.ncclCommAbort(c);
            }
        } finally {
            lock.unlock();
        }
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
        return Waits.await(ended, ABORT_WAIT.toNanos());
    }
}
