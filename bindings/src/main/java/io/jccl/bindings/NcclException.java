package io.jccl.bindings;

import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.error.JcclException;
import java.util.Map;

/** A call to NCCL failed. */
public class NcclException extends JcclException {
    private static final long serialVersionUID = 1L;

    private static final String LOG = "set NCCL_DEBUG=INFO and read NCCL's own log";

    /**
     * A result code.
     *
     * @param name its name in nccl.h
     * @param advice what to do
     */
    private record Result(String name, String advice) {}

    private static final Map<Integer, Result> RESULTS =
            Map.of(
                    nccl_h.ncclSuccess(),
                    new Result("ncclSuccess", ""),
                    nccl_h.ncclUnhandledCudaError(),
                    new Result(
                            "ncclUnhandledCudaError",
                            "a CUDA call failed inside NCCL: check driver and devices with jccl"
                                    + " doctor, or "
                                    + LOG),
                    nccl_h.ncclSystemError(),
                    new Result(
                            "ncclSystemError",
                            "a system call failed (network, shared memory, memory limits): check"
                                    + " them with jccl doctor, or "
                                    + LOG),
                    nccl_h.ncclInternalError(),
                    new Result(
                            "ncclInternalError",
                            "an error inside NCCL or memory corruption: " + LOG),
                    nccl_h.ncclInvalidArgument(),
                    new Result("ncclInvalidArgument", "an argument is invalid: " + LOG),
                    nccl_h.ncclInvalidUsage(),
                    new Result(
                            "ncclInvalidUsage",
                            "the call does not fit the communicator's state or the other ranks'"
                                    + " calls: "
                                    + LOG),
                    nccl_h.ncclRemoteError(),
                    new Result(
                            "ncclRemoteError",
                            "another rank failed or left: look at its output first"),
                    nccl_h.ncclInProgress(),
                    new Result(
                            "ncclInProgress",
                            "the operation is not complete: poll ncclCommGetAsyncError before"
                                    + " using the communicator"),
                    nccl_h.ncclTimeout(),
                    new Result(
                            "ncclTimeout",
                            "NCCL gave up waiting for another rank: look at the others' output"));

    private final int result;
    private final String operation;

    /**
     * Creates an exception.
     *
     * @param result the code of NCCL
     * @param operation the C function that failed
     * @param message what happened, and what to do
     */
    public NcclException(int result, String operation, String message) {
        super(message);
        this.result = result;
        this.operation = operation;
    }

    /**
     * Creates an exception with NCCL's own explanation.
     *
     * @param nccl the library
     * @param result what the operation returned
     * @param operation the C function that failed
     * @param comm its communicator, or 0
     * @return the exception
     */
    public static NcclException of(NcclApi nccl, int result, String operation, long comm) {
        StringBuilder message =
                new StringBuilder()
                        .append(operation)
                        .append(" failed: ")
                        .append(name(result))
                        .append(", ")
                        .append(nccl.ncclGetErrorString(result));
        if (nccl.supports("ncclGetLastError")) {
            String last = nccl.ncclGetLastError(comm).strip();
            if (!last.isEmpty()) {
                message.append(": ").append(last);
            }
        }
        Result known = RESULTS.get(result);
        if (known != null) {
            message.append("; ").append(known.advice);
        }
        message.append(" (NCCL ").append(nccl.library().version()).append(')');
        return new NcclException(result, operation, message.toString());
    }

    /**
     * The name of a result code.
     *
     * @param result a {@code ncclResult_t}
     * @return such as {@code ncclRemoteError}, or {@code UNKNOWN(42)}
     */
    public static String name(int result) {
        Result known = RESULTS.get(result);
        return known == null ? "UNKNOWN(" + result + ")" : known.name;
    }

    /**
     * The result code.
     *
     * @return a {@code ncclResult_t}
     */
    public int result() {
        return result;
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
