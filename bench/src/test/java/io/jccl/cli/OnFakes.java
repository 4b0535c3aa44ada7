package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testfake.FakeBuild;
import io.jccl.testfake.TestFake;
import io.jccl.testkit.Workers;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Commands in JVMs that find the fakes of CUDA, NCCL and cuBLAS: those with an environment, flags
 * or processes of their own in a JVM each, the others one after the other in the same, which all
 * test classes share.
 */
public final class OnFakes implements BeforeAllCallback {
    private @Nullable Shared shared;

    /** The libraries, in a folder with a space as paths may have, and the JVM of many commands. */
    private static final class Shared implements AutoCloseable {
        private final Path scratch;
        private final Path libraries;
        private @Nullable Process loop;

        Shared() {
            try {
                scratch = Files.createTempDirectory("jccl-on-fakes");
                libraries = Files.createDirectory(scratch.resolve("the fakes"));
                try (Stream<Path> files = Files.list(FakeBuild.folder())) {
                    for (Path file : files.toList()) {
                        Files.copy(file, libraries.resolve(file.getFileName()));
                    }
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** Ends the JVM that ran several commands. */
        @Override
        public synchronized void close() throws IOException {
            if (loop != null) {
                loop.destroyForcibly().onExit().join();
            }
            try (Stream<Path> files = Files.walk(scratch)) {
                for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(file);
                }
            }
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        TestFake.needsFakes("these commands run on them");
        // Closed after the last class.
        shared =
                context.getRoot()
                        .getStore(ExtensionContext.Namespace.GLOBAL)
                        .computeIfAbsent(Shared.class, type -> new Shared(), Shared.class);
    }

    private Shared shared() {
        return Objects.requireNonNull(shared);
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

    public Result jccl(Map<String, String> environment, String... arguments)
            throws IOException, InterruptedException {
        return environment.isEmpty() && !arguments[0].equals("run")
                ? inTheLoop("", arguments)
                : jccl(List.of(), environment, arguments);
    }

    /**
     * With rules of what goes wrong, as {@code JCCL_FAKE_INJECT} has them, of which a JVM recovers:
     * it runs other commands afterwards.
     */
    public Result injected(String rules, String... arguments) throws IOException {
        return inTheLoop(rules, arguments);
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
        command.addAll(Workers.SHORT_LIVED);
        command.addAll(
                List.of(
                        "--illegal-native-access=deny",
                        "--enable-native-access=io.jccl.bindings",
                        "-Djccl.nccl=" + shared().libraries.resolve("libnccl.so.2"),
                        "-Djccl.cudart=" + shared().libraries.resolve("libcudart.so.13"),
                        "-Djccl.cublas=" + shared().libraries.resolve("libcublas.so.13")));
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

    private Result inTheLoop(String rules, String... arguments) throws IOException {
        Shared all = shared();
        synchronized (all) {
            Process p = all.loop;
            if (p == null) {
                String tests = Workers.rootOf(CommandLoop.class);
                List<String> patch = List.of("--patch-module", "io.jccl.bench=" + tests);
                p = jvm(CommandLoop.class, patch).redirectError(Redirect.INHERIT).start();
                all.loop = p;
            }
            DataOutputStream to = new DataOutputStream(p.getOutputStream());
            to.writeUTF(rules);
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
    }

    private Result result(ProcessBuilder builder) throws IOException, InterruptedException {
        File log = Files.createTempFile(shared().scratch, "log", ".txt").toFile();
        Process p = builder.redirectErrorStream(true).redirectOutput(log).start();
        if (!p.waitFor(5, TimeUnit.MINUTES)) {
            p.destroyForcibly().waitFor();
        }
        return new Result(p.exitValue(), Files.readString(log.toPath()));
    }
}
