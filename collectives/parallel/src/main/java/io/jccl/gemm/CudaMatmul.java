package io.jccl.gemm;

import io.jccl.bindings.CublasApi;
import io.jccl.bindings.CublasException;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaRuntime;
import io.jccl.device.cuda.CudaStream;
import io.jccl.device.cuda.DeferredFree;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Products on a GPU, by {@code cublasGemmEx}. Sums are float32; TF32 is not used, since cuBLAS
 * enables it only in a non-default math mode.
 *
 * <p>cuBLAS matrices are column-major, so a row-major matrix is its transpose to cuBLAS. It
 * therefore computes the transpose of c, which is the transpose of b times that of a.
 */
final class CudaMatmul implements Matmul {
    private final CudaDevice device;
    private final CublasApi api;
    private final Arena arena = Arena.ofShared();
    private final MemorySegment alpha;
    private final MemorySegment beta;
    private final long handle;
    private long stream;
    private boolean closed;

    /** Creates an instance for a device, with the cuBLAS of this process. */
    public CudaMatmul(CudaDevice device) {
        this(device, NativeLibraries.cublas());
    }

    CudaMatmul(CudaDevice device, CublasApi api) {
        this.device = device;
        this.api = api;
        this.alpha = arena.allocate(ValueLayout.JAVA_FLOAT);
        this.beta = arena.allocate(ValueLayout.JAVA_FLOAT);
        alpha.set(ValueLayout.JAVA_FLOAT, 0, 1);
        MemorySegment slot = arena.allocate(ValueLayout.JAVA_LONG);
        int previous = device.enter();
        long made = 0;
        boolean done = false;
        try {
            create(slot);
            made = slot.get(ValueLayout.JAVA_LONG, 0);
            api.check(
                    api.cublasSetPointerMode(made, cublas_h.CUBLAS_POINTER_MODE_HOST()),
                    "cublasSetPointerMode");
            api.check(
                    api.cublasSetMathMode(made, cublas_h.CUBLAS_DEFAULT_MATH()),
                    "cublasSetMathMode");
            done = true;
        } finally {
            if (!done) {
                if (made != 0) {
                    api.cublasDestroy(made);
                }
                arena.close();
            }
            device.exit(previous);
        }
        this.handle = made;
    }

    private void create(MemorySegment slot) {
        int status = api.cublasCreate(slot);
        if (status == cublas_h.CUBLAS_STATUS_ALLOC_FAILED()) {
            throw new CublasException(
                    status,
                    "cublasCreate",
                    CublasException.of(api, status, "cublasCreate").getMessage()
                            + "; cuBLAS needs some MiB for itself on "
                            + device
                            + ", which has no room for them: free memory there, or allocate less");
        }
        api.check(status, "cublasCreate");
    }

    @Override
    public synchronized void multiply(Matrix a, Matrix b, Matrix c, float beta, Stream stream) {
        Shapes.check(a, b, c);
        if (a.dataType() != b.dataType()) {
            throw new IllegalArgumentException(
                    ("a holds %s, b %s; cuBLAS multiplies factors of one type, so convert one of"
                                    + " them")
                            .formatted(a.dataType().label(), b.dataType().label()));
        }
        check(a, "a");
        check(b, "b");
        check(c, "c");
        long queue = CudaStream.of(stream, device).handle();
        if (closed) {
            throw new IllegalStateException("the Matmul is closed; make a new one");
        }
        if (c.rows() == 0 || c.columns() == 0) {
            return;
        }
        // c in column-major order is its transpose in row-major order.
        if (c.columnStride() != 1 && c.columns() != 1) {
            gemm(b, true, a, true, c.rows(), c.columnStride(), c, beta, queue);
        } else {
            gemm(a, false, b, false, c.columns(), c.rowStride(), c, beta, queue);
        }
    }

