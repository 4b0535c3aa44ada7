package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RunCommandTest {
    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    private int run(String... arguments) {
        return Main.execute(
                "run",
                new RunCommand(jccl -> jccl ? jccl() : List.of(".")),
                arguments,
                new PrintWriter(out),
                new PrintWriter(err));
    }

    /** This JVM's classes, whether they are modules or not. */
    private static List<String> jccl() {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String modules = System.getProperty("jdk.module.path", "");
        return modules.isEmpty()
                ? List.of(java, "-cp", System.getProperty("java.class.path"), Main.class.getName())
                : List.of(java, "-p", modules, "-m", "io.jccl.bench/" + Main.class.getName());
    }

    @Test
    void processesMakeOneTable() {
        int status = run("-n", "3", "all_reduce", "-b", "1K", "-e", "4K", "-f", "2", "-w", "0");
        assertEquals(0, status, err::toString);
        String text = out.toString();
        assertTrue(text.contains("host/processes"), text);
        assertEquals(3, text.lines().filter(l -> !l.startsWith("#")).count(), text);
        assertFalse(text.contains("[1]"), text);
        assertTrue(text.contains("# Out of bounds values : 0 OK"), text);
    }

    @Test
    void namesTheRankThatFailedFirst() {
        assertEquals(2, run("-n", "2", "barrier", "-n", "none"));
        String text = err.toString();
        assertTrue(text.contains("failed first, with status 2"), text);
        assertTrue(text.contains("[1] jccl barrier: "), text);
    }

    @Test
    void endsTheOthersAfterAFailure(@TempDir Path folder) throws IOException {
        // Rank 1 fails; the others would sleep on, and have children that would as well.
        Path program = folder.resolve("Sleeper.java");
        Files.writeString(
                program,
                """
                public class Sleeper {
                    public static void main(String[] args) throws Exception {
                        if (System.getenv("RANK").equals("1")) {
                            Thread.sleep(1000);
                            System.exit(3);
                        }
                        Process child = new ProcessBuilder("sleep", "600").start();
                        System.out.println("pid " + ProcessHandle.current().pid());
                        System.out.println("pid " + child.pid());
                        Thread.sleep(600_000);
                    }
                }
                """);
        int status =
                Main.execute(
                        "run",
                        new RunCommand(jccl -> List.of(modulePath())),
                        new String[] {"-n", "2", "--grace", "4", "--", program.toString()},
                        new PrintWriter(out),
                        new PrintWriter(err));
        assertEquals(3, status, err::toString);
        assertTrue(err.toString().contains("rank 1 failed first, with status 3"), err::toString);
        List<Long> pids =
                out.toString()
                        .lines()
                        .filter(l -> l.contains("pid "))
                        .map(l -> Long.parseLong(l.substring(l.indexOf("pid ") + 4)))
                        .toList();
        assertEquals(2, pids.size(), out::toString);
        for (long pid : pids) {
            assertTrue(ProcessHandle.of(pid).stream().noneMatch(ProcessHandle::isAlive));
        }
    }

    private static String modulePath() {
        return Stream.of("jdk.module.path", "java.class.path")
                .map(p -> System.getProperty(p, ""))
                .filter(p -> !p.isEmpty())
                .findFirst()
                .orElseThrow();
    }
}
