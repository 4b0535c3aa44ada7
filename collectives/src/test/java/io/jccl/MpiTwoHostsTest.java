package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.contract.Case;
import io.jccl.contract.Cases;
import io.jccl.contract.ContractWorker;
import io.jccl.contract.MpiLauncher;
import io.jccl.contract.Workers;
import io.jccl.contract.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Two network namespaces as two hosts, with a link between them and Open MPI on TCP; needs root.
 * What starts Open MPI's daemon on the other host enters the namespace instead of calling ssh.
 */
@Tag("waiting")
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class MpiTwoHostsTest {
    private static final Duration PATIENCE = Duration.ofMinutes(3);
    private static final String NETWORK = "10.77.213.";

    private static final AtomicInteger MADE = new AtomicInteger();

    /** At most 13 characters: two more follow in names of network devices, which have 15. */
    private final String name = "jccl" + ProcessHandle.current().pid() + MADE.getAndIncrement();

    @TempDir Path folder = Path.of("");

    @BeforeEach
    void connect() throws Exception {
        MpiLauncher.OPEN_MPI.assume();
        Assumptions.assumeTrue(
                "root".equals(System.getProperty("user.name")), "only root makes namespaces");
        for (String tool : List.of("ip", "unshare", "hostname")) {
            Assumptions.assumeTrue(run("sh", "-c", "command -v " + tool) == 0, "no " + tool);
        }
        Assumptions.assumeTrue(
                run("ip", "netns", "add", name + "a") == 0, "namespaces are not allowed here");
        must("ip", "netns", "add", name + "b");
        must("ip", "link", "add", name + "va", "type", "veth", "peer", "name", name + "vb");
        for (String host : List.of("a", "b")) {
            must("ip", "link", "set", name + "v" + host, "netns", name + host);
            String address = NETWORK + (host.equals("a") ? 1 : 2) + "/24";
            must("ip", "-n", name + host, "addr", "add", address, "dev", name + "v" + host);
            must("ip", "-n", name + host, "link", "set", "lo", "up");
            link(host, "up");
        }
    }

    @AfterEach
    void disconnect() throws Exception {
        for (String host : List.of("a", "b")) {
            // Whatever a cut link has left behind there.
            run("sh", "-c", "for p in $(ip netns pids " + name + host + "); do kill -9 $p; done");
            run("ip", "netns", "del", name + host);
        }
    }

    private void link(String host, String state) throws Exception {
        must("ip", "-n", name + host, "link", "set", name + "v" + host, state);
    }

    private static int run(String... command) throws Exception {
        return new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start()
                .waitFor();
    }

    private static void must(String... command) throws Exception {
        assertEquals(0, run(command), String.join(" ", command));
    }

    private Worker start(List<String> flags, Class<?> main, String... args) throws IOException {
        Path agent = folder.resolve("agent");
        Files.writeString(
                agent,
                "#!/bin/sh\nshift\nexec ip netns exec %sb unshare --uts sh -c 'hostname %sb; exec sh -c \"$0\"' \"$*\"\n"
                        .formatted(name, name));
        Files.setPosixFilePermissions(agent, PosixFilePermissions.fromString("rwx------"));
        List<String> command =
                new ArrayList<>(
                        List.of(
                                "ip",
                                "netns",
                                "exec",
                                name + "a",
                                "unshare",
                                "--uts",
                                "sh",
                                "-c",
                                "hostname " + name + "a; exec \"$@\"",
                                "sh"));
        List<String> own =
                List.of(
                        "--mca",
                        "plm_rsh_agent",
                        agent.toString(),
                        "--host",
                        NETWORK + "1:1," + NETWORK + "2:1",
                        "--mca",
                        "btl_tcp_if_include",
                        NETWORK + "0/24",
                        "--mca",
                        "oob_tcp_if_include",
                        NETWORK + "0/24");
        command.addAll(MpiLauncher.OPEN_MPI.command(2, own, Workers.command(flags, main, args)));
        return MpiLauncher.OPEN_MPI.start(command, Map.of());
    }

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

    @Test
    void aLinkThatComesBackIsWaitedFor() throws Exception {
        Worker job =
                start(List.of("-Djccl.mpi.wait=poll"), MpiFaultWorker.class, "rounds", "100000");
        try {
            job.await("RANK 0 begins", PATIENCE);
            link("a", "down");
            Thread.sleep(5000);
            link("a", "up");
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
            link("a", "down");
            String line = job.await("RANK 0 caught", PATIENCE);
            assertTrue(line.contains("CollectiveTimeoutException"), line);
            assertTrue(line.contains("rank 1 does not answer"), line);
        } finally {
            job.kill();
        }
    }
}