    /**
     * The row-major product of two matrices or of their transposes.
     *
     * @param width columns of the result
     * @param pitch elements between rows of the result
     */
    private void gemm(
            Matrix left,
            boolean leftTurned,
            Matrix right,
            boolean rightTurned,
            long width,
            long pitch,
            Matrix c,
            float beta,
            long queue) {
        long height = leftTurned ? left.columns() : left.rows();
        long k = leftTurned ? left.rows() : left.columns();
        boolean turnLeft = byRows(left) == leftTurned;
        boolean turnRight = byRows(right) == rightTurned;
        this.beta.set(ValueLayout.JAVA_FLOAT, 0, beta);
        int type =
                switch (left.dataType()) {
                    case FLOAT32 -> cublas_h.CUDA_R_32F();
                    case FLOAT16 -> cublas_h.CUDA_R_16F();
                    default -> cublas_h.CUDA_R_16BF();
                };
        int previous = device.enter();
        try {
            if (queue != stream) {
                api.check(api.cublasSetStream(handle, queue), "cublasSetStream");
                stream = queue;
            }
            check(
                    api.cublasGemmEx(
                            handle,
                            turnRight ? cublas_h.CUBLAS_OP_T() : cublas_h.CUBLAS_OP_N(),
                            turnLeft ? cublas_h.CUBLAS_OP_T() : cublas_h.CUBLAS_OP_N(),
                            number(width),
                            number(height),
                            number(k),
                            alpha,
                            start(right),
                            type,
                            number(leading(right)),
                            start(left),
                            type,
                            number(leading(left)),
                            this.beta,
                            start(c),
                            cublas_h.CUDA_R_32F(),
                            number(Math.max(pitch, width)),
                            cublas_h.CUBLAS_COMPUTE_32F(),
                            cublas_h.CUBLAS_GEMM_DEFAULT()),
                    queue);
        } finally {
            device.exit(previous);
        }
    }

    /**
     * Throws unless the product was launched. After an earlier kernel's error cuBLAS only reports
     * that a launch failed; any CUDA call, such as this one without side effects, reports the
     * actual error.
     */
    private void check(int status, long queue) {
        if (status != 0) {
            int error = CudaRuntime.api().cudaStreamIsCapturing(queue, CudaRuntime.slot());
            if (CudaException.isFatal(error)) {
                CudaRuntime.check(error, "cublasGemmEx");
            }
        }
        api.check(status, "cublasGemmEx");
    }

    private static boolean byRows(Matrix x) {
        return x.columnStride() == 1;
    }

    /** At least the length of a run: the stride of a single run is arbitrary. */
    private static long leading(Matrix x) {
        return byRows(x)
                ? Math.max(x.rowStride(), Math.max(1, x.columns()))
                : Math.max(x.columnStride(), Math.max(1, x.rows()));
    }

    private static long start(Matrix x) {
        return x.buffer().address() + x.offset() * x.dataType().size();
    }

    private static int number(long value) {
        if (value > Integer.MAX_VALUE) {
            throw new IllegalArgumentException(
                    ("a dimension or stride is %s, cuBLAS takes up to %s; multiply parts of the"
                                    + " matrices")
                            .formatted(value, Integer.MAX_VALUE));
        }
        return (int) value;
    }

    private void check(Matrix m, String name) {
        if (!(m.buffer() instanceof CudaBuffer b) || b.device() != device) {
            throw new IllegalArgumentException(
                    "%s lies on %s, this Matmul computes on %s"
                            .formatted(name, m.buffer().device(), device));
        }
        if (!b.isOpen()) {
            throw new IllegalStateException(name + " is closed: " + b);
        }
        if (b.address() % b.dataType().size() != 0) {
            throw new IllegalArgumentException(
                    "%s begins at 0x%s, expected a multiple of %s, the size of its elements"
                            .formatted(name, Long.toHexString(b.address()), b.dataType().size()));
        }
    }

    @Override
    public synchronized void close() {
        if (closed) {
            return;
        }
        closed = true;
        try {
            // It waits for the device, as cudaFree does.
            DeferredFree.call(
                    device.index(), () -> api.check(api.cublasDestroy(handle), "cublasDestroy"));
        } finally {
            arena.close();
        }
    }

    @Override
    public String toString() {
        return "Matmul[" + device + ", cuBLAS]";
    }
}
