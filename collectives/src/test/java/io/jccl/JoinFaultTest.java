package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.host.SharedMemoryFullException;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Ranks that end, fail or are stopped before all have met: the others hear which one, and why. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class JoinFaultTest {
    /** For starting JVMs on a busy machine. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** Never waited for: longer than {@link #PATIENCE}. */
    private static final String LONG = "150";

    private final String job = Workers.newJobId();

    private record Report(Worker worker, String type, String message) {
        static Report of(Worker worker) {
            String[] words = worker.await("ERROR ", PATIENCE).split(" ", 4);
            worker.await("CLOSED", PATIENCE);
            assertEquals(0, worker.join(PATIENCE));
            return new Report(worker, words[1], words[3]);
        }

        Report is(Class<?> expected, String... texts) {
            assertEquals(expected.getSimpleName(), type, this::toString);
            for (String text : texts) {
                assertTrue(message.contains(text), () -> "no '" + text + "' in " + this);
            }
            return this;
        }

        @Override
        public String toString() {
            return String.join("\n", worker.lines());
        }
    }

    private Workers world(int size, String... flags) {
        return new Workers(size, job, List.of(flags), Map.of());
    }

    @AfterEach
    void nothingIsLeft() {
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
    }

    /** Waits until ranks are joining and have seen each other. */
    private void awaitJoining(Worker... workers) throws InterruptedException {
        Workers.awaitJoining(
                job, PATIENCE, Arrays.stream(workers).mapToInt(Worker::rank).toArray());
        for (Worker worker : workers) {
            worker.awaitPolls(PATIENCE);
        }
    }

    @ParameterizedTest
    @CsvSource({"1, 0, KILL"})
    void rankThatEndsWhileOthersJoinIsNamed(int victim, int survivor, String signal)
            throws InterruptedException {
        try (Workers workers = world(3)) {
            Worker ends = workers.start(victim, FaultWorker.class, "hello", LONG);
            Worker stays = workers.start(survivor, FaultWorker.class, "hello", LONG);
            awaitJoining(ends, stays);
            ends.signal(signal);
            Report.of(stays)
                    .is(
                            RankFailedException.class,
                            "rank " + victim + " (process " + ends.pid() + ") ended",
                            "joining",
                            job);
        }
    }

    /** Long before the timeout, after the time that a process of an earlier run may take to end. */
    @Tag("exhaustive")
    @Test
    void rankThatTwoProcessesClaimIsNamed() {
        try (Workers workers = world(3)) {
            List<Worker> all = new ArrayList<>();
            for (int rank : new int[] {0, 0, 1}) {
                all.add(workers.start(rank, FaultWorker.class, "hello", LONG));
            }
            for (Worker worker : all) {
                Report.of(worker)
                        .is(
                                RankFailedException.class,
                                " both join job " + job + " as rank 0",
                                Long.toString(all.get(0).pid()),
                                Long.toString(all.get(1).pid()));
            }
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, 2, TERM"})
    void rankEndedBySigtermWhileOthersJoinIsNamed(int victim, int survivor, String signal)
            throws InterruptedException {
        rankThatEndsWhileOthersJoinIsNamed(victim, survivor, signal);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0, 1, KILL", "1, 2, KILL", "2, 1, KILL", "1, 0, TERM"})
    void rankThatEndsWhileOthersJoinIsNamedElsewhere(int victim, int survivor, String signal)
            throws InterruptedException {
        rankThatEndsWhileOthersJoinIsNamed(victim, survivor, signal);
    }

    @Tag("exhaustive")
    @Test
    void allWhoAreHereNameTheOneThatEnded() throws InterruptedException {
        try (Workers workers = world(4)) {
            for (int rank = 0; rank < 3; rank++) {
                workers.start(rank, FaultWorker.class, "hello", LONG);
            }
            awaitJoining(workers.all().toArray(Worker[]::new));
            workers.all().get(1).kill();
            for (int rank : new int[] {0, 2}) {
                Report.of(workers.all().get(rank)).is(RankFailedException.class, "rank 1 (process");
            }
        }
    }

    /** Options that differ: the one with the short patience says that it has gone. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"1, 0"})
    void rankThatGivesUpEarlyTellsTheOthers(int impatient, int other) throws InterruptedException {
        int missing = 3 - impatient - other;
        try (Workers workers = world(3)) {
            Worker stays = workers.start(other, FaultWorker.class, "hello", LONG);
            awaitJoining(stays);
            // Within it the two have to meet.
            long seconds = Workers.patience(Duration.ofSeconds(4)).toSeconds();
            Worker goes = workers.start(impatient, FaultWorker.class, "hello", "" + seconds);
            String[] story = {
                "rank " + impatient + " of 3 waited PT" + seconds + "S", "[" + missing + "]"
            };
            Report.of(stays).is(CollectiveTimeoutException.class, story);
            Report.of(goes).is(CollectiveTimeoutException.class, story);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0, 1", "1, 2"})
    void rankThatGivesUpEarlyTellsTheOthersElsewhere(int impatient, int other)
            throws InterruptedException {
        rankThatGivesUpEarlyTellsTheOthers(impatient, other);
    }

    /**
     * The kernel refuses the victim's files above a size: rank 0 cannot make the control memory,
     * before the ranks meet; another one not its heap, when they have met.
     */
    @ParameterizedTest
    @CsvSource({"1, 1000000, buffers of rank 1"})
    void rankThatFailsWhileJoiningTellsTheOthersWhy(int victim, int bytes, String what)
            throws InterruptedException {
        try (Workers good = world(3);
                Workers bad = world(3).by("prlimit", "--fsize=" + bytes)) {
            List<Worker> others = new ArrayList<>();
            for (int rank = 0; rank < 3; rank++) {
                if (rank != victim) {
                    others.add(good.start(rank, FaultWorker.class, "hello", LONG));
                }
            }
            awaitJoining(others.toArray(Worker[]::new));
            Worker one = bad.start(victim, FaultWorker.class, "hello", LONG);
            for (Worker other : others) {
                Report.of(other)
                        .is(
                                RankFailedException.class,
                                "rank " + victim + " (",
                                ":" + one.pid() + ")",
                                "cannot join",
                                what);
            }
            Report.of(one).is(SharedMemoryFullException.class, what, "File too large");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"0, 65536, control memory"})
    void firstRankThatFailsWhileJoiningTellsTheOthersWhy(int victim, int bytes, String what)
            throws InterruptedException {
        rankThatFailsWhileJoiningTellsTheOthersWhy(victim, bytes, what);
    }

    /** The kernel refuses every byte of a file, but not the file. */
    @Test
    void rankThatCannotMarkTheFolderLeavesNone(@TempDir Path folder) throws IOException {
        try (Workers workers =
                world(2, "-Djccl.shm.dir=" + folder, "-XX:-UsePerfData")
                        .by("prlimit", "--fsize=0")) {
            Report.of(workers.start(0, FaultWorker.class, "hello", LONG))
                    .is(JcclException.class, "cannot meet in", "File too large");
        }
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(List.of(), left.toList());
        }
    }

    /** Room for the control memory and the least heaps, of 1 MiB, of two of three ranks. */
    @Tag("exhaustive")
    @Test
    void rankWithTooLittleSharedMemoryTellsTheOthers(@TempDir Path folder) throws IOException {
        try (FaultTest.Tmpfs tmpfs = new FaultTest.Tmpfs(folder, "3000k");
                Workers workers = world(3, "-Djccl.shm.dir=" + folder)) {
            workers.startAll(FaultWorker.class, "hello", LONG);
            List<Report> reports = workers.all().stream().map(Report::of).toList();
            List<Report> first =
                    reports.stream().filter(r -> !r.type.equals("RankFailedException")).toList();
            assertFalse(first.isEmpty(), reports::toString);
            for (Report report : reports) {
                assertTrue(
                        first.contains(report)
                                || first.stream()
                                        .anyMatch(f ->
                                                report.message.contains(
                                                        "rank " + f.worker.rank() + " (")),
                        reports::toString);
                assertTrue(report.message.contains(folder.toString()), report::toString);
            }
            tmpfs.assertEmpty();
        }
    }

    @Tag("exhaustive")
    @Test
    void rankStoppedWhileJoiningHearsThatItsPeersGaveUp() throws InterruptedException {
        try (Workers workers = world(3)) {
            Worker stopped = workers.start(1, FaultWorker.class, "hello", LONG);
            awaitJoining(stopped);
            long seconds = Workers.patience(Duration.ofSeconds(12)).toSeconds();
            Worker other = workers.start(0, FaultWorker.class, "hello", "" + seconds);
            awaitJoining(stopped, other);
            stopped.signal("STOP");
            Report.of(other).is(CollectiveTimeoutException.class, "rank 0 of 3 waited");
            stopped.signal("CONT");
            Report.of(stopped).is(CollectiveTimeoutException.class, "rank 0 of 3 waited");
        }
    }

    /**
     * Stopped when it has called its first operation and waits for rank 2, it goes on when the
     * others have waited for it in vain, and taken their memory with them.
     */
    @Tag("exhaustive")
    @Test
    void rankStoppedInItsFirstOperationHearsThatItsPeersGaveUp() throws InterruptedException {
        try (Workers workers = world(3)) {
            long seconds = Workers.patience(Duration.ofSeconds(8)).toSeconds();
            workers.startAll(FaultWorker.class, "late", "+" + seconds, "2");
            workers.all().subList(0, 2).forEach(w -> w.await("GOES ON", PATIENCE));
            Worker stopped = workers.all().get(1);
            stopped.awaitPolls(PATIENCE);
            stopped.signal("STOP");
            workers.all().get(2).endInput();
            for (int rank : new int[] {0, 2}) {
                Report.of(workers.all().get(rank))
                        .is(CollectiveTimeoutException.class, "rank 1", "allReduce");
            }
            stopped.signal("CONT");
            Report late = Report.of(stopped);
            assertTrue(late.message.matches("rank [02] gave up: rank [02] of 3.*"), late::toString);
            String waited = "waited " + Duration.ofSeconds(seconds);
            late.is(CollectiveTimeoutException.class, waited, "allReduce");
        }
    }

    /** What a run that was killed has left says nothing of the next one. */
    @Tag("exhaustive")
    @Test
    void refusalsOfAnEarlierRunDoNotCount() throws IOException, InterruptedException {
        try (Workers workers = world(3)) {
            Worker killed = workers.start(1, FaultWorker.class, "hello", LONG);
            awaitJoining(killed);
            // It cannot read what rank 2 writes, nor clean up.
            killed.signal("STOP");
            Worker late = workers.start(2, FaultWorker.class, "hello", "4");
            Report.of(late).is(CollectiveTimeoutException.class, "[0");
            killed.kill();
            killed.join(PATIENCE);
        }
        assertTrue(
                Workers.sharedFiles(job).stream().anyMatch(f -> f.endsWith("refused-2")),
                () -> "no refusal was left: " + Workers.sharedFiles(job));
        assertTrue(Files.exists(Workers.sharedFiles(job).getFirst()));
        try (Workers workers = world(3)) {
            workers.startAll(FaultWorker.class, "hello", "60");
            workers.all().forEach(w -> w.await("OK", PATIENCE));
            workers.all().forEach(w -> assertEquals(0, w.join(PATIENCE)));
        }
    }
}
