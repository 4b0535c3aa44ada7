package io.jccl.parallel.gemm;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A fixed set of threads that share numbered pieces of work; the calling thread is one of them.
 * Nothing is allocated for a run. One thread at a time calls.
 */
final class Crew implements AutoCloseable {
    /** What is done with a piece. */
    interface Work {
        void run(int worker, int piece);
    }

    private static final int MAX = 1024;
    private static final int SPINS = 500;

    private final Work work;
    private final Thread[] others;
    private final int spins;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger remaining = new AtomicInteger();
    private int pieces;
    private @Nullable Thread caller;
    private volatile int generation;
    private volatile boolean closed;
    private volatile @Nullable Throwable failure;

    Crew(int threads, Work work) {
        if (threads < 1 || threads > MAX) {
            throw new IllegalArgumentException(
                    "threads is "
                            + threads
                            + ", expected 1 to "
                            + MAX
                            + "; try the cores per rank");
        }
        this.work = work;
        this.spins = threads <= Runtime.getRuntime().availableProcessors() ? SPINS : 0;
        this.others = new Thread[threads - 1];
        for (int i = 0; i < others.length; i++) {
            int me = i + 1;
            others[i] =
                    Thread.ofPlatform().daemon().name("jccl-matmul-" + me).start(() -> loop(me));
        }
    }

    /** Does all pieces, and returns when they are done. */
    void run(int count) {
        if (others.length == 0 || count < 2) {
            for (int i = 0; i < count; i++) {
                work.run(0, i);
            }
            return;
        }
        pieces = count;
        next.set(0);
        failure = null;
        caller = Thread.currentThread();
        remaining.set(others.length);
        int g = generation + 1;
        generation = g;
        for (Thread t : others) {
            LockSupport.unpark(t);
        }
        share(0);
        awaitOthers();
        caller = null;
        Throwable f = failure;
        if (f != null) {
            failure = null;
            throw new IllegalStateException("a part of the product failed: " + f.getMessage(), f);
        }
    }

    private void share(int me) {
        try {
            int i;
            while ((i = next.getAndIncrement()) < pieces) {
                work.run(me, i);
            }
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
                // Parking again would return at once.
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

    /** Ends the threads; no run is in progress. */
    @Override
    public void close() {
        closed = true;
        for (Thread t : others) {
            LockSupport.unpark(t);
        }
    }
}
