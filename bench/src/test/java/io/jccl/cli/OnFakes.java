package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testfake.FakeBuild;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Commands in JVMs that find the fakes of CUDA, NCCL and cuBLAS: those with an environment, flags
 * or processes of their own in a JVM each, the others one after the other in the same.
 */
public final class OnFakes {
    private final Path libraries;
    private final Path scratch;
    private @Nullable Process loop;

    private OnFakes(Path libraries, Path scratch) {
        this.libraries = libraries;
        this.scratch = scratch;
    }

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

    /** Puts the fakes into a folder with a space, as paths may have. */
    public static OnFakes build(Path folder) throws IOException {
        Path libraries = Files.createDirectory(folder.resolve("the fakes"));
        try (Stream<Path> files = Files.list(FakeBuild.folder())) {
            for (Path file : files.toList()) {
                Files.copy(file, libraries.resolve(file.getFileName()));
            }
        }
        return new OnFakes(libraries, folder);
    }

    public Result jccl(Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        return environment.isEmpty() && !arguments[0].equals("run")
                ? inTheLoop(arguments)
                : jccl(List.of(), environment, arguments);
    }

    /** With more flags for the JVM, which may name other libraries. */
    public Result jccl(List<String> flags, Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        ProcessBuilder builder = jvm(Main.class, flags);
        builder.command().addAll(List.of(arguments));
        builder.environment().putAll(environment);
        return result(builder);
    }

    private ProcessBuilder jvm(Class<?> main, List<String> flags) {
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
                        "io.jccl.bench/" + main.getName()));
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().keySet().removeAll(List.of("JCCL_LAUNCHER", "JCCL_ENGINE", "RANK"));
        return builder;
    }

    private synchronized Result inTheLoop(String... arguments) throws IOException {
        Process p = loop;
        if (p == null) {
            URL here = CommandLoop.class.getResource("/io/jccl/cli/CommandLoop.class");
            Path tests = Path.of(URI.create("" + here)).resolve("../../../..").normalize();
            List<String> patch = List.of("--patch-module", "io.jccl.bench=" + tests);
            p = jvm(CommandLoop.class, patch).redirectError(Redirect.INHERIT).start();
            loop = p;
        }
        DataOutputStream to = new DataOutputStream(p.getOutputStream());
        to.writeInt(arguments.length);
        for (String argument : arguments) {
            to.writeUTF(argument);
        }
        to.flush();
        DataInputStream from = new DataInputStream(p.getInputStream());
        int status = from.readInt();
        return new Result(
                status, new String(from.readNBytes(from.readInt()), StandardCharsets.UTF_8));
    }

    /** Ends the JVM that ran several commands. */
    public synchronized void close() throws InterruptedException {
        if (loop != null) {
            loop.destroyForcibly().waitFor();
            loop = null;
        }
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
