package io.jccl.bindings;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;

/** The system's C compiler, and other programs that tests start. */
final class CCompiler {
    /**
     * How a program ended.
     *
     * @param status its exit status
     * @param output what it printed, with errors
     */
    record Outcome(int status, String output) {
        List<String> lines() {
            return output.lines().toList();
        }
    }

    private final Path folder;
    private final String command;

    /**
     * Finds the compiler, or skips the test.
     *
     * @param folder for what it makes
     */
    CCompiler(Path folder) {
        this.folder = folder;
        this.command = find();
    }

    /** The name of the compiler; the test is skipped where there is none. */
    static String find() {
        List<String> names =
                Stream.of(System.getenv().getOrDefault("CC", ""), "cc", "gcc", "clang")
                        .filter(name -> !name.isBlank())
                        .toList();
        return names.stream()
                .filter(name -> onPath(name).isPresent())
                .findFirst()
                .orElseThrow(() ->
                        Need.CC.absent(
                                "there is no C compiler on the PATH: none of "
                                        + String.join(", ", names)));
    }

    /** A program by its path, or by its name on the PATH. */
    static Optional<Path> onPath(String program) {
        String folders = program.contains("/") ? "" : System.getenv().getOrDefault("PATH", "");
        return Arrays.stream(folders.split(File.pathSeparator, -1))
                .map(folder -> Path.of(folder, program))
                .filter(Files::isExecutable)
                .findFirst();
    }

    /** Makes a shared library. */
    Path library(String name, String source) {
        Path library = folder.resolve("lib" + name + ".so");
        compile(name, source, library, List.of("-shared", "-fPIC", "-pthread", "-Wall", "-Werror"));
        return library;
    }

    /** Makes a program, runs it, and gives the lines it printed. */
    List<String> run(String name, String source, List<String> flags) {
        Path program = folder.resolve(name);
        compile(name, source, program, flags);
        Outcome outcome = start(List.of(program.toString()));
        if (outcome.status() != 0) {
            throw new AssertionError(name + " failed:\n" + outcome.output());
        }
        return outcome.lines();
    }

    /** What the compiler says to a source: what the preprocessor makes of it, or errors. */
    Outcome preprocess(String name, String source, List<String> flags) {
        return start(command(write(name, source), flags, "-E", "-P"));
    }

    private void compile(String name, String source, Path result, List<String> flags) {
        Outcome outcome =
                start(command(write(name, source), flags, "-O1", "-o", result.toString()));
        if (outcome.status() != 0) {
            throw new AssertionError("cannot compile " + name + ".c:\n" + outcome.output());
        }
    }

    private List<String> command(Path source, List<String> flags, String... more) {
        List<String> words = new ArrayList<>(List.of(command));
        words.addAll(List.of(more));
        words.add(source.toString());
        words.addAll(flags); // last: the linker reads libraries after what needs them
        return words;
    }

    private Path write(String name, String source) {
        try {
            return Files.writeString(folder.resolve(name + ".c"), source);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A C source that lies beside the tests. */
    static String source(String file) {
        try (InputStream in = CCompiler.class.getResourceAsStream(file)) {
            if (in == null) {
                throw new AssertionError("no resource " + file);
            }
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Outcome start(List<String> words) {
        return start(words, environment -> {});
    }

    /** Runs a program that ends within two minutes, in a changed environment. */
    static Outcome start(List<String> words, Consumer<Map<String, String>> change) {
        try {
            Path output = Files.createTempFile("jccl", ".log");
            try {
                ProcessBuilder builder =
                        new ProcessBuilder(words)
                                .redirectErrorStream(true)
                                .redirectOutput(output.toFile());
                change.accept(builder.environment());
                Process process = builder.start();
                boolean ended = process.waitFor(2, TimeUnit.MINUTES);
                process.destroyForcibly();
                String text = Files.readString(output, StandardCharsets.ISO_8859_1);
                if (!ended) {
                    throw new AssertionError(words + " did not end:\n" + text);
                }
                return new Outcome(process.exitValue(), text);
            } finally {
                Files.delete(output);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
