package io.jccl.engine.mpi;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * One thread at a time in MPI, where that is all MPI was asked for ({@code MPI_THREAD_SERIALIZED}).
 * Uncontended it costs one atomic instruction: taking the turn is a compare-and-set, giving it back
 * an ordered store. Who finds it taken waits, at most {@link #WAIT_NANOS}: its holder may be in a
 * call that blocks until another rank does what the one that waits would have to do for that.
 *
 * <p><b>Threads:</b> any.
 */
final class SerializedLock {
    /**
     * Less than a failed communicator's thread may still take to leave MPI (see {@link
     * MpiMonitor}).
     */
    static final long WAIT_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final int SPINS = 1000;
    private static final long PARK_NANOS = 50_000;

    private static final int FREE = 0;
    private static final int TAKEN = 1;

    /** Free for those who waited when it was given back. */
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

    /** Who passed it on; read only in that state. */
    private @Nullable Thread passer;

    /** Takes the turn; false if another thread has had it for too long. */
    boolean take() {
        return STATE.compareAndSet(this, FREE, TAKEN) || await(WAIT_NANOS);
    }

    /** Takes the turn if it is to be had within some time. */
    boolean take(long nanos) {
        return STATE.compareAndSet(this, FREE, TAKEN) || await(nanos);
    }

    /** Gives the turn back, first of all to those who wait for it. */
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
                // Who passed it on and is back at once would otherwise always be first.
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
