package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.DisabledIf;
import org.junit.jupiter.api.io.TempDir;

/**
 * The example of docs/spark.md, as it stands there, submitted as users do: a jar for spark-submit,
 * JCCL by --jars, and a Spark that knows nothing of it.
 */
@Tag("exhaustive")
@Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
@DisabledIf(value = Cluster.CANNOT_START, disabledReason = "Spark does not start on this JDK")
class SparkSubmitTest {
    private static final String JAVA =
            Path.of(System.getProperty("java.home"), "bin", "java").toString();

    /** Artifacts of this project, in the order in which the documentation names them. */
    private static final List<String> JCCL =
            List.of("jccl-spark", "jccl-collectives", "jccl-bindings", "jccl-topology");

    /** Below SPARK_HOME. */
    private static final String JARS = "spark/jars";

    @TempDir Path folder = Path.of("");

    @Test
    void theDocumentedExampleTrains() throws Exception {
        Path module = Path.of(System.getProperty("basedir", "")).toAbsolutePath();
        String page = Files.readString(module.resolve("../../docs/spark.md"));
        List<String> spark = installSpark();
        Path train = compile(block(page, "java"), spark);

        List<String> submit = new ArrayList<>(List.of("org.apache.spark.deploy.SparkSubmit"));
        submit.addAll(List.of("--conf", "spark.ui.enabled=false"));
        String command = block(page, "sh").replace("\\\n", " ").strip();
        assertTrue(command.startsWith("spark-submit "), command);
        for (String word : command.substring("spark-submit ".length()).split("\\s+", -1)) {
            submit.add(
                    switch (word) {
                        case "spark://head:7077" -> "local-cluster[2,1,1024]";
                        case "train.jar" -> train.toString();
                        default -> word.contains("jccl-") ? named(word) : word;
                    });
        }
        String said = run(launcher(submit));

        Matcher weights = Pattern.compile("(?m)^\\[([^,]+), ([^,]+)]$").matcher(said);
        assertTrue(weights.find(), said);
        assertEquals(2, Double.parseDouble(weights.group(1)), 1e-6, said);
        assertEquals(1, Double.parseDouble(weights.group(2)), 1e-6, said);
    }

    /** The first block of a language. */
    private static String block(String page, String language) {
        Matcher m = Pattern.compile("(?s)```" + language + "\n(.*?)```").matcher(page);
        assertTrue(m.find(), "docs/spark.md has no block of " + language);
        return m.group(1);
    }

    /** Puts Spark and what it needs, but nothing of this project, where a distribution has it. */
    private List<String> installSpark() throws IOException {
        Path jars = Files.createDirectories(folder.resolve(JARS));
        List<String> installed = new ArrayList<>();
        for (String entry : classPath()) {
            Path file = Path.of(entry);
            String name = file.getFileName().toString();
            if (Files.isRegularFile(file) && !name.matches("(jccl|junit|surefire|opentest4j).*")) {
                Files.createSymbolicLink(jars.resolve(name), file);
                installed.add(entry);
            }
        }
        return installed;
    }

    /** JUnit would warn of every link that it finds. */
    @AfterEach
    void removeLinks() throws IOException {
        try (DirectoryStream<Path> links = Files.newDirectoryStream(folder.resolve(JARS))) {
            for (Path link : links) {
                Files.delete(link);
            }
        }
    }

    private static List<String> classPath() {
        return List.of(System.getProperty("java.class.path", "").split(File.pathSeparator, -1));
    }

    /** Jars of this project, made of its classes where they are not packed yet. */
    private String named(String list) {
        return String.join(",", Arrays.stream(list.split(",", -1)).map(this::jar).toList());
    }

    private String jar(String name) {
        String artifact = name.replace(".jar", "");
        assertTrue(JCCL.contains(artifact), name);
        // jccl-NAME is module NAME, and jccl-spark lies in collectives/.
        String module = artifact.replace("jccl-", "/");
        for (String entry : classPath()) {
            if (Path.of(entry).getFileName().toString().matches(artifact + "-[0-9].*\\.jar")) {
                return entry;
            }
            if (entry.endsWith(module + "/target/classes")) {
                return pack(Path.of(entry), artifact).toString();
            }
        }
        throw new AssertionError("no " + artifact + " among " + classPath());
    }

    private Path pack(Path classes, String name) {
        Path jar = folder.resolve(name + ".jar");
        try (OutputStream file = Files.newOutputStream(jar);
                JarOutputStream out = new JarOutputStream(file);
                Stream<Path> all = Files.walk(classes)) {
            for (Path p : all.filter(Files::isRegularFile).toList()) {
                out.putNextEntry(new JarEntry(classes.relativize(p).toString()));
                Files.copy(p, out);
            }
        } catch (IOException e) {
            throw new AssertionError(e);
        }
        return jar;
    }

    private Path compile(String source, List<String> spark) throws IOException {
        Path file = Files.writeString(folder.resolve("Train.java"), source);
        Path classes = Files.createDirectories(folder.resolve("classes"));
        List<String> path = new ArrayList<>(JCCL.stream().map(this::jar).toList());
        path.addAll(spark);
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        ByteArrayOutputStream messages = new ByteArrayOutputStream();
        String[] arguments = {
            "-proc:none",
            "-d",
            classes.toString(),
            "-cp",
            String.join(File.pathSeparator, path),
            file.toString()
        };
        int status = compiler.run(null, messages, messages, arguments);
        assertEquals(0, status, () -> messages.toString(StandardCharsets.UTF_8));
        return pack(classes, "train");
    }

    /** What the script spark-submit would execute: it asks the same class. */
    private List<String> launcher(List<String> arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(JAVA, "-cp", folder + "/spark/jars/*"));
        command.add("org.apache.spark.launcher.Main");
        command.addAll(arguments);
        List<String> words =
                Arrays.stream(run(command).split("\0", -1))
                        .map(String::strip)
                        .filter(word -> !word.isEmpty())
                        .toList();
        assertTrue(words.contains("org.apache.spark.deploy.SparkSubmit"), words::toString);
        return words;
    }

    private String run(List<String> command) throws Exception {
        Path err = folder.resolve("err.txt");
        Path out = folder.resolve("out.txt");
        ProcessBuilder builder =
                new ProcessBuilder(command)
                        .directory(folder.toFile())
                        .redirectError(err.toFile())
                        .redirectOutput(out.toFile());
        builder.environment().put("SPARK_HOME", folder.resolve("spark").toString());
        builder.environment().put("JAVA_HOME", System.getProperty("java.home"));
        Process process = builder.start();
        try {
            assertTrue(
                    process.waitFor(4, TimeUnit.MINUTES),
                    () -> "goes on: " + command + "\n" + read(err));
        } finally {
            process.descendants().forEach(ProcessHandle::destroyForcibly);
            process.destroyForcibly();
        }
        assertEquals(0, process.exitValue(), () -> read(out) + read(err));
        return Files.readString(out);
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return e.toString();
        }
    }
}
