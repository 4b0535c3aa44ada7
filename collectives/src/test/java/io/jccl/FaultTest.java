package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Proxy;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that die, hang, leave or never come. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class FaultTest {
    /** For starting JVMs on a busy machine. */
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** Far above what it takes to notice; on an idle machine far below the timeout. */
    private static final long SOON_MILLIS = Workers.patience(Duration.ofSeconds(50)).toMillis();

    /** What a worker printed when its communicator broke. */
    private record Report(int rank, String type, long millis, String message) {
        static Report of(Worker worker) {
            String[] words = worker.await("ERROR ", PATIENCE).split(" ", 4);
            return new Report(worker.rank(), words[1], Long.parseLong(words[2]), words[3]);
        }

        void names(String... texts) {
            for (String text : texts) {
                assertTrue(message.contains(text), () -> "no '" + text + "' in " + this);
            }
        }
    }

    private static void assertNothingLeft(String jobId) {
        assertEquals(List.of(), Workers.sharedFiles(jobId), "left in shared memory");
    }

    @ParameterizedTest
    @CsvSource({"stream, allReduce|allGather"})
    void killedRankIsNamed(String what, String operation) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, what, "100");
            for (Worker worker : workers.all()) {
                worker.await("RUNNING", PATIENCE);
            }
            long killed = System.nanoTime();
            workers.all().get(1).kill();
            for (int rank : new int[] {0, 2}) {
                Worker worker = workers.all().get(rank);
                Report report = Report.of(worker);
                long millis = (System.nanoTime() - killed) / 1_000_000;
                assertTrue(millis < SOON_MILLIS, () -> "after " + millis + " ms: " + report);
                assertEquals("RankFailedException", report.type, report::toString);
                report.names("rank 1");
                assertTrue(
                        report.message.matches("(?s).*(" + operation + ").*"),
                        () -> "no " + operation + " in " + report);
                worker.await("CLOSED", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertNothingLeft(job);
    }

    /** Each thread reserves 1 GiB of the 16 GiB of addresses that the process may have. */
    @Test
    void rankWhoseThreadCannotBeStartedEndsTheOthers() {
        List<String> flags = List.of("-Xmx64m", "-XX:ThreadStackSize=1048576");
        try (Workers workers =
                new Workers(1, Workers.newJobId(), flags, Map.of())
                        .by("prlimit", "--as=" + (16L << 30))) {
            Worker worker = workers.start(0, FaultWorker.class, "threads", "1000", "32");
            Report report = Report.of(worker);
            assertEquals("JcclException", report.type, report::toString);
            report.names("failed: java.lang.OutOfMemoryError", "thread");
            worker.await("CLOSED", PATIENCE);
            assertEquals(0, worker.join(PATIENCE));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"allReduce, allReduce", "barrier, barrier", "sendRecv, send|recv|group"})
    void killedRankIsNamedInOtherOperations(String what, String operation) {
        killedRankIsNamed(what, operation);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {0})
    void everyRankMayBeTheOneKilled(int victim) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            for (Worker worker : workers.all()) {
                worker.await("RUNNING", PATIENCE);
            }
            workers.all().get(victim).kill();
            for (Worker worker : workers.all()) {
                if (worker.rank() != victim) {
                    Report report = Report.of(worker);
                    assertEquals("RankFailedException", report.type, report::toString);
                    report.names("rank " + victim);
                    assertEquals(0, worker.join(PATIENCE));
                }
            }
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2})
    void everyRankMayBeTheOneKilledElsewhere(int victim) {
        everyRankMayBeTheOneKilled(victim);
    }

    @ParameterizedTest
    @CsvSource({"allReduce, allReduce"})
    void stoppedRankIsNamedAfterTheTimeout(String what, String operation) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, what, "+8");
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
                assertEquals("CollectiveTimeoutException", report.type, report::toString);
                report.names("rank 1");
                assertTrue(report.message.matches(".*(" + operation + ").*"), report::toString);
                assertEquals(0, worker.join(PATIENCE));
            }
            stopped.signal("CONT");
            Report late = Report.of(stopped);
            assertTrue(
                    List.of("CollectiveTimeoutException", "RankFailedException")
                            .contains(late.type),
                    late::toString);
            assertEquals(0, stopped.join(PATIENCE));
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"sendRecv, send|recv|group"})
    void stoppedRankIsNamedInOtherOperations(String what, String operation) {
        stoppedRankIsNamedAfterTheTimeout(what, operation);
    }

    /**
     * Ranks are killed at any moment, in every fourth round while they start too: the others end
     * with an error that names one who is dead, and nothing stays behind.
     */
    @Test
    @Tag("exhaustive")
    @Timeout(value = 15, unit = TimeUnit.MINUTES)
    void killedAtAnyMoment() throws InterruptedException {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("FaultTest.killedAtAnyMoment: -Djccl.seed=" + seed);
        Random random = new Random(seed);
        List<String> programs = List.of("allReduce", "barrier", "sendRecv", "stream");
        for (int round = 0; round < 32; round++) {
            int size = 2 + random.nextInt(3);
            List<Integer> ranks = new ArrayList<>(IntStream.range(0, size).boxed().toList());
            Collections.shuffle(ranks, random);
            List<Integer> victims = ranks.subList(0, 1 + random.nextInt(size - 1));
            List<Integer> others = ranks.subList(victims.size(), size);
            String program = programs.get(random.nextInt(programs.size()));
            boolean starting = round % 4 == 3;
            String what =
                    "round %d: %s, victims %s of %d%s"
                            .formatted(round, program, victims, size, starting ? ", starting" : "");
            System.out.println(what);
            String job = Workers.newJobId();
            try (Workers workers = new Workers(size, job, List.of(), Map.of())) {
                workers.startAll(FaultWorker.class, program, starting ? "5" : "100");
                if (starting) {
                    Thread.sleep(random.nextInt(1200));
                } else {
                    workers.all().forEach(worker -> worker.await("RUNNING", PATIENCE));
                    Thread.sleep(random.nextInt(30), random.nextInt(999_999));
                }
                victims.forEach(rank -> workers.all().get(rank).kill());
                long killed = System.nanoTime();
                List<Report> reports =
                        others.stream().map(rank -> Report.of(workers.all().get(rank))).toList();
                long millis = (System.nanoTime() - killed) / 1_000_000;
                assertTrue(millis < SOON_MILLIS, () -> what + ": after " + millis + " ms");
                String named =
                        victims.stream()
                                .map(rank -> "rank " + rank + "\\b|\\[([0-9, ]* )?" + rank + "[],]")
                                .collect(Collectors.joining("|", "(?s).*(", ").*"));
                assertTrue(
                        starting
                                ? reports.stream().anyMatch(r -> r.message.matches(named))
                                : reports.stream().allMatch(r -> r.message.matches(named)),
                        () -> what + ": " + reports);
                for (Report report : reports) {
                    assertTrue(
                            report.type.equals("RankFailedException")
                                    || (starting
                                            && report.type.equals("CollectiveTimeoutException")),
                            () -> what + ": " + report);
                }
                others.forEach(
                        rank -> assertEquals(0, workers.all().get(rank).join(PATIENCE), what));
            }
            if (victims.size() > 1 || starting) {
                // One of them may have ended after the last that was not killed, which removes
                // nothing while another lives, or while it made the job's folder under a temporary
                // name: then the launcher does it.
                LocalJob.cleanUp(job);
            }
            assertNothingLeft(job);
        }
    }

    @Tag("exhaustive")
    @Test
    void jobStartsAgainAfterAllWereKilled() {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, "allReduce", "100");
            for (Worker worker : workers.all()) {
                worker.await("RUNNING", PATIENCE);
            }
            workers.all().forEach(Worker::kill);
            workers.all().forEach(worker -> worker.join(PATIENCE));
        }
        for (int size : new int[] {3, 2}) {
            try (Workers workers = new Workers(size, job, List.of(), Map.of())) {
                workers.startAll(FaultWorker.class, "hello", "60");
                for (Worker worker : workers.all()) {
                    worker.await("OK", PATIENCE);
                    assertEquals(0, worker.join(PATIENCE));
                }
            }
            assertNothingLeft(job);
        }
    }

    /** Killed while they wait for one that does not come: the next run must not meet them. */
    @Tag("exhaustive")
    @Test
    void jobStartsAgainAfterItsStartWasKilled() throws InterruptedException {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            Worker first = workers.start(0, FaultWorker.class, "hello", "100");
            Worker last = workers.start(2, FaultWorker.class, "hello", "100");
            // Not earlier: a folder under its temporary name is left for other jobs to remove.
            Workers.awaitJoining(job, PATIENCE, 0, 2);
            first.kill();
            last.kill();
            first.join(PATIENCE);
            last.join(PATIENCE);
        }
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, "hello", "60");
            for (Worker worker : workers.all()) {
                worker.await("OK", PATIENCE);
            }
            workers.all().forEach(worker -> assertEquals(0, worker.join(PATIENCE)));
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @Test
    void oneProcessMayJoinAgainAndAgain() {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(ReopenWorker.class, "30");
            for (Worker worker : workers.all()) {
                worker.await("DONE", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @Test
    void jobsOfDifferentIdsDoNotMeet() {
        String job = Workers.newJobId();
        try (Workers one = new Workers(2, job, List.of(), Map.of());
                Workers other = new Workers(2, job + "b", List.of(), Map.of())) {
            one.startAll(FaultWorker.class, "hello", "60");
            other.startAll(FaultWorker.class, "hello", "60");
            for (Workers workers : List.of(one, other)) {
                for (Worker worker : workers.all()) {
                    worker.await("OK", PATIENCE);
                    assertEquals(0, worker.join(PATIENCE));
                }
            }
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @Test
    void rankThatLeavesEarlyIsNamed() {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, "early", "100", "2");
            workers.all().subList(0, 2).forEach(worker -> worker.await("GOES ON", PATIENCE));
            workers.all().get(2).endInput();
            workers.all().get(2).await("OK", PATIENCE);
            for (int rank : new int[] {0, 1}) {
                Report report = Report.of(workers.all().get(rank));
                assertEquals("RankFailedException", report.type, report::toString);
                assertTrue(report.millis < SOON_MILLIS, report::toString);
                report.names("rank 2", "barrier");
            }
            workers.all().forEach(worker -> assertEquals(0, worker.join(PATIENCE)));
        }
        assertNothingLeft(job);
    }

    @Test
    void rankThatExitsIsNamed() {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(2, job, List.of(), Map.of())) {
            workers.startAll(FaultWorker.class, "exit", "100", "1");
            workers.all().getFirst().await("GOES ON", PATIENCE);
            workers.all().get(1).endInput();
            Report report = Report.of(workers.all().getFirst());
            assertEquals("RankFailedException", report.type, report::toString);
            report.names("rank 1", "barrier");
            assertEquals(0, workers.all().getFirst().join(PATIENCE));
            assertEquals(3, workers.all().get(1).join(PATIENCE));
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = 0)
    void missingRankIsNamed(int missing) {
        String job = Workers.newJobId();
        try (Workers workers = new Workers(3, job, List.of(), Map.of())) {
            for (int rank = 0; rank < 3; rank++) {
                if (rank != missing) {
                    workers.start(rank, FaultWorker.class, "hello", "5");
                }
            }
            List<Report> reports = workers.all().stream().map(Report::of).toList();
            for (Report report : reports) {
                assertTrue(report.millis < SOON_MILLIS, report::toString);
                assertTrue(
                        report.message.matches(".*\\[[0-9, ]*" + missing + "[0-9, ]*\\].*"),
                        report::toString);
            }
            // who gives up a moment later may miss those who gave up before, too
            assertTrue(
                    reports.stream().anyMatch(r -> r.message.contains("[" + missing + "]")),
                    reports::toString);
            workers.all().forEach(worker -> assertEquals(0, worker.join(PATIENCE)));
        }
        assertNothingLeft(job);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = 1)
    void missingRankIsNamedElsewhere(int missing) {
        missingRankIsNamed(missing);
    }

    @Test
    void sizesThatDifferAreNamed() {
        String job = Workers.newJobId();
        try (Workers two = new Workers(2, job, List.of(), Map.of());
                Workers three = new Workers(3, job, List.of(), Map.of())) {
            Worker first = two.start(0, FaultWorker.class, "hello", "100");
            Worker second = three.start(1, FaultWorker.class, "hello", "100");
            Report report = Report.of(second);
            report.names("different world sizes", "rank 0 2 (", "rank 1 3 (", "WORLD_SIZE");
            assertEquals(report.message, Report.of(first).message);
            assertEquals(0, first.join(PATIENCE));
            assertEquals(0, second.join(PATIENCE));
        }
        assertNothingLeft(job);
    }

    /** A tmpfs of 1 MiB, where only root may have one: too little to start at all. */
    @Test
    void tooLittleSharedMemoryToStartIsNamed(@TempDir Path folder) throws Exception {
        try (Tmpfs tmpfs = new Tmpfs(folder, "1m");
                Workers workers = new Workers(2, Workers.newJobId(), tmpfs.flags(), Map.of())) {
            workers.startAll(FaultWorker.class, "hello", "20");
            List<Report> reports = workers.all().stream().map(Report::of).toList();
            Report reason =
                    reports.stream()
                            .filter(r -> !r.type.equals("RankFailedException"))
                            .findFirst()
                            .orElseThrow(() -> new AssertionError(reports.toString()));
            // the size of the file system, and what would have been needed
            reason.names(folder.toString(), "1.0 MiB", "needs");
            workers.all().forEach(worker -> assertEquals(0, worker.join(PATIENCE)));
            tmpfs.assertEmpty();
        }
    }

    @Tag("exhaustive")
    @Test
    void tooLittleSharedMemoryForABufferIsNamed(@TempDir Path folder) throws Exception {
        try (Tmpfs tmpfs = new Tmpfs(folder, "100m");
                Workers workers = new Workers(2, Workers.newJobId(), tmpfs.flags(), Map.of())) {
            workers.startAll(FaultWorker.class, "allocate", "20", Integer.toString(150 << 20));
            for (Worker worker : workers.all()) {
                String line = worker.await("REFUSED ", PATIENCE);
                assertTrue(line.contains("150.0 MiB") && line.contains("100.0 MiB"), line);
                worker.await("OK", PATIENCE);
                assertEquals(0, worker.join(PATIENCE));
            }
            tmpfs.assertEmpty();
        }
    }

    /** A file system in memory, for as long as it is open. */
    record Tmpfs(Path folder) implements AutoCloseable {
        Tmpfs(Path folder, String size) throws IOException {
            this(folder);
            String path = folder.toString();
            int mounted = command("mount", "-t", "tmpfs", "-o", "size=" + size, "jccl-test", path);
            assumeTrue(mounted == 0, "mounting a tmpfs is not permitted here");
        }

        List<String> flags() {
            return List.of("-Djccl.shm.dir=" + folder);
        }

        void assertEmpty() throws IOException {
            try (var left = Files.walk(folder)) {
                assertEquals(List.of(folder), left.toList(), "left in shared memory");
            }
        }

        @Override
        public void close() throws IOException {
            command("umount", folder.toString());
        }
    }

    private static int command(String... words) throws IOException {
        Process process = new ProcessBuilder(words).redirectErrorStream(true).start();
        process.inputReader().readAllAsString();
        try {
            return process.waitFor();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    // ---- threads

    @Test
    void rankThatThrowsEndsTheOthers() {
        RuntimeException cause = new RuntimeException("rank 1 is tired");
        long start = System.nanoTime();
        JcclException error =
                assertThrows(
                        JcclException.class,
                        () ->
                                Communicator.runLocal(
                                        4,
                                        comm -> {
                                            comm.barrier(comm.device().defaultStream());
                                            if (comm.rank() == 1) {
                                                throw cause;
                                            }
                                            comm.barrier(comm.device().defaultStream());
                                        }));
        long millis = (System.nanoTime() - start) / 1_000_000;
        assertTrue(millis < SOON_MILLIS, () -> millis + " ms");
        assertEquals(cause, error.getCause());
        assertTrue(String.valueOf(error.getMessage()).contains("rank 1"), error::toString);
        assertEquals(3, error.getSuppressed().length, "the errors of the others");
        for (Throwable other : error.getSuppressed()) {
            RankFailedException e = assertInstanceOf(RankFailedException.class, other);
            assertTrue(String.valueOf(e.getMessage()).contains("tired"), e::toString);
        }
    }

    @Test
    void errorsOfRanksAreNotOnlyExceptions() {
        JcclException error =
                assertThrows(
                        JcclException.class,
                        () ->
                                Communicator.runLocal(
                                        2,
                                        comm -> {
                                            if (comm.rank() == 0) {
                                                throw new StackOverflowError("too deep");
                                            }
                                            comm.barrier(comm.device().defaultStream());
                                        }));
        assertInstanceOf(StackOverflowError.class, error.getCause());
    }

    /** The file behind a receive buffer loses its pages, which the JVM reports as an error. */
    @Test
    void afterAnErrorOfTheJvmTheCommunicatorHasFailed(@TempDir Path folder) throws Exception {
        try (Arena arena = Arena.ofShared();
                FileChannel file =
                        FileChannel.open(
                                folder.resolve("elements"),
                                StandardOpenOption.CREATE_NEW,
                                StandardOpenOption.READ,
                                StandardOpenOption.WRITE)) {
            MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 16, arena);
            file.truncate(0);
            Communicator.runLocal(
                    2,
                    CommunicatorOptions.DEFAULT.withTimeout(PATIENCE),
                    comm -> {
                        Stream stream = comm.device().defaultStream();
                        if (comm.rank() == 1) {
                            try (Buffer gone = Buffer.wrap(mapped, DataType.INT8)) {
                                assertThrows(
                                        InternalError.class, () -> comm.broadcast(gone, 0, stream));
                            }
                            String own =
                                    Messages.of(JcclException.class, () -> comm.barrier(stream));
                            assertTrue(own.contains("rank 1 failed in broadcast"), own);
                            return;
                        }
                        try (Buffer whole = comm.device().allocate(DataType.INT8, 1 << 16)) {
                            String peers =
                                    Messages.of(
                                            RankFailedException.class,
                                            () -> comm.broadcast(whole, 0, stream));
                            assertTrue(peers.contains("InternalError"), peers);
                        }
                    });
        }
    }

    @Test
    void threadThatLeavesEarlyIsNamed() {
        Communicator.runLocal(
                3,
                comm -> {
                    comm.barrier(comm.device().defaultStream());
                    if (comm.rank() == 2) {
                        comm.close();
                        return;
                    }
                    JcclException error =
                            assertThrows(
                                    RankFailedException.class,
                                    () -> comm.barrier(comm.device().defaultStream()));
                    String message = String.valueOf(error.getMessage());
                    assertTrue(message.contains("rank 2") && message.contains("barrier"), message);
                });
    }

    /** Leaving is no fault as long as nobody waits for it. */
    @Test
    void ranksMayLeaveAtDifferentTimes() {
        Communicator.runLocal(
                3,
                comm -> {
                    try (Buffer buffer = comm.device().allocate(DataType.INT32, 100_000)) {
                        buffer.setLong(0, 1);
                        comm.allReduce(buffer, ReduceOp.SUM, comm.device().defaultStream());
                        assertEquals(3, buffer.getLong(0));
                        Thread.sleep(20L * comm.rank());
                    }
                });
    }

    @Test
    void threadThatNeverComesIsNamed() {
        List<Communicator> world =
                Communicator.local(
                        2, CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMillis(600)));
        try (Communicator comm = world.getFirst();
                Communicator other = world.get(1);
                Buffer buffer = comm.device().allocate(DataType.INT32, 1)) {
            CollectiveTimeoutException error =
                    assertThrows(
                            CollectiveTimeoutException.class,
                            () ->
                                    comm.allReduce(
                                            buffer, ReduceOp.SUM, comm.device().defaultStream()));
            String message = String.valueOf(error.getMessage());
            assertTrue(message.contains("rank 1") && message.contains("allReduce"), message);
            // the late one gets to know at once
            assertThrows(
                    JcclException.class,
                    () -> other.allReduce(buffer, ReduceOp.SUM, other.device().defaultStream()));
        }
    }

    /** Waits until a thread's wait for another rank has become long. */
    private static void awaitParked(Thread waiting) throws InterruptedException {
        while (waiting.getState() != Thread.State.TIMED_WAITING) {
            assertTrue(waiting.isAlive(), "it does not wait");
            Thread.sleep(1);
        }
    }

    @Test
    void abortEndsAWaitingRank() throws InterruptedException {
        List<Communicator> world = Communicator.local(2);
        Throwable[] caught = new Throwable[1];
        Thread waiting =
                Thread.ofPlatform()
                        .start(() -> {
                            Communicator comm = world.getFirst();
                            try (comm) {
                                comm.barrier(comm.device().defaultStream());
                            } catch (RuntimeException e) {
                                caught[0] = e;
                            }
                        });
        awaitParked(waiting);
        world.get(1).abort("the plan has changed");
        waiting.join(Duration.ofSeconds(30));
        assertTrue(!waiting.isAlive(), "the waiting rank did not end");
        RankFailedException error = assertInstanceOf(RankFailedException.class, caught[0]);
        assertTrue(
                String.valueOf(error.getMessage()).contains("the plan has changed"),
                error::toString);
        world.get(1).close();
    }

    /** Others may be reading what a rank closes once it has aborted: they fail as by its abort. */
    @Test
    void memoryIsClosedAfterAnAbort() throws InterruptedException {
        int failures = 0;
        for (int i = 0; i < 30; i++) {
            List<Communicator> world = Communicator.local(2);
            Device host = world.getFirst().device();
            Buffer closed = host.allocate(DataType.FLOAT32, 1 << 22);
            try (Communicator first = world.getFirst();
                    Communicator second = world.get(1);
                    Stream one = host.newStream();
                    Stream two = host.newStream();
                    Buffer other = host.allocate(DataType.FLOAT32, 1 << 22)) {
                first.allReduce(closed, ReduceOp.SUM, one);
                second.allReduce(other, ReduceOp.SUM, two);
                Thread.sleep(i % 5);
                first.abort("the plan has changed");
                closed.close();
                try {
                    two.synchronize();
                } catch (JcclException e) {
                    failures++;
                    assertInstanceOf(RankFailedException.class, e);
                    assertTrue(String.valueOf(e.getMessage()).contains("plan"), e::toString);
                }
            }
        }
        assertTrue(failures > 0, "each operation was faster than the abort");
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anotherThreadMayEndAWaitingRank(boolean abort) throws InterruptedException {
        List<Communicator> world =
                Communicator.local(2, CommunicatorOptions.DEFAULT.withTimeout(PATIENCE));
        Communicator comm = world.getFirst();
        Throwable[] caught = new Throwable[1];
        Runnable body =
                () -> {
                    try {
                        comm.barrier(comm.device().defaultStream());
                    } catch (RuntimeException e) {
                        caught[0] = e;
                    }
                };
        Thread waiting = Thread.ofPlatform().start(body);
        awaitParked(waiting);
        if (abort) {
            comm.abort("asked for by another thread");
        } else {
            world.forEach(Communicator::close);
        }
        waiting.join(Duration.ofSeconds(30));
        assertTrue(!waiting.isAlive(), "the waiting thread did not end");
        assertTrue(caught[0] != null, "the barrier cannot have completed");
        JcclException error = assertInstanceOf(JcclException.class, caught[0]);
        assertTrue(
                String.valueOf(error.getMessage()).contains(abort ? "asked" : "closed"),
                error::toString);
        world.forEach(Communicator::close);
    }

    /** The close takes the shared memory away from an operation that another thread runs. */
    @Test
    void operationsUnderWayReportWhyARankWasClosed() throws InterruptedException {
        String job = Workers.newJobId();
        List<Communicator> world = InterruptTest.joined(job);
        Communicator comm = world.getFirst();
        try (Stream stream = comm.device().newStream();
                Buffer buffer = comm.device().allocate(DataType.FLOAT32, 4)) {
            comm.allReduce(buffer, ReduceOp.SUM, stream);
            comm.allReduce(buffer, ReduceOp.SUM, stream);
            Thread.sleep(20);
            comm.abort("the plan has changed");
            comm.close();
            RankFailedException error =
                    assertThrows(RankFailedException.class, () -> stream.synchronize(PATIENCE));
            assertTrue(String.valueOf(error.getMessage()).contains("plan"), error::toString);
        }
        world.get(1).close();
        assertNothingLeft(job);
    }

    /** The other rank takes part in its steps, and aborts before the last one. */
    @Test
    void splitThatFailsLeavesNothing() {
        String job = Workers.newJobId();
        List<Communicator> world = InterruptTest.joined(job);
        Thread other =
                Thread.ofPlatform()
                        .start(() -> {
                            Communicator comm = world.get(1);
                            Stream stream = comm.device().defaultStream();
                            try (Buffer mine = comm.device().allocate(DataType.INT64, 2);
                                    Buffer all = comm.device().allocate(DataType.INT64, 4)) {
                                mine.setLong(0, 1);
                                comm.allGather(mine, all, stream);
                                comm.barrier(stream);
                            }
                            comm.abort("no memory");
                        });
        JcclException error = assertThrows(JcclException.class, () -> world.getFirst().split(0, 0));
        assertTrue(String.valueOf(error.getMessage()).contains("no memory"), error::toString);
        Waits.join(other, PATIENCE);
        world.forEach(Communicator::close);
        assertNothingLeft(job);
    }

    @Test
    void errorOfACloseIsReported() {
        JcclException cause = new JcclException("it cannot be closed");
        Communicator comm =
                (Communicator)
                        Proxy.newProxyInstance(
                                Communicator.class.getClassLoader(),
                                new Class<?>[] {Communicator.class},
                                (proxy, method, arguments) -> {
                                    if (method.getName().equals("close")) {
                                        throw cause;
                                    }
                                    return 0; // its rank
                                });
        JcclException error =
                assertThrows(
                        JcclException.class,
                        () -> Ranks.run(List.of(comm), List.of(), c -> assertEquals(0, c.rank())));
        assertEquals(cause, error.getCause());
    }
}
