package io.jccl.offload.optim;

import io.jccl.device.Buffer;
import io.jccl.kernel.Chunks;
import io.jccl.kernel.NormWork;
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
    private final Chunks chunks;
    private final ReentrantLock lock = new ReentrantLock();
    private final StepWork stepWork;
    private final NormWork sumWork;

    private boolean closed;

    private Workers(int threads) {
        this.chunks = new Chunks(threads, "jccl-optimizer");
        this.sumWork = new NormWork(threads);
        this.stepWork = new StepWork(threads);
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
        return chunks.threads();
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
            checkOpen();
            stepWork.run(chunks, gradients.count());
        } finally {
            stepWork.clear();
            lock.unlock();
        }
    }

    /** Sum of the squares; bit-identical for any number of threads. */
    double sumOfSquares(Buffer gradients) {
        lock.lock();
        try {
            sumWork.prepare(Checks.gradients(gradients), gradients.dataType(), gradients.count());
            checkOpen();
            chunks.run(sumWork, gradients.count());
            return sumWork.total();
        } finally {
            sumWork.clear();
            lock.unlock();
        }
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the workers are closed; create new ones");
        }
    }

    /** Ends the threads after the call in progress. Closing twice does nothing. */
    @Override
    public void close() {
        lock.lock();
        try {
            closed = true;
            chunks.close();
        } finally {
            lock.unlock();
        }
    }
}
