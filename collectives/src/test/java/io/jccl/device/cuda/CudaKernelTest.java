package io.jccl.device.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.AllocationRounds;
import io.jccl.testkit.Workers;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Loading and launching: where, how often, in graphs, and what goes wrong. */
@UsesFakes
@Timeout(value = 3, unit = TimeUnit.MINUTES)
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
        Compute.of(TestFake.device(0)).close();
        long loads = TestFake.calls("cuLibraryLoadData");
        long found = TestFake.calls("cuLibraryGetKernel");
        for (int d = 0; d < 3; d++) {
            try (Compute c = Compute.of(TestFake.device(d));
                    Buffer x = c.device().allocate(DataType.FLOAT32, N)) {
                Stream stream = c.device().defaultStream();
                c.fill(x, d, stream);
                stream.synchronize();
                assertEquals(d, x.get(N - 1));
            }
        }
        assertEquals(loads, TestFake.calls("cuLibraryLoadData"));
        assertEquals(found, TestFake.calls("cuLibraryGetKernel"));
    }

    /** Launches go to the stream's device whatever the current one is, which stays. */
    @Test
    void theCurrentDeviceStays() {
        TestFake.needs(3);
        Gpus.setCurrent(2);
        try (Compute c = Compute.of(TestFake.device(1));
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

    /** Its handle says nothing of a device: CUDA takes the current one. */
    @ParameterizedTest
    @ValueSource(longs = {0, 1})
    void onTheNullStreamTheWrappedDevicesRuns(long handle) {
        TestFake.needs(2);
        Device device = TestFake.device(1);
        Stream stream = Cuda.wrapStream(device, handle);
        try (Compute c = Compute.of(device);
                Buffer x = device.allocate(DataType.FLOAT32, N)) {
            Gpus.setCurrent(0);
            c.fill(x, 1, stream);
            c.fill(x, 2, stream);
            stream.synchronize();
            assertEquals(2, x.get(N - 1));
            assertEquals(0, Gpus.current());
        }
    }

    @Test
    void launchesAreCapturedWithTheirArguments() {
        Device device = TestFake.device(1);
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
        Device device = TestFake.device(0);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, 1);
                Buffer y = device.allocate(DataType.FLOAT32, 1)) {
            AllocationRounds rounds = new AllocationRounds(1, 0.005);
            rounds.repeat(0, 200, () -> c.axpy(1, x, y, stream), stream::synchronize);
            rounds.assertNone();
        }
    }

    @Test
    void anErrorNamesKernelGridAndCause() {
        Device device = TestFake.device(0);
        try (Compute c = Compute.of(device);
                Stream stream = device.newStream();
                Buffer x = device.allocate(DataType.FLOAT32, 5000)) {
            TestFake.inject("cuLaunchKernel:1:error=701");
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
        TestFake.needsFakes("a GPU's illegal address ends all use of CUDA in this JVM");
        Device device = TestFake.device(0);
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

    /** The file that a kernel of a device of some compute capability came from. */
    private static String file(CudaKernel.Image image, int device, int capability) {
        TestFake.capability(capability);
        CudaKernel kernel =
                CudaKernel.of(
                        image,
                        image == CudaKernel.Image.KERNELS ? "fill_u8" : "attention_tensor_bf16_64",
                        CudaDevice.view(device));
        return kernel.toString().replaceFirst(".* of ", "");
    }

    /** CUDA C++ Programming Guide, "Binary Compatibility": upwards within a major capability. */
    @ParameterizedTest
    @CsvSource({
        "70, kernels.ptx",
        "75, kernels.ptx",
        "80, kernels.sm_80.cubin",
        "86, kernels.sm_80.cubin",
        "89, kernels.sm_80.cubin",
        "90, kernels.sm_90.cubin",
        "100, kernels.sm_100.cubin",
        "103, kernels.sm_100.cubin",
        "110, kernels.ptx",
        "120, kernels.ptx"
    })
    void aDeviceGetsTheFileThatRunsOnIt(int capability, String file) {
        assertEquals(file, file(CudaKernel.Image.KERNELS, 4, capability));
    }

    @Test
    void cubinsCanBeLeftOut() {
        try {
            System.setProperty("jccl.kernels", "ptx");
            assertEquals("kernels.ptx", file(CudaKernel.Image.KERNELS, 5, 90));
            System.setProperty("jccl.kernels", "cubin");
            String message =
                    String.valueOf(
                            assertThrows(
                                            JcclException.class,
                                            () -> file(CudaKernel.Image.KERNELS, 5, 90))
                                    .getMessage());
            assertTrue(message.contains("is 'cubin', expected ptx"), message);
        } finally {
            System.clearProperty("jccl.kernels");
        }
        assertEquals("kernels.sm_90.cubin", file(CudaKernel.Image.KERNELS, 5, 90));
    }

    /** The fake compares the parameters of each with those of its source. */
    @ParameterizedTest
    @EnumSource
    void everyKernelIsInEveryFile(CudaKernel.Image image) throws IOException {
        String title = image.name().toLowerCase(Locale.ROOT);
        List<String> names =
                Files.readAllLines(shipped(title + ".ptx")).stream()
                        .filter(line -> line.contains(".entry "))
                        .map(line -> line.replaceFirst(".*\\.entry ([^(]*)\\(.*", "$1"))
                        .toList();
        assertTrue(names.size() > 10, names::toString);
        for (int capability : new int[] {80, 90, 100, 120}) {
            TestFake.capability(capability);
            CudaDevice view = CudaDevice.view(6);
            names.forEach(name -> CudaKernel.of(image, name, view));
        }
    }

    /** A driver of CUDA 12 does not read what ptxas 13 writes; the runtime has no such calls. */
    @Tag("exhaustive")
    @Test
    void withCuda12TheDriverTranslates() {
        Map<String, String> cuda12 =
                Map.of("JCCL_FAKE_RUNTIME_VERSION", "12000", "JCCL_FAKE_DRIVER_VERSION", "12020");
        try (Workers workers = new Workers(1, Workers.newJobId(), TestFake.flags(), cuda12)) {
            Workers.Worker worker = workers.start(0, CudaKernelWorker.class);
            assertEquals(
                    0, worker.join(Duration.ofMinutes(1)), () -> String.join("\n", worker.lines()));
            List<String> lines = worker.lines();
            assertTrue(lines.contains("fill_u32 of kernels.ptx"), lines::toString);
            assertTrue(lines.contains("filled 7.0"), lines::toString);
            String log =
                    lines.stream().filter(l -> l.contains("from PTX")).findFirst().orElseThrow();
            assertTrue(log.contains("cuLibraryLoadData(kernels.sm_90.cubin) failed"), log);
            assertTrue(log.contains("cudaErrorInvalidKernelImage"), log);
        }
    }

    private static Path sources() {
        return Path.of(System.getProperty("basedir", "")).toAbsolutePath().resolve("src/main/cuda");
    }

    private static Path shipped(String file) {
        return sources().resolve("../resources/io/jccl/device/cuda").resolve(file);
    }

    private static String sha256(Path... files) throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        for (Path file : files) {
            sha256.update(Files.readAllBytes(file));
        }
        return HexFormat.of().formatHex(sha256.digest());
    }

    /** The compiler may be missing, and takes its time. */
    @Test
    void theImagesAreOfTheseSources() throws Exception {
        List<Path> files = new ArrayList<>();
        for (String glob : List.of("*.cu", "*.h")) {
            List<Path> some = new ArrayList<>();
            try (DirectoryStream<Path> folder = Files.newDirectoryStream(sources(), glob)) {
                folder.forEach(some::add);
            }
            assertFalse(some.isEmpty(), glob);
            Collections.sort(some);
            files.addAll(some);
        }
        String said = "// SHA-256 of the sources: " + sha256(files.toArray(Path[]::new));
        List<String> images = Files.readAllLines(sources().resolve("images.sha256"));
        for (String line : images) {
            String[] image = line.split(" +", 2);
            assertEquals(image[0], sha256(shipped(image[1])), "run regenerate.sh: " + image[1]);
            if (image[1].endsWith(".ptx")) {
                assertEquals(
                        said, Files.readAllLines(shipped(image[1])).get(1), "run regenerate.sh");
            }
        }
        try (DirectoryStream<Path> all = Files.newDirectoryStream(shipped(""))) {
            for (Path file : all) {
                assertTrue(
                        images.stream().anyMatch(line -> line.endsWith(" " + file.getFileName())),
                        file + " is not listed");
            }
        }
    }

    /** Where the compiler is that wrote the committed images, the sources give just these. */
    @Tag("exhaustive")
    @Test
    @Timeout(value = 10, unit = TimeUnit.MINUTES) // nvcc takes most of one, alone on two cores
    void theImagesAreWhatTheSourcesGive() throws IOException {
        Path script = sources().resolve("regenerate.sh");
        assertTrue(Files.isExecutable(script), script.toString());
        FakeBuild.Ended ended = FakeBuild.run(Map.of(), List.of(script.toString(), "check"));
        Assumptions.assumeFalse(ended.status() == 77, ended.output());
        assertEquals(0, ended.status(), ended.output());
    }
}
