package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.CudaFatalException;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testfake.FakeBuild;
import io.jccl.testfake.TestFake;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Loading and launching: where, how often, in graphs, and what goes wrong. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class CudaKernelTest {
    private static final int N = 1000;

    @BeforeAll
    static void useFake() {
        TestFake.use();
    }

    @AfterEach
    void reset() {
        TestFake.reset();
    }

    @Test
    void theImageIsLoadedOnceForAllDevices() {
        Compute.of(Cuda.device(0)).close();
        long loads = TestFake.calls("cudaLibraryLoadData");
        long found = TestFake.calls("cudaLibraryGetKernel");
        for (int d = 0; d < 3; d++) {
            try (Compute c = Compute.of(Cuda.device(d));
                    Buffer x = c.device().allocate(DataType.FLOAT32, N)) {
                Stream stream = c.device().defaultStream();
                c.fill(x, d, stream);
                stream.synchronize();
                assertEquals(d, x.get(N - 1));
            }
        }
        assertEquals(loads, TestFake.calls("cudaLibraryLoadData"));
        assertEquals(found, TestFake.calls("cudaLibraryGetKernel"));
    }

    /** Launches go to the stream's device whatever the current one is, which stays. */
    @Test
    void theCurrentDeviceStays() {
        Gpus.setCurrent(2);
        try (Compute c = Compute.of(Cuda.device(1));
                Stream stream = c.device().newStream();
                Buffer x = c.device().allocate(DataType.FLOAT64, N)) {
            c.fill(x, 2.5, stream);
            stream.synchronize();
            assertEquals(2.5, x.get(0));
            assertEquals(2, Gpus.current());
        } finally {
            Gpus.setCurrent(0);
        }
    }

    @Test
    void launchesAreCapturedWithTheirArguments() {
        Device device = Cuda.device(1);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, N);
                Buffer y = device.allocate(DataType.FLOAT32, N);
                Graph graph =
                        Graph.capture(
                                stream,
                                () -> {
                                    c.scale(x, 2, x, stream);
                                    c.axpy(3, x, y, stream);
                                })) {
            stream.synchronize();
            assertEquals(0, y.get(5), "nothing has run");
            x.set(5, 1);
            graph.launch(stream);
            graph.launch(stream);
            stream.synchronize();
            assertEquals(4, x.get(5));
            assertEquals(3 * 2 + 3 * 4, y.get(5));
        }
    }

    @Test
    void aLaunchAllocatesNothing() {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        Device device = Cuda.device(0);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, 1);
                Buffer y = device.allocate(DataType.FLOAT32, 1)) {
            long least = Long.MAX_VALUE;
            for (int round = 0; round < 50; round++) {
                long before = threads.getCurrentThreadAllocatedBytes();
                for (int i = 0; i < 200; i++) {
                    c.axpy(1, x, y, stream);
                }
                least = Math.min(least, threads.getCurrentThreadAllocatedBytes() - before);
                stream.synchronize();
            }
            assertEquals(0, least);
        }
    }

    @Test
    void anErrorNamesKernelGridAndCause() {
        Device device = Cuda.device(0);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, 5000)) {
            TestFake.inject("cudaLaunchKernelExC:1:error=701");
            String message =
                    String.valueOf(
                            assertThrows(CudaException.class, () -> c.scale(x, 2, x, stream))
                                    .getMessage());
            assertTrue(message.contains("kernel scale_f32, 5 blocks of 256 threads"), message);
            assertTrue(message.contains("cudaErrorLaunchOutOfResources"), message);
            c.scale(x, 2, x, stream);
            stream.synchronize();
        }
    }

    @Test
    void anIllegalAddressIsFatal() {
        Device device = Cuda.device(0);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream()) {
            // Again and again: the error comes at any moment of the wait.
            for (int i = 0; i < 1000; i++) {
                Buffer x = device.allocate(DataType.FLOAT32, 8);
                // An address that a program brought along, of memory that it frees.
                Buffer gone = Cuda.wrapAddress(device, x.address(), DataType.FLOAT32, 8);
                x.close();
                c.fill(gone, 1, stream);
                assertThrows(CudaFatalException.class, stream::synchronize);
                TestFake.reset();
            }
        }
    }

    @Test
    void anOldDeviceIsRefused() {
        TestFake.capability(61);
        Device view = Cuda.view(3);
        String message =
                String.valueOf(
                        assertThrows(JcclException.class, () -> Compute.of(view)).getMessage());
        assertTrue(message.contains("compute capability 6.1"), message);
        assertTrue(message.contains("need 7.0 or newer"), message);
    }

    private static Path sources() {
        return Path.of(System.getProperty("basedir", "")).toAbsolutePath().resolve("src/main/cuda");
    }

    /** The compiler may be missing, and takes its time. */
    @Test
    void theImagesAreOfTheseSources() throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        for (String glob : List.of("*.cu", "*.h")) {
            List<Path> files = new ArrayList<>();
            try (DirectoryStream<Path> folder = Files.newDirectoryStream(sources(), glob)) {
                folder.forEach(files::add);
            }
            assertFalse(files.isEmpty(), glob);
            Collections.sort(files);
            for (Path file : files) {
                sha256.update(Files.readAllBytes(file));
            }
        }
        String said = "// SHA-256 of the sources: " + HexFormat.of().formatHex(sha256.digest());
        for (String image : List.of("kernels.ptx", "tensor.ptx")) {
            Path file = sources().resolve("../resources/io/jccl/device/cuda").resolve(image);
            assertEquals(said, Files.readAllLines(file).get(1), "run regenerate.sh");
        }
    }

    /** Where the compiler is that wrote the committed images, the sources give just these. */
    @Tag("exhaustive")
    @Test
    void theImagesAreWhatTheSourcesGive() throws IOException {
        Path script = sources().resolve("regenerate.sh");
        assertTrue(Files.isExecutable(script), script.toString());
        FakeBuild.Ended ended = FakeBuild.run(Map.of(), List.of(script.toString(), "check"));
        Assumptions.assumeFalse(ended.status() == 77, ended.output());
        assertEquals(0, ended.status(), ended.output());
    }
}
