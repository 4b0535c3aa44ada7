package io.jccl.bindings;

import java.lang.foreign.SymbolLookup;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Finds native libraries and reports how.
 *
 * <p>The search order is:
 *
 * <ol>
 *   <li>the system property {@link NativeLibrary#property()}, a file or a folder;
 *   <li>the home of an installation: {@code NCCL_HOME} for NCCL, {@code CUDA_HOME} and then {@code
 *       CUDA_PATH} for the CUDA runtime and cuBLAS, {@code MPI_HOME} for MPI;
 *   <li>a copy that other code has loaded into this process;
 *   <li>{@code CONDA_PREFIX}, and for NCCL also {@code CUDA_HOME} and {@code CUDA_PATH};
 *   <li>the dynamic loader, which searches {@code LD_LIBRARY_PATH} and its own cache;
 *   <li>the usual folders: CUDA toolkits in {@code /usr/local}, the system's library folders, and
 *       pip wheels, those of {@code VIRTUAL_ENV} and {@code PYTHONPATH} first; for MPI the
 *       installation that {@code mpirun} belongs to.
 * </ol>
 *
 * <p>A setting of the first two kinds is used, or discovery fails: a typo must not lead to another
 * copy. There is one exception: a CUDA toolkit without cuBLAS is not a mistake, since toolkits can
 * be installed in parts. An empty setting counts as not set.
 *
 * <p>Two copies of NCCL in one process corrupt each other, and so do two MPIs, so a second one is
 * rejected. For the same reason the search ends at the first NCCL or MPI that was loaded but cannot
 * be used, for example because it is too old. No library is ever unloaded.
 *
 * <p>Nothing happens before a method is called, and nothing here needs a GPU or a driver.
 *
 * {@snippet :
 * switch (NativeLibraries.discover(NativeLibrary.NCCL)) {
 *     case Discovery.Found found -> System.out.println(found.loaded().path());
 *     case Discovery.Missing missing -> System.out.println(missing.message()); // and each step
 * }
 * }
 *
 * <p><b>Threads:</b> any. Settings are read once, at the first call.
 */
public final class NativeLibraries {
    private static final System.Logger LOG = System.getLogger("io.jccl.bindings");

    private static final Machine MACHINE = new LocalMachine();

    private static final Map<NativeLibrary, Once<LibrarySearch.Result>> RESULTS = results();

    private static final Once<NcclApi> NCCL =
            new Once<>(() -> table(NcclApi.class, NativeLibrary.NCCL));
    private static final Once<CudaApi> CUDA =
            new Once<>(() -> table(CudaApi.class, NativeLibrary.CUDART));
    private static final Once<CudaDriverApi> CUDA_DRIVER = new Once<>(NativeLibraries::driverTable);
    private static final Once<CublasApi> CUBLAS =
            new Once<>(() -> table(CublasApi.class, NativeLibrary.CUBLAS));
    private static final Once<MpiApi> MPI =
            new Once<>(() -> table(MpiApi.class, NativeLibrary.MPI));

    private NativeLibraries() {}

    /**
     * Finds and loads a library, once per process.
     *
     * @param library the library
     * @return the outcome, the same at every call; errors are part of it
     */
    public static Discovery discover(NativeLibrary library) {
        return result(library).discovery();
    }

    /**
     * Lists every copy of a library that discovery could find, without loading any. {@link
     * #discover} reports the one in use; the others explain surprises, such as a package that comes
     * before a wheel. Copies known only to the dynamic loader's cache are not listed.
     *
     * @param library the library
     * @return one entry for each file, in search order
     */
    public static List<LibraryFile> candidates(NativeLibrary library) {
        return LibrarySearch.files(library, MACHINE);
    }

    /**
     * NCCL's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if NCCL is not available
     */
    public static NcclApi nccl() {
        return NCCL.get();
    }

    /**
     * The CUDA runtime's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if the CUDA runtime is not available
     */
    public static CudaApi cuda() {
        return CUDA.get();
    }

    /**
     * The CUDA driver's functions. A missing driver shows only when one of them is called.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if the CUDA runtime is not available
     */
    public static CudaDriverApi cudaDriver() {
        return CUDA_DRIVER.get();
    }

    /**
     * The functions of cuBLAS.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if cuBLAS is not available
     */
    public static CublasApi cublas() {
        return CUBLAS.get();
    }

    /**
     * MPI's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if no supported MPI is available
     */
    public static MpiApi mpi() {
        return MPI.get();
    }

    private static CudaDriverApi driverTable() {
        CudaApi runtime = cuda();
        return Binder.bind(CudaDriverApi.class, runtime.library(), new DriverSymbols(runtime));
    }

    private static <T extends NativeApi> T table(Class<T> api, NativeLibrary library) {
        LibrarySearch.Result result = result(library);
        SymbolLookup symbols = result.symbols();
        return switch (result.discovery()) {
            case Discovery.Found found when symbols != null ->
                    Binder.bind(
                            api,
                            found.loaded(),
                            symbols,
                            library == NativeLibrary.MPI ? MpiAbi.of(symbols) : MpiAbi.OPEN_MPI);
            case Discovery.Missing missing ->
                    throw new NativeLibraryUnavailableException(missing.message());
            case Discovery.Found found ->
                    throw new IllegalStateException("no symbols of " + found.loaded());
        };
    }

    private static LibrarySearch.Result result(NativeLibrary library) {
        return Objects.requireNonNull(RESULTS.get(library), "library").get();
    }

    private static Map<NativeLibrary, Once<LibrarySearch.Result>> results() {
        Map<NativeLibrary, Once<LibrarySearch.Result>> map = new EnumMap<>(NativeLibrary.class);
        for (NativeLibrary library : NativeLibrary.values()) {
            map.put(library, new Once<>(() -> search(library)));
        }
        return map;
    }

    private static LibrarySearch.Result search(NativeLibrary library) {
        LibrarySearch.Result result;
        try {
            result = LibrarySearch.search(library, MACHINE);
        } catch (RuntimeException | LinkageError e) {
            // Asking whether a library is available must not throw.
            String reason = "the search for " + library.title() + " failed: " + e;
            LOG.log(System.Logger.Level.WARNING, reason, e);
            return new LibrarySearch.Result(
                    new Discovery.Missing(
                            library,
                            reason,
                            List.of(new Discovery.Attempt("search", library.title(), reason))),
                    null);
        }
        for (Discovery.Attempt attempt : result.discovery().attempts()) {
            LOG.log(System.Logger.Level.DEBUG, () -> library.title() + ": " + attempt);
        }
        return result;
    }

    /** A value that is created at most once; a creation that throws is retried. */
    private static final class Once<T> {
        private final Supplier<T> maker;
        private volatile @Nullable T value;

        Once(Supplier<T> maker) {
            this.maker = maker;
        }

        T get() {
            T made = value;
            if (made == null) {
                synchronized (this) {
                    made = value;
                    if (made == null) {
                        made = maker.get();
                        value = made;
                    }
                }
            }
            return made;
        }
    }
}
