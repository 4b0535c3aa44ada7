package io.jccl.bindings;

/**
 * A call to the CUDA runtime failed, and so will every later one: the process must be restarted.
 */
public class CudaFatalException extends CudaException {
    private static final long serialVersionUID = 1L;

    /**
     * Creates an exception.
     *
     * @param error a {@code cudaError_t}
     * @param operation the C function that failed
     * @param message what happened, and what to do
     */
    public CudaFatalException(int error, String operation, String message) {
        super(error, operation, message);
    }
}
