package io.jccl.error;

/**
 * A wait ended by its timeout: for work of a stream, a value in a store, a drive. What was waited
 * for goes on unless the method that threw says otherwise. Collectives throw the subclass {@code
 * CollectiveTimeoutException}, after which the communicator is unusable.
 */
public class JcclTimeoutException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what was waited for, how long, and what to do
     */
    public JcclTimeoutException(String message) {
        super(message);
    }
}
