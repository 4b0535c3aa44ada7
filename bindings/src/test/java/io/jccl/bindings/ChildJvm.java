package io.jccl.bindings;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/** A JVM for {@link DiscoverMain}, in an environment that has none of the settings. */
final class ChildJvm {
    private static final List<String> SETTINGS =
            List.of(
                    "NCCL_HOME",
                    "CUDA_HOME",
                    "CUDA_PATH",
                    "MPI_HOME",
                    "CONDA_PREFIX",
                    "VIRTUAL_ENV",
                    "PYTHONPATH",
                    "LD_LIBRARY_PATH",
                    "LD_PRELOAD",
                    "JAVA_TOOL_OPTIONS",
                    "JDK_JAVA_OPTIONS");

    private final List<String> flags = new ArrayList<>();
    private final Map<String, String> variables = new TreeMap<>();
    private boolean modules = true;
    private String policy = "deny";
    private boolean enabled = true;

    ChildJvm property(String name, Path value) {
        flags.add("-D" + name + "=" + value);
        return this;
    }

    ChildJvm variable(String name, Path value) {
        variables.put(name, value.toString());
        return this;
    }

    /** Without modules. */
    ChildJvm classPath() {
        modules = false;
        return this;
    }

    /** Without the flag that lets the bindings call native code. */
    ChildJvm notEnabled(String illegalAccess) {
        enabled = false;
        policy = illegalAccess;
        return this;
    }

    /** Runs it, and gives all that it printed. */
    String run(String... arguments) {
        String main = rootOf(NativeLibraries.class);
        String test = rootOf(DiscoverMain.class);
        String module = "io.jccl.bindings";
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
        command.add("--illegal-native-access=" + policy);
        if (enabled) {
            command.add("--enable-native-access=" + (modules ? module : "ALL-UNNAMED"));
        }
        command.addAll(flags);
        String name = DiscoverMain.class.getName();
        command.addAll(
                modules
                        ? List.of(
                                "-p",
                                main,
                                "--patch-module",
                                module + "=" + test,
                                "-m",
                                module + "/" + name)
                        : List.of("-cp", main + ":" + test, name));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().keySet().removeAll(SETTINGS);
        builder.environment().putAll(variables);
        try {
            Process process = builder.start();
            process.getOutputStream().close();
            String output =
                    new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (!process.waitFor(60, TimeUnit.SECONDS) || process.exitValue() != 0) {
                throw new AssertionError(command + ":\n" + output);
            }
            return output;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Surefire patches the test classes into the module: only a resource tells where they lie. */
    static String rootOf(Class<?> type) {
        String inside = type.getName().replace('.', '/') + ".class";
        URL url = type.getResource(type.getSimpleName() + ".class");
        String text = String.valueOf(url);
        String root = text.substring(0, text.length() - inside.length());
        if (root.startsWith("jar:")) {
            root = root.substring("jar:".length(), root.lastIndexOf("!/"));
        }
        return Path.of(URI.create(root)).toString();
    }
}
