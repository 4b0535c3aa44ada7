package io.jccl.device;

import java.time.Duration;

/**
 * A queue of operations that run one after the other, in the order in which they were enqueued.
 *
 * {@snippet class="snippets.Collectives" region="stream"}
 *
 * <p>An operation that fails on a stream with a thread of its own does not throw where it was
 * enqueued: the error surfaces at the next {@link #synchronize(Duration)}, and operations enqueued
 * behind it are dropped until then. On a GPU, work behind a host function that failed runs all the
 * same.
 *
 * <p>A host stream holds up to 1,024 operations that have not completed; enqueuing one more waits
 * for room. Operations of one communicator run in the order of their calls also when they are on
 * different streams.
 *
 * <p>A host stream has a thread of its own from its first operation until it is closed. A stream
 * whose last reference is lost before it is closed is reported once, with the stack that created
 * it, as a warning of the logger {@code io.jccl}; on the host its work still runs and its thread
 * ends.
 *
 * <p><b>Interrupts:</b> waiting for a stream on an interrupted thread, or one that is interrupted
 * meanwhile, ends after one second with a {@link io.jccl.error.JcclException} that names the
 * interrupt, unless the work completes before. The thread's interrupt flag is set afterwards in
 * both cases, and the work goes on.
 *
 * <p><b>Threads:</b> any thread may enqueue and wait; operations enqueued by one thread keep their
 * order.
 */
public interface Stream extends AutoCloseable {
    /**
     * The device whose work this stream orders.
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
     * @param timeout how long to wait at most
     * @throws io.jccl.error.JcclTimeoutException if work is left when the time has passed; the work
     *     goes on
     * @throws io.jccl.error.JcclException the first error of an enqueued operation, or if the
     *     thread was interrupted
     */
    void synchronize(Duration timeout);

    /**
     * Waits without a limit of its own; collectives still have the timeout of their communicator.
     *
     * @throws io.jccl.error.JcclException the first error of an enqueued operation, or if the
     *     thread was interrupted
     */
    void synchronize();

    /**
     * Enqueues a copy. Both buffers must stay open until it has run.
     *
     * @param source elements to read
     * @param target where to write them; same type and count, not overlapping
     */
    void copy(Buffer source, Buffer target);

    /**
     * Enqueues a function that runs on the host when everything before it has completed.
     *
     * @param function what to run; it must not wait for this stream
     */
    void launchHostFunction(Runnable function);

    /**
     * Makes work enqueued from now on wait until the event's last recording has completed.
     *
     * @param event an event; one never recorded is complete
     */
    void waitFor(Event event);

    /**
     * Waits for the work enqueued, for at most ten seconds, and releases the stream. Closing twice
     * does nothing; the default stream cannot be closed and ignores the call.
     */
    @Override
    void close();
}
