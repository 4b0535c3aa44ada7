package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.jccl.bindings.LibraryFile;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NativeLibrary;
import io.jccl.testkit.MpiLauncher;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What goes wrong in MPI jobs, by doing it; none may go on for long, and each says what it was. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class MpiFaultTest {
    /** Of this test: a hang, not slowness. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private static final String POLL = "poll";
    private static final String BLOCK = "block";

    private static final List<String> SERIALIZED = List.of("-Djccl.mpi.threads=serialized");

    /** Those of the MPIs that are here; what is not here, a test skips or misses. */
    static List<MpiLauncher> here() {
        List<MpiLauncher> here =
                Stream.of(MpiLauncher.MPICH, MpiLauncher.OPEN_MPI)
                        .filter(MpiLauncher::isHere)
                        .toList();
        return here.isEmpty() ? List.of(MpiLauncher.MPICH) : here;
    }

    /** The default run takes one MPI, the exhaustive one the others. */
    List<MpiLauncher> launchers() {
        return here().subList(0, 1);
    }

    private record Outcome(int exit, List<String> lines) {
        String of(int rank) {
            return String.join(
                    "\n", lines.stream().filter(l -> l.contains("RANK " + rank + " ")).toList());
        }

        String text() {
            return String.join("\n", lines);
        }

        void says(String... parts) {
            for (String part : parts) {
                assertTrue(text().contains(part), () -> "no '" + part + "' in:\n" + text());
            }
        }

        void rankSays(int rank, String... parts) {
            for (String part : parts) {
                assertTrue(of(rank).contains(part), () -> "no '" + part + "' in:\n" + text());
            }
        }
    }

    private static Outcome run(
            MpiLauncher launcher, int ranks, String wait, String fault, long timeoutMillis) {
        return run(launcher, ranks, List.of("-Djccl.mpi.wait=" + wait), fault, timeoutMillis);
    }

    private static Outcome run(
            MpiLauncher launcher, int ranks, List<String> flags, String fault, long timeoutMillis) {
        launcher.assume();
        Worker job =
                launcher.start(
                        ranks, flags, MpiFaultWorker.class, fault, Long.toString(timeoutMillis));
        try {
            int exit = job.join(PATIENCE);
            return new Outcome(exit, new ArrayList<>(job.lines()));
        } finally {
            job.kill();
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aLateRankIsWaitedFor(MpiLauncher launcher) {
        for (String wait : List.of(POLL, BLOCK)) {
            Outcome o = run(launcher, 2, wait, "late", 60_000);
            assertEquals(0, o.exit, o::text);
            o.rankSays(0, "done");
            o.rankSays(1, "done");
        }
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void aRankThatDoesNotCallIsNamed(MpiLauncher launcher) {
        Outcome o = run(launcher, 3, POLL, "missing", 6_000);
        assertNotEquals(0, o.exit);
        for (int rank : new int[] {0, 2}) {
            o.rankSays(
                    rank,
                    "caught CollectiveTimeoutException",
                    "rank 1 has completed barrier",
                    "is in allReduce(float, count 4, sum)",
                    "behind: rank 1 (");
        }
        o.says("its thread is at");
    }

    /** MPI would be finalized while the thread is inside of it. */
    @ParameterizedTest
    @MethodSource("launchers")
    void closingAbortsAnOperationOfAnotherThread(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "closed-amid", 60_000);
        String reason = "rank 0 aborted: it closed its communicator with work left";
        o.rankSays(0, "left it: " + reason);
        o.rankSays(1, "caught RankFailedException: " + reason);
    }

    /** That is in good order: a process that ends without MPI_Finalize fails its job. */
    @ParameterizedTest
    @MethodSource("launchers")
    void aShutdownHookMayCloseCommunicators(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, BLOCK, "closing-hook", 60_000);
        assertEquals(0, o.exit, o::text);
        o.rankSays(0, "closed all");
        o.rankSays(1, "closed all");
    }

    /** MPI's functions end or crash the process after MPI_Finalize. */
    @ParameterizedTest
    @MethodSource("launchers")
    void aShutdownHookIsRefusedOnceAllRanksEnd(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "hook", 60_000); // where no rank blocks for the other
        o.says("in its hook: the JVM ends, as those of all ranks do");
    }

    /** MPI may go on with a collective that was left, in any later call. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void memoryOfWhatWasLeftIsKept(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "freed", 60_000);
        o.rankSays(0, "reduced", "gave memory back", "left it: ", "done");
        assertEquals(3, o.lines.stream().filter(l -> l.contains("kept memory")).count(), o::text);
    }

    /** Where MPI's own call cannot be ended, the job is, with the same story. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aBlockingCallIsEndedWithTheJob(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, BLOCK, "missing", 10_000);
        assertNotEquals(0, o.exit);
        o.says(
                "cannot leave MPI",
                "CollectiveTimeoutException",
                "rank 1 has completed barrier",
                "JCCL_MPI_WAIT=poll");
    }

    /** Where nobody else may call MPI meanwhile, a rank tells what it knows itself. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aBlockingCallOfTheOneThreadIsEndedToo(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, SERIALIZED, "missing", 10_000);
        assertNotEquals(0, o.exit);
        o.says(
                "cannot leave MPI",
                "CollectiveTimeoutException",
                "rank 0 is in allReduce(float, count 4, sum)",
                "JCCL_MPI_THREADS=multiple");
    }

    /** Two streams, and ranks that come to them in opposite order: with one thread, for ever. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aSecondThreadThatWouldWaitForEverIsTold(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, SERIALIZED, "crossed", 60_000);
        assertNotEquals(0, o.exit);
        o.says("another thread of this process has been in MPI", "JCCL_MPI_THREADS=multiple");
        o = run(launcher, 2, List.of(), "crossed", 60_000);
        assertEquals(0, o.exit, o::text);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void threadsThatTakeTurnsGoOn(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, SERIALIZED, "turns", 60_000);
        assertEquals(0, o.exit, o::text);
        List<String> polled = new ArrayList<>(SERIALIZED);
        polled.add("-Djccl.mpi.wait=poll");
        o = run(launcher, 2, polled, "beside", 60_000);
        assertEquals(0, o.exit, o::text);
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void ranksThatDisagreeAreTold(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "mismatch", 60_000);
        for (int rank : new int[] {0, 1}) {
            o.rankSays(
                    rank,
                    "caught CollectiveMismatchException",
                    "rank 0 is in scatter(float, count 4, root 1)",
                    "rank 1 is in scatter(float, count 4, root 0)");
        }
    }

    private static long waited(String line) {
        Matcher m = Pattern.compile("waited (\\d+) ms").matcher(line);
        return m.find() ? Long.parseLong(m.group(1)) : -1;
    }

    /** Both ranks send first. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void sendsThatWaitForEachOtherAreNamed(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "sends", 10_000);
        for (int rank : new int[] {0, 1}) {
            o.rankSays(rank, "caught CollectiveTimeoutException", "send waits for send", "Group");
        }
    }

    /** A loop that looks at the flag ends, one in which nothing comes ends with an error. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void anInterruptEndsAWait(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "interrupted", 60_000);
        o.rankSays(0, "kept the flag", "was interrupted", "has the flag still");
        o.rankSays(1, "caught", "interrupted");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aStoppedRankDoesNotAnswer(MpiLauncher launcher) {
        List<String> late = new ArrayList<>();
        while (late.size() < 3) { // a busy machine may stop the others too
            Outcome o = run(launcher, 3, POLL, "stopped", 10_000);
            assertNotEquals(0, o.exit);
            o.rankSays(0, "caught CollectiveTimeoutException", "rank 1 does not answer");
            o.rankSays(
                    2,
                    "caught CollectiveTimeoutException",
                    "rank 1 gives no answer: the process or its machine is stopped or lost");
            long waited = o.lines.stream().mapToLong(MpiFaultTest::waited).max().orElse(-1);
            assertTrue(waited >= 10_000, o::text);
            // Two more seconds were once given to those who do not answer.
            if (waited < 11_500) {
                return;
            }
            late.add(o.text());
        }
        fail(String.join("\n", late));
    }

    @ParameterizedTest
    @MethodSource("launchers")
    void aKilledRankEndsTheJob(MpiLauncher launcher) {
        Outcome o = run(launcher, 3, POLL, "killed", 20_000);
        assertNotEquals(0, o.exit, o::text);
        // and the next one runs
        o = run(launcher, 2, POLL, "late", 60_000);
        assertEquals(0, o.exit, o::text);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aKilledRankEndsABlockingJob(MpiLauncher launcher) {
        Outcome o = run(launcher, 3, BLOCK, "killed", 20_000);
        assertNotEquals(0, o.exit, o::text);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void abortReachesTheOthers(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "abort", 60_000);
        o.rankSays(0, "caught RankFailedException", "rank 1 aborted: the data is bad");
        o.rankSays(1, "caught RankFailedException", "rank 1 aborted: the data is bad");
        o = run(launcher, 2, BLOCK, "abort-and-stay", 60_000);
        o.says("cannot leave MPI", "rank 1 aborted: the data is bad");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aClosedRankIsNotWaitedFor(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "closed", 60_000);
        o.rankSays(0, "caught RankFailedException", "rank 1 closed its communicator");
    }

    /** MPI's finalization waits for the others, which may ask, or have much to do without MPI. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aRankThatHasLeftIsNotWaitedForNorEndsTheJob(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "left", 60_000);
        assertNotEquals(0, o.exit, o::text);
        o.rankSays(0, "caught RankFailedException", "rank 1 closed its communicator");
        o = run(launcher, 2, BLOCK, "left", 60_000);
        assertNotEquals(0, o.exit, o::text);
        o.says("cannot leave MPI", "rank 1 closed its communicator");
        o = run(launcher, 2, BLOCK, "saves", 60_000);
        assertEquals(0, o.exit, o::text);
        o.rankSays(0, "saved", "done");
    }

    /** Messages too, and a communicator that it would have to open. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void nothingOfARankThatHasLeftIsWaitedFor(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, SERIALIZED, "left-receive", 60_000);
        o.rankSays(0, "caught RankFailedException", "rank 1 closed its communicator");
        o = run(launcher, 3, POLL, "left-group", 60_000);
        for (int rank : new int[] {0, 2}) {
            o.rankSays(rank, "caught RankFailedException", "rank 1 closed its communicator");
        }
        o = run(launcher, 2, BLOCK, "left-open", 60_000);
        o.rankSays(0, "caught RankFailedException", "rank 1 ended while others waited for it");
    }

    /** One that has done its part of a group or a collective is not what the others wait for. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aRankMayLeaveBeforeALateOneComes(MpiLauncher launcher) {
        Outcome o = run(launcher, 3, POLL, "early", 60_000);
        assertEquals(0, o.exit, o::text);
        o.rankSays(0, "has the same: true", "done");
    }

    /** As when another one was killed, and the launcher does not end the job. */
    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aRankThatHasLeftWaitsForTheOthersForItsTimeout(MpiLauncher launcher) {
        // Also the time to come together: another communicator's would count too.
        Duration timeout = Workers.patience(Duration.ofSeconds(15));
        Outcome o = run(launcher, 2, POLL, "left-for-long", timeout.toMillis());
        assertNotEquals(0, o.exit, o::text);
        o.says("rank 1 of 2 has ended in order, and other ranks have not within " + timeout);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void aRankThatAbortsAndLeavesIsHeardByTheOthers(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, POLL, "saves-after-abort", 60_000);
        o.rankSays(0, "caught rank 1 aborted: disk full", "saved");
        o = run(launcher, 2, BLOCK, "saves-after-abort", 60_000);
        assertNotEquals(0, o.exit, o::text);
        o.says("cannot leave MPI", "rank 1 aborted: disk full");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void messagesOfOtherLengthsAreRefused(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, BLOCK, "long", 60_000);
        o.rankSays(1, "caught CollectiveMismatchException", "sent more than this one expects");
        o = run(launcher, 2, BLOCK, "short", 60_000);
        o.rankSays(1, "caught CollectiveMismatchException", "sent 2 elements", "receives 4");
    }

    /**
     * Also when the timeout is over before MPI has come to register the process with its launcher,
     * as on a slow machine: MPICH's would wait for the other processes for as long as they run.
     */
    @ParameterizedTest
    @MethodSource("launchers")
    void aRankThatDoesNotInitializeIsNoticed(MpiLauncher launcher) {
        for (long millis : new long[] {1, 3000}) {
            Outcome o = run(launcher, 2, POLL, "absent", millis);
            assertNotEquals(0, o.exit);
            o.rankSays(0, "caught CollectiveTimeoutException");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @MethodSource("launchers")
    void signalsStayTheJvms(MpiLauncher launcher) {
        Outcome o = run(launcher, 2, BLOCK, "signals", 60_000);
        for (int rank : new int[] {0, 1}) {
            o.rankSays(rank, "counted 200200", "ran its shutdown hook");
        }
    }

    @Tag("exhaustive")
    @Test
    void aLauncherOfAnotherMpiIsNamed() {
        MpiLauncher.OPEN_MPI.assume();
        MpiLauncher.MPICH.assume();
        List<LibraryFile> all = NativeLibraries.candidates(NativeLibrary.MPI);
        String openMpi =
                all.stream()
                        .map(LibraryFile::path)
                        .filter(path -> path.contains("/libmpi.so.40"))
                        .findFirst()
                        .orElseThrow(() -> new AssertionError("no Open MPI in " + all));
        Worker job =
                MpiLauncher.MPICH.start(
                        2, List.of("-Djccl.mpi=" + openMpi), MpiFaultWorker.class, "late", "20000");
        try {
            assertNotEquals(0, job.join(PATIENCE));
            String text = String.join("\n", job.lines());
            assertTrue(text.contains("launcher and library belong to different MPIs"), text);
        } finally {
            job.kill();
        }
    }
}
