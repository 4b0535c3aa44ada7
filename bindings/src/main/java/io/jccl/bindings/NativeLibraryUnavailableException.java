package io.jccl.bindings;

import io.jccl.error.JcclException;

/**
 * A native library that an operation needs is not there. The message names every place that was
 * looked at with the reason why it did not serve, and what to do.
 */
public class NativeLibraryUnavailableException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what is missing, where it was looked for, and what to do
     */
    public NativeLibraryUnavailableException(String message) {
        super(message);
    }
}
