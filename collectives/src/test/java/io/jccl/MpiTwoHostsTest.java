package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.contract.Case;
import io.jccl.contract.Cases;
import io.jccl.contract.ContractWorker;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.TwoHosts;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Open MPI on TCP between {@link TwoHosts}. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class MpiTwoHostsTest {
    private static final Duration PATIENCE = Duration.ofMinutes(3);

    @TempDir Path folder = Path.of("");

    private @Nullable TwoHosts hosts;

    @BeforeEach
    void connect() throws Exception {
        MpiLauncher.OPEN_MPI.assume();
        hosts = new TwoHosts(folder);
    }

    @AfterEach
    void disconnect() throws Exception {
        if (hosts != null) {
            hosts.close();
        }
    }

    private TwoHosts hosts() {
        return Objects.requireNonNull(hosts);
    }

    private Worker start(List<String> flags, Class<?> main, String... args) {
        List<String> command = Workers.command(flags, main, args);
        return MpiLauncher.OPEN_MPI.start(
                hosts().onFirst(MpiLauncher.OPEN_MPI.command(2, hosts().flags(), command)),
                Map.of());
    }

    @Tag("exhaustive")
    @Test
    void theContractHolds() throws Exception {
        long seed = System.nanoTime() & 0xFFFFFF;
        System.out.println("MpiTwoHostsTest: seed " + seed);
        Path file = folder.resolve("cases.txt");
        Files.write(
                file,
                Cases.all(2, seed, 12).stream()
                        .map(Case::withOwnAlgorithm)
                        .distinct()
                        .map(Case::toString)
                        .toList());
        Worker job =
                start(
                        List.of(),
                        ContractWorker.class,
                        file.toString(),
                        "100",
                        "mpi",
                        folder.resolve("out").toString());
        try {
            int exit = job.join(PATIENCE);
            for (int rank = 0; rank < 2; rank++) {
                List<String> lines = Files.readAllLines(folder.resolve("out." + rank));
                assertEquals(List.of(), ProcessContractTest.failures(rank, lines));
                assertEquals("DONE", lines.getLast(), () -> String.join("\n", job.lines()));
            }
            assertEquals(0, exit);
        } finally {
            job.kill();
        }
    }

    /** Nobody says which engine: the launcher's variables tell of two machines. */
    @Test
    void theEngineIsChosenByTheLaunchersVariables() throws Exception {
        Worker job = start(List.of(), MpiFaultWorker.class, "engine", "100000");
        try {
            assertEquals(0, job.join(PATIENCE), () -> String.join("\n", job.lines()));
            assertTrue(job.lines().contains("RANK 0 chooses mpi"), () -> "" + job.lines());
            assertTrue(job.lines().contains("RANK 1 chooses mpi"), () -> "" + job.lines());
        } finally {
            job.kill();
        }
    }

    @Tag("exhaustive")
    @Test
    void aLinkThatComesBackIsWaitedFor() throws Exception {
        Worker job =
                start(List.of("-Djccl.mpi.wait=poll"), MpiFaultWorker.class, "rounds", "100000");
        try {
            job.await("RANK 0 begins", PATIENCE);
            hosts().cut();
            Thread.sleep(5000);
            hosts().mend();
            assertEquals(0, job.join(PATIENCE), () -> String.join("\n", job.lines()));
        } finally {
            job.kill();
        }
    }

    @Test
    void aLinkThatIsCutForGoodIsNoticed() throws Exception {
        Worker job = start(List.of("-Djccl.mpi.wait=poll"), MpiFaultWorker.class, "rounds", "6000");
        try {
            job.await("RANK 0 begins", PATIENCE);
            hosts().cut();
            String line = job.await("RANK 0 caught", PATIENCE);
            assertTrue(line.contains("CollectiveTimeoutException"), line);
            assertTrue(line.contains("rank 1 does not answer"), line);
        } finally {
            job.kill();
        }
    }
}
