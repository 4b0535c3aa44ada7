package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.cli.launch.RunCommandTest;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

class VerdictTest {
    private static final String GREEN = "\033[32mOK\033[0m";

    /** What a command prints on a terminal, or to a pipe. */
    private static String table(boolean terminal, String... variables)
            throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(RunCommandTest.jccl());
        command.addAll(List.of("all_reduce", "-b", "8", "-e", "8", "-n", "1", "-w", "0"));
        String line = "exec '" + String.join("' '", command) + "'";
        ProcessBuilder builder =
                terminal
                        ? new ProcessBuilder("script", "-q", "-e", "-c", line, "/dev/null")
                        : new ProcessBuilder("sh", "-c", line);
        builder.environment().keySet().removeAll(List.of("NO_COLOR", "CLICOLOR", "RANK"));
        builder.environment().put("TERM", "xterm");
        for (String v : variables) {
            builder.environment().put(v, "1");
        }
        Process p = builder.redirectErrorStream(true).start();
        String text = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, p.waitFor(), text);
        return text;
    }

    private static boolean green(String text) {
        String line =
                text.lines().filter(l -> l.contains("Out of bounds")).findFirst().orElseThrow();
        assertEquals(line.contains("\033"), line.contains(GREEN), line);
        return line.contains(GREEN);
    }

    @Tag("exhaustive")
    @Test
    void coloursAreForTerminals() throws IOException, InterruptedException {
        assertEquals(false, green(table(false)));
        try {
            Process p = new ProcessBuilder("script", "-q", "-e", "-c", "true", "/dev/null").start();
            assumeTrue(p.waitFor(20, TimeUnit.SECONDS) && p.exitValue() == 0, "no terminals here");
        } catch (IOException e) {
            assumeTrue(false, "no script of util-linux here");
        }
        assertEquals(true, green(table(true)));
        assertEquals(false, green(table(true, "NO_COLOR")));
    }
}
