package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that disagree all get to know who said what. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class DisagreementTest {
    static Stream<Arguments> rowsAndWorlds() {
        List<Arguments> all = new ArrayList<>();
        for (Algorithm algorithm : List.of(Algorithm.AUTO, Algorithm.RING, Algorithm.TREE)) {
            for (int ranks : new int[] {2, 3}) {
                for (Disagreements.Row row : Disagreements.rows()) {
                    all.add(Arguments.of(row, ranks, algorithm));
                }
            }
        }
        for (Disagreements.Row row : Disagreements.pairRows()) {
            all.add(Arguments.of(row, 2, Algorithm.AUTO));
        }
        return all.stream();
    }

    @ParameterizedTest(name = "{0} on {1} threads, {2}")
    @MethodSource("rowsAndWorlds")
    void threadsGetToKnow(Disagreements.Row row, int ranks, Algorithm algorithm)
            throws InterruptedException {
        CommunicatorOptions options = new CommunicatorOptions(Disagreements.TIMEOUT, algorithm);
        List<Communicator> world = Communicator.local(ranks, options);
        Throwable[] errors = new Throwable[ranks];
        Throwable[] later = new Throwable[ranks];
        List<Thread> threads = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            int rank = r;
            Runnable body =
                    () -> {
                        Communicator comm = world.get(rank);
                        errors[rank] = thrownBy(() -> Disagreements.run(row, comm));
                        later[rank] = thrownBy(() -> comm.barrier(comm.device().defaultStream()));
                    };
            threads.add(Thread.ofPlatform().daemon().name("rank " + rank).start(body));
        }
        for (Thread thread : threads) {
            thread.join(Disagreements.TIMEOUT.multipliedBy(2));
        }
        for (int r = 0; r < ranks; r++) {
            Throwable error = errors[r];
            String who = "rank " + r + " got " + error;
            if (error == null) {
                throw new AssertionError(who);
            }
            if (!(error instanceof CollectiveMismatchException)) {
                throw new AssertionError(who, error);
            }
            checkMessage(row, ranks, String.valueOf(error.getMessage()));
            Throwable again = later[r];
            assertTrue(
                    again instanceof JcclException, "after its error, " + who + ", then " + again);
            assertEquals(error.getMessage(), again.getMessage(), "the same error again");
        }
        world.forEach(Communicator::close);
    }

    private static @org.jspecify.annotations.Nullable Throwable thrownBy(Runnable call) {
        try {
            call.run();
            return null;
        } catch (RuntimeException | Error e) {
            return e;
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest(name = "{0} processes")
    @ValueSource(ints = 2)
    void processesGetToKnow(int ranks) {
        List<Disagreements.Row> rows = new ArrayList<>(Disagreements.rows());
        if (ranks == 2) {
            rows.addAll(Disagreements.pairRows());
        }
        String[] names = rows.stream().map(Disagreements.Row::name).toArray(String[]::new);
        List<String> problems = new ArrayList<>();
        try (Workers workers = new Workers(ranks, Workers.newJobId(), List.of(), Map.of())) {
            workers.startAll(Disagreements.class, names);
            for (Worker worker : workers.all()) {
                worker.await("DONE", Duration.ofSeconds(90));
                for (Disagreements.Row row : rows) {
                    String[] words =
                            worker.await("ROW " + row.name() + " ", Duration.ofSeconds(1))
                                    .split(" ", 4);
                    String who = row.name() + ", rank " + worker.rank() + ": ";
                    if (!words[2].equals(CollectiveMismatchException.class.getSimpleName())) {
                        problems.add(who + words[2] + ": " + words[3]);
                        continue;
                    }
                    try {
                        checkMessage(row, ranks, words[3]);
                    } catch (AssertionError e) {
                        problems.add(who + e.getMessage());
                    }
                }
            }
        }
        assertTrue(problems.isEmpty(), () -> "\n" + String.join("\n", problems));
    }

    @Tag("exhaustive")
    @ParameterizedTest(name = "{0} processes")
    @ValueSource(ints = 3)
    void moreProcessesGetToKnow(int ranks) {
        processesGetToKnow(ranks);
    }

    /** Names a rank that said the one and one that said the other, and both things. */
    static void checkMessage(Disagreements.Row row, int ranks, String message) {
        for (String words : List.of(row.rightWords(), row.wrongWords(), "rank " + (ranks - 1))) {
            Pattern whole = Pattern.compile("(?i)(?<![\\w.-])(" + words + ")(?![\\w])");
            assertTrue(whole.matcher(message).find(), "no '" + words + "' in: " + message);
        }
    }
}
