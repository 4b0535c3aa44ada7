package io.jccl.bindings;

import io.jccl.error.JcclException;

/** A call to cuBLAS failed. */
public class CublasException extends JcclException {
    private static final long serialVersionUID = 1L;

    private final int status;
    private final String operation;

    /**
     * Creates an exception.
     *
     * @param status {@code cublasStatus_t}
     * @param operation the C function that failed
     * @param message what happened
     */
    public CublasException(int status, String operation, String message) {
        super(message);
        this.status = status;
        this.operation = operation;
    }

    /**
     * Creates an exception with the library's own explanation.
     *
     * @param library the library
     * @param status what the operation returned
     * @param operation the C function that failed
     * @return the exception
     */
    public static CublasException of(CublasApi library, int status, String operation) {
        String message =
                "%s failed: %s (%s %s)"
                        .formatted(
                                operation,
                                name(library, status)
                                        + ", "
                                        + library.cublasGetStatusString(status),
                                library.library().library().title(),
                                library.library().version());
        return new CublasException(status, operation, message);
    }

    /** The name of a status in cuBLAS; "unrecognized status" for unknown ones. */
    private static String name(CublasApi library, int status) {
        String name = library.cublasGetStatusName(status);
        return name.startsWith("CUBLAS_STATUS_") ? name : "UNKNOWN(" + status + ")";
    }

    /**
     * The status code.
     *
     * @return {@code cublasStatus_t}
     */
    public int status() {
        return status;
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
