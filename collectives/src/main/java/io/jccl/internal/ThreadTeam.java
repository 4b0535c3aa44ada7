package io.jccl.internal;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A fixed set of threads that run one piece of work together. The calling thread is one of them, so
 * a team of one starts no thread. The work itself divides the load.
 *
 * <p>Waiting threads spin for some microseconds, unless there are more of them than processors, and
 * then park. Nothing is allocated for a run.
 *
 * <p><b>Threads:</b> called by one at a time.
 */
public final class ThreadTeam implements AutoCloseable {
    /** The work of every thread in a run. */
    @FunctionalInterface
    public interface Work {
        /**
         * Does this thread's share.
         *
         * @param me number of the thread; 0 is the calling one
         */
        void run(int me);
    }

    private static final int MAX = 1024;
    private static final int SPINS = 500;

    private final Work work;
    private final Thread[] others;
    private final int spins;
    private final AtomicInteger remaining = new AtomicInteger();
    private @Nullable Thread caller;
    private volatile int generation;
    private volatile boolean closed;
    private volatile @Nullable Throwable failure;

    /**
     * Starts threads.
     *
     * @param threads number of threads, including the calling one: 1 to 1024
     * @param name prefix of the threads' names, before their numbers
     * @param work the work; not called before this returns
     * @throws IllegalArgumentException if the number is out of range
     */
    public ThreadTeam(int threads, String name, Work work) {
        if (threads < 1 || threads > MAX) {
            throw new IllegalArgumentException(
                    ("threads is %s, expected 1 to %s; try the number of cores, or of cores per"
                                    + " rank")
                            .formatted(threads, MAX));
        }
        this.work = work;
        this.spins = threads <= Runtime.getRuntime().availableProcessors() ? SPINS : 0;
        this.others = new Thread[threads - 1];
        for (int i = 0; i < others.length; i++) {
            int me = i + 1;
            others[i] = Thread.ofPlatform().daemon().name(name + "-" + me).start(() -> loop(me));
        }
    }

    /**
     * Runs the work on all threads, and returns when all have finished.
     *
     * @return an exception of the work on one of the threads, or null
     */
    public @Nullable Throwable run() {
        failure = null;
        caller = Thread.currentThread();
        remaining.set(others.length);
        int next = generation + 1;
        generation = next;
        for (Thread t : others) {
            LockSupport.unpark(t);
        }
        share(0);
        awaitOthers();
        caller = null;
        Throwable f = failure;
        failure = null;
        return f;
    }

    private void share(int me) {
        try {
            work.run(me);
        } catch (Throwable t) {
            failure = t;
        }
    }

    private void awaitOthers() {
        boolean interrupted = false;
        for (int spin = 0; remaining.get() > 0; spin++) {
            if (spin < spins) {
                Thread.onSpinWait();
            } else {
                LockSupport.park(this);
                // Parking again would return immediately.
                interrupted |= Thread.interrupted();
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void loop(int me) {
        int seen = 0;
        while (true) {
            for (int spin = 0; generation == seen && !closed; spin++) {
                if (spin < spins) {
                    Thread.onSpinWait();
                } else {
                    LockSupport.park(this);
                }
            }
            if (generation == seen) {
                return;
            }
            seen = generation;
            Thread waiting = caller;
            share(me);
            if (remaining.decrementAndGet() == 0) {
                LockSupport.unpark(waiting);
            }
        }
    }

    /** Ends the threads; no run may be in progress. A second call has no effect. */
    @Override
    public void close() {
        closed = true;
        for (Thread t : others) {
            LockSupport.unpark(t);
        }
    }
}
