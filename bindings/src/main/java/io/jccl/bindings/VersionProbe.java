package io.jccl.bindings;

import io.jccl.bindings.Machine.Opened;
import io.jccl.bindings.OpenException.State;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Queries a library's version by the one function that needs no device, no driver and no
 * initialization. A library without that function is not the right one.
 */
final class VersionProbe {
    /** The version texts of libraries whose binary interface JCCL supports. */
    private static final Pattern MPI =
            Pattern.compile(
                    "(?:Open MPI v|MPICH Version:\\s*|Intel\\(R\\) MPI Library |MVAPICH Version\\s*:\\s*"
                            + "|MPI VERSION\\s*: CRAY MPICH version )"
                            + "(\\d{1,6})\\.(\\d{1,6})(?:\\.(\\d{1,6}))?.*",
                    Pattern.DOTALL);

    /** The standard's own version, for a library of the standard ABI with another text. */
    private static final Version STANDARD = new Version(5, 0, -1);

    /** Enough for every MPI: MPICH's standard limit is the largest known. */
    private static final int MPI_TEXT_BYTES = 8192;

    private VersionProbe() {}

    static Opened probe(NativeLibrary library, SymbolLookup symbols) throws OpenException {
        String function =
                switch (library) {
                    case NCCL -> "ncclGetVersion";
                    case CUDART -> "cudaRuntimeGetVersion";
                    case CUBLAS -> "cublasGetProperty";
                    case MPI -> "MPI_Get_library_version";
                };
        MemorySegment address =
                symbols.find(function)
                        .orElseThrow(() ->
                                new OpenException(
                                        State.LOADED,
                                        "it has no function %s, so it is not %s"
                                                .formatted(function, library.title())));
        return new Opened(symbols, address.address(), version(library, function, address, symbols));
    }

    private static Version version(
            NativeLibrary library, String function, MemorySegment address, SymbolLookup symbols)
            throws OpenException {
        return switch (library) {
            case NCCL -> Version.ofNccl(number(function, address));
            case CUDART -> Version.ofCuda(number(function, address));
            case CUBLAS ->
                    new Version(
                            property(function, address, 0),
                            property(function, address, 1),
                            property(function, address, 2));
            case MPI -> ofMpi(mpiText(function, address), standardAbi(symbols));
        };
    }

    /**
     * Parses the version text of an MPI.
     *
     * @param text of {@code MPI_Get_library_version}
     * @param standardAbi the major version of the standard ABI that it has, or less than 1
     */
    static Version ofMpi(String text, int standardAbi) throws OpenException {
        if (standardAbi > 1) {
            throw new OpenException(
                    State.LOADED,
                    "it has version "
                            + standardAbi
                            + " of MPI's standard binary interface, and JCCL knows version 1");
        }
        Matcher matcher = MPI.matcher(text);
        if (!matcher.matches()) {
            if (standardAbi == 1) {
                return STANDARD;
            }
            String first = text.lines().findFirst().orElse("").strip().replaceAll("\\s+", " ");
            throw new OpenException(
                    State.LOADED,
                    "it reports itself as '"
                            + first.substring(0, Math.min(first.length(), 80))
                            + "', whose binary interface is unknown to JCCL: use Open MPI, MPICH,"
                            + " or a library of MPI's standard ABI (libmpi_abi.so)");
        }
        String patch = matcher.group(3);
        return new Version(
                Integer.parseInt(matcher.group(1)),
                Integer.parseInt(matcher.group(2)),
                patch == null ? -1 : Integer.parseInt(patch));
    }

    /**
     * The major version of MPI's standard binary interface.
     *
     * @return less than 1 if the library has another one
     */
    static int standardAbi(SymbolLookup symbols) {
        MemorySegment function = symbols.find("MPI_Abi_get_version").orElse(null);
        if (function == null) {
            return 0;
        }
        MethodHandle handle = handle(function, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment major = arena.allocate(ValueLayout.JAVA_INT);
            MemorySegment minor = arena.allocate(ValueLayout.JAVA_INT);
            int status = (int) handle.invokeExact(major, minor);
            return status == 0 ? major.get(ValueLayout.JAVA_INT, 0) : 0;
        } catch (Throwable t) {
            throw new LinkageError("MPI_Abi_get_version", t);
        }
    }

    private static int number(String function, MemorySegment address) throws OpenException {
        MethodHandle handle = handle(address, ValueLayout.ADDRESS);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
            int status;
            try {
                status = (int) handle.invokeExact(out);
            } catch (Throwable t) {
                throw new LinkageError(function, t);
            }
            check(function, status);
            return out.get(ValueLayout.JAVA_INT, 0);
        }
    }

    private static int property(String function, MemorySegment address, int which)
            throws OpenException {
        MethodHandle handle = handle(address, ValueLayout.JAVA_INT, ValueLayout.ADDRESS);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
            int status;
            try {
                status = (int) handle.invokeExact(which, out);
            } catch (Throwable t) {
                throw new LinkageError(function, t);
            }
            check(function, status);
            return out.get(ValueLayout.JAVA_INT, 0);
        }
    }

    private static String mpiText(String function, MemorySegment address) throws OpenException {
        MethodHandle handle = handle(address, ValueLayout.ADDRESS, ValueLayout.ADDRESS);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment text = arena.allocate(MPI_TEXT_BYTES);
            MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
            int status;
            try {
                status = (int) handle.invokeExact(text, length);
            } catch (Throwable t) {
                throw new LinkageError(function, t);
            }
            check(function, status);
            return text.getString(0);
        }
    }

    private static void check(String function, int status) throws OpenException {
        if (status != 0) {
            throw new OpenException(State.LOADED, function + " returned " + status);
        }
    }

    private static MethodHandle handle(MemorySegment address, MemoryLayout... arguments) {
        return Linker.nativeLinker()
                .downcallHandle(address, FunctionDescriptor.of(ValueLayout.JAVA_INT, arguments));
    }
}
