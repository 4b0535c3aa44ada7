package io.jccl.bindings;

import io.jccl.error.JcclException;

/** A call to MPI failed. */
public class MpiException extends JcclException {
    private static final long serialVersionUID = 1L;

    private final int code;
    private final String operation;

    /**
     * Creates an exception.
     *
     * @param code an error code
     * @param operation the C function that failed
     * @param message what happened
     */
    public MpiException(int code, String operation, String message) {
        super(message);
        this.code = code;
        this.operation = operation;
    }

    /**
     * Creates an exception with the library's own explanation.
     *
     * @param library the library
     * @param code what the operation returned
     * @param operation the C function that failed
     * @return the exception
     */
    public static MpiException of(MpiApi library, int code, String operation) {
        String message =
                "%s failed: %s (%s %s)"
                        .formatted(
                                operation,
                                library.errorString(code),
                                library.library().library().title(),
                                library.library().version());
        return new MpiException(code, operation, message);
    }

    /**
     * The error code.
     *
     * @return an error code
     */
    public int code() {
        return code;
    }

    /**
     * The function that failed.
     *
     * @return its C name
     */
    public String operation() {
        return operation;
    }
}
