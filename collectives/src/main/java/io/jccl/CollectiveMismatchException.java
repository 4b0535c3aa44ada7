package io.jccl;

import io.jccl.error.JcclException;

/**
 * Ranks disagreed on an operation: another collective, count, type, reduction or root. Every rank
 * gets it, with what each rank asked for. The communicator is unusable afterwards.
 *
 * <p>The host engine notices before anything is moved. NCCL does not notice: its ranks hang, or
 * compute nonsense. If one hangs for longer than the communicator's timeout, the ranks' last
 * operations are compared, and this is thrown instead of a {@link CollectiveTimeoutException} if
 * they differ.
 */
public class CollectiveMismatchException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, to whom, and what to do
     */
    public CollectiveMismatchException(String message) {
        super(message);
    }
}
