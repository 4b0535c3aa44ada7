package io.jccl.bindings;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Shared libraries made for a test by the C compiler of the machine. */
final class CLibrary {
    private static final boolean LINUX = System.getProperty("os.name", "").equals("Linux");

    /** What the compiler made of its arguments and a source, for those who ask again. */
    private static final Map<List<String>, byte[]> MADE = new ConcurrentHashMap<>();

    private CLibrary() {}

    /** Skips the test where none can be made. */
    static void need() {
        if (!LINUX) {
            throw Need.CC.absent("needs Linux to load a library that a test makes");
        }
        CCompiler.find();
    }

    /**
     * Makes a library.
     *
     * @param file where; its name becomes the soname, its folders are made
     * @param options more for the compiler
     */
    static Path compile(Path file, String source, String... options) {
        List<String> command =
                new ArrayList<>(
                        List.of(
                                CCompiler.find(),
                                "-shared",
                                "-fPIC",
                                "-Wl,-soname," + file.getFileName(),
                                "-o",
                                file.toString(),
                                "-x",
                                "c",
                                "-",
                                "-x",
                                "none"));
        command.addAll(List.of(options));
        List<String> key = new ArrayList<>(options.length + 2);
        key.addAll(List.of(file.getFileName().toString(), source));
        key.addAll(List.of(options));
        try {
            Files.createDirectories(file.getParent());
            byte[] made = MADE.get(key);
            if (made != null) {
                return Files.write(file, made);
            }
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            try (var in = process.getOutputStream()) {
                in.write(source.getBytes(StandardCharsets.UTF_8));
            }
            String output =
                    new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (!process.waitFor(60, TimeUnit.SECONDS) || process.exitValue() != 0) {
                throw new AssertionError(command + ":\n" + output);
            }
            MADE.put(key, Files.readAllBytes(file));
            return file;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A library that says it is NCCL of some version, in NCCL's encoding. */
    static Path nccl(Path file, int code, String... options) {
        return compile(
                file, "int ncclGetVersion(int *v) { *v = " + code + "; return 0; }", options);
    }

    /** A library that says it is an MPI of some kind. */
    static Path mpi(Path file, String text) {
        return compile(
                file,
                "#include <string.h>\n"
                        + "int MPI_Get_library_version(char *text, int *length) {\n"
                        + "  strcpy(text, \""
                        + text
                        + "\");\n"
                        + "  *length = (int) strlen(text);\n"
                        + "  return 0;\n"
                        + "}\n");
    }
}
