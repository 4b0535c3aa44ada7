package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import io.jccl.topology.Topology;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The program of the README, as a user of the CPU alone runs it: it needs no flag, prints nothing
 * but its result, and loads nothing of NCCL, whose generated classes need native access.
 */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ReadmeProgramTest {
    private static final String DENY = "--illegal-native-access=deny";
    private static final String RESULT = "rank 0: 1.5\nrank 1: 1.5\n";

    /** What Maven puts on either path for a program that depends on jccl-collectives. */
    private static final String LIBRARIES =
            String.join(
                    File.pathSeparator,
                    Workers.rootOf(Communicator.class),
                    Workers.rootOf(JcclException.class),
                    Workers.rootOf(Topology.class));

    @TempDir private Path folder;

    private final List<Process> processes = new ArrayList<>();
    private Path classes = Path.of("");
    private String program = "";

    @BeforeEach
    void extract() throws IOException {
        String readme = Files.readString(Path.of("..", "README.md"));
        program = readme.split("\n```java\n", 3)[1].split("\n```\n", 2)[0];
        classes = folder.resolve("classes");
    }

    @AfterEach
    void endAll() {
        processes.forEach(Process::destroyForcibly);
    }

    /** What a process printed, to standard output in sorted lines. */
    private record Printed(int status, String out, String err) {}

    private final class Running {
        private final Process process;
        private final Path out;
        private final Path err;

        Running(String tool, Map<String, String> environment, List<String> arguments)
                throws IOException {
            out = Files.createTempFile(folder, tool, ".out");
            err = Files.createTempFile(folder, tool, ".err");
            List<String> command = new ArrayList<>();
            command.add(Path.of(System.getProperty("java.home"), "bin", tool).toString());
            command.addAll(arguments);
            ProcessBuilder builder =
                    new ProcessBuilder(command)
                            .redirectOutput(out.toFile())
                            .redirectError(err.toFile());
            builder.environment()
                    .keySet()
                    .removeIf(name ->
                            Workers.isLauncherVariable(name) || name.startsWith("JDK_JAVA"));
            builder.environment().putAll(environment);
            process = builder.start();
            processes.add(process);
        }

        Printed end() throws Exception {
            assertTrue(process.waitFor(60, TimeUnit.SECONDS), "it does not end");
            List<String> lines = Files.readAllLines(out).stream().sorted().toList();
            String text = String.join("", lines.stream().map(line -> line + "\n").toList());
            return new Printed(process.exitValue(), text, Files.readString(err));
        }
    }

    private Printed run(String tool, List<String> arguments) throws Exception {
        return new Running(tool, Map.of(), arguments).end();
    }

    /** Compiles sources, by their paths, into {@link #classes}. */
    private void compile(List<String> flags, Map<String, String> sources) throws Exception {
        List<String> arguments = new ArrayList<>(flags);
        arguments.addAll(List.of("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"));
        arguments.add("-Xlint:all");
        arguments.addAll(List.of("-d", classes.toString()));
        for (Map.Entry<String, String> source : sources.entrySet()) {
            Path file = folder.resolve("src").resolve(source.getKey());
            Files.createDirectories(file.getParent());
            Files.writeString(file, source.getValue());
            arguments.add(file.toString());
        }
        // Not a warning either, of an annotation or module that the libraries do not bring.
        assertEquals(new Printed(0, "", ""), run("javac", arguments));
    }

    private String with(String path) {
        return path + File.pathSeparator + classes;
    }

    /** Without any flag, and where native access is denied. */
    private void assertSilent(List<String> start) throws Exception {
        assertEquals(new Printed(0, RESULT, ""), run("java", start));

        Path log = folder.resolve("classes.log");
        List<String> denied = new ArrayList<>(List.of(DENY, "-Xlog:class+load:file=" + log));
        denied.addAll(start);
        assertEquals(new Printed(0, RESULT, ""), run("java", denied));
        String loaded = Files.readString(log);
        assertTrue(loaded.contains("io.jccl.CommunicatorOptions "), "the log of classes is empty");
        assertEquals(
                List.of(),
                loaded.lines()
                        .filter(line -> line.contains("io.jccl.bindings.generated"))
                        .toList());
    }

    @Tag("exhaustive")
    @Test
    void onTheClassPath() throws Exception {
        compile(List.of("-cp", LIBRARIES), Map.of("Train.java", program));
        assertSilent(List.of("-cp", with(LIBRARIES), "Train"));
    }

    /** A module has no classes outside packages, so that the program is put into one. */
    @Tag("exhaustive")
    @Test
    void onTheModulePath() throws Exception {
        compile(
                List.of("-p", LIBRARIES),
                Map.of(
                        "module-info.java",
                        "module app { requires io.jccl.collectives; }",
                        "app/Train.java",
                        "package app;\n" + program));
        assertSilent(List.of("-p", with(LIBRARIES), "-m", "app/app.Train"));
    }

    /** The same body with ranks as processes, as the README goes on to say. */
    @Test
    void asProcesses() throws Exception {
        String inProcesses =
                program.replaceFirst(
                                "Communicator.runLocal\\(2, comm -> \\{.*",
                                "try (var comm = Communicator.fromEnvironment()) {")
                        .replace("        });\n", "        }\n");
        assertNotEquals(program, inProcesses);
        compile(List.of("-cp", LIBRARIES), Map.of("Train.java", inProcesses));
        for (int ranks = 1; ranks <= 2; ranks++) {
            assertMeans(ranks);
        }
    }

    private void assertMeans(int ranks) throws Exception {
        String id = LocalJob.newId();
        List<Running> all = new ArrayList<>();
        for (int rank = 0; rank < ranks; rank++) {
            all.add(
                    new Running(
                            "java",
                            LocalJob.environment(id, rank, ranks),
                            List.of(DENY, "-cp", with(LIBRARIES), "Train")));
        }
        for (int rank = 0; rank < ranks; rank++) {
            String line = "rank " + rank + ": " + (ranks == 1 ? "1.0" : "1.5") + "\n";
            assertEquals(new Printed(0, line, ""), all.get(rank).end());
        }
        assertEquals(List.of(), Workers.sharedFiles(id));
    }
}
