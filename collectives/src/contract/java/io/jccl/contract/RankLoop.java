package io.jccl.contract;

import io.jccl.Algorithm;
import io.jccl.Communicator;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.BiFunction;
import java.util.function.Consumer;
import java.util.function.Function;
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
        run(rank, cases, open, progress, () -> {}, failures);
    }

    private static void run(
            int rank,
            List<Case> cases,
            BiFunction<Algorithm, Integer, Communicator> open,
            IntConsumer progress,
            Runnable meet,
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
                        Scenario.run(comm, cases.get(at), meet);
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

    /**
     * Runs cases with ranks as threads of this JVM, and waits.
     *
     * @param ranks number of ranks
     * @param together whether no rank allocates or frees memory while others communicate: CUDA
     *     waits with that for all work of a device, so ranks on the same GPU would wait for each
     *     other for ever. Not for {@link Collective#SPLIT}
     * @param cases what to try
     * @param open makes the communicators of all ranks for an algorithm
     * @param first gets the index of each case before rank 0 runs it
     * @param limit how long to wait; a rank that has not ended by then failed where it is
     * @return what is wrong
     * @throws InterruptedException if interrupted meanwhile; the threads go on
     */
    public static List<Failure> onThreads(
            int ranks,
            boolean together,
            List<Case> cases,
            Function<Algorithm, List<Communicator>> open,
            IntConsumer first,
            Duration limit)
            throws InterruptedException {
        List<Failure> failures = Collections.synchronizedList(new ArrayList<>());
        Map<Integer, List<Communicator>> worlds = new ConcurrentHashMap<>();
        AtomicIntegerArray progress = new AtomicIntegerArray(ranks);
        Phaser all = new Phaser(ranks);
        Runnable meet = together ? all::arriveAndAwaitAdvance : () -> {};
        List<Thread> threads = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            int rank = r;
            BiFunction<Algorithm, Integer, Communicator> end =
                    (algorithm, number) ->
                            worlds.computeIfAbsent(number, i -> open.apply(algorithm)).get(rank);
            threads.add(
                    Thread.ofPlatform()
                            .daemon()
                            .name("rank " + rank)
                            .start(() -> {
                                IntConsumer at =
                                        index -> {
                                            progress.set(rank, index);
                                            if (rank == 0) {
                                                first.accept(index);
                                            }
                                        };
                                run(rank, cases, end, at, meet, failures::add);
                                // The others must not wait for a rank that failed.
                                all.arriveAndDeregister();
                            }));
        }
        long deadline = System.nanoTime() + limit.toNanos();
        for (int r = 0; r < ranks; r++) {
            Thread thread = threads.get(r);
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            thread.join(Math.max(1, left));
            if (thread.isAlive()) {
                StringBuilder stack =
                        new StringBuilder("does not end within " + limit + ", it is at");
                for (StackTraceElement e : thread.getStackTrace()) {
                    stack.append("\n      ").append(e);
                }
                failures.add(new Failure(progress.get(r), r, true, stack.toString()));
            }
        }
        return List.copyOf(failures);
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
