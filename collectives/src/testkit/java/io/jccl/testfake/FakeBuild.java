package io.jccl.testfake;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/**
 * Builds the fakes of libcudart, libnccl and libcublas with the script {@code
 * collectives/src/test/c/build} and the system's compilers of C and C++, into {@code
 * collectives/target/fakes}, for the tests of all modules.
 *
 * <p>What was built from the same sources with the same compilers and flags is used again. Of
 * several threads and JVMs one builds, and the others wait for it. Where there are compilers and
 * one fails, the test fails; where one is missing, it is skipped, unless {@code JCCL_TEST_REQUIRE}
 * names {@code cc}.
 */
public final class FakeBuild {
    private static final Duration PATIENCE = Duration.ofMinutes(5);

    private FakeBuild() {}

    /**
     * How a program ended.
     *
     * @param status exit status, 128 and the number of a signal that ended it
     * @param output what it printed, errors included
     */
    public record Ended(int status, String output) {}

    /** What compiles the fakes. */
    record Compilers(String c, String cpp) {}

    /**
     * The compilers: of C {@code CC}, or the first of cc, gcc and clang on the path; of C++ {@code
     * CXX}, or the first of c++, g++ and clang++. Aborts the test if one is missing, or fails it if
     * {@code JCCL_TEST_REQUIRE} names {@code cc}.
     */
    static Compilers compilers() {
        return compilers(System.getenv());
    }

    static Compilers compilers(Map<String, String> environment) {
        return new Compilers(
                compiler(environment, "C", "CC", "cc", "gcc", "clang"),
                compiler(environment, "C++", "CXX", "c++", "g++", "clang++"));
    }

    private static String compiler(
            Map<String, String> environment, String language, String variable, String... names) {
        String chosen = environment.getOrDefault(variable, "");
        if (!chosen.isBlank()) {
            return chosen.strip();
        }
        String path = environment.getOrDefault("PATH", "");
        Optional<String> found =
                Stream.of(names)
                        .flatMap(name -> Stream.of(path.split(":", -1)).map(f -> Path.of(f, name)))
                        .filter(Files::isExecutable)
                        .map(Path::toString)
                        .findFirst();
        if (found.isPresent()) {
            return found.get();
        }
        String reason =
                "there is no compiler of %s (%s, or %s on the PATH) to build the fakes"
                        .formatted(language, variable, String.join(", ", names));
        String required = environment.getOrDefault("JCCL_TEST_REQUIRE", "");
        if (List.of(required.split(",", -1)).contains("cc")) {
            throw new AssertionError(reason + ", and JCCL_TEST_REQUIRE names cc");
        }
        return Assumptions.abort(reason);
    }

    /**
     * Flags of all fakes of this JVM, such as {@code -fsanitize=undefined}: the system property
     * {@code jccl.fake.flags}, separated by blanks.
     */
    private static final List<String> OF_ALL =
            Stream.of(System.getProperty("jccl.fake.flags", "").split(" "))
                    .filter(f -> !f.isEmpty())
                    .toList();

    /**
     * The fakes as an installation: {@code lib} (also as {@code lib64}) holds {@code
     * libcudart.so.13}, {@code libnccl.so.2} and {@code libcublas.so.13}, {@code bin} the program
     * {@code fake_test}, which is linked to them. Serves as {@code CUDA_HOME} and {@code
     * NCCL_HOME}.
     *
     * @param flags more flags for the compiler, such as {@code -DJCCL_FAKE_MAX_VERSION=22105}
     * @return its folder
     */
    public static synchronized Path home(String... flags) {
        return home(Stream.concat(OF_ALL.stream(), Stream.of(flags)).toList());
    }

