package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.testkit.Workers;
import io.jccl.testkit.Workers.Worker;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/** Streams that nobody closes: their threads end all the same. */
@Isolated("looks at all threads")
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class StreamLeakTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    private static Set<Thread> streamThreads() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(t -> t.getName().startsWith("jccl-stream-"))
                .collect(Collectors.toSet());
    }

    private static boolean becomesTrue(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    /** One thread drives four ranks: three of them on streams of their communicators. */
    @Tag("exhaustive")
    @Test
    void failedCommunicatorsLeaveNoThreads() throws InterruptedException {
        leaveNoThreads(4);
    }

    @Tag("exhaustive")
    @Test
    void manyFailedCommunicatorsLeaveNoThreads() throws InterruptedException {
        leaveNoThreads(20);
    }

    private static void leaveNoThreads(int rounds) throws InterruptedException {
        Set<Thread> before = streamThreads();
        for (int round = 0; round < rounds; round++) {
            // A batch at a time: a communicator that is not closed keeps its shared memory.
            List<Communicator> open = new ArrayList<>();
            for (int i = 0; i < 30; i++) {
                List<Communicator> world = Communicator.local(4);
                open.addAll(world);
                barrier(world);
                world.get(i % 4).abort("on purpose");
                assertThrows(JcclException.class, () -> barrier(world));
            }
            assertTrue(
                    becomesTrue(() -> before.containsAll(streamThreads())),
                    () -> streamThreads().size() + " threads, before " + before.size());
            open.forEach(Communicator::close);
        }
    }

    private static void barrier(List<Communicator> world) {
        Group.run(world, () -> world.forEach(c -> c.barrier(c.device().defaultStream())));
    }

    @Test
    void forgottenStreamIsReportedOnceAndItsThreadEnds() {
        try (Workers workers = new Workers(1, Workers.newJobId(), List.of(), Map.of())) {
            Worker worker = workers.start(0, StreamLeakWorker.class);
            worker.await("ENDED", PATIENCE);
            assertEquals(0, worker.join(PATIENCE));
            List<String> lines = worker.lines();
            assertEquals(
                    1,
                    lines.stream().filter(l -> l.contains("was never closed")).count(),
                    lines::toString);
            assertTrue(lines.stream().anyMatch(l -> l.contains(".forgetOne(")), lines::toString);
            assertTrue(lines.stream().noneMatch(l -> l.contains(".closeOne(")), lines::toString);
        }
    }

    private static void failWithOwnStreams(int ranks) {
        List<Communicator> world = Communicator.local(ranks);
        List<Stream> streams = world.stream().map(c -> c.device().newStream()).toList();
        List<Buffer> buffers =
                world.stream().map(c -> c.device().allocate(DataType.INT32, 8)).toList();
        for (int r = 0; r < ranks; r++) {
            world.get(r).allReduce(buffers.get(r), ReduceOp.SUM, streams.get(r));
        }
        streams.forEach(s -> s.synchronize(PATIENCE));
        world.getFirst().abort("on purpose");
        world.forEach(Communicator::close);
        buffers.forEach(Buffer::close);
    }

    /** The streams of callers that an error kept from closing them. */
    @Test
    void streamsOfClosedCommunicatorsEndWhenForgotten() throws InterruptedException {
        Set<Thread> before = streamThreads();
        for (int i = 0; i < 4; i++) {
            failWithOwnStreams(3);
        }
        assertTrue(
                becomesTrue(() -> {
                    System.gc();
                    return before.containsAll(streamThreads());
                }),
                () -> streamThreads().size() + " threads, before " + before.size());
    }
}
