package io.jccl;

import io.jccl.contract.Case;
import io.jccl.contract.EngineContractTest;
import io.jccl.contract.RankLoop;
import io.jccl.contract.RankLoop.Failure;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;

/** An engine with ranks as threads of this JVM. */
abstract class ThreadedContractTest extends EngineContractTest {
    private static final CommunicatorOptions OPTIONS =
            CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(40));

    @Override
    protected List<Failure> run(int ranks, List<Case> cases) throws InterruptedException {
        List<Failure> failures = Collections.synchronizedList(new ArrayList<>());
        Map<Integer, List<Communicator>> worlds = new ConcurrentHashMap<>();
        AtomicIntegerArray progress = new AtomicIntegerArray(ranks);
        List<Thread> threads = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            int rank = r;
            Runnable loop =
                    () ->
                            RankLoop.run(
                                    rank,
                                    cases,
                                    (algorithm, number) ->
                                            worlds.computeIfAbsent(
                                                            number,
                                                            i ->
                                                                    open(
                                                                            ranks,
                                                                            OPTIONS.withAlgorithm(
                                                                                    algorithm)))
                                                    .get(rank),
                                    index -> progress.set(rank, index),
                                    failures::add);
            threads.add(Thread.ofPlatform().daemon().name("rank " + rank).start(loop));
        }
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(5);
        for (int r = 0; r < ranks; r++) {
            Thread thread = threads.get(r);
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            thread.join(Math.max(1, left));
            if (thread.isAlive()) {
                StringBuilder stack = new StringBuilder("does not end, it is at");
                for (StackTraceElement e : thread.getStackTrace()) {
                    stack.append("\n      ").append(e);
                }
                failures.add(new Failure(progress.get(r), r, true, stack.toString()));
            }
        }
        return List.copyOf(failures);
    }

    /**
     * Makes the communicators of a world.
     *
     * @param ranks number of ranks
     * @param options settings of all ranks
     * @return one for each rank
     */
    protected abstract List<Communicator> open(int ranks, CommunicatorOptions options);
}
