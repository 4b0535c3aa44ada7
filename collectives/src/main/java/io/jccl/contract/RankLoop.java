package io.jccl.contract;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.IntConsumer;

/** What one rank does with a list of cases, in whatever process it runs. */
public final class RankLoop {
    private RankLoop() {}

    /**
     * How a case went on one rank.
     *
     * @param index position of the case in the list
     * @param rank who reports
     * @param ends whether this rank's communicator broke, so that the rest did not run
     * @param message what is wrong
     */
    public record Failure(int index, int rank, boolean ends, String message) {}

    /**
     * Runs cases in order, with a communicator for each run of cases of the same algorithm.
     *
     * @param rank this rank
     * @param cases what to try
     * @param open makes the communicator for an algorithm; the number tells openings apart
     * @param progress gets the index of each case before it runs
     * @param failures gets what is wrong
     */
    public static void run(
            int rank,
            List<Case> cases,
            BiFunction<Algorithm, Integer, Communicator> open,
            IntConsumer progress,
            Consumer<Failure> failures) {
        int at = 0;
        int opened = 0;
        while (at < cases.size()) {
            Algorithm algorithm = cases.get(at).algorithm();
            int current = at;
            try (Communicator comm = open.apply(algorithm, opened++)) {
                for (; at < cases.size() && cases.get(at).algorithm() == algorithm; at++) {
                    current = at;
                    progress.accept(at);
                    try {
                        Scenario.run(comm, cases.get(at));
                    } catch (AssertionError e) {
                        failures.accept(new Failure(at, rank, false, message(e)));
                    }
                }
            } catch (Exception | Error e) {
                failures.accept(new Failure(current, rank, true, trace(e)));
                return;
            }
        }
    }

    private static String message(Throwable e) {
        return String.valueOf(e.getMessage());
    }

    private static String trace(Throwable e) {
        StringWriter text = new StringWriter();
        e.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