    private static Path home(List<String> flags) {
        Compilers compilers = compilers();
        try {
            Path all = module().resolve("target").resolve("fakes");
            Path done = all.resolve(hash(compilers, flags));
            if (Files.isDirectory(done)) {
                return done;
            }
            Files.createDirectories(all);
            Path lock = all.resolve("lock");
            try (FileChannel channel =
                    FileChannel.open(lock, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                channel.lock(); // until the channel is closed
                if (!Files.isDirectory(done)) {
                    build(compilers, flags, Files.createTempDirectory(all, "building"), done);
                }
            }
            return done;
        } catch (IOException e) {
            throw new UncheckedIOException("the fakes cannot be built", e);
        }
    }

    /**
     * The folder of the fakes.
     *
     * @param flags more flags for the compiler
     * @return where the libraries are
     */
    public static Path folder(String... flags) {
        return home(flags).resolve("lib");
    }

    /** The folder of fakes of NCCL 2.21.5; little of them runs, so they are compiled quickly. */
    public static Path old() {
        return folder("-DJCCL_FAKE_MAX_VERSION=22105", "-O0");
    }

    /**
     * JVM flags by which JCCL's discovery finds the fakes before anything else.
     *
     * @param flags more flags for the compiler
     * @return {@code -Djccl.nccl=...}, {@code -Djccl.cudart=...} and {@code -Djccl.cublas=...}
     */
    public static List<String> jvmFlags(String... flags) {
        Path folder = folder(flags);
        return List.of(
                "-Djccl.nccl=" + folder.resolve("libnccl.so.2"),
                "-Djccl.cudart=" + folder.resolve("libcudart.so.13"),
                "-Djccl.cublas=" + folder.resolve("libcublas.so.13"));
    }

    /**
     * Runs a program to its end.
     *
     * @param environment more variables
     * @param command program and arguments
     * @return how it ended
     */
    public static Ended run(Map<String, String> environment, List<String> command) {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().putAll(environment);
        try {
            Path output = Files.createTempFile("jccl", ".out");
            Process process = builder.redirectOutput(output.toFile()).start();
            try {
                if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
                    throw new AssertionError(
                            "no end after "
                                    + PATIENCE
                                    + ": "
                                    + String.join(" ", command)
                                    + "\n"
                                    + Files.readString(output));
                }
                return new Ended(process.exitValue(), Files.readString(output));
            } finally {
                process.destroyForcibly();
                Files.delete(output);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted", e);
        }
    }

    private static void build(Compilers compilers, List<String> flags, Path folder, Path done)
            throws IOException {
        List<String> command = new ArrayList<>();
        command.addAll(List.of("sh", sources().resolve("build").toString(), folder.toString()));
        command.addAll(flags);
        Ended ended = run(Map.of("CC", compilers.c, "CXX", compilers.cpp), command);
        if (ended.status() != 0) {
            throw new AssertionError(String.join(" ", command) + " failed:\n" + ended.output());
        }
        Files.move(folder, done, StandardCopyOption.ATOMIC_MOVE);
    }

    /** The folder of module collectives, wherever the tests were started. */
    private static Path module() {
        Path base = Path.of(System.getProperty("basedir", "")).toAbsolutePath();
        return Stream.of("", "collectives", "../collectives", "..")
                .map(base::resolve)
                .filter(folder -> Files.isRegularFile(folder.resolve("src/test/c/build")))
                .findFirst()
                .orElseThrow(() -> new AssertionError("no src/test/c/build near " + base))
                .normalize();
    }

    /** Where the sources in C are. */
    static Path sources() {
        return module().resolve("src/test/c");
    }

    private static String hash(Compilers compilers, List<String> flags) throws IOException {
        MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
        digest.update(flags.toString().getBytes(StandardCharsets.UTF_8));
        for (String compiler : List.of(compilers.c, compilers.cpp)) {
            String version = run(Map.of(), List.of(compiler, "--version")).output();
            digest.update((compiler + version).getBytes(StandardCharsets.UTF_8));
        }
        for (Path folder : List.of(sources(), module().resolve("src/main/cuda"))) {
            try (Stream<Path> files = Files.list(folder)) {
                for (Path file : files.sorted().toList()) {
                    digest.update(file.getFileName().toString().getBytes(StandardCharsets.UTF_8));
                    digest.update(Files.readAllBytes(file));
                }
            }
        }
        return HexFormat.of().formatHex(digest.digest(), 0, 8);
    }
}
