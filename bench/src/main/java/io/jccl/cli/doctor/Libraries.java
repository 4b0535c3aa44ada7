package io.jccl.cli.doctor;

import io.jccl.bindings.Discovery;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibrary;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The search for native libraries. */
public interface Libraries {
    /** The real search. */
    Libraries INSTALLED =
            new Libraries() {
                @Override
                public Discovery discover(NativeLibrary library) {
                    return NativeLibraries.discover(library);
                }

                @Override
                public Reading<List<Copy>> copies(NativeLibrary library) {
                    return Reading.known(
                            NativeLibraries.candidates(library).stream()
                                    .map(f -> new Copy(f.path(), FileVersion.of(library, f.path())))
                                    .toList());
                }
            };

    /**
     * A file of a library.
     *
     * @param path where it is, with symbolic links resolved
     * @param version as far as the file's name or folder tells
     */
    record Copy(String path, @Nullable String version) {}

    /**
     * Finds and loads a library.
     *
     * @param library which one
     * @return the outcome
     */
    Discovery discover(NativeLibrary library);

    /**
     * All files of a library that the search could find, including the loaded one; none is loaded
     * for this.
     *
     * @param library which one
     * @return the files, or why they are unknown
     */
    Reading<List<Copy>> copies(NativeLibrary library);
}
