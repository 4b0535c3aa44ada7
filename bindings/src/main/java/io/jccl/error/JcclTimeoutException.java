package io.jccl.error;

/**
 * A wait for a stream, a value in a store or a drive timed out. The operation itself continues
 * unless the method that threw documents otherwise. Collectives throw the subclass {@code
 * CollectiveTimeoutException}, after which the communicator is unusable.
 */
public class JcclTimeoutException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message the operation, the timeout, and what to do
     */
    public JcclTimeoutException(String message) {
        super(message);
    }
}
