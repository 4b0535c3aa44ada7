package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.internal.ThreadTeam;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A fixed team of threads for steps and norms. The calling thread is one of them, so {@code of(1)}
 * starts none.
 *
 * <p>Each thread takes a contiguous share in chunks of 65536 elements, which suits memory that was
 * first touched in the same order, and then chunks that others have not started yet. Idle threads
 * spin for some microseconds, unless there are more of them than processors, and then park. Nothing
 * is allocated for a step.
 *
 * <p><b>Threads:</b> any thread may call; calls are run one at a time. Closing waits for the call
 * in progress.
 */
public final class Workers implements AutoCloseable {
    /** Elements that a thread takes at a time: some 10 microseconds' worth. */
    static final int CHUNK = 1 << 16;

    /** Longs a cache line and the one that is fetched with it hold. */
    private static final int PAD = 16;

    /** What is done to a range of elements that starts at a multiple of {@link #CHUNK}. */
    abstract static class Work {
        abstract void run(int thread, long begin, long end);
    }

    private final int threads;
    private final ThreadTeam crew;
    private final ReentrantLock lock = new ReentrantLock();
    private final AtomicLongArray cursors;
    private final StepWork stepWork = new StepWork();
    private final GradientNorm.SumWork sumWork;

    private @Nullable Work work;
    private long count;
    private boolean closed;

    private Workers(int threads) {
        this.crew = new ThreadTeam(threads, "jccl-optimizer", this::share);
        this.threads = threads;
        this.cursors = new AtomicLongArray((threads + 1) * PAD);
        this.sumWork = new GradientNorm.SumWork(threads);
    }

    /**
     * Starts threads.
     *
     * @param threads number of threads, including the calling one: 1 to 1024. The number of cores
     *     is the usual choice; fewer often saturate memory bandwidth
     * @return the workers
     * @throws IllegalArgumentException if the number is out of range
     */
    public static Workers of(int threads) {
        return new Workers(threads);
    }

    /**
     * Number of threads, including the calling one.
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

    /** Sum of the squares; bit-identical for any number of threads. */
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
            throw new IllegalStateException("the workers are closed; create new ones");
        }
        long chunks = (count + CHUNK - 1) / CHUNK;
        if (threads == 1 || chunks < 2) {
            work.run(0, 0, count);
            return;
        }
        this.work = work;
        this.count = count;
        for (int i = 0; i < threads; i++) {
            cursors.set(i * PAD, begin(i, chunks));
        }
        Throwable f = crew.run();
        this.work = null;
        if (f != null) {
            throw new IllegalStateException(
                    "a piece of the work failed, the rest may be done: " + f.getMessage(), f);
        }
    }

    private long begin(int thread, long chunks) {
        return chunks / threads * thread + Math.min(thread, chunks % threads);
    }

    /** First the thread's own chunks, then what the others have left. */
    private void share(int me) {
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
    }

    /** Ends the threads after the call in progress. Closing twice does nothing. */
    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            crew.close();
        } finally {
            lock.unlock();
        }
    }
}
