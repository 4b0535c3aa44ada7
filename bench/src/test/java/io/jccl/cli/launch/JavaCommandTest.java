package io.jccl.cli.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class JavaCommandTest {
    private static final List<String> OURS =
            List.of(
                    "--module-path",
                    "lib",
                    "--add-modules",
                    "io.jccl.collectives,io.jccl.offload,io.jccl.parallel,jdk.incubator.vector",
                    "--enable-native-access=io.jccl.bindings");

    private static List<String> program(String... arguments) {
        List<String> all = JavaCommand.program("lib", List.of(arguments));
        return all.subList(1, all.size());
    }

    private static List<String> plus(List<String> first, String... more) {
        return java.util.stream.Stream.concat(first.stream(), java.util.Arrays.stream(more))
                .toList();
    }

    @Test
    void ourModulesComeFirst() {
        assertEquals(
                plus(OURS, "-cp", "a.jar", "A", "-p", "x"),
                program("-cp", "a.jar", "A", "-p", "x"));
    }

    @Test
    void modulePathsAreMerged() {
        List<String> merged =
                List.of(
                        "--module-path",
                        "mods" + File.pathSeparator + "lib",
                        "--add-modules",
                        "io.jccl.collectives,io.jccl.offload,io.jccl.parallel,jdk.incubator.vector",
                        "--enable-native-access=io.jccl.bindings",
                        "-m",
                        "a/A",
                        "--module-path",
                        "own");
        assertEquals(merged, program("-p", "mods", "-m", "a/A", "--module-path", "own"));
        assertEquals(merged, program("--module-path=mods", "-m", "a/A", "--module-path", "own"));
    }

    @Test
    void whatFollowsTheMainModuleIsThePrograms() {
        assertEquals(
                plus(OURS, "--module=a/A", "-p", "8080"), program("--module=a/A", "-p", "8080"));
    }

    @Test
    void argumentFilesOfJavaAreReadAndThoseOfTheProgramAreNot(@TempDir Path folder)
            throws IOException {
        Path file = folder.resolve("java.args");
        Files.writeString(file, "-p mods # ours follows\n-Da=\"b c\" -cp '@a.jar'\n-m a/A -p 1 @b");
        assertEquals(
                List.of(
                        "--module-path",
                        "mods" + File.pathSeparator + "lib",
                        "--add-modules",
                        "io.jccl.collectives,io.jccl.offload,io.jccl.parallel,jdk.incubator.vector",
                        "--enable-native-access=io.jccl.bindings",
                        "-Da=b c",
                        "-cp",
                        "@@a.jar",
                        "-m",
                        "a/A",
                        "-p",
                        "1",
                        "@b",
                        "-p",
                        "2",
                        "@" + file,
                        "@@c"),
                program("@" + file, "-p", "2", "@" + file, "@@c"));
        assertEquals(plus(OURS, "@@x", "@none", "A"), program("@@x", "@none", "A"));
        Path path = folder.resolve("path");
        Files.writeString(path, "mods -Dx=y\n");
        Path empty = Files.createFile(folder.resolve("empty"));
        assertEquals(
                plus(program("-p", "mods"), "-Dx=y", "-cp", "mods", "-Dx=y", "A", "@" + path),
                program(
                        "-p",
                        "@" + empty,
                        "@" + path,
                        "-cp",
                        "@" + path,
                        "@" + empty,
                        "A",
                        "@" + path));
        assertEquals(OURS, program("@" + empty));
        assertEquals(
                plus(OURS, "--disable-@files", "@" + file),
                program("--disable-@files", "@" + file));
    }

    @Test
    void argumentFilesAreReadAsJavaReadsThem() {
        assertEquals(
                List.of(
                        "a",
                        "bc de",
                        "tab\tq\"\\z\nw",
                        "i\\j",
                        "s \"t",
                        "joined",
                        "open",
                        "",
                        "#q"),
                ArgumentFile.words(
                        """
                        # a "comment"
                        a b"c d"e # another
                        "tab\\tq\\"\\\\z\\nw" i\\j\f's "t'
                        "joi\\
                           ned" "open
                        "" "#q\"\
                        """));
    }

    @Test
    void theLauncherStartsJccl() {
        assertEquals(
                List.of("/opt/jccl"),
                JavaCommand.jccl(Map.of("JCCL_LAUNCHER", "/opt/jccl"), new String[] {"run"}));
        assertThrows(
                IllegalStateException.class,
                () -> JavaCommand.jccl(Map.of(), new String[] {"not", "our", "arguments"}));
    }
}
