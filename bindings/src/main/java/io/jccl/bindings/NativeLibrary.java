package io.jccl.bindings;

import java.util.List;

/** The native libraries that JCCL uses if they are installed. */
public enum NativeLibrary {
    /**
     * NVIDIA's collective communication library. The oldest supported version has send and receive.
     */
    NCCL("NCCL", "jccl.nccl", "2.7", List.of("libnccl.so.2")),
    /** The CUDA runtime. */
    CUDART(
            "the CUDA runtime",
            "jccl.cudart",
            "12.0",
            List.of("libcudart.so.13", "libcudart.so.12")),
    /** NVIDIA's dense linear algebra. */
    CUBLAS("cuBLAS", "jccl.cublas", "12.0", List.of("libcublas.so.13", "libcublas.so.12")),
    /** An MPI: Open MPI, one of the standard ABI, MPICH or one with MPICH's binary interface. */
    MPI(
            "MPI",
            "jccl.mpi",
            "4.0",
            List.of("libmpi.so.40", "libmpi_abi.so.1", "libmpich.so.12", "libmpi.so.12"));

    private final String title;
    private final String property;
    private final Version minimum;
    private final List<String> sonames;

    NativeLibrary(String title, String property, String minimum, List<String> sonames) {
        this.title = title;
        this.property = property;
        this.minimum = Version.of(minimum);
        this.sonames = sonames;
    }

    /**
     * The library's name in a sentence.
     *
     * @return such as {@code the CUDA runtime}
     */
    public String title() {
        return title;
    }

    /**
     * The system property that names the library's file or folder, before any other setting.
     *
     * @return such as {@code jccl.nccl}
     */
    public String property() {
        return property;
    }

    /**
     * The oldest version that JCCL works with. An older library is rejected.
     *
     * @return such as 2.7
     */
    public Version minimum() {
        return minimum;
    }

    /**
     * The file names under which the dynamic loader finds the library, best first. They carry the
     * version of the binary interface, which {@code libnccl.so} would not.
     *
     * @return such as {@code libnccl.so.2}
     */
    public List<String> sonames() {
        return sonames;
    }
}
