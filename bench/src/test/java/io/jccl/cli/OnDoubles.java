package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testdouble.DoubleBuild;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Commands in JVMs of their own that find the doubles of CUDA, NCCL and cuBLAS.
 *
 * @param libraries where the doubles are
 * @param scratch for logs
 */
public record OnDoubles(Path libraries, Path scratch) {
    /** How a command ended, and all that it printed. */
    public record Result(int status, String text) {
        public void has(String... parts) {
            for (String part : parts) {
                assertTrue(text.contains(part), () -> "no '" + part + "' in " + this);
            }
        }

        public List<String[]> rows() {
            return text.lines()
                    .filter(l -> l.matches(" +[0-9]+ .*"))
                    .map(l -> l.trim().split(" +"))
                    .toList();
        }
    }

    /** Puts the doubles into a folder with a space, as paths may have. */
    public static OnDoubles build(Path folder) throws IOException {
        Path libraries = Files.createDirectory(folder.resolve("the doubles"));
        try (Stream<Path> files = Files.list(DoubleBuild.folder())) {
            for (Path file : files.toList()) {
                Files.copy(file, libraries.resolve(file.getFileName()));
            }
        }
        return new OnDoubles(libraries, folder);
    }

    public Result jccl(Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        return jccl(List.of(), environment, arguments);
    }

    /** With more flags for the JVM, which may name other libraries. */
    public Result jccl(List<String> flags, Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "--illegal-native-access=deny",
                        "--enable-native-access=io.jccl.bindings",
                        "-Djccl.nccl=" + libraries.resolve("libnccl.so.2"),
                        "-Djccl.cudart=" + libraries.resolve("libcudart.so.13"),
                        "-Djccl.cublas=" + libraries.resolve("libcublas.so.13")));
        command.addAll(flags);
        command.addAll(
                List.of(
                        "-p",
                        System.getProperty("jdk.module.path"),
                        "-m",
                        "io.jccl.bench/" + Main.class.getName()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeAll(List.of("JCCL_LAUNCHER", "JCCL_ENGINE", "RANK"));
        builder.environment().putAll(environment);
        return result(builder);
    }

    private Result result(ProcessBuilder builder) throws IOException, InterruptedException {
        File log = Files.createTempFile(scratch, "log", ".txt").toFile();
        Process p = builder.redirectErrorStream(true).redirectOutput(log).start();
        if (!p.waitFor(120, TimeUnit.SECONDS)) {
            p.destroyForcibly().waitFor();
        }
        return new Result(p.exitValue(), Files.readString(log.toPath()));
    }
}
