package io.jccl.bindings;

/** Finds native libraries, and says how. */
public final class NativeLibraries {
    private NativeLibraries() {}

    /**
     * Finds and loads a library, once per process.
     *
     * @param library which one
     * @return the outcome, the same at every call; never an exception
     */
    public static Discovery discover(NativeLibrary library) {
        throw new UnsupportedOperationException("being written");
    }

    /**
     * NCCL's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if NCCL is not there
     */
    public static NcclApi nccl() {
        throw new UnsupportedOperationException("being written");
    }

    /**
     * The CUDA runtime's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if the CUDA runtime is not there
     */
    public static CudaApi cuda() {
        throw new UnsupportedOperationException("being written");
    }

    /**
     * The functions of cuBLAS.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if cuBLAS is not there
     */
    public static CublasApi cublas() {
        throw new UnsupportedOperationException("being written");
    }

    /**
     * MPI's functions.
     *
     * @return the table
     * @throws NativeLibraryUnavailableException if no MPI that JCCL knows is there
     */
    public static MpiApi mpi() {
        throw new UnsupportedOperationException("being written");
    }
}
