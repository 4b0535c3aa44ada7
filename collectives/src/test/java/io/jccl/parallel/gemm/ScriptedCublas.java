package io.jccl.parallel.gemm;

import io.jccl.bindings.CublasApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.cuda.CudaDevice;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.parallel.Matmul;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;

/**
 * cuBLAS as NVIDIA's documentation has it, matrices by columns, on the memory of the CUDA double.
 */
public final class ScriptedCublas {
    final List<String> calls = new ArrayList<>();
    int fail;
    private final Device device;
    private long stream;

    /** Products on a device of the double, by such a cuBLAS. */
    public static Matmul matmul(Device device) {
        return new CudaMatmul(CudaDevice.of(device), new ScriptedCublas(device).api());
    }

    ScriptedCublas(Device device) {
        this.device = device;
    }

    CublasApi api() {
        return (CublasApi)
                Proxy.newProxyInstance(
                        CublasApi.class.getClassLoader(),
                        new Class<?>[] {CublasApi.class},
                        (proxy, method, args) -> {
                            switch (method.getName()) {
                                case "check" -> {
                                    if ((int) args[0] != 0) {
                                        throw new IllegalStateException(args[1] + " " + args[0]);
                                    }
                                    return null;
                                }
                                case "cublasCreate" ->
                                        ((MemorySegment) args[0])
                                                .set(ValueLayout.JAVA_LONG, 0, 4711L);
                                case "cublasSetStream" -> stream = (long) args[1];
                                case "cublasGemmEx" -> gemm(args);
                                default -> {}
                            }
                            synchronized (calls) {
                                calls.add(method.getName());
                            }
                            return fail;
                        });
    }

    private void gemm(Object[] x) {
        var cuda = NativeLibraries.cuda();
        cuda.check(cuda.cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        boolean ta = (int) x[1] == cublas_h.CUBLAS_OP_T();
        boolean tb = (int) x[2] == cublas_h.CUBLAS_OP_T();
        int m = (int) x[3];
        int n = (int) x[4];
        int k = (int) x[5];
        float alpha = ((MemorySegment) x[6]).get(ValueLayout.JAVA_FLOAT, 0);
        float beta = ((MemorySegment) x[13]).get(ValueLayout.JAVA_FLOAT, 0);
        int lda = (int) x[9];
        int ldb = (int) x[12];
        int ldc = (int) x[16];
        require(lda >= Math.max(1, ta ? k : m), "lda");
        require(ldb >= Math.max(1, tb ? n : k), "ldb");
        require(ldc >= Math.max(1, m), "ldc");
        require((int) x[8] == (int) x[11], "types of A and B");
        require((int) x[15] == cublas_h.CUDA_R_32F(), "type of C");
        require((int) x[17] == cublas_h.CUBLAS_COMPUTE_32F(), "compute type");
        Buffer a = memory((long) x[7], (int) x[8], last(ta ? k : m, ta ? m : k, lda));
        Buffer b = memory((long) x[10], (int) x[11], last(tb ? n : k, tb ? k : n, ldb));
        Buffer c = memory((long) x[14], (int) x[15], last(m, n, ldc));
        for (int i = 0; i < m; i++) {
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int p = 0; p < k; p++) {
                    double u = a.get(ta ? p + (long) i * lda : i + (long) p * lda);
                    double v = b.get(tb ? j + (long) p * ldb : p + (long) j * ldb);
                    sum += u * v;
                }
                long at = i + (long) j * ldc;
                c.set(at, alpha * sum + (beta == 0 ? 0 : beta * c.get(at)));
            }
        }
    }

    private static long last(int high, int wide, int ld) {
        return high == 0 || wide == 0 ? 0 : (long) (wide - 1) * ld + high;
    }

    private Buffer memory(long address, int type, long count) {
        DataType t =
                type == cublas_h.CUDA_R_32F()
                        ? DataType.FLOAT32
                        : type == cublas_h.CUDA_R_16BF() ? DataType.BFLOAT16 : DataType.INT8;
        require(t != DataType.INT8, "type " + type);
        return Cuda.wrapAddress(device, address, t, count);
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("cuBLAS would refuse " + what);
        }
    }
}
