package io.jccl.bindings;

import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.error.JcclException;
import java.util.Map;
import java.util.Set;

/** A call to the CUDA runtime failed. */
public class CudaException extends JcclException {
    private static final long serialVersionUID = 1L;

    /**
     * The errors after which, according to driver_types.h, every further call fails until the
     * process is restarted. An uncorrectable memory error has the same effect: the context is lost.
     */
    private static final Set<Integer> FATAL =
            Set.of(
                    cudart_h.cudaErrorECCUncorrectable(),
                    cudart_h.cudaErrorContained(),
                    cudart_h.cudaErrorIllegalAddress(),
                    cudart_h.cudaErrorLaunchTimeout(),
                    cudart_h.cudaErrorAssert(),
                    cudart_h.cudaErrorHardwareStackError(),
                    cudart_h.cudaErrorIllegalInstruction(),
                    cudart_h.cudaErrorMisalignedAddress(),
                    cudart_h.cudaErrorInvalidAddressSpace(),
                    cudart_h.cudaErrorInvalidPc(),
                    cudart_h.cudaErrorLaunchFailure(),
                    cudart_h.cudaErrorTensorMemoryLeak(),
                    cudart_h.cudaErrorMpsClientTerminated(),
                    cudart_h.cudaErrorExternalDevice());

    private static final Map<Integer, String> ADVICE =
            Map.of(
                    cudart_h.cudaErrorInsufficientDriver(),
                            "install an NVIDIA driver, or one that is new enough for this CUDA"
                                    + " runtime: see jccl doctor",
                    cudart_h.cudaErrorNoDevice(),
                            "no GPU is visible: check CUDA_VISIBLE_DEVICES and, in a container,"
                                    + " that GPUs are passed in",
                    cudart_h.cudaErrorMemoryAllocation(),
                            "not enough memory: make buffers smaller or free some",
                    cudart_h.cudaErrorSystemDriverMismatch(),
                            "the loaded kernel driver and libcuda are of different versions:"
                                    + " restart the machine or the container",
                    cudart_h.cudaErrorSystemNotReady(),
                            "the driver or a service it needs (such as the fabric manager) is not"
                                    + " ready",
                    cudart_h.cudaErrorInitializationError(),
                            "CUDA could not start: a process that was forked after CUDA started"
                                    + " cannot use it; otherwise see jccl doctor",
                    cudart_h.cudaErrorHostMemoryAlreadyRegistered(),
                            "this host memory is pinned already",
                    cudart_h.cudaErrorPeerAccessUnsupported(),
                            "these two devices cannot access each other's memory",
                    cudart_h.cudaErrorDevicesUnavailable(),
                            "all GPUs are busy or reserved for another process");

    private final int error;
    private final String operation;

    /**
     * Creates an exception.
     *
     * @param error a {@code cudaError_t}
     * @param operation the C function that failed
     * @param message what happened, and what to do
     */
    public CudaException(int error, String operation, String message) {
        super(message);
        this.error = error;
        this.operation = operation;
    }

    /**
     * Creates an exception with CUDA's own explanation.
     *
     * @param cuda the library
     * @param error what the operation returned
     * @param operation the C function that failed
     * @return the exception; a {@link CudaFatalException} if no further call can succeed
     */
    public static CudaException of(CudaApi cuda, int error, String operation) {
        boolean fatal = FATAL.contains(error);
        String message =
                "%s failed: %s, %s%s (CUDA runtime %s)"
                        .formatted(
                                operation,
                                name(cuda, error),
                                cuda.cudaGetErrorString(error),
                                fatal
                                        ? "; CUDA is unusable in this process from now on:"
                                                + " restart it"
                                        : ADVICE.containsKey(error) ? "; " + ADVICE.get(error) : "",
                                cuda.library().version());
        return fatal
                ? new CudaFatalException(error, operation, message)
                : new CudaException(error, operation, message);
    }

    /**
     * Whether an error leaves CUDA unusable until the process is restarted.
     *
     * @param error a {@code cudaError_t}
     * @return true for those that CUDA calls an inconsistent state
     */
    public static boolean isFatal(int error) {
        return FATAL.contains(error);
    }

    /** CUDA returns "unrecognized error code" for an unknown code. */
    private static String name(CudaApi cuda, int error) {
        String name = cuda.cudaGetErrorName(error);
        return name.startsWith("cuda") ? name : "UNKNOWN(" + error + ")";
    }

    /**
     * The error code.
     *
     * @return a {@code cudaError_t}
     */
    public int error() {
        return error;
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
