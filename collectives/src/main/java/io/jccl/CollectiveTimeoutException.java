package io.jccl;

import io.jccl.error.JcclTimeoutException;

/**
 * A collective operation timed out. The message names the missing ranks, the operation and its
 * sequence number. The communicator is unusable afterwards.
 */
public class CollectiveTimeoutException extends JcclTimeoutException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, on which ranks, and what to do
     */
    public CollectiveTimeoutException(String message) {
        super(message);
    }
}
