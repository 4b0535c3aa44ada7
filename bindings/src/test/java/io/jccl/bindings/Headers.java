package io.jccl.bindings;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The C headers of a library, where this machine has those that the bindings were made from.
 *
 * @param flags for the compiler
 * @param text what the preprocessor makes of them
 */
record Headers(List<String> flags, String text) {
    /** Finds the headers, or skips the test. */
    static Headers of(BoundLibrary library, CCompiler compiler, Path folder) {
        List<String> bound = library.versionMacros().stream().map(library::constant).toList();
        List<String> reasons = new ArrayList<>();
        boolean another = false;
        for (List<String> flags : candidates(library, folder)) {
            List<String> found = List.of();
            String source = "#include <" + library.include() + ">\n";
            CCompiler.Outcome text = compiler.preprocess(library + "_text", source, flags);
            if (text.status() == 0) {
                found = compiler.run(library + "_version", source + versionProgram(library), flags);
                if (found.equals(bound)) {
                    return new Headers(flags, text.output());
                }
                another = true;
            }
            reasons.add(
                    String.join(" ", flags)
                            + ": "
                            + (text.status() == 0
                                    ? "version %s, bound is %s".formatted(found, bound)
                                    : text.lines().stream()
                                            .filter(line -> line.contains("error"))
                                            .findFirst()
                                            .orElse("the preprocessor fails")));
        }
        String missing =
                "the %s that is bound is not here: %s"
                        .formatted(
                                library.include(),
                                reasons.isEmpty() ? "no folder has one" : reasons);
        // The release of MPI is the system's, and not one that a user of the tests chooses.
        assumeFalse(another && library == BoundLibrary.MPI, missing);
        throw library.need().absent(missing);
    }

    private static String versionProgram(BoundLibrary library) {
        return library.versionMacros().stream()
                .map(macro -> "    printf(\"%d\\n\", (int) (" + macro + "));\n")
                .collect(
                        Collectors.joining(
                                "",
                                "#include <stdio.h>\nint main(void) {\n",
                                "    return 0;\n}\n"));
    }

    /** Folders as compiler flags, best first; each set has the header. */
    private static List<List<String>> candidates(BoundLibrary library, Path folder) {
        List<Path> cuda =
                Stream.of(
                                home("CUDA_HOME", "include"),
                                home("CUDA_PATH", "include"),
                                home("NCCL_HOME", "../cu13/include"),
                                Stream.of(Path.of("/usr/local/cuda/include")),
                                Stream.of(Path.of("/usr/include")))
                        .flatMap(all -> all)
                        .filter(path -> Files.exists(path.resolve("cuda_runtime_api.h")))
                        .toList();
        return switch (library) {
            case MPI -> mpi();
            case NCCL ->
                    Stream.concat(
                                    home("NCCL_HOME", "include"),
                                    Stream.concat(
                                            cuda.stream(), Stream.of(Path.of("/usr/include"))))
                            .filter(path -> Files.exists(path.resolve(library.include())))
                            .distinct()
                            .flatMap(nccl -> cuda.stream().map(path -> cuda(folder, nccl, path)))
                            .toList();
            case CUDART, CUDA, CUBLAS ->
                    cuda.stream()
                            .filter(path -> Files.exists(path.resolve(library.include())))
                            .map(path -> cuda(folder, path))
                            .toList();
        };
    }

    private static List<List<String>> mpi() {
        List<List<String>> found = new ArrayList<>();
        if (CCompiler.onPath("mpicc").isPresent()) {
            List<String> flags = new ArrayList<>();
            for (String part : List.of("compile", "link")) {
                CCompiler.Outcome shown = CCompiler.start(List.of("mpicc", "-showme:" + part));
                if (shown.status() == 0) {
                    flags.addAll(Arrays.asList(shown.output().strip().split("\\s+", -1)));
                }
            }
            found.add(flags);
        }
        String multiarch = System.getProperty("os.arch").replace("amd64", "x86_64") + "-linux-gnu";
        Stream.concat(
                        home("MPI_HOME", ""),
                        Stream.of(Path.of("/usr/lib", multiarch, "openmpi"), Path.of("/usr/local")))
                .filter(path -> Files.exists(path.resolve("include/mpi.h")))
                .forEach(path -> {
                    String lib = path.resolve("lib").toString();
                    found.add(
                            List.of(
                                    "-I" + path.resolve("include"),
                                    "-L" + lib,
                                    "-Wl,-rpath," + lib,
                                    "-lmpi"));
                });
        return found;
    }

    private static Stream<Path> home(String variable, String sub) {
        String value = System.getenv(variable);
        return value == null || value.isBlank()
                ? Stream.empty()
                : Stream.of(Path.of(value, sub).normalize());
    }

    /**
     * CUDA's headers for half-precision numbers include nv/target, which wheels have elsewhere, for
     * what is in them for C++ only: an empty one serves C.
     */
    private static List<String> cuda(Path folder, Path... includes) {
        Path standIn = folder.resolve("stand-in");
        try {
            Files.createDirectories(standIn.resolve("nv"));
            Files.write(standIn.resolve("nv/target"), new byte[0]);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return Stream.concat(
                        Arrays.stream(includes).distinct().map(path -> "-I" + path),
                        Stream.of("-idirafter", standIn.toString()))
                .toList();
    }
}
