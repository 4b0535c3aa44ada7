package io.jccl.engine.nccl;

import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.cuda.Capture;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.flight.CollectiveOp;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Preconditions checked before NCCL is called: an argument that NCCL rejects may end the
 * communicator, and one that it does not check fails in the kernel.
 */
final class NcclChecks {
    /** NCCL reduces 8-bit floats from compute capability 9.0 on. */
    private static final int FLOAT8_CAPABILITY = 90;

    private NcclChecks() {}

    static void buffer(NcclRank rank, Buffer buffer, String name) {
        CudaDevice device = rank.device();
        if (!(buffer instanceof CudaBuffer b)) {
            throw new IllegalArgumentException(
                    ("%s is memory of %s, expected memory of %s, this rank's device; allocate it"
                                    + " from device(), or wrap it with Cuda.wrapAddress")
                            .formatted(name, buffer.device(), device));
        }
        if (b.device() != device) {
            throw new IllegalArgumentException(
                    "%s is memory of %s, but rank %s is on %s"
                            .formatted(name, b.device(), rank.rank(), device));
        }
        if (!b.isOpen()) {
            throw new IllegalStateException(name + " is closed: " + buffer);
        }
    }

    static void supported(
            NcclRank rank, CollectiveOp op, @Nullable ReduceOp reduceOp, DataType type) {
        if (reduceOp == null || (type != DataType.FLOAT8E4M3 && type != DataType.FLOAT8E5M2)) {
            return;
        }
        CudaDevice device = rank.device();
        if (device.computeCapability() < FLOAT8_CAPABILITY) {
            throw new UnsupportedOperationException(
                    ("%s of %s needs compute capability 9.0 (H100) or newer, but %s has %s: reduce"
                                    + " bfloat16, and cast")
                            .formatted(
                                    op.method(), type, device, device.computeCapability() / 10.0));
        }
        // NCCL leaves its kernel for that out: it tests __CUDA_ARCH__ in host code, which does not
        // define it (src/device/onerank.cu:79 of 2.30.7).
        if (rank.size() == 1 && reduceOp.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
            throw new UnsupportedOperationException(
                    ("%s of %s with %s needs two ranks or more, as NCCL has no such kernel for"
                                    + " one: reduce bfloat16, and cast")
                            .formatted(op.method(), type, reduceOp));
        }
    }

    /** NCCL's finalize does not return before graphs with its operations are destroyed. */
    static void noGraphs(NcclRank rank) {
        List<Capture> open = rank.handle().graphs();
        if (!open.isEmpty()) {
            throw new IllegalStateException(
                    ("%s cannot be closed before %s, which hold operations of it: close the graphs"
                                    + " first")
                            .formatted(rank, open));
        }
    }
}
