package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.generated.cudart.cudaIpcMemHandle_t;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.nccl.ncclUniqueId;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.bindings.internal.ForeignMemory;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Calls through the tables into a double written in C, and what becomes of their results. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class CallTest {
    private static final Version NEWEST = new Version(99, 0, 0);

    /** Functions of no library of ours, for what those do not have. */
    interface Odd extends NativeApi {
        double jccl_floats(
                float a,
                double b,
                int c,
                float d,
                double e,
                long f,
                double g,
                double h,
                double i,
                double j,
                double k,
                float l,
                double m);

        float jccl_float(float a, float b);

        long jccl_long(long a, int b, long c);

        @Symbol("jccl_long")
        long renamed(long a, int b, long c);

        int jccl_odd(@ByValue(FiveBytes.class) MemorySegment odd, int last);

        @Symbol(value = "double_struct", address = true)
        long struct();

        @Symbol(value = "double_before", address = true)
        long before();

        @Symbol(value = "double_after", address = true)
        long after();

        @Symbol(value = "not_there", address = true)
        long absent();
    }

    /** As jextract writes a struct. */
    static final class FiveBytes {
        private FiveBytes() {}

        public static MemoryLayout layout() {
            return MemoryLayout.structLayout(
                    MemoryLayout.sequenceLayout(5, ValueLayout.JAVA_BYTE).withName("bytes"));
        }
    }

    @TempDir static Path folder;

    private static SymbolLookup symbols = name -> Optional.empty();

    @BeforeEach
    void compile() {
        if (symbols.find("jccl_long").isPresent()) {
            return;
        }
        Path library = new CCompiler(folder).library("jccldouble", CCompiler.source("double.c"));
        symbols = SymbolLookup.libraryLookup(library, Arena.global());
    }

    private static <T extends NativeApi> T bind(
            Class<T> api, NativeLibrary library, String version) {
        return Binder.bind(
                api,
                new LoadedLibrary(library, Version.of(version), "/opt/double/lib.so", "test"),
                symbols);
    }

    private static NcclApi nccl() {
        return bind(NcclApi.class, NativeLibrary.NCCL, "2.30.7");
    }

    private static Odd odd() {
        return bind(Odd.class, NativeLibrary.NCCL, "2.30.7");
    }

    // ---- arguments

    @Test
    void anIdOf128BytesGoesByValue() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment id = filled(arena, ncclUniqueId.layout());
            byte[] sent = id.toArray(ValueLayout.JAVA_BYTE);
            nccl().ncclCommInitRank(MemorySegment.NULL, -2, id, 77);
            assertArrayEquals(sent, bytes(odd().struct(), 128));
            assertArrayEquals(sent, id.toArray(ValueLayout.JAVA_BYTE), "the callee has a copy");
            assertEquals(-2, number(odd().before()));
            assertEquals(77, number(odd().after()));
        }
    }

    @Test
    void aHandleOf64BytesGoesByValueBetweenOtherArguments() {
        CudaApi cuda = bind(CudaApi.class, NativeLibrary.CUDART, "13.0");
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = filled(arena, cudaIpcMemHandle_t.layout());
            MemorySegment pointer = arena.allocate(ValueLayout.JAVA_LONG);
            cuda.cudaIpcOpenMemHandle(pointer, handle, 0x7fff_0001);
            assertArrayEquals(handle.toArray(ValueLayout.JAVA_BYTE), bytes(odd().struct(), 64));
            assertEquals(pointer.address(), number(odd().before()));
            assertEquals(0x7fff_0001, number(odd().after()));
        }
    }

    @Test
    void aSegmentThatIsSmallerThanTheStructIsRefused() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment half = arena.allocate(64);
            assertThrows(
                    IndexOutOfBoundsException.class,
                    () -> nccl().ncclCommInitRank(MemorySegment.NULL, 1, half, 0));
        }
    }

    @Test
    void kindsOfNumbersKeepTheirPlaces() {
        Odd odd = odd();
        assertEquals(
                1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 81 + 100 + 121 + 144 + 169,
                odd.jccl_floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
        assertEquals(0.1f / 3, odd.jccl_float(0.1f, 3));
        assertEquals((1L << 62) + (5L << 40), odd.jccl_long(1L << 62, -5, 1L << 40));
        assertEquals(42, odd.renamed(62, 4, 5));
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment five =
                    arena.allocateFrom(ValueLayout.JAVA_BYTE, new byte[] {1, 2, 3, 4, 5});
            assertEquals(754321, odd.jccl_odd(five, 7));
        }
    }

    @Test
    void anObjectIsGivenByItsAddress() {
        Odd odd = odd();
        assertEquals(symbols.find("double_struct").orElseThrow().address(), odd.struct());
        assertNotEquals(odd.before(), odd.after());
        assertTrue(odd.supports("struct"));
        assertFalse(odd.supports("absent"));
        assertThrows(UnsupportedOperationException.class, odd::absent);
    }

    // ---- late results

    /** NCCL keeps the pointer and writes when the group is long closed. */
    @Test
    void aResultMayComeLateAndFromAnotherThread() throws InterruptedException {
        NcclApi nccl = nccl();
        try (Arena communicator = Arena.ofShared()) {
            MemorySegment slot = communicator.allocate(ValueLayout.JAVA_LONG);
            MemorySegment state = communicator.allocate(ValueLayout.JAVA_INT);
            try (Arena call = Arena.ofConfined()) {
                MemorySegment id = filled(call, ncclUniqueId.layout());
                nccl.check(nccl.ncclGroupStart(), "ncclGroupStart", 0);
                nccl.check(nccl.ncclCommInitRank(slot, 2, id, 0), "ncclCommInitRank", 0);
                assertFalse(nccl.completed(nccl.ncclGroupEnd(), "ncclGroupEnd", 0));
            }
            assertEquals(0, slot.get(ValueLayout.JAVA_LONG, 0));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (true) {
                nccl.check(nccl.ncclCommGetAsyncError(0, state), "ncclCommGetAsyncError", 0);
                if (nccl.completed(state.get(ValueLayout.JAVA_INT, 0), "ncclGroupEnd", 0)) {
                    break;
                }
                assertTrue(System.nanoTime() < deadline, "no result came");
                Thread.sleep(1);
            }
            assertEquals(0x1234567890abcdefL, slot.get(ValueLayout.JAVA_LONG, 0));
        }
    }

    // ---- what a library has

    @Test
    void aFunctionThatIsTooNewNamesBothVersionsAndThePath() {
        NcclApi nccl =
                Binder.bind(
                        NcclApi.class,
                        new LoadedLibrary(
                                NativeLibrary.NCCL, Version.of("2.21.5"), "/opt/nccl.so.2", "test"),
                        symbols);
        assertEquals(
                "ncclCommShrink needs NCCL 2.27, loaded 2.21.5 from /opt/nccl.so.2",
                assertThrows(
                                UnsupportedOperationException.class,
                                () ->
                                        nccl.ncclCommShrink(
                                                0,
                                                MemorySegment.NULL,
                                                0,
                                                MemorySegment.NULL,
                                                MemorySegment.NULL,
                                                0))
                        .getMessage());
        assertFalse(nccl.supports("ncclCommShrink"));
        assertEquals("NCCL 2.21.5 from /opt/nccl.so.2 (test)", nccl.toString());
    }

    /** The version decides even if a symbol of that name is there. */
    @Test
    void aSymbolOfAnOlderVersionIsNotTrusted() {
        NcclApi old = bind(NcclApi.class, NativeLibrary.NCCL, "2.3.7");
        assertFalse(old.supports("ncclCommGetAsyncError"));
        assertThrows(
                UnsupportedOperationException.class,
                () -> old.ncclCommGetAsyncError(0, MemorySegment.NULL));
        assertTrue(old.supports("ncclGroupEnd"));
    }

    @Test
    void aFunctionThatTheBuildLeftOutIsNamed() {
        NcclApi nccl = nccl();
        assertFalse(nccl.supports("ncclCommShrink"));
        String message =
                "ncclParamDumpAll is missing in NCCL 2.30.7 from /opt/double/lib.so: the library was"
                        + " built without it";
        UnsupportedOperationException first =
                assertThrows(UnsupportedOperationException.class, nccl::ncclParamDumpAll);
        UnsupportedOperationException second =
                assertThrows(UnsupportedOperationException.class, nccl::ncclParamDumpAll);
        assertEquals(message, first.getMessage());
        assertEquals(message, second.getMessage());
        assertNotSame(first, second, "each has the stack of its own call");
    }

    @ParameterizedTest
    @CsvSource({"ncclAllreduce", "supports", "library", "check", "cudaMalloc", "''"})
    void onlyFunctionsOfTheTableCanBeAskedFor(String name) {
        IllegalArgumentException error =
                assertThrows(IllegalArgumentException.class, () -> nccl().supports(name));
        assertEquals("'" + name + "' is not a function of NcclApi", error.getMessage());
    }

    @Test
    void aFunctionIsLookedUpWhenItIsFirstCalled() {
        List<String> asked = new ArrayList<>();
        NcclApi nccl =
                Binder.bind(
                        NcclApi.class,
                        new LoadedLibrary(NativeLibrary.NCCL, NEWEST, "/opt/nccl.so.2", "test"),
                        name -> {
                            asked.add(name);
                            return symbols.find(name);
                        });
        assertEquals(List.of(), asked);
        nccl.ncclGroupStart();
        nccl.ncclGroupStart();
        assertEquals(List.of("ncclGroupStart"), asked);
    }

    // ---- results

    @ParameterizedTest
    @CsvSource({"0, ''", "1, ''", "3, Grüße € 🚀", "4, Latin-1 \ufffd."})
    void textsAreUtf8(long comm, String text) {
        assertEquals(text, nccl().ncclGetLastError(comm));
    }

    @Test
    void inProgressIsNotSuccess() {
        NcclApi nccl = nccl();
        assertTrue(nccl.completed(nccl_h.ncclSuccess(), "ncclCommFinalize", 0));
        assertFalse(nccl.completed(nccl_h.ncclInProgress(), "ncclCommFinalize", 0));
        NcclException error =
                assertThrows(
                        NcclException.class,
                        () -> nccl.check(nccl_h.ncclInProgress(), "ncclCommFinalize", 0));
        assertEquals(nccl_h.ncclInProgress(), error.result());
        assertTrue(String.valueOf(error.getMessage()).contains("ncclInProgress"), error::toString);
        nccl.check(nccl_h.ncclSuccess(), "ncclCommFinalize", 0);
    }

    @Test
    void ncclFailuresCarryTheLastErrorAndAdvice() {
        NcclException error =
                assertThrows(NcclException.class, () -> nccl().check(2, "ncclAllReduce", 2));
        assertEquals(2, error.result());
        assertEquals("ncclAllReduce", error.operation());
        assertEquals(
                "ncclAllReduce failed: ncclSystemError, unhandled system error: socket to host-7"
                        + " closed; a system call failed (network, shared memory, memory limits):"
                        + " check them with jccl doctor, or set NCCL_DEBUG=INFO and read NCCL's own"
                        + " log (NCCL 2.30.7)",
                error.getMessage());
        assertEquals(
                "ncclSend failed: UNKNOWN(42), unknown result code (NCCL 2.30.7)",
                assertThrows(NcclException.class, () -> nccl().completed(42, "ncclSend", 1))
                        .getMessage());
    }

    /** Before 2.13 there was no ncclGetLastError: the failure must still be told. */
    @Test
    void anOldNcclHasNoLastError() {
        NcclApi old = bind(NcclApi.class, NativeLibrary.NCCL, "2.10.3");
        assertEquals(
                "ncclSend failed: UNKNOWN(-1), unknown result code (NCCL 2.10.3)",
                assertThrows(NcclException.class, () -> old.check(-1, "ncclSend", 2)).getMessage());
    }

    @Test
    void everyNcclResultHasItsName() throws ReflectiveOperationException {
        for (String name :
                List.of(
                        "ncclSuccess",
                        "ncclUnhandledCudaError",
                        "ncclSystemError",
                        "ncclInternalError",
                        "ncclInvalidArgument",
                        "ncclInvalidUsage",
                        "ncclRemoteError",
                        "ncclInProgress",
                        "ncclTimeout")) {
            assertEquals(
                    name, NcclException.name(Integer.parseInt(BoundLibrary.NCCL.constant(name))));
        }
        assertEquals(
                "UNKNOWN(" + nccl_h.ncclNumResults() + ")",
                NcclException.name(nccl_h.ncclNumResults()));
    }

    @Test
    void cudaFailuresTellWhetherTheProcessIsLost() {
        CudaApi cuda = bind(CudaApi.class, NativeLibrary.CUDART, "13.0");
        cuda.check(0, "cudaMalloc");
        CudaException memory = assertThrows(CudaException.class, () -> cuda.check(2, "cudaMalloc"));
        assertFalse(memory instanceof CudaFatalException);
        assertEquals(2, memory.error());
        assertEquals("cudaMalloc", memory.operation());
        assertEquals(
                "cudaMalloc failed: cudaErrorMemoryAllocation, out of memory; not enough memory:"
                        + " make buffers smaller or free some (CUDA runtime 13.0)",
                memory.getMessage());
        CudaException access =
                assertThrows(CudaException.class, () -> cuda.check(700, "cudaStreamSynchronize"));
        assertInstanceOf(CudaFatalException.class, access);
        assertEquals(
                "cudaStreamSynchronize failed: cudaErrorIllegalAddress, an illegal memory access was"
                        + " encountered; CUDA is unusable in this process from now on:"
                        + " restart it (CUDA runtime 13.0)",
                access.getMessage());
        assertEquals(
                "cudaFree failed: UNKNOWN(12345), unrecognized error code (CUDA runtime 13.0)",
                assertThrows(CudaException.class, () -> cuda.check(12345, "cudaFree"))
                        .getMessage());
        // A query that is not ready yet has not failed fatally, but it is no success either.
        assertFalse(CudaException.isFatal(cudart_h.cudaErrorNotReady()));
        assertThrows(
                CudaException.class,
                () -> cuda.check(cudart_h.cudaErrorNotReady(), "cudaStreamQuery"));
    }

    @Test
    void cublasFailuresAreNamed() {
        CublasApi cublas = bind(CublasApi.class, NativeLibrary.CUBLAS, "13.1.1");
        cublas.check(0, "cublasCreate");
        CublasException error =
                assertThrows(CublasException.class, () -> cublas.check(3, "cublasCreate"));
        assertEquals(3, error.status());
        assertEquals("cublasCreate", error.operation());
        assertEquals(
                "cublasCreate failed: CUBLAS_STATUS_ALLOC_FAILED, the resource allocation failed"
                        + " (cuBLAS 13.1.1)",
                error.getMessage());
        assertEquals(
                "cublasSscal failed: UNKNOWN(99), unrecognized status (cuBLAS 13.1.1)",
                assertThrows(CublasException.class, () -> cublas.check(99, "cublasSscal"))
                        .getMessage());
    }

    @Test
    void mpiFailuresCarryTheLibrarysText() {
        MpiApi mpi = bind(MpiApi.class, NativeLibrary.MPI, "4.1.4");
        mpi.check(0, "MPI_Send");
        MpiException error = assertThrows(MpiException.class, () -> mpi.check(6, "MPI_Send"));
        assertEquals(6, error.code());
        assertEquals("MPI_Send", error.operation());
        assertEquals("MPI_Send failed: MPI_ERR_6: of the double (MPI 4.1.4)", error.getMessage());
        assertEquals(
                "MPI_Recv failed: UNKNOWN(100) (MPI 4.1.4)",
                assertThrows(MpiException.class, () -> mpi.check(100, "MPI_Recv")).getMessage());
    }

    private static MemorySegment filled(Arena arena, MemoryLayout layout) {
        MemorySegment segment = arena.allocate(layout);
        for (int i = 0; i < segment.byteSize(); i++) {
            segment.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 37 + 1));
        }
        return segment;
    }

    private static byte[] bytes(long address, int count) {
        return ForeignMemory.at(address, count).toArray(ValueLayout.JAVA_BYTE);
    }

    private static long number(long address) {
        return ForeignMemory.at(address, Long.BYTES).get(ValueLayout.JAVA_LONG, 0);
    }
}
