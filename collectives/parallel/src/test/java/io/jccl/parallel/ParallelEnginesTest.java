package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Device;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import io.jccl.testkit.Messages;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Everything that is done on ranks that are threads, also on the other engines; and faults. */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class ParallelEnginesTest {
    /** For starting JVMs on a busy machine, and what they then do. */
    private static final Duration PATIENCE = Duration.ofSeconds(150);

    /** Far above what it takes to notice, far below the timeout of the communicator. */
    private static final long SOON_MILLIS = 50_000;

    private final String seed = Long.toString(Long.getLong("jccl.seed", System.nanoTime()));

    @TempDir Path folder = Path.of("");

    private void seeded(String what, int ranks) {
        System.out.println(
                "ParallelEnginesTest." + what + ": " + ranks + " ranks, -Djccl.seed=" + seed);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4})
    void threads(int ranks) {
        seeded("threads", ranks);
        Communicator.runLocal(ranks, c -> ParallelBodies.compressed(c, Long.parseLong(seed)));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = 2)
    void processes(int ranks) {
        seeded("processes", ranks);
        String job = Workers.newJobId();
        try (Workers workers = new Workers(ranks, job, List.of(), Map.of())) {
            workers.startAll(ParallelWorker.class, "all", seed, "100", "host");
            for (Worker worker : workers.all()) {
                worker.await("OK", PATIENCE);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {1, 4})
    void moreProcesses(int ranks) {
        processes(ranks);
    }

    /** Their replicas would differ in the last bit. */
    @Tag("exhaustive")
    @Test
    void powerSgdWithTheVectorApiOnSomeRanksIsRefused() {
        String job = Workers.newJobId();
        try (Workers with = new Workers(2, job, List.of(Workers.OPTIMIZED), Map.of());
                Workers without = new Workers(2, job, List.of(), Map.of())) {
            for (Worker worker :
                    List.of(
                            with.start(0, ParallelWorker.class, "power-sgd", seed, "100", "host"),
                            without.start(
                                    1, ParallelWorker.class, "power-sgd", seed, "100", "host"))) {
                String error = worker.await("ERROR ", PATIENCE);
                assertTrue(error.contains("rank 0 has 'PowerSGD with --add-modules"), error);
                assertTrue(error.contains("rank 1 has 'PowerSGD without --add-modules"), error);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
    }

    /** Ranks that poll take less of the processors from each other than those that block. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"OPEN_MPI, 2, poll"})
    void mpi(MpiLauncher launcher, int ranks, String wait) throws IOException {
        launcher.assume();
        seeded(launcher + " " + wait, ranks);
        String out = folder.resolve("out").toString();
        List<String> flags = List.of("-Djccl.mpi.wait=" + wait);
        Worker job =
                launcher.start(ranks, flags, ParallelWorker.class, "all", seed, "100", "mpi", out);
        int exit;
        try {
            exit = job.join(PATIENCE);
        } finally {
            job.kill();
        }
        for (int rank = 0; rank < ranks; rank++) {
            List<String> lines = Files.readAllLines(Path.of(out + "." + rank));
            assertTrue(
                    lines.contains("OK") && lines.getLast().equals("CLOSED"),
                    () -> lines + "\n" + job.lines());
        }
        assertEquals(0, exit, () -> String.join("\n", job.lines()));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"OPEN_MPI, 2, block", "MPICH, 2, poll"})
    void mpiInMoreCases(MpiLauncher launcher, int ranks, String wait) throws IOException {
        mpi(launcher, ranks, wait);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "OPEN_MPI, 3, block",
        "OPEN_MPI, 3, poll",
        "MPICH, 2, block",
        // Three that block would spin on fewer cores.
        "MPICH, 3, poll"
    })
    void otherMpi(MpiLauncher launcher, int ranks, String wait) throws IOException {
        mpi(launcher, ranks, wait);
    }

    /** After an error MPI is not finalized, so the launcher's status does not count. */
    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = "OPEN_MPI")
    void mpiUnused(MpiLauncher launcher) throws IOException {
        launcher.assume();
        seeded(launcher + " unused", 3);
        String out = folder.resolve("out").toString();
        Worker job =
                launcher.start(
                        3,
                        List.of("-Djccl.mpi.wait=poll"),
                        ParallelWorker.class,
                        "unused",
                        seed,
                        "100",
                        "mpi",
                        out);
        try {
            job.join(PATIENCE);
        } finally {
            job.kill();
        }
        for (int rank = 0; rank < 3; rank++) {
            List<String> lines = Files.readAllLines(Path.of(out + "." + rank));
            assertTrue(lines.contains("SAME STORY"), () -> lines + "\n" + job.lines());
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource(names = "OPEN_MPI", mode = EnumSource.Mode.EXCLUDE)
    void otherMpiUnused(MpiLauncher launcher) throws IOException {
        mpiUnused(launcher);
    }

    @UsesFakes
    @ParameterizedTest
    @ValueSource(ints = 2)
    void ncclDouble(int ranks) {
        TestFake.use();
        seeded("ncclDouble", ranks);
        long number = Long.parseLong(seed);
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(30));
        List<Device> devices = IntStream.range(0, ranks).mapToObj(TestFake::device).toList();
        Communicator.runLocal(
                devices,
                options,
                c -> {
                    ParallelBodies.mesh(c, number);
                    ParallelBodies.reducer(c, number);
                    ParallelBodies.sync(c, number);
                });
    }

    @Tag("exhaustive")
    @UsesFakes
    @ParameterizedTest
    @ValueSource(ints = {1, 4})
    void moreNcclDouble(int ranks) {
        ncclDouble(ranks);
    }

    @UsesFakes
    @Test
    void unusedIsNamedOnAllGpus() {
        TestFake.use();
        List<Device> devices = TestFake.ranks(3);
        Communicator.runLocal(devices, CommunicatorOptions.DEFAULT, ParallelBodies::unused);
    }

    @UsesFakes
    @Test
    void parameterServersOverNcclAreRefused() {
        TestFake.use();
        Communicator.runLocal(
                TestFake.ranks(2),
                CommunicatorOptions.DEFAULT,
                c -> {
                    ServerOptions options = ServerOptions.synchronous(1);
                    String m =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () -> ParameterServer.create(c, null, null, options));
                    assertTrue(m.contains("the communicator is of cuda"), m);
                });
    }

    /** What a worker printed when it failed. */
    private record Report(String type, long millis, String message) {
        static Report of(Worker worker) {
            String[] words = worker.await("ERROR ", PATIENCE).split(" ", 4);
            return new Report(words[1], Long.parseLong(words[2]), words[3]);
        }
    }

    /** In the middle of backward, or of a push or pull: of a worker, and of the server. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"serve, 0"})
    void killedRankEndsTraining(String what, int victim) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(ParallelWorker.class, what, seed, "100", "host");
            for (Worker worker : workers.all()) {
                worker.await("RUNNING", PATIENCE);
            }
            workers.all().get(victim).kill();
            long killed = System.nanoTime();
            for (Worker worker : workers.all()) {
                if (worker.rank() == victim) {
                    continue;
                }
                Report report = Report.of(worker);
                long millis = (System.nanoTime() - killed) / 1_000_000;
                assertTrue(millis < SOON_MILLIS, () -> "after " + millis + " ms: " + report);
                // Ranks in a pair's communicator have its numbers, so a name is not asked for.
                assertTrue(report.message.contains("rank "), report::toString);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"train, 1"})
    void killedRankEndsTrainingInMoreCases(String what, int victim) {
        killedRankEndsTraining(what, victim);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"serve, 2", "experts-forever, 1"})
    void killedWorkerEndsTraining(String what, int victim) {
        killedRankEndsTraining(what, victim);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "serve")
    void stoppedRankEndsTrainingAfterTheTimeout(String what) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(ParallelWorker.class, what, seed, "+10", "host");
            for (Worker worker : workers.all()) {
                worker.await("RUNNING", PATIENCE);
            }
            Worker stopped = workers.all().get(1);
            stopped.signal("STOP");
            long since = System.nanoTime();
            for (int rank : new int[] {0, 2}) {
                Worker worker = workers.all().get(rank);
                Report report = Report.of(worker);
                long millis = (System.nanoTime() - since) / 1_000_000;
                assertTrue(
                        millis > 1_000 && millis < SOON_MILLIS,
                        () -> "after " + millis + " ms: " + report);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
            stopped.signal("CONT");
            Report.of(stopped);
            stopped.await("CLOSED", PATIENCE);
            assertEquals(0, stopped.join(PATIENCE));
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(strings = "train")
    void stoppedTrainerEndsTrainingAfterTheTimeout(String what) {
        stoppedRankEndsTrainingAfterTheTimeout(what);
    }
}
