package io.jccl.testdouble;

import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Assumptions;

/**
 * The doubles of libcudart and libnccl, built by the system's C compiler from {@code src/test/c}:
 * host memory as device memory. Where there is a compiler, tests that need them fail if they cannot
 * be built; where there is none, they skip.
 */
public final class TestDouble {
    private static @Nullable Path folder;

    private TestDouble() {}

    /** Makes the doubles what this JVM finds as NCCL and CUDA; before the first use of either. */
    public static void use() {
        Path built = folder();
        System.setProperty("jccl.nccl", built.resolve("libnccl.so.2").toString());
        System.setProperty("jccl.cudart", built.resolve("libcudart.so.13").toString());
        if (command("calls:ncclGetVersion") < 0) {
            throw new AssertionError(
                    NativeLibraries.nccl() + " is not the double: this JVM used NCCL before");
        }
    }

    /** JVM flags by which a child process finds the doubles. */
    public static List<String> flags() {
        Path built = folder();
        return List.of(
                "-Djccl.nccl=" + built.resolve("libnccl.so.2"),
                "-Djccl.cudart=" + built.resolve("libcudart.so.13"));
    }

    /** The folder with libcudart.so.13 and libnccl.so.2, built if need be. */
    public static synchronized Path folder() {
        Path made = folder;
        if (made == null) {
            made = build(List.of());
            folder = made;
        }
        return made;
    }

    /** The same with more compiler flags, such as those that leave newer functions out. */
    public static Path build(List<String> more) {
        String compiler = compiler();
        Assumptions.assumeTrue(
                compiler != null, "no C compiler (cc, gcc or clang) on the PATH to build doubles");
        try {
            Path sources = Path.of("src/test/c").toAbsolutePath();
            Path target = Path.of("target", "test-double-" + hash(sources, more)).toAbsolutePath();
            Files.createDirectories(target);
            // Several test JVMs may come at once.
            try (FileChannel channel =
                            FileChannel.open(
                                    target.resolve("lock"),
                                    StandardOpenOption.CREATE,
                                    StandardOpenOption.WRITE);
                    FileLock lock = channel.lock()) {
                Path done = target.resolve("done");
                if (lock.isValid() && !Files.exists(done)) {
                    compile(String.valueOf(compiler), sources, target, more);
                    Files.createFile(done);
                }
            }
            return target;
        } catch (IOException e) {
            throw new AssertionError("the doubles cannot be built: " + e, e);
        }
    }

    private static void compile(String compiler, Path sources, Path target, List<String> more)
            throws IOException {
        List<String> command =
                new ArrayList<>(
                        List.of("sh", sources.resolve("build").toString(), target.toString()));
        command.addAll(more);
        run(target, compiler, command);
    }

    private static void run(Path folder, String compiler, List<String> command) throws IOException {
        Path log = folder.resolve("log");
        ProcessBuilder builder =
                new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile());
        builder.environment().put("CC", compiler);
        Process process = builder.start();
        try {
            if (!process.waitFor(3, TimeUnit.MINUTES) || process.exitValue() != 0) {
                process.destroyForcibly();
                throw new AssertionError(
                        String.join(" ", command) + " failed:\n" + Files.readString(log));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted", e);
        }
    }

    private static @Nullable String compiler() {
        for (String name : List.of("cc", "gcc", "clang")) {
            for (String folder : System.getenv().getOrDefault("PATH", "").split(":", -1)) {
                Path file = Path.of(folder.isEmpty() ? "." : folder, name);
                if (Files.isExecutable(file)) {
                    return file.toString();
                }
            }
        }
        return null;
    }

    private static String hash(Path sources, List<String> more) throws IOException {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(more.toString().getBytes(StandardCharsets.UTF_8));
            List<Path> files = new ArrayList<>();
            try (DirectoryStream<Path> all = Files.newDirectoryStream(sources, "{*.[ch],build}")) {
                all.forEach(files::add);
            }
            files.sort(null);
            for (Path file : files) {
                digest.update(Files.readAllBytes(file));
            }
            return HexFormat.of().formatHex(digest.digest(), 0, 8);
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }

    /** Adds rules of what goes wrong: {@code function[@rank]:which:action}, see src/test/c. */
    public static void inject(String rules) {
        if (command("inject:" + rules) < 1) {
            throw new AssertionError("the double does not understand the rules " + rules);
        }
    }

    /** Removes all rules, and ends hangs and sticky errors. */
    public static void reset() {
        command("clear:");
        command("release:");
        command("sticky:0");
    }

    /** From now on every call of CUDA returns an error. */
    public static void sticky(int error) {
        command("sticky:" + error);
    }

    /** How many objects of a kind there are, such as {@code streams}, or {@code all}. */
    public static long live(String kind) {
        return command("live:" + kind);
    }

    /** How often a function was called. */
    public static long calls(String function) {
        return command("calls:" + function);
    }

    private static long command(String text) {
        NcclApi nccl = NativeLibraries.nccl();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment answer = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment key = arena.allocateFrom("jccl_double:" + text);
            int result = nccl.ncclParamBind(answer, key);
            if (result != 0) {
                throw new AssertionError(nccl + " is not the double: " + text);
            }
            return answer.get(ValueLayout.JAVA_LONG, 0);
        }
    }
}
