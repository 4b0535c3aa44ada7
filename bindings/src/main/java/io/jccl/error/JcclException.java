package io.jccl.error;

import org.jspecify.annotations.Nullable;

/**
 * Root of everything that goes wrong while ranks talk to each other. Faults in the arguments of a
 * call are {@link IllegalArgumentException}, {@link IllegalStateException} or {@link
 * NullPointerException} instead, thrown before anything moves.
 */
public class JcclException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what happened, to whom, and what to do
     */
    public JcclException(String message) {
        super(message);
    }

    /**
     * Creates an exception with a cause.
     *
     * @param message what happened, to whom, and what to do
     * @param cause what led to it
     */
    public JcclException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }
}
