package io.jccl.gemm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CublasException;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.internal.Waits;
import io.jccl.testfake.FakeBuild;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Products on CUDA memory, by the fake of cuBLAS, against the host's. */
@UsesFakes
@Timeout(120)
class CudaMatmulTest {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private long handles;
    private Device gpu = Device.host();

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void start() {
        gpu = TestFake.device(0);
        handles = TestFake.live("cublas");
    }

    @AfterEach
    void nothingIsLeft() {
        TestFake.reset();
        assertEquals(handles, TestFake.live("cublas"), "handles of cuBLAS");
    }

    /** A matrix on the host and its copy on the device, with what lies around it. */
    private record Pair(Matrix host, Matrix device) implements AutoCloseable {
        /** A view of a larger matrix, perhaps transposed. */
        static Pair random(
                Device gpu, Random random, int rows, int columns, DataType type, boolean whole) {
            boolean turned = random.nextBoolean();
            int r = turned ? columns : rows;
            int c = turned ? rows : columns;
            int top = random.nextInt(3);
            int left = random.nextInt(3);
            int wide = left + c + random.nextInt(3);
            int high = top + r + random.nextInt(3);
            Buffer b = Device.host().allocate(type, (long) wide * high);
            for (long i = 0; i < b.count(); i++) {
                b.set(i, whole ? random.nextInt(7) - 3 : random.nextDouble() * 2 - 1);
            }
            Buffer d = gpu.allocate(type, b.count());
            return new Pair(
                    view(b, high, wide, top, r, left, c, turned),
                    view(d, high, wide, top, r, left, c, turned));
        }

        private static Matrix view(
                Buffer b, int high, int wide, int top, int r, int left, int c, boolean turned) {
            Matrix x = Matrix.of(b, high, wide).rows(top, r).columns(left, c);
            return turned ? x.transposed() : x;
        }

        /** Copies the whole buffer, not the view alone. */
        void toDevice(Stream stream) {
            stream.copy(host.buffer(), device.buffer());
        }

        float[] fromDevice() {
            float[] all = new float[(int) device.buffer().count()];
            device.buffer().copyTo(all);
            return all;
        }

        @Override
        public void close() {
            host.buffer().close();
            device.buffer().close();
        }
    }

