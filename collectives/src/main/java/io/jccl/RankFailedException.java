package io.jccl;

import io.jccl.error.JcclException;

/**
 * Another rank terminated, closed its communicator or aborted while this one depended on it. The
 * message names that rank and the operation. The communicator is unusable afterwards.
 */
public class RankFailedException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, on which ranks, and what to do
     */
    public RankFailedException(String message) {
        super(message);
    }
}
