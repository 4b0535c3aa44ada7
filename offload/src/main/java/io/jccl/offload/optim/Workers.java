package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A fixed set of threads for steps and norms. The calling thread is one of them, so {@code of(1)}
 * starts none.
 *
 * <p>Each thread takes a contiguous share in chunks of 65536 elements, which suits memory that was
 * first touched in the same order, and then what others have not begun yet. Threads that find
 * nothing to do spin for some microseconds, unless there are more of them than processors, and then
 * park. Nothing is allocated for a step.
 *
 * <p><b>Threads:</b> any thread may call; work is done one call at a time, others wait. Closing
 * waits for the call in progress.
 */
public final class Workers implements AutoCloseable {
    /** Elements that a thread takes at a time: some 10 microseconds' worth. */
    static final int CHUNK = 1 << 16;

    private static final int MAX = 1024;

    /** Longs a cache line and the one that is fetched with it hold. */
    private static final int PAD = 16;

    private static final int SPINS = 500;

    /** What is done to a range of elements that starts at a multiple of {@link #CHUNK}. */
    abstract static class Work {
        abstract void run(int thread, long begin, long end);
    }

    private final int threads;
    private final int spins;
    private final Thread[] others;
    private final ReentrantLock lock = new ReentrantLock();
    private final AtomicLongArray cursors;
    private final AtomicInteger remaining = new AtomicInteger();
    private final StepWork stepWork = new StepWork();
    private final GradientNorm.SumWork sumWork;

    private @Nullable Work work;
    private @Nullable Thread caller;
    private long count;

    /** Calls begun; guarded by the lock. */
    private int started;

    /** The same for the other threads: what they wait for. */
    private volatile int generation;

    private volatile boolean closed;
    private volatile @Nullable Throwable failure;

    private Workers(int threads) {
        this.threads = threads;
        this.spins = threads <= Runtime.getRuntime().availableProcessors() ? SPINS : 0;
        this.cursors = new AtomicLongArray((threads + 1) * PAD);
        this.sumWork = new GradientNorm.SumWork(threads);
        this.others = new Thread[threads - 1];
        for (int i = 0; i < others.length; i++) {
            int me = i + 1;
            others[i] =
                    Thread.ofPlatform()
                            .daemon()
                            .name("jccl-optimizer-" + me)
                            .unstarted(() -> loop(me));
        }
    }

    /**
     * Starts threads.
     *
     * @param threads how many work, the calling one included: 1 to 1024. As many as there are cores
     *     is the usual choice; memory bandwidth is often used up by fewer
     * @return the workers
     * @throws IllegalArgumentException if the number is out of range
     */
    public static Workers of(int threads) {
        if (threads < 1 || threads > MAX) {
            throw new IllegalArgumentException(
                    "threads is "
                            + threads
                            + ", expected 1 to "
                            + MAX
                            + "; try the number of cores");
        }
        Workers w = new Workers(threads);
        for (Thread t : w.others) {
            t.start();
        }
        return w;
    }

    /**
     * Number of threads that work, the calling one included.
     *
     * @return 1 or more
     */
    public int threads() {
        return threads;
    }

    /**
     * See {@link Optimizer#step(Workers, OptimizerState, long, Buffer, Buffer, long, double,
     * double)}.
     */
    void step(
            Optimizer optimizer,
            OptimizerState state,
            long from,
            Buffer gradients,
            @Nullable Buffer target,
            long step,
            double learningRate,
            double gradientFactor) {
        lock.lock();
        try {
            stepWork.prepare(
                    optimizer, state, from, gradients, target, step, learningRate, gradientFactor);
            run(stepWork, gradients.count());
        } finally {
            stepWork.clear();
            lock.unlock();
        }
    }

    /** Sum of the squares; the same bits for any number of threads. */
    double sumOfSquares(Buffer gradients) {
        lock.lock();
        try {
            sumWork.prepare(gradients);
            run(sumWork, gradients.count());
            return sumWork.total();
        } finally {
            sumWork.clear();
            lock.unlock();
        }
    }

    private void run(Work work, long count) {
        if (closed) {
            throw new IllegalStateException("the workers are closed; make new ones");
        }
        long chunks = (count + CHUNK - 1) / CHUNK;
        if (others.length == 0 || chunks < 2) {
            work.run(0, 0, count);
            return;
        }
        this.work = work;
        this.count = count;
        this.caller = Thread.currentThread();
        for (int i = 0; i < threads; i++) {
            cursors.set(i * PAD, begin(i, chunks));
        }
        failure = null;
        remaining.set(others.length);
        generation = ++started;
        for (Thread t : others) {
            LockSupport.unpark(t);
        }
        share(0);
        awaitOthers();
        this.caller = null;
        this.work = null;
        Throwable f = failure;
        if (f != null) {
            failure = null;
            throw new IllegalStateException(
                    "a piece of the work failed, the rest may be done: " + f.getMessage(), f);
        }
    }

    private long begin(int thread, long chunks) {
        return chunks / threads * thread + Math.min(thread, chunks % threads);
    }

    /** First the thread's own chunks, then what the others have left. */
    private void share(int me) {
        try {
            Work w = Objects.requireNonNull(work);
            long all = count;
            long chunks = (all + CHUNK - 1) / CHUNK;
            for (int i = 0; i < threads; i++) {
                int whose = (me + i) % threads;
                long end = begin(whose + 1, chunks);
                long chunk;
                while ((chunk = cursors.getAndIncrement(whose * PAD)) < end) {
                    long from = chunk * CHUNK;
                    w.run(me, from, Math.min(from + CHUNK, all));
                }
            }
        } catch (Throwable t) {
            failure = t;
        }
    }

    private void awaitOthers() {
        boolean interrupted = false;
        int spin = 0;
        while (remaining.get() > 0) {
            if (spin < spins) {
                spin++;
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
            int spin = 0;
            while (generation == seen && !closed) {
                if (spin < spins) {
                    spin++;
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

    /** Ends the threads, after the call in progress. Closing twice does nothing. */
    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            for (Thread t : others) {
                LockSupport.unpark(t);
            }
        } finally {
            lock.unlock();
        }
    }
}
