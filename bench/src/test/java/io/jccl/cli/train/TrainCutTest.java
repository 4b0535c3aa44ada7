package io.jccl.cli.train;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.cli.launch.RunCommandTest;
import io.jccl.testkit.MpiProgram;
import io.jccl.testkit.TwoHosts;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * The link between two hosts is cut in the middle of training; Open MPI on TCP. What the engine
 * does then, {@code MpiTwoHostsTest} shows in the default run.
 */
@Tag("exhaustive")
@Timeout(value = 600, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TrainCutTest {
    private static final String MODEL =
            "--engine mpi --layers 2 --hidden 32 --heads 2 --context 16 --batch 8 --accumulate 2"
                    + " --checkpoint-every 3 --timeout ";

    /** A hang guard, generous since other work may run beside the tests. */
    private static final long PATIENCE = TimeUnit.MINUTES.toNanos(3);

    private static final String LENGTH = "--steps 100";

    /** Seconds; the second is for runs that nothing happens to, on a busy machine. */
    private static final int SOON = 15;

    private static final int LATE = 120;

    /** Enough for TCP to give up soon after the ranks have. */
    private static final int FEW_RETRIES = 3;

    private final List<Job> jobs = new ArrayList<>();

    @TempDir private Path folder;

    @BeforeEach
    void needsOpenMpi() {
        MpiProgram.OPEN_MPI.assume();
    }

    @AfterEach
    void endAll() throws Exception {
        for (Job job : jobs) {
            for (Process p : job.launchers) {
                p.destroyForcibly();
                p.waitFor();
            }
            job.hosts.close();
        }
    }

    /** Runs of one kind, on hosts of their own. */
    private final class Job {
        final String name;
        final String wait;
        final String techniques;
        final TwoHosts hosts;
        final List<Process> launchers = new ArrayList<>();

        Job(String name, String wait, String techniques) throws Exception {
            this.name = name;
            this.wait = wait;
            this.techniques = techniques;
            hosts = new TwoHosts(folder);
            jobs.add(this);
        }

        Path file(String what) {
            return folder.resolve(name + "-" + what);
        }

        Path checkpoint() {
            return file("checkpoint");
        }

        /** Two ranks, one on each host; each writes to {@code NAME-RUN.RANK}. */
        Process start(String run, int timeout, String more) throws IOException {
            List<String> rank =
                    new ArrayList<>(
                            List.of(
                                    "sh",
                                    "-c",
                                    "exec \"$@\" >"
                                            + file(run)
                                            + ".$OMPI_COMM_WORLD_RANK 2>&1 </dev/null",
                                    "sh"));
            rank.addAll(RunCommandTest.jccl());
            rank.add("train");
            rank.addAll(List.of((MODEL + timeout + " " + techniques + " " + more).split(" +")));
            List<String> flags = new ArrayList<>(hosts.flags());
            flags.addAll(List.of("-x", "JCCL_MPI_WAIT=" + wait));
            ProcessBuilder builder =
                    new ProcessBuilder(hosts.onFirst(MpiProgram.OPEN_MPI.command(2, flags, rank)));
            MpiProgram.allowRoot(builder.environment());
            builder.redirectInput(new File("/dev/null"));
            builder.redirectErrorStream(true).redirectOutput(file(run + ".mpirun").toFile());
            Process launcher = builder.start();
            launchers.add(launcher);
            return launcher;
        }

        String said(String run, int rank) {
            return text(file(run + "." + rank));
        }

        String everything(String run) {
            return name
                    + " "
                    + run
                    + "\nrank 0: "
                    + said(run, 0)
                    + "\nrank 1: "
                    + said(run, 1)
                    + "\nmpirun: "
                    + text(file(run + ".mpirun"));
        }

        /** The last saved step, 0 before the first. */
        int saved() throws IOException {
            Path latest = checkpoint().resolve("latest.json");
            return Files.exists(latest)
                    ? new ObjectMapper().readTree(latest.toFile()).get("step").asInt()
                    : 0;
        }

        void awaitSaved(int least, String run, Process launcher) throws Exception {
            await(() -> saved() >= least || !launcher.isAlive(), () -> everything(run));
            assertTrue(launcher.isAlive(), () -> everything(run));
        }

        int status(String run, Process launcher) throws Exception {
            await(() -> !launcher.isAlive(), () -> everything(run));
            return launcher.exitValue();
        }

        List<Double> losses(String what) throws IOException {
            JsonNode top = new ObjectMapper().readTree(file(what + ".json").toFile());
            List<Double> losses = new ArrayList<>();
            top.get("jccl_train")
                    .get("runs")
                    .get(0)
                    .get("losses")
                    .forEach(l -> {
                        losses.add(l.asDouble());
                    });
            return losses;
        }
    }

    @FunctionalInterface
    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition, Supplier<String> story) throws Exception {
        long end = System.nanoTime() + PATIENCE;
        while (!condition.holds()) {
            assertTrue(System.nanoTime() < end, () -> "not in time: " + story.get());
            Thread.sleep(20);
        }
    }

    private static String text(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            return e.toString();
        }
    }

    /**
     * Both ranks end and say that the other gives no answer, in blocking calls as in polled ones;
     * then what Open MPI has on the hosts does; and training goes on to the same losses.
     */
    @Test
    void endsWhenTheLinkIsCutForGoodAndResumesToTheSameLosses() throws Exception {
        List<Job> both =
                List.of(
                        new Job("block", "block", "--dp 2 --zero 2 --bf16"),
                        new Job("poll", "poll", "--pp 2"));
        for (Job job : both) {
            job.start("first", SOON, "--steps 1000000 --checkpoint " + job.checkpoint());
        }
        for (Job job : both) {
            job.awaitSaved(6, "first", job.launchers.getFirst());
            job.hosts.cut();
        }
        for (Job job : both) {
            for (int rank = 0; rank < 2; rank++) {
                int other = 1 - rank;
                String java = "host " + (rank == 0 ? "a" : "b") + ": \\d+ \\S*/java .*";
                await(
                        () -> job.hosts.processes().stream().noneMatch(p -> p.matches(java)),
                        () -> job.everything("first"));
                String said = job.said("first", rank);
                String end = job.wait.equals("poll") ? "jccl train: " : "jccl: ";
                assertTrue(
                        said.lines()
                                .anyMatch(l ->
                                        l.startsWith(end)
                                                && l.contains(
                                                        "rank " + other + " does not answer")),
                        () -> job.everything("first"));
                assertFalse(said.contains("\tat "), said);
            }
            job.hosts.retries(FEW_RETRIES);
        }
        for (Job job : both) {
            Process launcher = job.launchers.getFirst();
            assertNotEquals(0, job.status("first", launcher), () -> job.everything("first"));
            await(() -> job.hosts.processes().isEmpty(), () -> leftOver(job));
            job.hosts.mend();
        }
        // One after the other: ranks that outnumber the cores take long.
        for (Job job : both) {
            String length = "--steps " + (job.saved() + 8);
            String resume = " --resume --checkpoint " + job.checkpoint();
            Process second =
                    job.start(
                            "second", LATE, length + resume + " --json " + job.file("second.json"));
            assertEquals(0, job.status("second", second), () -> job.everything("second"));
            Process whole = job.start("whole", LATE, length + " --json " + job.file("whole.json"));
            assertEquals(0, job.status("whole", whole), () -> job.everything("whole"));
            List<Double> rest = job.losses("second");
            List<Double> all = job.losses("whole");
            assertEquals(8, rest.size());
            assertEquals(all.subList(all.size() - 8, all.size()), rest);
        }
    }

    private static String leftOver(Job job) {
        try {
            return String.join("\n", job.hosts.processes());
        } catch (Exception e) {
            return e.toString();
        }
    }

    /** A cut that is shorter than the timeout is waited for, and changes no loss. */
    @ParameterizedTest
    @CsvSource({"block, --dp 2", "poll, --tp 2"})
    void goesOnWhenTheLinkComesBack(String wait, String techniques) throws Exception {
        Job job = new Job(wait, wait, techniques);
        String cut = " --checkpoint " + job.checkpoint() + " --json " + job.file("cut.json");
        Process launcher = job.start("cut", LATE, LENGTH + cut);
        job.awaitSaved(6, "cut", launcher);
        job.hosts.cut();
        int saved = job.saved();
        Thread.sleep(4000);
        // It had stopped: no more than what was under way has been saved.
        assertTrue(job.saved() <= saved + 3, () -> job.everything("cut"));
        job.hosts.mend();
        assertEquals(0, job.status("cut", launcher), () -> job.everything("cut"));
        Process whole = job.start("whole", LATE, LENGTH + " --json " + job.file("whole.json"));
        assertEquals(0, job.status("whole", whole), () -> job.everything("whole"));
        assertEquals(job.losses("whole"), job.losses("cut"));
    }
}
