package io.jccl.device.host;

import io.jccl.error.JcclException;

/** Thrown if there is too little shared memory. */
public final class SharedMemoryFullException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message how much is needed, how much there is, and what to do
     */
    public SharedMemoryFullException(String message) {
        super(message);
    }
}
