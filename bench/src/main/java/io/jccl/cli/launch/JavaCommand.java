package io.jccl.cli.launch;

import static io.jccl.cli.shell.Text.words;

import java.io.File;
import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Command lines that start further JVMs like this one. */
final class JavaCommand {
    /** Path of the script that started this process; it starts further ones too. */
    private static final String LAUNCHER = "JCCL_LAUNCHER";

    /** Resolved even if the program is on the class path and names no module. */
    private static final String ROOT_MODULES =
            "io.jccl.collectives,io.jccl.offload,io.jccl.parallel,jdk.incubator.vector";

    private static final String NATIVE_MODULE = "io.jccl.bindings";

    /** Options of java whose value is the next word. */
    private static final List<String> WITH_VALUE =
            words(
                    "-cp -classpath --class-path --add-modules --add-exports --add-opens"
                            + " --add-reads --patch-module --limit-modules --upgrade-module-path"
                            + " --enable-native-access --source");

    private JavaCommand() {}

    /**
     * The command line prefix that starts jccl.
     *
     * @param environment this process's environment
     * @param arguments all arguments of this process's main method
     * @return the launcher, or this process's own command line up to those arguments
     */
    static List<String> jccl(Map<String, String> environment, String[] arguments) {
        String launcher = environment.getOrDefault(LAUNCHER, "");
        if (!launcher.isBlank()) {
            return List.of(launcher);
        }
        List<String> own = ownCommandLine();
        int prefix = own.size() - arguments.length;
        if (prefix < 2 || !own.subList(prefix, own.size()).equals(Arrays.asList(arguments))) {
            throw new IllegalStateException(
                    "it is unknown how this JVM was started; set "
                            + LAUNCHER
                            + " to the path of the jccl script");
        }
        List<String> command = new ArrayList<>(own.subList(0, prefix));
        command.set(0, javaProgram());
        return command;
    }

    /**
     * A Java program's command line, with JCCL on its module path.
     *
     * @param modulePath where JCCL's modules are
     * @param arguments what follows {@code java}
     * @return the whole command line
     */
    static List<String> program(String modulePath, List<String> arguments) {
        List<String> command = new ArrayList<>();
        command.add(javaProgram());
        String path = modulePath;
        List<String> rest = new ArrayList<>();
        boolean options = true;
        for (int i = 0; i < arguments.size(); i++) {
            String a = arguments.get(i);
            boolean separate = a.equals("-p") || a.equals("--module-path");
            if (options && separate && i + 1 < arguments.size()) {
                // The JVM takes the last module path only, so the two become one.
                path = arguments.get(++i) + File.pathSeparator + path;
                continue;
            }
            if (options && a.startsWith("--module-path=")) {
                path = a.substring("--module-path=".length()) + File.pathSeparator + path;
                continue;
            }
            rest.add(a);
            if (options && takesValue(a) && i + 1 < arguments.size()) {
                rest.add(arguments.get(++i));
                options = !isMain(a);
            } else if ((!a.startsWith("-") && !a.startsWith("@")) || a.startsWith("--module=")) {
                options = false;
            }
        }
        command.addAll(
                List.of(
                        "--module-path",
                        path,
                        "--add-modules",
                        ROOT_MODULES,
                        "--enable-native-access=" + NATIVE_MODULE));
        command.addAll(rest);
        return command;
    }

    private static boolean isMain(String option) {
        return option.equals("-m") || option.equals("--module") || option.equals("-jar");
    }

    private static boolean takesValue(String option) {
        return isMain(option) || WITH_VALUE.contains(option);
    }

    private static String javaProgram() {
        return ProcessHandle.current()
                .info()
                .command()
                .orElse(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    }

    private static List<String> ownCommandLine() {
        try {
            // Complete, whereas ProcessHandle gives the first 4096 bytes.
            String all =
                    new String(
                            Files.readAllBytes(Path.of("/proc/self/cmdline")),
                            Charset.forName(System.getProperty("native.encoding", "UTF-8")));
            List<String> words = new ArrayList<>(Arrays.asList(all.split("\0", -1)));
            words.removeLast();
            return words;
        } catch (IOException e) {
            ProcessHandle.Info info = ProcessHandle.current().info();
            List<String> words = new ArrayList<>(List.of(javaProgram()));
            words.addAll(Arrays.asList(info.arguments().orElse(new String[0])));
            return words;
        }
    }
}
