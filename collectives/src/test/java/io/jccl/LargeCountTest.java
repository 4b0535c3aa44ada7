package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * More than 2^31 elements, for real: 4 to 16 GB, so only with {@code -Djccl.test.large=true}.
 * {@code jccl.mpi.limit} has the other tests of MPI take the same paths with fewer.
 */
@Timeout(value = 15, unit = TimeUnit.MINUTES)
class LargeCountTest {
    private static final Duration PATIENCE = Duration.ofMinutes(10);

    /** Workers are compiled well, as they look at all elements. */
    private static final List<String> FLAGS = List.of(Workers.OPTIMIZED);

    @BeforeEach
    void mayTakeMemory() {
        assumeTrue(
                Boolean.getBoolean("jccl.test.large"),
                "takes up to 16 GB of memory: ask for it with -Djccl.test.large=true");
    }

    private static void ends(List<Worker> workers) {
        List<String> lines = new ArrayList<>();
        for (Worker w : workers) {
            assertEquals(0, w.join(PATIENCE), () -> String.join("\n", w.lines()));
            lines.addAll(w.lines());
        }
        String text = String.join("\n", lines);
        for (int r = 0; r < 2; r++) {
            assertTrue(text.contains("RANK " + r + " of 2"), text);
        }
    }

    private static void mpi(MpiLauncher launcher, String what) {
        launcher.assume();
        Worker job = launcher.start(2, FLAGS, LargeCountWorker.class, "mpi", what);
        try {
            ends(List.of(job));
        } finally {
            job.kill();
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "allReduce",
                "broadcast",
                "sendRecv",
                "allGather",
                "allGatherOfManyEach",
                "allToAll"
            })
    void onOpenMpi(String what) {
        mpi(MpiLauncher.OPEN_MPI, what);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "allReduce",
                "broadcast",
                "sendRecv",
                "allGather",
                "allGatherOfManyEach",
                "allToAll"
            })
    void onMpich(String what) {
        mpi(MpiLauncher.MPICH, what);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "allReduce",
                "broadcast",
                "sendRecv",
                "allGather",
                "allGatherOfManyEach",
                "allToAll"
            })
    void asThreads(String what) {
        try (Workers one = new Workers(1, Workers.newJobId(), FLAGS, Map.of())) {
            ends(List.of(one.start(0, LargeCountWorker.class, "threads", what)));
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "allReduce",
                "broadcast",
                "sendRecv",
                "allGather",
                "allGatherOfManyEach",
                "allToAll"
            })
    void asProcesses(String what) {
        try (Workers two = new Workers(2, Workers.newJobId(), FLAGS, Map.of())) {
            ends(two.startAll(LargeCountWorker.class, "processes", what).all());
        }
    }
}
