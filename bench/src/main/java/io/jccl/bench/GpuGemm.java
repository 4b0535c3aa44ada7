package io.jccl.bench;

import io.jccl.bindings.CublasApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** A float32 matrix product on a GPU, as the work of a layer. */
final class GpuGemm implements AutoCloseable {
    private final CublasApi cublas = NativeLibraries.cublas();
    private final Arena arena = Arena.ofShared();
    private final MemorySegment one = arena.allocateFrom(ValueLayout.JAVA_FLOAT, 1f);
    private final MemorySegment zero = arena.allocateFrom(ValueLayout.JAVA_FLOAT, 0f);
    private final Buffer operands;
    private final long handle;
    private final int n;

    GpuGemm(Device device, int n) {
        this.n = n;
        MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
        cublas.check(cublas.cublasCreate(out), "cublasCreate");
        handle = out.get(ValueLayout.JAVA_LONG, 0);
        operands = device.allocate(DataType.FLOAT32, 3L * n * n);
    }

    void enqueue(Stream stream) {
        cublas.check(cublas.cublasSetStream(handle, Cuda.streamHandle(stream)), "cublasSetStream");
        long bytes = 4L * n * n;
        long a = operands.address();
        int plain = cublas_h.CUBLAS_OP_N();
        cublas.check(
                cublas.cublasSgemm(
                        handle,
                        plain,
                        plain,
                        n,
                        n,
                        n,
                        one,
                        a,
                        n,
                        a + bytes,
                        n,
                        zero,
                        a + 2 * bytes,
                        n),
                "cublasSgemm");
    }

    @Override
    public void close() {
        cublas.check(cublas.cublasDestroy(handle), "cublasDestroy");
        operands.close();
        arena.close();
    }
}
