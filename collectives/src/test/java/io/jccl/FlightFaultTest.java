package io.jccl;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testfake.TestFake;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** One rank falls behind: all others say which, where it is, and how far everyone was. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
class FlightFaultTest {
    private static final Duration PATIENCE = Duration.ofSeconds(90);
    private static final int RANKS = 3;

    /** Histories, and the ranks' temporary files. */
    @TempDir Path folder = Path.of("");

    private Workers world(String engine) {
        Map<String, String> environment = new HashMap<>();
        environment.put("JCCL_ENGINE", engine);
        environment.put("JCCL_FLIGHT_DIR", folder.resolve("flight").toString());
        List<String> flags = new ArrayList<>();
        if (engine.equals("nccl")) {
            // As NCCL does: ranks that called different collectives hang.
            environment.put("JCCL_FAKE_MISMATCH", "hang");
            flags.addAll(TestFake.flags());
        }
        flags.add("-Djava.io.tmpdir=" + folder);
        return new Workers(
                engine.equals("threads") ? 1 : RANKS, Workers.newJobId(), flags, environment);
    }

    /**
     * The timeout, in whose last tenth the others have to answer; also that of coming together when
     * all ranks run, which takes longer over NCCL. There it is less than the 15 seconds after which
     * ranks miss the signs of life of one that is stopped.
     */
    private static String seconds(String engine) {
        return engine.equals("nccl")
                ? "10"
                : Long.toString(Workers.patience(Duration.ofSeconds(8)).toSeconds());
    }

    private static Worker of(Workers workers, int rank) {
        return workers.all().size() == 1 ? workers.all().getFirst() : workers.all().get(rank);
    }

    private static List<Integer> survivors(int victim) {
        return Stream.of(0, 1, 2).filter(r -> r != victim).toList();
    }

    /** The errors of the survivors, whose type all of them have unless told otherwise. */
    private static List<String> errors(Workers workers, int victim) {
        List<String> errors = new ArrayList<>();
        for (int r : survivors(victim)) {
            errors.add(of(workers, r).await("ERROR " + r + " ", PATIENCE));
        }
        return errors;
    }

    private static void contains(String text, String... words) {
        for (String word : words) {
            assertTrue(
                    text.contains(word), () -> "no '" + word + "' in\n" + text.replace('|', '\n'));
        }
    }

    /** A row of the table. */
    private static String row(String error, int rank) {
        for (String line : error.split("\\|", -1)) {
            if (line.matches(" +" + rank + " .*")) {
                return line;
            }
        }
        throw new AssertionError("no row of rank " + rank + " in\n" + error.replace('|', '\n'));
    }

    private static long printed(Workers workers, int rank) {
        return of(workers, rank).lines().stream()
                .filter(l -> l.contains("its thread is at") && !l.startsWith("ERROR"))
                .count();
    }

    private void assertHistories(int victim, String pending) throws IOException {
        for (int r : survivors(victim)) {
            try (Stream<Path> files = Files.list(folder.resolve("flight"))) {
                String end = "-rank" + r + ".json";
                Path file =
                        files.filter(f -> f.getFileName().toString().endsWith(end))
                                .findFirst()
                                .orElseThrow(() -> new AssertionError("no history of rank " + end));
                String json = Files.readString(file);
                contains(json, "\"jcclFlight\":1", "\"rank\":" + r, pending);
            }
        }
    }

    /** Each rank fails in the communicator in which it waits, and tells of the other one too. */
    @Test
    void ranksThatWaitInTwoCommunicatorsLeaveTheHistoriesOfBoth() throws IOException {
        try (Workers workers = world("host")) {
            workers.startAll(FlightWorker.class, "cross", seconds("host"), "1");
            for (int r = 0; r < RANKS; r++) {
                of(workers, r).await("CLOSED " + r, PATIENCE);
            }
        }
        try (Stream<Path> files = Files.list(folder.resolve("flight"))) {
            List<String> names = files.map(f -> f.getFileName().toString()).toList();
            for (String end : List.of("_0-rank", "_0.1.0-rank")) {
                for (int r = 0; r < RANKS; r++) {
                    String name = end + r + ".json";
                    assertTrue(names.stream().anyMatch(n -> n.endsWith(name)), names::toString);
                }
            }
        }
    }

    /** A communicator that goes on is written as it is at the last failure, not at the first. */
    @Test
    void historyOfAnotherCommunicatorIsAsOfTheLastFailure() throws IOException {
        try (Workers workers = world("threads")) {
            workers.startAll(FlightWorker.class, "twice", seconds("threads"), "1");
            for (int r : survivors(1)) {
                String last = of(workers, r).await("LAST " + r + " ", PATIENCE).split(" ", -1)[2];
                try (Stream<Path> files = Files.list(folder.resolve("flight"))) {
                    String end = "_0-rank" + r + ".json";
                    Path file =
                            files.filter(f -> f.getFileName().toString().endsWith(end))
                                    .findFirst()
                                    .orElseThrow();
                    contains(Files.readString(file), "\"last\":" + last + ",");
                }
            }
        }
    }

