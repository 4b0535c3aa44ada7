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
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Parts of worlds, memory of worlds, on threads and on processes. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class WorldTest {
    private final String job = Workers.newJobId();
    private final Workers workers = new Workers(WorldBodies.RANKS, job, List.of(), Map.of());

    static Set<String> names() {
        return WorldBodies.all().keySet();
    }

    @ParameterizedTest
    @MethodSource("names")
    void onThreads(String name) {
        Communicator.RankBody body = Objects.requireNonNull(WorldBodies.all().get(name));
        Communicator.runLocal(WorldBodies.RANKS, WorldBodies.OPTIONS, body);
    }

    @ParameterizedTest
    @MethodSource("names")
    void onProcesses(String name) {
        if (workers.all().isEmpty()) {
            workers.startAll(WorldBodies.class, names().toArray(String[]::new));
        }
        for (Worker worker : workers.all()) {
            String line = worker.await("BODY " + name + " ", Duration.ofSeconds(90));
            if (!line.endsWith("ok")) {
                throw new AssertionError(
                        "rank " + worker.rank() + ":\n" + String.join("\n", worker.lines()));
            }
        }
    }

    @AfterAll
    void nothingIsLeft() {
        for (Worker worker : workers.all()) {
            worker.await("DONE", Duration.ofSeconds(60));
            assertEquals(0, worker.join(Duration.ofSeconds(60)));
        }
        workers.close();
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }
}
