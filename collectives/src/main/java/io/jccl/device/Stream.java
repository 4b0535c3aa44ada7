package io.jccl.device;

import java.time.Duration;

/**
 * A queue of operations that run sequentially, in the order in which they were enqueued.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p>An operation that fails on a stream with its own thread does not throw where it was enqueued:
 * the error is thrown by the next {@link #synchronize(Duration)}, and operations enqueued after it
 * are dropped until then. If one of them is a communicator's, that communicator has failed on all
 * ranks, since the others cannot complete the operation. On a GPU, work after a failed host
 * function still runs.
 *
 * <p>A host stream holds up to 1,024 pending operations; enqueuing another one blocks until there
 * is room. A stream of a GPU holds about as many copies and kernels, and blocks in the same way. It
 * also blocks, until the work before has completed, for a copy of more than 64 KiB from host memory
 * that is not pinned, and for any copy to such memory. Operations of one communicator run in the
 * order of the calls, even on different streams.
 *
 * <p>A host stream has its own thread from its first operation until it is closed. A stream that
 * becomes unreachable before it is closed is reported once, with the stack trace of its creation,
 * as a warning of the logger {@code io.jccl}; on the host its work still runs, and then its thread
 * ends.
 *
 * <p><b>Interrupts:</b> if a thread is interrupted before or while it waits for a stream, the wait
 * ends after one second with a {@link io.jccl.error.JcclException} that reports the interrupt,
 * unless the work completes first. In both cases the thread's interrupt flag is set afterwards, and
 * the work continues.
 *
 * <p><b>Threads:</b> any thread may enqueue and wait; operations of one thread keep their order.
 */
public interface Stream extends AutoCloseable {
    /**
     * The device of this stream.
     *
     * @return the device
     */
    Device device();

    /**
     * Whether everything enqueued so far has completed.
     *
     * @return true if the stream is idle
     */
    boolean query();

    /**
     * Waits on the calling thread until everything enqueued so far has completed.
     *
     * @param timeout maximum time to wait
     * @throws io.jccl.error.JcclTimeoutException if work is pending when the timeout passes; the
     *     work continues
     * @throws io.jccl.error.JcclException the first error of an enqueued operation, or if the
     *     thread was interrupted
     */
    void synchronize(Duration timeout);

    /**
     * Waits without a timeout; collectives still have the timeout of their communicator.
     *
     * @throws io.jccl.error.JcclException the first error of an enqueued operation, or if the
     *     thread was interrupted
     */
    void synchronize();

    /**
     * Enqueues a copy. Both buffers must stay open until it has run.
     *
     * @param source elements to read
     * @param target destination; same type and count, not overlapping
     */
    void copy(Buffer source, Buffer target);

    /**
     * Enqueues a function that runs on the host once all work before it has completed.
     *
     * <p>The functions of all streams of a GPU may share one thread: while one of them waits, no
     * other runs. One that waits for a function of another stream may never end.
     *
     * @param function the function; it must not wait for this stream, nor for a function of another
     *     stream of the device
     */
    void launchHostFunction(Runnable function);

    /**
     * Makes work enqueued from now on wait for the last recording of an event. It also runs if work
     * before that recording has failed on the event's stream; see {@link Event#error}.
     *
     * @param event an event; one that was never recorded counts as completed
     */
    void waitFor(Event event);

    /**
     * Waits for enqueued work, for at most ten seconds, and releases the stream. Closing twice, or
     * closing the default stream, has no effect.
     */
    @Override
    void close();
}
