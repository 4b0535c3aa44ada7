package io.jccl.offload;

import java.time.Duration;

/**
 * Asynchronous work on data: a transfer, a read or a write of a drive, or a move that consists of
 * several of them.
 *
 * <p><b>Threads:</b> any.
 */
public interface Completion {
    /**
     * Whether it has ended, successfully or not.
     *
     * @return true if {@link #await} would not wait
     */
    boolean isDone();

    /**
     * Waits for the end.
     *
     * @param timeout how long to wait at most
     * @throws io.jccl.error.JcclTimeoutException if the timeout expires first; the work continues
     * @throws java.util.concurrent.CancellationException if it was cancelled
     * @throws io.jccl.error.JcclException if it failed
     */
    void await(Duration timeout);

    /**
     * Returns the object to its owner for reuse once the work has ended, so that a loop creates no
     * objects. Optional; a completion must not be used afterwards, unless its class states
     * otherwise.
     */
    default void recycle() {}
}
