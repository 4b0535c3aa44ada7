package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.NcclException;
import io.jccl.error.JcclException;
import io.jccl.testfake.TestFake;
import io.jccl.testkit.FakeRas;
import io.jccl.testkit.FakeRas.Comm;
import io.jccl.testkit.FakeRas.Manner;
import io.jccl.testkit.FakeRas.Rank;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks of the NCCL engine as processes on the fake: they die, hang, leave or never come. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class NcclProcessFaultTest {
    /** For starting JVMs on a busy machine. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** Far above what it takes to notice; on an idle machine far below the timeout. */
    private static final long SOON_MILLIS = Workers.patience(Duration.ofSeconds(40)).toMillis();

    /** Seconds until those who wait give up: long enough for all to start on a busy machine. */
    private static final String SHORT = "8";

    /** Where the ranks' temporary files go, so that what stays there is seen. */
    @TempDir Path temporary = Path.of("");

    private final String job = Workers.newJobId();

    /** What a worker printed when its communicator broke. */
    private record Report(Worker worker, String type, long millis, String message) {
        static Report of(Worker worker) {
            String[] words = worker.await("ERROR ", PATIENCE).split(" ", 4);
            return new Report(worker, words[1], Long.parseLong(words[2]), words[3]);
        }

        void is(Class<?> expected, String... texts) {
            assertEquals(expected.getSimpleName(), type, this::toString);
            for (String text : texts) {
                assertTrue(message.contains(text), () -> "no '" + text + "' in " + this);
            }
        }

        void soon() {
            assertTrue(millis < SOON_MILLIS, this::toString);
        }

        @Override
        public String toString() {
            return String.join("\n", worker.lines());
        }
    }

    private Workers world(int size, Map<String, String> more) {
        Map<String, String> environment = new HashMap<>(more);
        environment.put("JCCL_ENGINE", "nccl");
        List<String> flags = new ArrayList<>(TestFake.flags());
        flags.add("-Djava.io.tmpdir=" + temporary);
        return new Workers(size, job, flags, environment);
    }

    private void assertAllEnd(Workers workers, int... except) throws IOException {
        for (Worker worker : workers.all()) {
            if (Arrays.stream(except).noneMatch(r -> r == worker.rank())) {
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertNothingLeft();
    }

    private void assertNothingLeft() throws IOException {
        assertEquals(List.of(), Workers.sharedFiles(job), "left in shared memory");
        try (var left = Files.list(temporary)) {
            // the JVM's own for jps and jstat, which a kill leaves
            assertEquals(
                    List.of(),
                    left.filter(f -> !f.getFileName().toString().startsWith("hsperfdata")).toList(),
                    "left in the folder for temporary files");
        }
    }

    private static void awaitRunning(Workers workers) {
        workers.all().forEach(worker -> worker.await("RUNNING", PATIENCE));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"stream, 1", "allReduce, 0", "allReduce, 1", "barrier, 2", "sendRecv, 1"})
    void killedRankIsNamed(String what, int victim) throws IOException {
        try (Workers workers = world(3, Map.of())) {
            workers.startAll(FaultWorker.class, what, "100");
            awaitRunning(workers);
            long killed = System.nanoTime();
            workers.all().get(victim).kill();
            for (Worker worker : workers.all()) {
                if (worker.rank() != victim) {
                    Report report = Report.of(worker);
                    long millis = (System.nanoTime() - killed) / 1_000_000;
                    assertTrue(millis < SOON_MILLIS, () -> "after " + millis + " ms: " + report);
                    report.is(RankFailedException.class, "rank " + victim);
                }
            }
            assertAllEnd(workers, victim);
        }
    }

    /** Runs two ranks, of which the second never calls the operation, beside a RAS service. */
    private Report timeoutBeside(FakeRas ras, boolean ours) throws IOException {
        try (Workers workers = world(2, Map.of("NCCL_RAS_ADDR", ras.address()))) {
            workers.startAll(FaultWorker.class, "late", "+" + SHORT, "1");
            List<Rank> known = new ArrayList<>();
            for (Worker w : workers.all()) {
                long pid = ours ? w.pid() : ProcessHandle.current().pid();
                known.add(new Rank(w.rank(), pid, 0, 0, false, 0, 0, 0, 0, 5 - 2 * w.rank()));
            }
            ras.report(new Comm(0x48a1, 2, known, List.of()));
            Report report = Report.of(workers.all().getFirst());
            report.is(CollectiveTimeoutException.class, "allReduce(int32, count 50000, sum)");
            workers.all().get(1).endInput();
            assertAllEnd(workers);
            return report;
        }
    }

    /** The second form is NCCL's before 2.28.7, which does not report process ids. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("NORMAL, RAS reports:")
    void aTimeoutReportsWhatRasKnows(Manner manner, String heading) throws IOException {
        try (FakeRas ras = new FakeRas(manner, 0)) {
            Report report = timeoutBeside(ras, true);
            report.is(
                    CollectiveTimeoutException.class,
                    "rank 1 has completed",
                    "NCCL's " + heading,
                    "behind: rank 1 has launched 3 of 5 operations of the kind AllReduce",
                    "[communicator 0x48a1]");
            assertTrue(
                    ras.commands.stream().anyMatch(c -> c.contains("STATUS")),
                    ras.commands::toString);
        }
    }

    /** Nor does the report wait for it. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("HANGING, true")
    void aTimeoutIsReportedWithoutRas(Manner manner, boolean ours) throws IOException {
        try (FakeRas ras = new FakeRas(manner, 0)) {
            Report report = timeoutBeside(ras, ours);
            report.is(CollectiveTimeoutException.class, "rank 1 has completed");
            assertFalse(report.message.contains("RAS"), report::toString);
            report.soon();
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"SILENT, true", "OTHER, true", "CUT, true", "NORMAL, false"})
    void aTimeoutIsReportedWithoutMoreOfRas(Manner manner, boolean ours) throws IOException {
        aTimeoutIsReportedWithoutRas(manner, ours);
    }

    @Tag("exhaustive")
    @Test
    void aTimeoutReportsWhatAnOlderRasKnows() throws IOException {
        aTimeoutReportsWhatRasKnows(Manner.OLD, "RAS reports (perhaps of another job here):");
    }

    @Tag("exhaustive")
    @Test
    void rankThatExitsWithoutClosingIsNamed() throws IOException {
        try (Workers workers = world(2, Map.of())) {
            workers.startAll(FaultWorker.class, "exit", "100", "1");
            workers.all().getFirst().await("GOES ON", PATIENCE);
            workers.all().get(1).endInput();
            Report report = Report.of(workers.all().getFirst());
            report.is(RankFailedException.class, "rank 1", "barrier");
            report.soon();
            assertEquals(3, workers.all().get(1).join(PATIENCE));
            assertAllEnd(workers, 1);
        }
    }

    @Tag("exhaustive")
    @Test
    void rankThatClosesEarlyIsNamed() throws IOException {
        try (Workers workers = world(3, Map.of())) {
            workers.startAll(FaultWorker.class, "early", "100", "2");
            workers.all().subList(0, 2).forEach(worker -> worker.await("GOES ON", PATIENCE));
            workers.all().get(2).endInput();
            workers.all().get(2).await("OK", PATIENCE);
            for (int rank : new int[] {0, 1}) {
                Report report = Report.of(workers.all().get(rank));
                report.is(RankFailedException.class, "2", "barrier");
                report.soon();
            }
            assertAllEnd(workers);
        }
    }

    @Tag("exhaustive")
    @Test
    void rankEndedByASignalIsNamed() throws IOException {
        try (Workers workers = world(3, Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            awaitRunning(workers);
            workers.all().get(2).signal("TERM");
            assertEquals(128 + 15, workers.all().get(2).join(PATIENCE));
            for (int rank : new int[] {0, 1}) {
                Report report = Report.of(workers.all().get(rank));
                report.is(RankFailedException.class, "rank 2");
                report.soon();
            }
            assertAllEnd(workers, 2);
        }
    }

    @Tag("exhaustive")
    @Test
    void nothingStaysWhenAllAreEndedByASignal() throws IOException {
        try (Workers workers = world(3, Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            awaitRunning(workers);
            workers.all().forEach(worker -> worker.signal("TERM"));
            workers.all().forEach(worker -> assertEquals(128 + 15, worker.join(PATIENCE)));
            assertNothingLeft();
        }
    }

    /** NCCL does not return from enqueuing then. */
    @Test
    void killedRankIsNamedThoughStreamsAreFull() throws IOException {
        killedRankIsNamed("ahead", Map.of("JCCL_FAKE_DEATH", "spin"));
    }

    @Tag("exhaustive")
    @Test
    void killedRankIsNamedThoughCudaKeepsTheThreadThatLooks() throws IOException {
        killedRankIsNamed("allReduce", Map.of("JCCL_FAKE_INJECT", "cudaEventRecord:1:hang"));
    }

    private void killedRankIsNamed(String what, Map<String, String> more) throws IOException {
        try (Workers workers = world(2, Map.of("JCCL_FAKE_DEATH", "spin"));
                Workers kept = world(2, more)) {
            Worker other = workers.start(1, FaultWorker.class, what, "100");
            Worker first = kept.start(0, FaultWorker.class, what, "100");
            other.await("RUNNING", PATIENCE);
            first.await("RUNNING", PATIENCE);
            other.kill();
            Report report = Report.of(first);
            report.is(RankFailedException.class, "rank 1");
            report.soon();
            first.await("CLOSED", PATIENCE);
        }
    }

    /** CUDA waits at the end of a process for kernels, which here wait for the other rank. */
    @Test
    void aRankThatWaitsForAnotherEndsByASignal() throws IOException {
        try (Workers workers = world(2, Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            awaitRunning(workers);
            Worker waiting = workers.all().getFirst();
            workers.all().get(1).signal("STOP");
            waiting.signal("TERM");
            assertEquals(128 + 15, waiting.join(PATIENCE));
            workers.all().get(1).kill();
        }
    }

    /** At any time one rank may wait in an operation that the other has not begun. */
    @Test
    void ranksAsThreadsEndByASignal() throws IOException {
        for (int i = 0; i < 4; i++) {
            try (Workers workers = world(1, Map.of())) {
                workers.startAll(FaultWorker.class, "gpus", "100");
                awaitRunning(workers);
                Worker both = workers.all().getFirst();
                both.signal("TERM");
                assertEquals(128 + 15, both.join(PATIENCE));
            }
        }
    }

    /** What killed ranks left, the next run of the job takes away. */
    @Tag("exhaustive")
    @Test
    void jobStartsAgainAfterAllWereKilled() throws IOException {
        try (Workers workers = world(2, Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            awaitRunning(workers);
            workers.all().forEach(Worker::kill);
            workers.all().forEach(worker -> worker.join(PATIENCE));
        }
        try (Workers workers = world(2, Map.of())) {
            workers.startAll(FaultWorker.class, "hello", "60");
            workers.all().forEach(worker -> worker.await("OK", PATIENCE));
            assertAllEnd(workers);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0})
    void rankThatNeverComesIsNamed(int missing) throws IOException {
        try (Workers workers = world(3, Map.of())) {
            for (int rank = 0; rank < 3; rank++) {
                if (rank != missing) {
                    workers.start(rank, FaultWorker.class, "hello", SHORT);
                }
            }
            List<Report> reports = workers.all().stream().map(Report::of).toList();
            reports.forEach(Report::soon);
            assertTrue(
                    reports.stream().anyMatch(r -> r.message.contains("[" + missing + "]")),
                    reports::toString);
            assertAllEnd(workers);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2})
    void rankThatNeverComesIsNamedElsewhere(int missing) throws IOException {
        rankThatNeverComesIsNamed(missing);
    }

    @Tag("exhaustive")
    @Test
    void differentVersionsAreRefusedBeforeInit() throws IOException {
        try (Workers older = world(2, Map.of("JCCL_FAKE_NCCL_VERSION", "2.27.3"));
                Workers newer = world(2, Map.of())) {
            Worker first = newer.start(0, FaultWorker.class, "hello", "60");
            Worker second = older.start(1, FaultWorker.class, "hello", "60");
            for (Worker worker : List.of(first, second)) {
                Report report = Report.of(worker);
                report.soon();
                report.is(
                        JcclException.class,
                        "rank 0 2.30.7",
                        "rank 1 2.27.3",
                        "different versions of NCCL");
            }
            assertAllEnd(older);
            assertAllEnd(newer);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"JCCL_FAKE_INJECT, ncclCommInitRankConfig:1:error=1, cuda"})
    void failureOfOneDuringInitIsToldToAll(String name, String value, String word)
            throws IOException {
        try (Workers good = world(3, Map.of());
                Workers bad = world(3, Map.of(name, value))) {
            Worker unlucky = bad.start(1, FaultWorker.class, "hello", "60");
            List<Worker> others =
                    List.of(
                            good.start(0, FaultWorker.class, "hello", "60"),
                            good.start(2, FaultWorker.class, "hello", "60"));
            Report own = Report.of(unlucky);
            own.soon();
            assertTrue(own.message.toLowerCase(Locale.ROOT).contains(word), own::toString);
            for (Worker worker : others) {
                Report report = Report.of(worker);
                report.soon();
                report.is(RankFailedException.class, "rank 1");
            }
            assertAllEnd(bad);
            assertAllEnd(good);
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"JCCL_FAKE_MEMORY, 4096, memory", "JCCL_FAKE_INJECT, cudaMalloc:1:error=2, memory"})
    void failureForWantOfMemoryIsToldToAll(String name, String value, String word)
            throws IOException {
        failureOfOneDuringInitIsToldToAll(name, value, word);
    }

    @Tag("exhaustive")
    @Test
    void killedDuringInitIsNamed() throws IOException {
        Map<String, String> kill = Map.of("JCCL_FAKE_INJECT", "ncclCommInitRankConfig:1:kill");
        try (Workers good = world(3, Map.of());
                Workers bad = world(3, kill)) {
            bad.start(1, FaultWorker.class, "hello", "60");
            good.start(0, FaultWorker.class, "hello", "60");
            good.start(2, FaultWorker.class, "hello", "60");
            for (Worker worker : good.all()) {
                Report report = Report.of(worker);
                report.soon();
                report.is(RankFailedException.class, "rank 1");
            }
            assertAllEnd(good);
        }
    }

    @Tag("exhaustive")
    @Test
    void asynchronousErrorOfOneEndsAll() throws IOException {
        Map<String, String> error = Map.of("JCCL_FAKE_INJECT", "ncclAllReduce:30:async=1");
        try (Workers good = world(3, Map.of());
                Workers bad = world(3, error)) {
            Worker unlucky = bad.start(2, FaultWorker.class, "allReduce", "60");
            List<Worker> others =
                    List.of(
                            good.start(0, FaultWorker.class, "allReduce", "60"),
                            good.start(1, FaultWorker.class, "allReduce", "60"));
            Report.of(unlucky).is(NcclException.class, "rank 2", "ncclUnhandledCudaError");
            for (Worker worker : others) {
                Report report = Report.of(worker);
                report.soon();
                report.is(RankFailedException.class, "rank 2", "ncclUnhandledCudaError");
            }
            assertAllEnd(bad);
            assertAllEnd(good);
        }
    }

    @Tag("exhaustive")
    @Test
    void timeoutTellsHowFarEveryRankIs() throws IOException {
        Map<String, String> stall = Map.of("JCCL_FAKE_INJECT", "ncclAllReduce:30:stall");
        try (Workers good = world(3, Map.of());
                Workers bad = world(3, stall)) {
            Worker behind = bad.start(1, FaultWorker.class, "allReduce", "+" + SHORT);
            Worker first = good.start(0, FaultWorker.class, "allReduce", "+" + SHORT);
            Worker last = good.start(2, FaultWorker.class, "allReduce", "+" + SHORT);
            List<Report> reports = List.of(Report.of(first), Report.of(behind), Report.of(last));
            reports.forEach(Report::soon);
            // who gives up a moment later may hear of it from the first
            Report report =
                    reports.stream()
                            .filter(r -> r.type.equals("CollectiveTimeoutException"))
                            .findFirst()
                            .orElseThrow(() -> new AssertionError(reports.toString()));
            report.is(
                    CollectiveTimeoutException.class,
                    "number 30",
                    "allReduce(int32",
                    "rank 0 has completed 29",
                    "rank 1 has completed 29",
                    "rank 2 has completed 29");
            assertAllEnd(bad);
            assertAllEnd(good);
        }
    }

    @Tag("exhaustive")
    @Test
    void stoppedRankGivesNoAnswer() throws IOException {
        try (Workers workers = world(3, Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "+" + SHORT);
            awaitRunning(workers);
            Worker stopped = workers.all().get(1);
            stopped.signal("STOP");
            for (int rank : new int[] {0, 2}) {
                Report report = Report.of(workers.all().get(rank));
                assertTrue(report.message.contains("rank 1 gives no answer"), report::toString);
            }
            stopped.signal("CONT");
            Report.of(stopped).is(RankFailedException.class);
            assertAllEnd(workers);
        }
    }
}
