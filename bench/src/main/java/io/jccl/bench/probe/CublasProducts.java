package io.jccl.bench.probe;

import io.jccl.bindings.CublasApi;
import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * Matrix products of types that {@link io.jccl.gemm.Matmul} does not support: TF32, float16 and
 * float64.
 *
 * <p><b>Threads:</b> a single one, since the current device is a property of the thread.
 */
final class CublasProducts implements AutoCloseable {
    private final CublasApi api = NativeLibraries.cublas();
    private final CudaApi cuda = NativeLibraries.cuda();
    private final Arena arena = Arena.ofShared();
    private final MemorySegment floats = arena.allocateFrom(ValueLayout.JAVA_FLOAT, 1f, 0f);
    private final MemorySegment doubles = arena.allocateFrom(ValueLayout.JAVA_DOUBLE, 1d, 0d);
    private final int previous;
    private final long handle;

    /**
     * Creates a handle. The device remains current until this is closed: cuBLAS requires it for
     * every call.
     */
    CublasProducts(Device device) {
        MemorySegment slot = arena.allocate(ValueLayout.JAVA_LONG);
        cuda.check(cuda.cudaGetDevice(slot), "cudaGetDevice");
        previous = slot.get(ValueLayout.JAVA_INT, 0);
        cuda.check(cuda.cudaSetDevice(device.index()), "cudaSetDevice");
        long made = 0;
        try {
            api.check(api.cublasCreate(slot), "cublasCreate");
            made = slot.get(ValueLayout.JAVA_LONG, 0);
            long stream = Cuda.streamHandle(device.defaultStream());
            api.check(api.cublasSetStream(made, stream), "cublasSetStream");
        } catch (RuntimeException e) {
            release(made);
            throw e;
        }
        handle = made;
    }

    private void release(long made) {
        try (arena) {
            if (made != 0) {
                api.check(api.cublasDestroy(made), "cublasDestroy");
            }
        } finally {
            cuda.cudaSetDevice(previous);
        }
    }

    /**
     * Enqueues {@code c = a b} on the default stream. cuBLAS is column-major, so it computes the
     * transpose, which is the transpose of b times that of a.
     */
    void multiply(MatrixType type, int n, Buffer a, Buffer b, Buffer c) {
        boolean wide = type == MatrixType.FLOAT64;
        int factor =
                switch (type) {
                    case BFLOAT16 -> cublas_h.CUDA_R_16BF();
                    case FLOAT16 -> cublas_h.CUDA_R_16F();
                    case FLOAT64 -> cublas_h.CUDA_R_64F();
                    default -> cublas_h.CUDA_R_32F();
                };
        int math =
                type == MatrixType.TF32
                        ? cublas_h.CUBLAS_TF32_TENSOR_OP_MATH()
                        : cublas_h.CUBLAS_DEFAULT_MATH();
        int plain = cublas_h.CUBLAS_OP_N();
        MemorySegment scalars = wide ? doubles : floats;
        api.check(api.cublasSetMathMode(handle, math), "cublasSetMathMode");
        api.check(
                api.cublasGemmEx(
                        handle,
                        plain,
                        plain,
                        n,
                        n,
                        n,
                        scalars,
                        b.address(),
                        factor,
                        n,
                        a.address(),
                        factor,
                        n,
                        scalars.asSlice(scalars.byteSize() / 2),
                        c.address(),
                        wide ? cublas_h.CUDA_R_64F() : cublas_h.CUDA_R_32F(),
                        n,
                        wide ? cublas_h.CUBLAS_COMPUTE_64F() : cublas_h.CUBLAS_COMPUTE_32F(),
                        cublas_h.CUBLAS_GEMM_DEFAULT()),
                "cublasGemmEx");
    }

    @Override
    public void close() {
        release(handle);
    }
}
