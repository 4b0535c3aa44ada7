package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Parts of worlds, memory of worlds, on threads and on processes. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class WorldTest {
    private final List<String> jobs = List.of(Workers.newJobId(), Workers.newJobId());
    private final Workers workers = ranks(jobs.get(0));
    private final Workers longer = ranks(jobs.get(1));

    private static Workers ranks(String job) {
        return new Workers(WorldBodies.RANKS, job, List.of(), Map.of());
    }

    static Set<String> names() {
        return WorldBodies.all().keySet();
    }

    static Set<String> longerNames() {
        return WorldBodies.longer().keySet();
    }

    @ParameterizedTest
    @MethodSource("names")
    void onThreads(String name) {
        onThreads(WorldBodies.all().get(name));
    }

    /** Of the longer bodies the only one that has no shorter form. */
    @Test
    void freedMemoryIsReusedOnThreads() {
        onThreads(WorldBodies.longer().get("freedMemoryIsReused"));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("longerNames")
    void onThreadsForLonger(String name) {
        onThreads(WorldBodies.longer().get(name));
    }

    private static void onThreads(Communicator.@Nullable RankBody body) {
        Communicator.runLocal(WorldBodies.RANKS, WorldBodies.OPTIONS, Objects.requireNonNull(body));
    }

    @ParameterizedTest
    @MethodSource("names")
    void onProcesses(String name) {
        onProcesses(workers, "all", name);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("longerNames")
    void onProcessesForLonger(String name) {
        onProcesses(longer, "longer", name);
    }

    private static void onProcesses(Workers ranks, String bodies, String name) {
        if (ranks.all().isEmpty()) {
            ranks.startAll(WorldBodies.class, bodies);
        }
        for (Worker worker : ranks.all()) {
            String line = worker.await("BODY " + name + " ", Duration.ofSeconds(90));
            if (!line.endsWith("ok")) {
                throw new AssertionError(
                        "rank " + worker.rank() + ":\n" + String.join("\n", worker.lines()));
            }
        }
    }

    @AfterAll
    void nothingIsLeft() {
        for (Workers ranks : List.of(workers, longer)) {
            for (Worker worker : ranks.all()) {
                worker.await("DONE", Duration.ofSeconds(60));
                assertEquals(0, worker.join(Duration.ofSeconds(60)));
            }
            ranks.close();
        }
        for (String job : jobs) {
            assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
        }
    }
}
