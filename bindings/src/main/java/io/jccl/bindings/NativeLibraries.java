package io.jccl.bindings;

import java.lang.foreign.SymbolLookup;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Finds native libraries, and says how.
 *
 * <p>A library is looked for in this order:
 *
 * <ol>
 *   <li>the system property {@link NativeLibrary#property()}, a file or a folder;
 *   <li>the home of an installation: {@code NCCL_HOME} for NCCL, {@code CUDA_HOME} and then {@code
 *       CUDA_PATH} for the CUDA runtime and cuBLAS, {@code MPI_HOME} for MPI;
 *   <li>a copy that somebody else has loaded into this process;
 *   <li>{@code CONDA_PREFIX}, and for NCCL also {@code CUDA_HOME} and {@code CUDA_PATH};
 *   <li>the dynamic loader, which knows {@code LD_LIBRARY_PATH} and its own cache;
 *   <li>the usual folders: CUDA toolkits in {@code /usr/local}, the system's library folders, and
 *       pip wheels, those of {@code VIRTUAL_ENV} and {@code PYTHONPATH} first; for MPI the
 *       installation that {@code mpirun} belongs to.
 * </ol>
 *
 * <p>What is set in the first two ways is used or discovery fails: a typing error must not end in
 * another copy being used. There is one exception: a CUDA toolkit without cuBLAS is not a mistake,
 * because toolkits can be installed in parts. An empty setting counts as none.
 *
 * <p>Two copies of NCCL in one process corrupt each other, and so do two MPIs, so a second one is
 * refused. For the same reason the search ends at the first NCCL or MPI that could be loaded but is
 * of no use, such as one that is too old. No library is ever unloaded.
 *
 * <p>Nothing happens before a method is called, and nothing here needs a GPU or a driver.
 *
 * <p><b>Threads:</b> any. Settings are read at the first call and not again.
 */
public final class NativeLibraries {
    private static final System.Logger LOG = System.getLogger("io.jccl.bindings");

    private static final Machine MACHINE = new LocalMachine();

    private static final Map<NativeLibrary, Once<LibrarySearch.Result>> RESULTS = results();

    private static final Once<NcclApi> NCCL =
            new Once<>(() -> table(NcclApi.class, NativeLibrary.NCCL));
    private static final Once<CudaApi> CUDA =
            new Once<>(() -> table(CudaApi.class, NativeLibrary.CUDART));
    private static final Once<CublasApi> CUBLAS =
            new Once<>(() -> table(CublasApi.class, NativeLibrary.CUBLAS));
    private static final Once<MpiApi> MPI =
            new Once<>(() -> table(MpiApi.class, NativeLibrary.MPI));

    private NativeLibraries() {}

    /**
     * Finds and loads a library, once per process.
     *
     * @param library which one
     * @return the outcome, the same at every call; never an exception
     */
    public static Discovery discover(NativeLibrary library) {
        return result(library).discovery();
    }

    /**
     * Lists every copy of a library that discovery could meet, without loading any. Which of them
     * is in use is a matter of {@link #discover}; the others explain surprises, such as a package
     * that came before a wheel. What only the dynamic loader's cache knows is not listed.
     *
     * @param library which one
     * @return one for each file, in the order of the search
     */
    public static List<LibraryFile> candidates(NativeLibrary library) {
        return LibrarySearch.files(library, MACHINE);
    }

    /**
     * NCCL's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if NCCL is not there
     */
    public static NcclApi nccl() {
        return NCCL.get();
    }

    /**
     * The CUDA runtime's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if the CUDA runtime is not there
     */
    public static CudaApi cuda() {
        return CUDA.get();
    }

    /**
     * The functions of cuBLAS.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if cuBLAS is not there
     */
    public static CublasApi cublas() {
        return CUBLAS.get();
    }

    /**
     * MPI's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if no MPI that JCCL knows is there
     */
    public static MpiApi mpi() {
        return MPI.get();
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
            // Whoever asks whether there is a library must not die of the question.
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

    /** A value that is made at most once; what throws is tried again. */
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
