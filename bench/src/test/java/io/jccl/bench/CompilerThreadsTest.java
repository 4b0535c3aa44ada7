package io.jccl.bench;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CompilerThreadsTest {
    @TempDir Path tasks = Path.of("");

    private void task(int id, String name, char state) throws IOException {
        Path folder = Files.createDirectories(tasks.resolve("" + id));
        Files.writeString(folder.resolve("comm"), name + "\n");
        Files.writeString(folder.resolve("stat"), id + " (" + name + ") " + state + " 1 2 3\n");
    }

    @Test
    void ofAllThreadsThoseThatCompileCount() throws IOException {
        task(1, "java", 'R');
        task(2, "C2 CompilerThre", 'S');
        task(3, "C1 CompilerThre", 'S');
        long most = TimeUnit.SECONDS.toNanos(60);
        assertFalse(new CompilerThreads(tasks).sleepWhileBusy(most));
    }

    @ParameterizedTest
    @ValueSource(strings = {"C2 CompilerThre", "C2 Comp..hread0"}) // JDK 25, JDK 26 and newer
    void aThreadThatCompilesIsWaitedForWithinTheTime(String name) throws IOException {
        task(2, name, 'R');
        long start = System.nanoTime();
        assertTrue(new CompilerThreads(tasks).sleepWhileBusy(TimeUnit.MILLISECONDS.toNanos(30)));
        assertTrue(System.nanoTime() - start >= TimeUnit.MILLISECONDS.toNanos(30));
    }

    @Test
    void itEndsWhenTheThreadSleeps() throws Exception {
        task(2, "C2 CompilerThre", 'R');
        Thread idle =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                Thread.sleep(50);
                                task(2, "C2 CompilerThre", 'S');
                            } catch (IOException | InterruptedException e) {
                                throw new IllegalStateException(e);
                            }
                        });
        assertTrue(new CompilerThreads(tasks).sleepWhileBusy(TimeUnit.MINUTES.toNanos(5)));
        assertTrue(idle.join(java.time.Duration.ofSeconds(10)));
        assertFalse(new CompilerThreads(tasks).sleepWhileBusy(TimeUnit.MINUTES.toNanos(5)));
    }

    @Test
    void withoutAListItPauses() {
        assertFalse(new CompilerThreads(tasks.resolve("none")).sleepWhileBusy(1));
    }

    /** The names are this JVM's own. */
    @Test
    void thisVirtualMachineHasSome() throws IOException {
        try (var all = Files.list(Path.of("/proc/self/task"))) {
            assertTrue(
                    all.anyMatch(t -> {
                        try {
                            return Files.readString(t.resolve("comm"))
                                    .matches(CompilerThreads.NAME + "\\R?");
                        } catch (IOException e) {
                            return false;
                        }
                    }));
        }
    }
}
