package io.jccl;

import io.jccl.bindings.JcclException;

/**
 * Ranks disagreed on an operation: another collective, count, type, reduction or root. Every rank
 * gets it, with what each rank asked for. The communicator is unusable afterwards.
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
