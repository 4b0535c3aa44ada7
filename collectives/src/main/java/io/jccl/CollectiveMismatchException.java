package io.jccl;

import io.jccl.error.JcclException;

/**
 * Ranks called different operations, or passed different counts, types, reductions or roots. It is
 * thrown on every rank and lists the call of each. The communicator is unusable afterwards.
 *
 * <p>The host engine detects this before any data moves. NCCL does not: its ranks hang or compute
 * wrong results. If an operation hangs for longer than the communicator's timeout, the last
 * operations of all ranks are compared; if they differ, this exception is thrown instead of a
 * {@link CollectiveTimeoutException}.
 */
public class CollectiveMismatchException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, on which ranks, and what to do
     */
    public CollectiveMismatchException(String message) {
        super(message);
    }
}
