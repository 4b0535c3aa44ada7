package io.jccl.error;

import org.jspecify.annotations.Nullable;

/**
 * Root of the exceptions for run-time failures. Invalid arguments and states cause {@link
 * IllegalArgumentException}, {@link IllegalStateException} or {@link NullPointerException} instead,
 * thrown before any data moves.
 */
public class JcclException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what failed, where, and what to do
     */
    public JcclException(String message) {
        super(message);
    }

    /**
     * Creates an exception with a cause.
     *
     * @param message what failed, where, and what to do
     * @param cause the cause
     */
    public JcclException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }
}