    /** A file server may take long, or not answer. */
    @Test
    void aHistoryThatTakesLongHoldsUpNoOtherCommunicator() throws IOException {
        try (Workers workers = world("threads")) {
            workers.startAll(FlightWorker.class, "slow", seconds("threads"), "1");
            Worker all = workers.all().getFirst();
            all.await("OTHER true", PATIENCE);
            contains(all.await("READ ", PATIENCE), "\"jcclFlight\":1", "\"rank\":0");
            all.await("CLOSED 0", PATIENCE);
        }
    }

    @ParameterizedTest
    @CsvSource("host, never, 2")
    void rankThatDoesNotComeIsFoundWhereItIs(String engine, String what, int victim)
            throws IOException {
        try (Workers workers = world(engine)) {
            workers.startAll(FlightWorker.class, what, seconds(engine), Integer.toString(victim));
            List<String> errors = errors(workers, victim);
            for (String error : errors) {
                // A rank of threads that never came is only known by who made it.
                boolean unknown = engine.equals("threads") && what.equals("never");
                String site = unknown ? "FlightWorker.main(" : "FlightWorker.dawdle(";
                contains(error, "behind: rank " + victim, site + "FlightWorker.java:");
                String row = row(error, victim);
                contains(row, "nothing", site);
                for (int r : survivors(victim)) {
                    contains(row(error, r), "allReduce(int32, count 1000, sum)", "work(Flight");
                }
            }
            assertTrue(
                    errors.stream().anyMatch(e -> e.contains(" CollectiveTimeoutException ")),
                    errors::toString);
            for (int r : survivors(victim)) {
                contains(
                        of(workers, r).await("HISTORY " + r, PATIENCE),
                        "pending",
                        "allReduce(int32, count 1000, sum)");
                of(workers, r).await("CLOSED " + r, PATIENCE);
            }
            // The victim lives and can answer: the lowest of all prints, and no other.
            of(workers, 0).awaitContaining("its thread is at", PATIENCE);
            long all = workers.all().stream().mapToLong(w -> printed(workers, w.rank())).sum();
            // Over NCCL two that give up in the same moment may each have asked.
            assertTrue(engine.equals("nccl") || all == 1, () -> all + " tables printed");
            assertHistories(victim, "\"name\":\"allReduce\"");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({
        "threads, never, 2",
        "threads, skip, 0",
        "threads, skip, 1",
        "host, skip, 0",
        "host, skip, 1",
        "nccl, never, 2",
        "nccl, skip, 0",
        "nccl, skip, 1"
    })
    void rankThatDoesNotComeIsFoundElsewhere(String engine, String what, int victim)
            throws IOException {
        rankThatDoesNotComeIsFoundWhereItIs(engine, what, victim);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource("nccl, 1")
    void rankThatCallsAnotherCollectiveIsFound(String engine, int victim) throws IOException {
        try (Workers workers = world(engine)) {
            workers.startAll(
                    FlightWorker.class, "other", seconds(engine), Integer.toString(victim));
            for (int r = 0; r < RANKS; r++) {
                String error = of(workers, r).await("ERROR " + r + " ", PATIENCE);
                contains(error, "CollectiveMismatchException", "disagree");
                contains(
                        row(error, victim),
                        "broadcast(int32, count 1000, root 0)",
                        "wrongTurn(FlightWorker.java:");
                for (int s : survivors(victim)) {
                    contains(
                            row(error, s),
                            "allReduce(int32, count 1000, sum)",
                            "work(FlightWorker.java:");
                }
            }
            assertHistories(victim, "\"name\":\"allReduce\"");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"threads, 1"})
    void threadThatCallsAnotherCollectiveIsFound(String engine, int victim) throws IOException {
        rankThatCallsAnotherCollectiveIsFound(engine, victim);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"host, 0", "host, 1"})
    void rankThatCallsAnotherCollectiveIsFoundElsewhere(String engine, int victim)
            throws IOException {
        rankThatCallsAnotherCollectiveIsFound(engine, victim);
    }

    /** Not for threads: what is stopped is a process. */
    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"host, 1"})
    void rankThatIsStoppedGivesNoAnswer(String engine, int victim) {
        try (Workers workers = world(engine)) {
            workers.startAll(FlightWorker.class, "loop", seconds(engine), Integer.toString(victim));
            for (int r = 0; r < RANKS; r++) {
                of(workers, r).await("RUNNING " + r, PATIENCE);
            }
            Worker stopped = of(workers, victim);
            stopped.signal("STOP");
            List<String> errors = errors(workers, victim);
            for (String error : errors) {
                contains(error, "rank " + victim + " gives no answer");
                contains(row(error, victim), "no answer");
                for (int r : survivors(victim)) {
                    contains(row(error, r), "allReduce(int32, count 1000, sum)", "work(Flight");
                }
            }
            int lowest = survivors(victim).getFirst();
            of(workers, lowest).awaitContaining("its thread is at", PATIENCE);
            stopped.signal("CONT");
            // It learns that the others gave it up, in the same words.
            contains(
                    stopped.await("ERROR " + victim + " ", PATIENCE),
                    "rank " + victim + " gives no answer");
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"nccl, 0"})
    void rankThatIsStoppedGivesNoAnswerOnGpus(String engine, int victim) {
        rankThatIsStoppedGivesNoAnswer(engine, victim);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource({"host, 0", "nccl, 1"})
    void rankThatIsStoppedGivesNoAnswerElsewhere(String engine, int victim) {
        rankThatIsStoppedGivesNoAnswer(engine, victim);
    }
}
