package io.jccl.bindings;

import io.jccl.bindings.Discovery.Attempt;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The attempts of one search, and the messages that follow from them.
 *
 * <p><b>Threads:</b> one.
 */
final class SearchReport {
    static final String KNOWN_MPI =
            "JCCL knows the binary interfaces of Open MPI 4 and 5, of MPICH, and version 1 of the"
                    + " standard one";

    private final NativeLibrary library;
    private final LibraryPlaces places;
    private final List<Attempt> attempts = new ArrayList<>();

    /** The first file that was there but could not be used. */
    private @Nullable String unusable;

    /** Why it could not be used. */
    private String why = "";

    /** The first library found that serves the same purpose but is a different one. */
    private @Nullable String relative;

    SearchReport(NativeLibrary library, LibraryPlaces places) {
        this.library = library;
        this.places = places;
    }

    List<Attempt> attempts() {
        return List.copyOf(attempts);
    }

    /** Why the first file that was there could not be used; empty if there was none. */
    String why() {
        return why;
    }

    /** Keeps the first library found that serves the same purpose but is another. */
    void relative(String found) {
        if (relative == null) {
            relative = found;
        }
    }

    void fail(String file, String problem) {
        if (unusable == null) {
            unusable = file;
            why = problem;
        }
    }

    void note(String how, String path, String outcome) {
        attempts.add(new Attempt(how, path, outcome));
    }

    LibrarySearch.Result missing(String how, @Nullable String path, String reason) {
        note(how, String.valueOf(path), reason);
        return missing(reason);
    }

    LibrarySearch.Result missing(String reason) {
        return new LibrarySearch.Result(new Discovery.Missing(library, reason, attempts()), null);
    }

    LibrarySearch.Result refused(String reason) {
        return missing(capitalized(library.title()) + " was refused: " + reason);
    }

    String twoCopies() {
        return "two copies of " + library.title() + " in one process corrupt each other";
    }

    String bothMapped(List<Mapping> copies) {
        return twoCopies()
                + ", and "
                + copies.stream().map(Mapping::path).collect(Collectors.joining(" and "))
                + " are mapped; make everything in this process load the same file (see LD_LIBRARY_PATH,"
                + " LD_PRELOAD and -D"
                + library.property()
                + ")";
    }

    String notUsable() {
        return capitalized(library.title())
                + " was found but cannot be used: "
                + unusable
                + ": "
                + why;
    }

    String notFound() {
        if (unusable != null) {
            return notUsable();
        }
        return capitalized(library.title())
                + " was not found"
                + (relative == null ? "" : ", but " + relative + "; " + KNOWN_MPI)
                + ": "
                + install()
                + ", or set "
                + String.join(", ", places.homes())
                + " or -D"
                + library.property()
                + "=FILE";
    }

    String install() {
        return switch (library) {
            case NCCL -> "install libnccl2, or pip install nvidia-nccl-cu13";
            case CUDART -> "install the CUDA toolkit 12 or 13, or pip install nvidia-cuda-runtime";
            case CUBLAS -> "install the CUDA toolkit 12 or 13, or pip install nvidia-cublas";
            case MPI ->
                    "install Open MPI (openmpi-bin on Debian, openmpi on Fedora) or MPICH (mpich)";
        };
    }

    String sonames() {
        return String.join(" or ", places.sonames());
    }

    static String capitalized(String text) {
        // Names such as cuBLAS stay as they are.
        return text.startsWith("the ") ? "T" + text.substring(1) : text;
    }
}
