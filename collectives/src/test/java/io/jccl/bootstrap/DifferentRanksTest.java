package io.jccl.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Processes that do not fit each other: all get one story, which names the ranks. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class DifferentRanksTest {
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    /** What each rank said, which has to be the same. */
    private static String story(int ranks, List<String> lines) {
        List<String> stories = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            // Launchers may put the output of two ranks on one line, but not within a line's words.
            String start = "RANK " + r + " caught ";
            stories.addAll(
                    lines.stream()
                            .filter(l -> l.contains(start))
                            .map(l -> l.substring(l.indexOf(start) + start.length()).strip())
                            .toList());
        }
        assertEquals(ranks, stories.size(), () -> String.join("\n", lines));
        assertEquals(1, stories.stream().distinct().count(), () -> String.join("\n", lines));
        return stories.getFirst();
    }

    private static void says(String story, String... parts) {
        for (String part : parts) {
            assertTrue(story.contains(part), () -> "no '" + part + "' in " + story);
        }
    }

    private static String processes(List<Integer> sizes, String... args) {
        String job = Workers.newJobId();
        List<String> lines = new ArrayList<>();
        List<Workers> each = new ArrayList<>();
        try {
            for (int r = 0; r < sizes.size(); r++) {
                Workers one = new Workers(sizes.get(r), job, List.of(), Map.of());
                each.add(one);
                one.start(r, DifferentWorker.class, args);
            }
            for (Workers one : each) {
                Worker w = one.all().getFirst();
                assertEquals(3, w.join(PATIENCE), () -> String.join("\n", w.lines()));
                lines.addAll(w.lines());
            }
        } finally {
            each.forEach(Workers::close);
        }
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
        return story(sizes.size(), lines);
    }

    @Test
    void processesOfAnotherVersion() {
        processesOfAnotherVersion(1);
    }

    @Tag("exhaustive")
    @Test
    void firstProcessOfAnotherVersion() {
        processesOfAnotherVersion(0);
    }

    private static void processesOfAnotherVersion(int other) {
        String story = processes(List.of(3, 3, 3), "host", Integer.toString(other), "9.9.9");
        says(story, "different versions of JCCL", "rank " + other + " 9.9.9", "rank 2 ");
        assertFalse(story.contains("unknown"), story);
    }

    @Tag("exhaustive")
    @Test
    void processesOfAnotherSize() {
        String story = processes(List.of(3, 2, 3), "host");
        says(story, "different world sizes", "rank 0 3 (", "rank 1 2 (", "rank 2 3 (");
    }

    /** For the default run: Open MPI, whose ranks start sooner, where it is here. */
    static List<MpiLauncher> usual() {
        return List.of(MpiLauncher.OPEN_MPI.isHere() ? MpiLauncher.OPEN_MPI : MpiLauncher.MPICH);
    }

    static List<MpiLauncher> others() {
        return Stream.of(MpiLauncher.values()).filter(l -> !usual().contains(l)).toList();
    }

    private static String mpi(MpiLauncher launcher, String... args) {
        launcher.assume();
        // The launcher ends the others when one has failed, so each needs to be quick enough.
        Worker job =
                launcher.start(
                        2,
                        List.of(),
                        DifferentWorker.class,
                        Stream.concat(Stream.of("mpi"), Stream.of(args)).toArray(String[]::new));
        try {
            assertEquals(3, job.join(PATIENCE), () -> String.join("\n", job.lines()));
            return story(2, new ArrayList<>(job.lines()));
        } finally {
            job.kill();
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("usual")
    void mpiProcessesOfAnotherVersion(MpiLauncher launcher) {
        String story = mpi(launcher, "1", "9.9.9");
        says(story, "different versions of JCCL", "rank 0 ", "rank 1 9.9.9 (", "the same jars");
        assertFalse(story.contains("unknown"), story);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("usual")
    void mpiProcessesWithOtherSettings(MpiLauncher launcher) {
        says(
                mpi(launcher, "0", "jccl.mpi.wait", "poll"),
                "different values of JCCL_MPI_WAIT",
                "rank 0 poll (",
                "rank 1 block (");
        says(
                mpi(launcher, "1", "jccl.mpi.threads", "serialized"),
                "different values of JCCL_MPI_THREADS",
                "rank 0 multiple (",
                "rank 1 serialized (");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("others")
    void processesOfTheOtherMpi(MpiLauncher launcher, @TempDir Path folder) throws Exception {
        mpiProcessesOfAnotherVersion(launcher);
        mpiProcessesWithOtherSettings(launcher);
        runsOfALauncherAreKeptApart(launcher, folder);
    }

    /** Two runs at a time on one machine, which nobody has given names. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("usual")
    void runsOfALauncherAreKeptApart(MpiLauncher launcher, @TempDir Path folder) throws Exception {
        launcher.assume();
        Path end = folder.resolve("end");
        List<Worker> jobs = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                jobs.add(
                        launcher.start(
                                2, List.of(), DifferentWorker.class, "host", end.toString()));
            }
            for (Worker job : jobs) {
                for (int r = 0; r < 2; r++) {
                    job.awaitContaining("RANK " + r + " joined as " + r, PATIENCE);
                }
            }
            Files.createFile(end);
            for (Worker job : jobs) {
                assertEquals(0, job.join(PATIENCE), () -> String.join("\n", job.lines()));
            }
        } finally {
            jobs.forEach(Worker::kill);
        }
    }
}
