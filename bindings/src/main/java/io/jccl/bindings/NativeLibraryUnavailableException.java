package io.jccl.bindings;

import io.jccl.error.JcclException;

/**
 * A native library that an operation needs is not available. The message lists every place that was
 * searched with the reason why it could not be used, and what to do.
 */
public class NativeLibraryUnavailableException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param message what is missing, the places that were searched, and what to do
     */
    public NativeLibraryUnavailableException(String message) {
        super(message);
    }
}
