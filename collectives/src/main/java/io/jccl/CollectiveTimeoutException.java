package io.jccl;

import io.jccl.error.JcclTimeoutException;

/**
 * An operation did not complete in time. The message names the ranks that were missing, the
 * operation and its sequence number. The communicator is unusable afterwards.
 */
public class CollectiveTimeoutException extends JcclTimeoutException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, to whom, and what to do
     */
    public CollectiveTimeoutException(String message) {
        super(message);
    }
}
