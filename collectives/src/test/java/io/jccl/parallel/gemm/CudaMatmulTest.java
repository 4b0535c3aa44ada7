package io.jccl.parallel.gemm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CublasException;
import io.jccl.bindings.Discovery;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibrary;
import io.jccl.cuda.CudaDevice;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.parallel.Matmul;
import io.jccl.parallel.Matrix;
import io.jccl.testdouble.TestDouble;
import java.util.Random;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What cuBLAS is told, checked by doing as its documentation says. */
@Timeout(120)
class CudaMatmulTest {
    @BeforeAll
    static void useDouble() {
        TestDouble.use();
    }

    @Test
    void anyLayoutIsToldRight() {
        long seed = System.nanoTime();
        System.out.println("CudaMatmulTest seed " + seed);
        Random random = new Random(seed);
        Device gpu = Cuda.device(0);
        try (Matmul matmul = ScriptedCublas.matmul(gpu);
                Stream other = gpu.newStream()) {
            for (int round = 0; round < 150; round++) {
                int m = random.nextInt(6);
                int n = random.nextInt(6);
                int k = random.nextInt(6);
                float beta = random.nextInt(3) - 1;
                DataType type = random.nextBoolean() ? DataType.FLOAT32 : DataType.BFLOAT16;
                Matrix a = random(gpu, random, m, k, type);
                Matrix b = random(gpu, random, k, n, type);
                Matrix c = random(gpu, random, m, n, DataType.FLOAT32);
                double[][] e = new double[m][n];
                for (int i = 0; i < m; i++) {
                    for (int j = 0; j < n; j++) {
                        e[i][j] = beta == 0 ? 0 : beta * c.get(i, j);
                        for (int p = 0; p < k; p++) {
                            e[i][j] += a.get(i, p) * b.get(p, j);
                        }
                    }
                }
                Stream stream = random.nextBoolean() ? other : gpu.defaultStream();
                matmul.multiply(a, b, c, beta, stream);
                stream.synchronize();
                for (int i = 0; i < m; i++) {
                    for (int j = 0; j < n; j++) {
                        assertEquals(e[i][j], c.get(i, j), 1e-5, "seed " + seed + " " + round);
                    }
                }
                for (Matrix x : new Matrix[] {a, b, c}) {
                    x.buffer().close();
                }
            }
        }
    }

    private static Matrix random(Device gpu, Random random, int rows, int columns, DataType type) {
        boolean turned = random.nextBoolean();
        int r = turned ? columns : rows;
        int c = turned ? rows : columns;
        int left = random.nextInt(3);
        int wide = left + c + random.nextInt(3);
        Buffer b = gpu.allocate(type, (long) wide * (r + 1));
        for (long i = 0; i < b.count(); i++) {
            b.set(i, random.nextDouble() * 2 - 1);
        }
        Matrix x = Matrix.of(b, r + 1, wide).rows(1, r).columns(left, c);
        return turned ? x.transposed() : x;
    }

    @Test
    void whatDoesNotFitIsRefused() {
        Device gpu = Cuda.device(0);
        ScriptedCublas script = new ScriptedCublas(gpu);
        try (Matmul matmul = new CudaMatmul(CudaDevice.of(gpu), script.api());
                Buffer a = gpu.allocate(DataType.FLOAT32, 4);
                Buffer h = gpu.allocate(DataType.BFLOAT16, 4);
                Buffer host = Device.host().allocate(DataType.FLOAT32, 4)) {
            Stream stream = gpu.defaultStream();
            Matrix x = Matrix.of(a, 2, 2);
            Buffer gone = gpu.allocate(DataType.FLOAT32, 4);
            Matrix z = Matrix.of(gone, 2, 2);
            refused("one type", matmul, x, Matrix.of(h, 2, 2), z, stream);
            refused("host", matmul, x, x, Matrix.of(host, 2, 2), stream);
            refused("stream", matmul, x, x, z, Device.host().defaultStream());
            gone.close();
            assertThrows(IllegalStateException.class, () -> matmul.multiply(x, x, z, 0, stream));
            assertEquals(0, script.calls.stream().filter("cublasGemmEx"::equals).count());
            try (Buffer c = gpu.allocate(DataType.FLOAT32, 4)) {
                script.fail = 13;
                Exception e =
                        assertThrows(
                                IllegalStateException.class,
                                () -> matmul.multiply(x, x, Matrix.of(c, 2, 2), 0, stream));
                assertTrue(String.valueOf(e.getMessage()).contains("13"), e::toString);
                script.fail = 0;
            }
        }
        assertEquals(1, script.calls.stream().filter("cublasDestroy"::equals).count());
        assertEquals(1, script.calls.stream().filter("cublasSetMathMode"::equals).count());
    }

    private static void refused(
            String part, Matmul matmul, Matrix a, Matrix b, Matrix c, Stream stream) {
        Exception e =
                assertThrows(
                        IllegalArgumentException.class, () -> matmul.multiply(a, b, c, 0, stream));
        assertTrue(String.valueOf(e.getMessage()).contains(part), e::toString);
    }

    /** The real library, asked without a GPU, says so. */
    @Test
    void realLibraryWithoutADeviceFailsCleanly() {
        Discovery found = NativeLibraries.discover(NativeLibrary.CUBLAS);
        Assumptions.assumeTrue(
                !(found instanceof Discovery.Missing), () -> "no cuBLAS here: " + found);
        CublasException e =
                assertThrows(CublasException.class, () -> Matmul.of(Cuda.device(0), 1).close());
        assertEquals("cublasCreate", e.operation());
    }
}
