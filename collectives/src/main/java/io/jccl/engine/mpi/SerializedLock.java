package io.jccl.engine.mpi;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Lets one thread at a time into MPI, if MPI was initialized with {@code MPI_THREAD_SERIALIZED}.
 * Uncontended it costs one atomic instruction: acquiring is a compare-and-set, releasing an ordered
 * store. A waiting thread gives up after {@link #WAIT_NANOS}: the holder may be in a call that
 * blocks until another rank does something that requires the waiting thread.
 *
 * <p><b>Threads:</b> any.
 */
final class SerializedLock {
    /**
     * Less than the time that a failed communicator's thread may take to leave MPI (see {@link
     * MpiMonitor}).
     */
    static final long WAIT_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final int SPINS = 1000;
    private static final long PARK_NANOS = 50_000;

    private static final int FREE = 0;
    private static final int TAKEN = 1;

    /** Free for threads that waited when it was released. */
    private static final int PASSED = 2;

    private static final VarHandle STATE;
    private static final VarHandle WAITING;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            STATE = lookup.findVarHandle(SerializedLock.class, "state", int.class);
            WAITING = lookup.findVarHandle(SerializedLock.class, "waiting", int.class);
        } catch (ReflectiveOperationException e) {
            throw new LinkageError("a field of SerializedLock", e);
        }
    }

    @SuppressWarnings("unused")
    private volatile int state;

    @SuppressWarnings("unused")
    private volatile int waiting;

    /** The thread that passed it on; read only in that state. */
    private @Nullable Thread passer;

    /** Acquires the lock; false if another thread holds it for too long. */
    boolean take() {
        return STATE.compareAndSet(this, FREE, TAKEN) || await(WAIT_NANOS);
    }

    /** Acquires the lock if it becomes free within a time. */
    boolean take(long nanos) {
        return STATE.compareAndSet(this, FREE, TAKEN) || await(nanos);
    }

    /** Releases the lock, preferably to waiting threads. */
    void give() {
        if ((int) WAITING.getOpaque(this) == 0) {
            STATE.setRelease(this, FREE);
        } else {
            passer = Thread.currentThread();
            STATE.setRelease(this, PASSED);
        }
    }

    private boolean await(long nanos) {
        WAITING.getAndAdd(this, 1);
        try {
            long deadline = System.nanoTime() + nanos;
            for (int i = 0; ; i++) {
                int seen = (int) STATE.getAcquire(this);
                // Otherwise a thread that releases and immediately acquires it would always win.
                boolean mine =
                        seen == FREE
                                || (seen == PASSED
                                        && (passer != Thread.currentThread()
                                                || (int) WAITING.getOpaque(this) == 1));
                if (mine && STATE.compareAndSet(this, seen, TAKEN)) {
                    return true;
                }
                if (i < SPINS) {
                    Thread.onSpinWait();
                } else if (System.nanoTime() - deadline < 0) {
                    LockSupport.parkNanos(PARK_NANOS);
                } else {
                    return false;
                }
            }
        } finally {
            WAITING.getAndAdd(this, -1);
        }
    }
}
