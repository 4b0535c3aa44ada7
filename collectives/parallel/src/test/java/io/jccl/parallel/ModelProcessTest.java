package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testfake.TestFake;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Split layers and pipelines with ranks that are processes, on the host engine, on MPI and on the
 * fakes of CUDA, NCCL and cuBLAS.
 */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class ModelProcessTest {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    /** Two processes, and MPI, are also in {@link ParallelEnginesTest}, with all else. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 3})
    void processesComputeTheSame(int ranks) {
        long seed = System.nanoTime();
        System.out.println("ModelProcessTest seed " + seed);
        String job = Workers.newJobId();
        try (Workers workers = new Workers(ranks, job, List.of(), Map.of())) {
            workers.startAll(ModelWorker.class, "check", "100", Long.toString(seed));
            for (Worker w : workers.all()) {
                assertEquals(0, w.join(PATIENCE), () -> String.join("\n", w.lines()));
                w.await("OK " + w.rank(), PATIENCE);
            }
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void mpiComputesTheSame(MpiLauncher launcher) {
        launcher.assume();
        long seed = System.nanoTime();
        System.out.println("ModelProcessTest seed " + seed);
        Worker job =
                launcher.start(3, List.of(), ModelWorker.class, "mpi", "100", Long.toString(seed));
        try {
            assertEquals(0, job.join(PATIENCE), () -> String.join("\n", job.lines()));
            long ended = job.lines().stream().filter(l -> l.startsWith("OK ")).count();
            assertEquals(3, ended, () -> String.join("\n", job.lines()));
        } finally {
            job.kill();
        }
    }

    @Tag("exhaustive")
    @Test
    void processesOnDevicesComputeTheSame() {
        long seed = System.nanoTime();
        System.out.println("ModelProcessTest seed " + seed);
        try (Workers workers = new Workers(2, Workers.newJobId(), TestFake.flags(), Map.of())) {
            workers.startAll(ModelWorker.class, "cuda", "100", Long.toString(seed));
            for (Worker w : workers.all()) {
                assertEquals(0, w.join(PATIENCE), () -> String.join("\n", w.lines()));
                w.await("OK " + w.rank(), PATIENCE);
            }
        }
    }

    /** A rank that dies, or stops, ends the others, who name it or say how long they waited. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"KILL, 1, 100", "STOP, 1, 10"})
    void deathOfAStageEndsTheOthers(String signal, int victim, int timeout) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(ModelWorker.class, "endless", Integer.toString(timeout), "0");
            for (Worker w : workers.all()) {
                w.await("RUNNING", PATIENCE);
            }
            workers.all().get(victim).signal(signal);
            boolean named = false;
            for (Worker w : workers.all()) {
                if (w.rank() != victim) {
                    String error = w.await("ERROR ", PATIENCE);
                    assertTrue(
                            error.matches("ERROR (RankFailed|CollectiveTimeout)Exception .*"),
                            error);
                    named |= error.contains("rank " + victim);
                    assertEquals(0, w.join(PATIENCE));
                }
            }
            assertTrue(named, "nobody names rank " + victim);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"KILL, 0, 100", "KILL, 2, 100"})
    void deathOfAnyStageEndsTheOthers(String signal, int victim, int timeout) {
        deathOfAStageEndsTheOthers(signal, victim, timeout);
    }
}