    /**
     * Shapes, transposes, parts, types and betas; all of c's buffer is compared, since a wrong
     * leading dimension shows beside the view. Half of the rounds are of small whole numbers, which
     * float32 adds up exactly in any order.
     */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void equalsTheHost(boolean whole) {
        equalsTheHost(whole, 50);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void equalsTheHostInMoreShapes(boolean whole) {
        equalsTheHost(whole, 150);
    }

    private void equalsTheHost(boolean whole, int rounds) {
        long seed = System.nanoTime();
        System.out.println("CudaMatmulTest seed " + seed);
        Random random = new Random(seed);
        int[] sizes = {0, 1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 100, 257};
        try (Matmul onHost = Matmul.of(Device.host(), 1);
                Matmul onDevice = Matmul.of(gpu, 1);
                Stream other = gpu.newStream()) {
            for (int round = 0; round < rounds; round++) {
                int m = sizes[random.nextInt(sizes.length)];
                int n = sizes[random.nextInt(sizes.length)];
                int k = sizes[random.nextInt(sizes.length)];
                float beta = new float[] {0, 1, -2}[random.nextInt(3)];
                DataType type = random.nextBoolean() ? DataType.FLOAT32 : DataType.BFLOAT16;
                Stream stream = random.nextBoolean() ? other : gpu.defaultStream();
                try (Pair a = Pair.random(gpu, random, m, k, type, whole);
                        Pair b = Pair.random(gpu, random, k, n, type, whole);
                        Pair c = Pair.random(gpu, random, m, n, DataType.FLOAT32, whole)) {
                    if (beta == 0) {
                        fill(c.host, Double.NaN); // is not read
                    }
                    List.of(a, b, c).forEach(x -> x.toDevice(stream));
                    onDevice.multiply(a.device, b.device, c.device, beta, stream);
                    stream.synchronize(LIMIT);
                    onHost.multiply(a.host, b.host, c.host, beta, Device.host().defaultStream());
                    // k + 2 roundings each, of sums of at most k + 2 that are below 1.
                    float bound = whole ? 0 : 2 * (k + 2) * (k + 2) * Math.scalb(1f, -24);
                    String what = "seed " + seed + " round " + round + ": " + a + b + c;
                    float[] expected = new float[(int) c.host.buffer().count()];
                    c.host.buffer().copyTo(expected);
                    assertArrayEquals(expected, c.fromDevice(), bound, what);
                }
            }
        }
    }

    private static void fill(Matrix c, double value) {
        for (int i = 0; i < c.rows(); i++) {
            for (int j = 0; j < c.columns(); j++) {
                c.set(i, j, value);
            }
        }
    }

    /**
     * A product returns at once, unless it is the first of its kind, and runs after what is before
     * it in its stream.
     */
    @Test
    void productsRunInTheOrderOfTheirStream() throws InterruptedException {
        CountDownLatch opened = new CountDownLatch(1);
        try (Matmul matmul = Matmul.of(gpu, 1);
                Stream stream = gpu.newStream();
                Buffer four = Device.host().allocate(DataType.FLOAT32, 4);
                Buffer a = gpu.allocate(DataType.FLOAT32, 4);
                Buffer c = gpu.allocate(DataType.FLOAT32, 4)) {
            for (int i = 0; i < 4; i++) {
                four.set(i, i + 1);
                a.set(i, 0);
            }
            // The first products of a kind load their kernels, which may wait for all streams.
            matmul.multiply(Matrix.of(a, 2, 2), Matrix.of(a, 2, 2), Matrix.of(c, 2, 2), stream);
            matmul.multiply(Matrix.of(a, 2, 2), Matrix.of(a, 2, 2), Matrix.of(c, 2, 2), 1, stream);
            stream.synchronize(LIMIT);
            stream.launchHostFunction(() -> await(opened));
            stream.copy(four, a);
            matmul.multiply(Matrix.of(a, 2, 2), Matrix.of(a, 2, 2), Matrix.of(c, 2, 2), stream);
            matmul.multiply(Matrix.of(a, 2, 2), Matrix.of(a, 2, 2), Matrix.of(c, 2, 2), 1, stream);
            assertFalse(stream.query(), "the product did not wait");
            opened.countDown();
            stream.synchronize(LIMIT);
            float[] result = new float[4];
            c.copyTo(result);
            assertArrayEquals(new float[] {14, 20, 30, 44}, result);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nobody opened the stream");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** alpha and beta are those of the recording. */
    @Test
    void productsInAGraph() {
        try (Matmul matmul = Matmul.of(gpu, 1);
                Stream stream = gpu.newStream();
                Buffer a = gpu.allocate(DataType.FLOAT32, 1);
                Buffer c = gpu.allocate(DataType.FLOAT32, 1)) {
            a.set(0, 3);
            c.set(0, 1);
            Matrix x = Matrix.of(a, 1, 1);
            Matrix z = Matrix.of(c, 1, 1);
            try (Graph graph = Graph.capture(stream, () -> matmul.multiply(x, x, z, 2, stream))) {
                matmul.multiply(x, x, z, 1, stream);
                graph.launch(stream);
                graph.launch(stream);
                stream.synchronize(LIMIT);
            }
            assertEquals(((1 + 9) * 2 + 9) * 2 + 9, c.get(0));
        }
    }

    /** One Matmul, several threads with a stream each. */
    @Test
    void threadsShareAMatmul() throws InterruptedException {
        float[] sums = new float[4];
        try (Matmul matmul = Matmul.of(gpu, 1)) {
            List<Thread> threads =
                    IntStream.range(0, sums.length)
                            .mapToObj(t -> Thread.ofPlatform().start(() -> square(matmul, sums, t)))
                            .toList();
            for (Thread t : threads) {
                t.join();
            }
        }
        for (int t = 0; t < sums.length; t++) {
            assertEquals(100 * 16 * (t + 1) * (t + 1), sums[t], "thread " + t);
        }
    }

    private void square(Matmul matmul, float[] sums, int t) {
        try (Stream stream = gpu.newStream();
                Buffer host = Device.host().allocate(DataType.FLOAT32, 256);
                Buffer a = gpu.allocate(DataType.FLOAT32, 256);
                Buffer c = gpu.allocate(DataType.FLOAT32, 256)) {
            for (int i = 0; i < 256; i++) {
                host.set(i, t + 1);
            }
            stream.copy(host, a);
            Matrix x = Matrix.of(a, 16, 16);
            for (int i = 0; i < 100; i++) {
                matmul.multiply(x, x, Matrix.of(c, 16, 16), i == 0 ? 0 : 1, stream);
            }
            stream.synchronize(LIMIT);
            sums[t] = (float) c.get(77);
        }
    }

    /** What tests do with two matrices of two rows, and a stream. */
    private interface OnSquares {
        void run(Matmul matmul, Matrix x, Matrix z, Stream stream);
    }

    private void onSquares(OnSquares body) {
        try (Matmul matmul = Matmul.of(gpu, 1);
                Stream stream = gpu.newStream();
                Buffer a = gpu.allocate(DataType.FLOAT32, 4);
                Buffer c = gpu.allocate(DataType.FLOAT32, 4)) {
            Matrix x = Matrix.of(a, 2, 2);
            Matrix z = Matrix.of(c, 2, 2);
            body.run(matmul, x, z, stream);
        }
    }

    @Test
    void allocatesNothingPerProduct() {
        onSquares((matmul, x, z, stream) -> {
            AllocationRounds rounds = new AllocationRounds(1);
            rounds.repeat(
                    0,
                    100,
                    () -> matmul.multiply(x, x, z, 1, stream),
                    () -> stream.synchronize(LIMIT));
            rounds.assertNone();
        });
    }

    @Test
    void whatDoesNotFitIsRefused() {
        try (Matmul matmul = Matmul.of(gpu, 1);
                Buffer a = gpu.allocate(DataType.FLOAT32, 4);
                Buffer h = gpu.allocate(DataType.BFLOAT16, 4);
                Buffer there = TestFake.device(1).allocate(DataType.FLOAT32, 4);
                Buffer host = Device.host().allocate(DataType.FLOAT32, 4)) {
            long products = TestFake.calls("cublasGemmEx");
            Stream stream = gpu.defaultStream();
            Matrix x = Matrix.of(a, 2, 2);
            Buffer gone = gpu.allocate(DataType.FLOAT32, 4);
            Matrix z = Matrix.of(gone, 2, 2);
            refused("one type", matmul, x, Matrix.of(h, 2, 2), z, stream);
            refused("host", matmul, x, x, Matrix.of(host, 2, 2), stream);
            refused(there.device().toString(), matmul, x, x, Matrix.of(there, 2, 2), stream);
            refused("stream", matmul, x, x, z, Device.host().defaultStream());
            Buffer odd = Cuda.wrapAddress(gpu, gone.address() + 1, DataType.FLOAT32, 2);
            refused("a multiple of 4", matmul, x, x.columns(0, 1), Matrix.of(odd, 2, 1), stream);
            gone.close();
            assertThrows(IllegalStateException.class, () -> matmul.multiply(x, x, z, 0, stream));
            assertEquals(products, TestFake.calls("cublasGemmEx"));
        }
    }

    private static void refused(
            String part, Matmul matmul, Matrix a, Matrix b, Matrix c, Stream stream) {
        Exception e =
                assertThrows(
                        IllegalArgumentException.class, () -> matmul.multiply(a, b, c, 0, stream));
        assertTrue(String.valueOf(e.getMessage()).contains(part), e::toString);
    }

    /** Of the call or of the kernel, which is found when the stream is waited for. */
    @Test
    void errorsOfCublasComeOut() {
        onSquares((matmul, x, z, stream) -> {
            TestFake.inject("cublasGemmEx:1:error=13");
            CublasException e =
                    assertThrows(CublasException.class, () -> matmul.multiply(x, x, z, 0, stream));
            assertEquals(cublas_h.CUBLAS_STATUS_EXECUTION_FAILED(), e.status());
            assertEquals("cublasGemmEx", e.operation());
            // A stream that could not be set is not taken for set.
            Stream other = gpu.defaultStream();
            for (int i = 0; i < 2; i++) {
                TestFake.reset();
                TestFake.inject("cublasSetStream_v2:1:error=1");
                e = assertThrows(CublasException.class, () -> matmul.multiply(x, x, z, 0, other));
                assertEquals("cublasSetStream", e.operation());
            }
            TestFake.reset();
            matmul.multiply(x, x, z, 0, stream);
            stream.synchronize(LIMIT);
            TestFake.inject("cublasGemmEx:1:async=700");
            matmul.multiply(x, x, z, 0, stream);
            CudaException fatal =
                    assertThrows(CudaException.class, () -> stream.synchronize(LIMIT));
            assertTrue(fatal.toString().contains("cudaErrorIllegalAddress"), fatal::toString);
            assertThrows(CudaException.class, () -> matmul.multiply(x, x, z, 0, stream));
            TestFake.reset();
        });
    }

    /** A kernel's error that comes between this call's checks and cuBLAS's launch is named too. */
    @Test
    void anEarlierKernelsErrorIsNamed() {
        onSquares((matmul, x, z, stream) -> {
            matmul.multiply(x, x, z, 0, stream);
            TestFake.inject("cublasGemmEx:1:sticky=719");
            CudaFatalException e =
                    assertThrows(
                            CudaFatalException.class, () -> matmul.multiply(x, x, z, 0, stream));
            assertEquals("cublasGemmEx", e.operation());
            assertTrue(e.toString().contains("cudaErrorLaunchFailure"), e::toString);
            TestFake.reset();
        });
    }

    /** Whatever call fails, no handle is left. */
    @ParameterizedTest
    @ValueSource(strings = {"cublasCreate_v2", "cublasSetPointerMode_v2", "cublasSetMathMode"})
    void setUpThatFailsLeavesNothing(String function) {
        TestFake.inject(function + ":1:error=14");
        CublasException e = assertThrows(CublasException.class, () -> Matmul.of(gpu, 1).close());
        assertEquals(function.replace("_v2", ""), e.operation());
        assertEquals(handles, TestFake.live("cublas"));
        Matmul.of(gpu, 1).close();
    }

    @Test
    void isClosedOnAVirtualThreadToo() throws InterruptedException {
        Matmul matmul = Matmul.of(gpu, 1);
        Thread.ofVirtual().start(matmul::close).join();
        assertEquals(handles, TestFake.live("cublas"));
    }

    /** cuBLAS waits for the device, whose work may wait for the rank that closes. */
    @Test
    void closingDoesNotWaitForWorkThatDoesNotEnd() throws InterruptedException {
        Matmul matmul = Matmul.of(gpu, 1);
        CountDownLatch goOn = new CountDownLatch(1);
        try (Stream stream = gpu.newStream()) {
            stream.launchHostFunction(() -> Waits.await(goOn, LIMIT.toNanos()));
            matmul.close();
            assertFalse(stream.query());
            goOn.countDown();
            stream.synchronize(LIMIT);
        }
        // The thread that frees goes on once the work has ended.
        TestFake.awaitLive(handles, "cublas");
    }

    @Tag("exhaustive")
    @Test
    void aFullDeviceIsSaid() {
        TestFake.needsFakes("a GPU's memory is larger");
        Device full = TestFake.device(5);
        Buffer most = full.allocate(DataType.INT8, (1L << 30) - (1 << 20));
        try {
            CublasException e =
                    assertThrows(CublasException.class, () -> Matmul.of(full, 1).close());
            assertEquals(cublas_h.CUBLAS_STATUS_ALLOC_FAILED(), e.status());
            assertTrue(String.valueOf(e.getMessage()).contains("cuda:5, which has no room"));
        } finally {
            most.close();
        }
        Matmul.of(full, 1).close();
    }

    private static String ask(List<String> flags) {
        FakeBuild.Ended ended = FakeBuild.run(Map.of(), Workers.command(flags, CublasWorker.class));
        assertEquals(0, ended.status(), ended::output);
        return ended.output();
    }

    /** The fakes of CUDA and NCCL alone. */
    private static List<String> flagsWithoutCublas(String... more) {
        return java.util.stream.Stream.concat(
                        TestFake.flags().stream().filter(f -> !f.startsWith("-Djccl.cublas")),
                        java.util.stream.Stream.of(more))
                .toList();
    }

    @Test
    void missingLibraryIsNamedWithWhatToDo() {
        String answer = ask(flagsWithoutCublas("-Djccl.cublas=/nowhere/libcublas.so.13"));
        assertTrue(answer.contains("NativeLibraryUnavailableException"), answer);
        assertTrue(answer.contains("/nowhere/libcublas.so.13"), answer);
        assertTrue(answer.contains("cuBLAS"), answer);
    }

    /** The real library, asked without a GPU, says so. */
    @Test
    void realLibraryWithoutADeviceFailsCleanly() {
        TestFake.needsFakes("the real library finds a GPU");
        String answer = ask(flagsWithoutCublas());
        Assumptions.assumeFalse(
                answer.contains("NativeLibraryUnavailableException"), "no cuBLAS here: " + answer);
        assertTrue(answer.contains("CublasException: cublasCreate failed"), answer);
    }
}
