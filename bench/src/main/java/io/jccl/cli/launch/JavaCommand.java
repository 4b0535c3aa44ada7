package io.jccl.cli.launch;

import static io.jccl.cli.shell.Text.words;

import java.io.File;
import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

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
        List<String> words = new ArrayList<>(arguments);
        List<String> rest = new ArrayList<>();
        boolean files = true;
        int ofFile = 0; // words before it come from an argument file, in which @ means nothing
        int i = 0;
        for (boolean options = true; options && i < words.size(); i++) {
            ofFile = files ? expand(words, i, ofFile) : ofFile;
            if (i == words.size()) {
                break;
            }
            String a = words.get(i);
            boolean separate = a.equals("-p") || a.equals("--module-path");
            ofFile = files && (separate || takesValue(a)) ? expand(words, i + 1, ofFile) : ofFile;
            if (separate && i + 1 < words.size()) {
                // The JVM takes the last module path only, so the two become one.
                path = words.get(++i) + File.pathSeparator + path;
                continue;
            }
            if (a.startsWith("--module-path=")) {
                path = a.substring("--module-path=".length()) + File.pathSeparator + path;
                continue;
            }
            rest.add(literal(a, i < ofFile));
            files &= !a.equals("--disable-@files");
            if (takesValue(a) && i + 1 < words.size()) {
                rest.add(literal(words.get(++i), i < ofFile));
                options = !isMain(a);
            } else if ((!a.startsWith("-") && !a.startsWith("@")) || a.startsWith("--module=")) {
                options = false;
            }
        }
        rest.addAll(words.subList(i, words.size())); // the program's own
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

    /**
     * Replaces an argument file by its words.
     *
     * @param ofFile words before it come from an argument file
     * @return the same, afterwards
     */
    private static int expand(List<String> words, int at, int ofFile) {
        int end = ofFile;
        while (at >= end && at < words.size()) {
            List<String> more = wordsOfFile(words.get(at));
            if (more == null) {
                break;
            }
            words.remove(at);
            words.addAll(at, more);
            end = at + more.size();
        }
        return end;
    }

    /** The words of an argument file; null for another argument, or one that java will refuse. */
    private static @Nullable List<String> wordsOfFile(String argument) {
        if (!argument.startsWith("@") || argument.startsWith("@@")) {
            return null;
        }
        try {
            Path file = Path.of(argument.substring(1));
            return ArgumentFile.words(Files.readString(file, nativeCharset()));
        } catch (IOException | InvalidPathException e) {
            return null;
        }
    }

    /** A word as java has to be given it, which reads files for arguments that begin with @. */
    private static String literal(String word, boolean ofFile) {
        return ofFile && word.startsWith("@") ? "@" + word : word;
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

    private static Charset nativeCharset() {
        return Charset.forName(System.getProperty("native.encoding", "UTF-8"));
    }

    private static List<String> ownCommandLine() {
        try {
            // Complete, whereas ProcessHandle gives the first 4096 bytes.
            String all =
                    new String(Files.readAllBytes(Path.of("/proc/self/cmdline")), nativeCharset());
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
