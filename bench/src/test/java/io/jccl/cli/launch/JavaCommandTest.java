package io.jccl.cli.launch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.File;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

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
    void theLauncherStartsJccl() {
        assertEquals(
                List.of("/opt/jccl"),
                JavaCommand.jccl(Map.of("JCCL_LAUNCHER", "/opt/jccl"), new String[] {"run"}));
        assertThrows(
                IllegalStateException.class,
                () -> JavaCommand.jccl(Map.of(), new String[] {"not", "our", "arguments"}));
    }
}
