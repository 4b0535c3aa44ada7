package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.BoundLibrary.Function;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.nccl.ncclSimInfo_t;
import io.jccl.bindings.generated.nccl.ncclUniqueId;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.bindings.internal.ForeignMemory;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The real libraries where they are installed, as far as they go without a GPU. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class RealLibrariesTest {
    private static <T> T open(NativeLibrary library, Need need, Supplier<T> table) {
        return switch (NativeLibraries.discover(library)) {
            case Discovery.Found found -> table.get();
            case Discovery.Missing missing -> throw need.absent(missing.reason());
        };
    }

    private static NcclApi nccl() {
        return open(NativeLibrary.NCCL, Need.NCCL, NativeLibraries::nccl);
    }

    private static CudaApi cuda() {
        return open(NativeLibrary.CUDART, Need.CUDART, NativeLibraries::cuda);
    }

    private static CublasApi cublas() {
        return open(NativeLibrary.CUBLAS, Need.CUBLAS, NativeLibraries::cublas);
    }

    /** What fails without a GPU may well succeed with one. */
    private static void assumeNoGpu() {
        Assumptions.assumeFalse(
                Files.exists(Path.of("/dev/nvidiactl")) || Files.exists(Path.of("/dev/dxg")),
                "there is an NVIDIA driver here: the failure without one cannot be seen");
    }

    private static void assertNoDevice(String message) {
        assertTrue(
                message.contains("CUDA driver version is insufficient for CUDA runtime version")
                        || message.contains("no CUDA-capable device is detected"),
                message);
    }

    // ---- NCCL

    @Test
    void ncclTellsTheVersionThatDiscoveryFound() {
        NcclApi nccl = nccl();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment code = arena.allocate(ValueLayout.JAVA_INT);
            nccl.check(nccl.ncclGetVersion(code), "ncclGetVersion", 0);
            int version = code.get(ValueLayout.JAVA_INT, 0);
            assertEquals(nccl.library().version(), Version.ofNccl(version));
            assertEquals(version, nccl.library().version().ncclCode());
            if (Need.NCCL.isRequired()) {
                assertEquals(23007, version);
            }
        }
    }

    /** Also that no older library has a function before the version that the table gives. */
    @Test
    void ncclHasEveryFunctionOfItsVersion() {
        NcclApi nccl = nccl();
        Set<String> lacking =
                BoundLibrary.NCCL
                        .functions()
                        .map(Function::toString)
                        .filter(name -> !nccl.supports(name))
                        .collect(Collectors.toSet());
        Set<String> newer =
                BoundLibrary.NCCL
                        .functions()
                        .filter(function -> isNewer(function, nccl.library().version()))
                        .map(Function::toString)
                        .collect(Collectors.toSet());
        assertEquals(newer, lacking);
    }

    private static boolean isNewer(Function function, Version version) {
        Since since = function.method().getAnnotation(Since.class);
        return since != null && !version.atLeast(Version.of(since.value()));
    }

    @Test
    void ncclIdsDiffer() {
        NcclApi nccl = nccl();
        try (Arena arena = Arena.ofConfined()) {
            Set<List<Byte>> ids = new HashSet<>();
            for (int i = 0; i < 3; i++) {
                MemorySegment id = arena.allocate(ncclUniqueId.layout());
                nccl.check(nccl.ncclGetUniqueId(id), "ncclGetUniqueId", 0);
                List<Byte> bytes = new ArrayList<>();
                for (byte value : id.toArray(ValueLayout.JAVA_BYTE)) {
                    bytes.add(value);
                }
                assertEquals(128, bytes.size());
                ids.add(bytes);
            }
            assertEquals(3, ids.size());
        }
    }

    @Test
    void ncclSaysWhyThereIsNoCommunicator() {
        NcclApi nccl = nccl();
        assumeNoGpu();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment comms = arena.allocate(ValueLayout.JAVA_LONG, 1);
            MemorySegment devices = arena.allocateFrom(ValueLayout.JAVA_INT, 0);
            NcclException error =
                    assertThrows(
                            NcclException.class,
                            () ->
                                    nccl.check(
                                            nccl.ncclCommInitAll(comms, 1, devices),
                                            "ncclCommInitAll",
                                            0));
            assertEquals(nccl_h.ncclUnhandledCudaError(), error.result());
            assertEquals("ncclCommInitAll", error.operation());
            String message = String.valueOf(error.getMessage());
            assertTrue(
                    message.startsWith("ncclCommInitAll failed: ncclUnhandledCudaError, "),
                    message);
            assertNoDevice(message);
        }
    }

    /**
     * On a thread of its own: without a CUDA device, NCCL 2.30.7 returns from this call inside the
     * group that it opened, and takes the next end of a group on this thread for that one's.
     */
    @Test
    void ncclTakesOurConfiguration() throws InterruptedException {
        NcclApi nccl = nccl();
        Assumptions.assumeTrue(
                nccl.supports("ncclCommInitRankConfig"), "this NCCL has no configurations");
        assumeNoGpu();
        List<Throwable> thrown = new CopyOnWriteArrayList<>();
        Thread thread =
                Thread.ofPlatform()
                        .uncaughtExceptionHandler((t, e) -> thrown.add(e))
                        .start(() -> initRank(nccl));
        thread.join();
        assertEquals(1, thrown.size());
        assertInstanceOf(NcclException.class, thrown.getFirst());
        assertNoDevice(String.valueOf(thrown.getFirst().getMessage()));
    }

    private static void initRank(NcclApi nccl) {
        try (Arena arena = Arena.ofShared()) {
            MemorySegment id = arena.allocate(ncclUniqueId.layout());
            MemorySegment comm = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment config = new NcclConfig().allocate(arena, nccl.library().version());
            nccl.check(
                    nccl.ncclCommInitRankConfig(comm, 1, id, 0, config),
                    "ncclCommInitRankConfig",
                    0);
        }
    }

    @Test
    void ncclDescribesEveryResult() {
        NcclApi nccl = nccl();
        String unknown = nccl.ncclGetErrorString(9_999);
        Set<String> texts = new HashSet<>();
        // ncclTimeout is the newest.
        int results = nccl.library().version().atLeast(Version.of("2.30.3")) ? 9 : 6;
        for (int result = 0; result < results; result++) {
            String text = nccl.ncclGetErrorString(result);
            assertFalse(text.isBlank());
            assertNotEquals(unknown, text, NcclException.name(result));
            assertTrue(texts.add(text), text);
            assertFalse(NcclException.name(result).startsWith("UNKNOWN"));
        }
        assertEquals("UNKNOWN(9999)", NcclException.name(9_999));
    }

    @Test
    void ncclParametersCanBeRead() {
        NcclApi nccl = nccl();
        Assumptions.assumeTrue(
                nccl.supports("ncclParamBind"), "this NCCL has no functions for parameters");
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment table = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
            nccl.check(nccl.ncclParamGetAllParameterKeys(table, count), "keys", 0);
            int keys = count.get(ValueLayout.JAVA_INT, 0);
            assertTrue(keys > 0);
            MemorySegment addresses =
                    ForeignMemory.at(table.get(ValueLayout.JAVA_LONG, 0), 8L * keys);
            Set<String> names = new HashSet<>();
            MemorySegment handle = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment text = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
            MemorySegment raw = arena.allocate(4_096);
            for (int i = 0; i < keys; i++) {
                String name = string(addresses.getAtIndex(ValueLayout.JAVA_LONG, i));
                assertTrue(names.add(name), name);
                MemorySegment key = arena.allocateFrom(name);
                nccl.check(
                        nccl.ncclParamGetParameter(key, text, length), "ncclParamGetParameter", 0);
                assertEquals(
                        length.get(ValueLayout.JAVA_INT, 0),
                        string(text.get(ValueLayout.JAVA_LONG, 0)).length());
                nccl.check(nccl.ncclParamBind(handle, key), "ncclParamBind", 0);
                long bound = handle.get(ValueLayout.JAVA_LONG, 0);
                assertNotEquals(0, bound, name);
                int size = (int) raw.byteSize();
                nccl.check(nccl.ncclParamGet(bound, raw, size, length), "ncclParamGet", 0);
                // Of the getters, none but that of the parameter's type answers.
                long answers =
                        Stream.of(
                                        nccl.ncclParamGetI8(bound, raw),
                                        nccl.ncclParamGetI16(bound, raw),
                                        nccl.ncclParamGetI32(bound, raw),
                                        nccl.ncclParamGetI64(bound, raw),
                                        nccl.ncclParamGetU8(bound, raw),
                                        nccl.ncclParamGetU16(bound, raw),
                                        nccl.ncclParamGetU32(bound, raw),
                                        nccl.ncclParamGetU64(bound, raw),
                                        nccl.ncclParamGetStr(bound, raw))
                                .filter(result -> result == nccl_h.ncclSuccess())
                                .count();
                assertTrue(answers <= 1, name);
            }
            MemorySegment unknown = arena.allocateFrom("NCCL_NO_SUCH_PARAMETER");
            int result = nccl.ncclParamBind(handle, unknown);
            assertThrows(NcclException.class, () -> nccl.check(result, "ncclParamBind", 0));
        }
    }

    private static String string(long address) {
        return ForeignMemory.at(address, 4_096).getString(0);
    }

    @Test
    void ncclTakesOurSimInfo() {
        NcclApi nccl = nccl();
        Assumptions.assumeTrue(
                nccl.supports("ncclGroupSimulateEnd"), "this NCCL cannot simulate groups");
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment info = nccl.newSimInfo(arena);
            nccl.check(nccl.ncclGroupStart(), "ncclGroupStart", 0);
            nccl.check(nccl.ncclGroupSimulateEnd(info), "ncclGroupSimulateEnd", 0);
            // Of any other magic number it thinks that nobody set it up.
            MemorySegment broken = nccl.newSimInfo(arena);
            ncclSimInfo_t.magic(broken, 1);
            nccl.check(nccl.ncclGroupStart(), "ncclGroupStart", 0);
            int result = nccl.ncclGroupSimulateEnd(broken);
            assertEquals(nccl_h.ncclInvalidArgument(), result);
        }
    }

    // ---- the CUDA runtime

    @Test
    void cudaTellsTheVersionThatDiscoveryFound() {
        CudaApi cuda = cuda();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment version = arena.allocate(ValueLayout.JAVA_INT);
            cuda.check(cuda.cudaRuntimeGetVersion(version), "cudaRuntimeGetVersion");
            assertEquals(
                    cuda.library().version(), Version.ofCuda(version.get(ValueLayout.JAVA_INT, 0)));
        }
    }

    @Test
    void cudaHasEveryFunctionOfItsVersion() {
        CudaApi cuda = cuda();
        assertEquals(
                List.of(),
                BoundLibrary.CUDART
                        .functions()
                        .filter(function -> !isNewer(function, cuda.library().version()))
                        .map(Function::toString)
                        .filter(name -> !cuda.supports(name))
                        .toList());
    }

    @Test
    void cudaSaysWhyThereIsNoDevice() {
        CudaApi cuda = cuda();
        assumeNoGpu();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
            CudaException error =
                    assertThrows(
                            CudaException.class,
                            () -> cuda.check(cuda.cudaGetDeviceCount(count), "cudaGetDeviceCount"));
            assertTrue(
                    Set.of(cudart_h.cudaErrorInsufficientDriver(), cudart_h.cudaErrorNoDevice())
                            .contains(error.error()),
                    error::toString);
            assertFalse(error instanceof CudaFatalException);
            assertNoDevice(String.valueOf(error.getMessage()));
            assertEquals(error.error(), cuda.cudaPeekAtLastError());
        }
    }

    @Test
    void cudaCallsErrorsAsTheHeaderDoes() throws ReflectiveOperationException {
        CudaApi cuda = cuda();
        List<Method> errors =
                BoundLibrary.CUDART
                        .constants()
                        .filter(constant -> constant.getName().startsWith("cudaError"))
                        .toList();
        assertTrue(errors.size() > 100, () -> errors.size() + " errors");
        List<String> others = new ArrayList<>();
        for (Method error : errors) {
            int code = (int) error.invoke(null);
            String name = cuda.cudaGetErrorName(code);
            if (!name.equals(error.getName())) {
                others.add(error.getName() + " is " + name);
            }
            assertFalse(cuda.cudaGetErrorString(code).isBlank(), name);
        }
        // An older runtime does not know the newest.
        if (cuda.library().version().atLeast(Version.of("13.0"))) {
            assertEquals(List.of(), others);
        }
        assertEquals("cudaSuccess", cuda.cudaGetErrorName(0));
        assertEquals("unrecognized error code", cuda.cudaGetErrorName(123_456));
    }

    // ---- the CUDA driver

    @Test
    void theDriversFunctionsNeedADriver() {
        cuda();
        CudaDriverApi driver = NativeLibraries.cudaDriver();
        if (driver.supports("cuLaunchKernel")) {
            BoundLibrary.CUDA
                    .functions()
                    .forEach(function ->
                            assertTrue(driver.supports(function.toString()), function.toString()));
            return;
        }
        assumeNoGpu();
        UnsupportedOperationException error =
                assertThrows(UnsupportedOperationException.class, () -> driver.cuLibraryUnload(0));
        String message = String.valueOf(error.getMessage());
        assertTrue(
                message.startsWith("cuLibraryUnload is a function of the CUDA driver: "), message);
        assertNoDevice(message);
    }

    // ---- cuBLAS

    @Test
    void cublasHasEveryFunction() {
        CublasApi cublas = cublas();
        assertTrue(cublas.library().version().atLeast(Version.of("12.0")));
        assertEquals(
                List.of(),
                BoundLibrary.CUBLAS
                        .functions()
                        .map(Function::toString)
                        .filter(name -> !cublas.supports(name))
                        .toList());
    }

    @Test
    void cublasCallsStatusesAsTheHeaderDoes() throws ReflectiveOperationException {
        CublasApi cublas = cublas();
        List<Method> statuses =
                BoundLibrary.CUBLAS
                        .constants()
                        .filter(constant -> constant.getName().startsWith("CUBLAS_STATUS_"))
                        .toList();
        assertTrue(statuses.size() > 5, () -> statuses.size() + " statuses");
        for (Method status : statuses) {
            assertEquals(status.getName(), cublas.cublasGetStatusName((int) status.invoke(null)));
        }
        assertTrue(
                CublasException.of(cublas, 99, "x").toString().contains("x failed: UNKNOWN(99)"));
    }

    @Test
    void cublasFailsCleanlyWithoutADevice() {
        CublasApi cublas = cublas();
        assumeNoGpu();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = arena.allocate(ValueLayout.JAVA_LONG);
            CublasException error =
                    assertThrows(
                            CublasException.class,
                            () -> cublas.check(cublas.cublasCreate(handle), "cublasCreate"));
            assertEquals(cublas_h.CUBLAS_STATUS_NOT_INITIALIZED(), error.status());
            assertEquals(
                    "cublasCreate failed: CUBLAS_STATUS_NOT_INITIALIZED, the library was not"
                            + " initialized (cuBLAS "
                            + cublas.library().version()
                            + ")",
                    error.getMessage());
        }
    }

    // ---- MPI

    /** In a JVM of its own, since MPI can be started once in a process. */
    @Tag("exhaustive")
    @Test
    void mpiRunsAWorldOfOne() {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        CCompiler.Outcome outcome =
                CCompiler.start(
                        List.of(
                                java,
                                "-Xmx256m",
                                "--illegal-native-access=deny",
                                "--enable-native-access=io.jccl.bindings",
                                "--module-path",
                                ChildJvm.rootOf(Binder.class),
                                "--patch-module",
                                "io.jccl.bindings=" + ChildJvm.rootOf(MpiMain.class),
                                "--module",
                                "io.jccl.bindings/" + MpiMain.class.getName()),
                        RealLibrariesTest::alone);
        for (String line : outcome.lines()) {
            if (line.startsWith("missing: ")) {
                throw Need.MPI.absent(line.substring("missing: ".length()));
            }
        }
        assertEquals(0, outcome.status(), outcome::output);
        Map<String, String> said =
                outcome.lines().stream()
                        .map(line -> line.split(": ", 2))
                        .filter(pair -> pair.length == 2)
                        .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1], (a, b) -> b));
        assertEquals("0 of 1", said.get("rank"), outcome::output);
        assertEquals("[1.5, -2.0, 3.25]", said.get("allreduce"));
        assertEquals("[1.5, -2.0, 3.25]", said.get("allreduce in place"));
        assertEquals("[11, 22, 33]", said.get("own operation"));
        assertEquals("source 0, tag 77, error 0, 3 of MPI_DOUBLE", said.get("status"));
        assertEquals("[]", said.get("lacking"));
        assertTrue(String.valueOf(said.get("library")).startsWith("Open MPI"), outcome::output);
        assertTrue(
                String.valueOf(said.get("bad count"))
                        .startsWith("MPI_Send failed: MPI_ERR_COUNT: "),
                outcome::output);
        assertEquals("UNKNOWN(12345)", said.get("unknown code"));
        assertEquals("true", said.get("clock"));
        assertEquals("true", said.get("finalized"));
    }

    /** No rank of a world that these tests may run in, and no daemon, which would need ssh. */
    private static void alone(Map<String, String> environment) {
        environment.keySet().removeIf(name -> name.matches("(OMPI|PMIX|PMI|SLURM|ORTE|OPAL)_.*"));
        environment.put("OMPI_MCA_ess_singleton_isolated", "1");
    }
}
