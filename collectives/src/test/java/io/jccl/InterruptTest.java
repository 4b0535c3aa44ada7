package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What an interrupt does to a rank that waits: the flag is kept, and the wait is not for ever. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class InterruptTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int LARGE = 100_000;

    /** What both ranks call. */
    enum What {
        ALL_REDUCE,
        SMALL_ALL_REDUCE,
        BARRIER,
        SEND,
        RECV,
        GROUP;

        void call(Communicator c, Buffer buffer) {
            Stream stream = c.device().defaultStream();
            boolean first = c.rank() == 0;
            switch (this) {
                case ALL_REDUCE -> c.allReduce(buffer, ReduceOp.SUM, stream);
                case SMALL_ALL_REDUCE -> c.allReduce(buffer.slice(0, 4), ReduceOp.SUM, stream);
                case BARRIER -> c.barrier(stream);
                case SEND -> message(first, c, buffer, stream);
                case RECV -> message(!first, c, buffer, stream);
                case GROUP -> Group.run(c, () -> message(first, c, buffer, stream));
            }
        }

        private static void message(boolean send, Communicator c, Buffer buffer, Stream stream) {
            int peer = 1 - c.rank();
            if (send) {
                c.send(buffer, peer, stream);
            } else {
                c.recv(buffer, peer, stream);
            }
        }
    }

    /** A rank on a thread of its own, which is interrupted. */
    private static final class Victim {
        final AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
        final AtomicBoolean flag = new AtomicBoolean();
        final Thread thread;

        Victim(Runnable body) {
            thread =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                try {
                                    body.run();
                                } catch (Throwable t) {
                                    error.set(t);
                                }
                                flag.set(Thread.interrupted());
                            });
        }

        void interruptInItsWait() throws InterruptedException {
            while (thread.getState() != Thread.State.TIMED_WAITING
                    && thread.getState() != Thread.State.WAITING) {
                assertTrue(thread.isAlive(), () -> "it does not wait: " + error.get());
                Thread.sleep(1);
            }
            thread.interrupt();
        }

        void join() throws InterruptedException {
            assertTrue(thread.join(PATIENCE), "it still waits");
        }

        /** The error that names the interrupt; the flag is still there. */
        String message() throws InterruptedException {
            join();
            Throwable t = error.get();
            assertInstanceOf(JcclException.class, t);
            assertTrue(flag.get(), "the flag is lost");
            String message = String.valueOf(t.getMessage());
            assertTrue(message.contains("interrupted"), message);
            return message;
        }
    }

    private static Buffer buffer(Communicator c) {
        return c.device().allocate(DataType.FLOAT32, LARGE);
    }

    @ParameterizedTest
    @EnumSource
    void flagIsKeptByWhatCompletes(What what) throws InterruptedException {
        flagIsKept(what, 2);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void flagIsKeptAgainAndAgain(What what) throws InterruptedException {
        flagIsKept(what, 10);
    }

    private static void flagIsKept(What what, int rounds) throws InterruptedException {
        List<Communicator> world = Communicator.local(2);
        try (Buffer first = buffer(world.get(0));
                Buffer second = buffer(world.get(1))) {
            for (int round = 0; round < rounds; round++) {
                Victim victim = new Victim(() -> what.call(world.get(0), first));
                victim.interruptInItsWait();
                // It has seen it by now, most of the time.
                Thread.sleep(5);
                what.call(world.get(1), second);
                victim.join();
                assertEquals(null, victim.error.get());
                assertTrue(victim.flag.get(), "the flag is lost in round " + round);
            }
        } finally {
            world.forEach(Communicator::close);
        }
    }

    /** Two ranks as two processes have them, in this one. */
    static List<Communicator> joined(String job) {
        CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(PATIENCE);
        CompletableFuture<Communicator> second =
                CompletableFuture.supplyAsync(
                        () -> LocalJob.join(job, 1, 2, options),
                        task -> Thread.ofPlatform().start(task));
        return List.of(LocalJob.join(job, 0, 2, options), second.join());
    }

    /** Both new memory of its own and that of another rank, which it maps. */
    @Test
    void flagIsKeptByTheFirstUseOfMemory() throws InterruptedException {
        int count = 2 << 20; // a part of the heap of its own
        List<Communicator> world = joined(Workers.newJobId());
        try (Buffer second = world.get(1).device().allocate(DataType.FLOAT32, count)) {
            Victim victim =
                    new Victim(() -> {
                        Thread.currentThread().interrupt();
                        try (Buffer first =
                                world.get(0).device().allocate(DataType.FLOAT32, count)) {
                            What.ALL_REDUCE.call(world.get(0), first);
                        }
                    });
            What.ALL_REDUCE.call(world.get(1), second);
            victim.join();
            assertEquals(null, victim.error.get());
            assertTrue(victim.flag.get(), "the flag is lost");
        } finally {
            world.forEach(Communicator::close);
        }
    }

    /** A rank that is interrupted while it closes leaves nothing either. */
    @Test
    void interruptedRanksRemoveTheirFiles() throws InterruptedException {
        String job = Workers.newJobId();
        List<Communicator> world = joined(job);
        Victim victim =
                new Victim(() -> {
                    for (Communicator c : world) {
                        Thread.currentThread().interrupt();
                        c.close();
                    }
                });
        victim.join();
        assertEquals(null, victim.error.get());
        assertTrue(victim.flag.get(), "the flag is lost");
        assertEquals(List.of(), Workers.sharedFiles(job));
    }

    @Test
    void flagIsKeptByAJoin() throws InterruptedException {
        String job = Workers.newJobId();
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofSeconds(10));
        AtomicReference<@Nullable Communicator> second = new AtomicReference<>();
        Victim victim = new Victim(() -> second.set(LocalJob.join(job, 1, 2, options)));
        victim.interruptInItsWait();
        Thread.sleep(5);
        Communicator first = LocalJob.join(job, 0, 2, options);
        victim.join();
        first.close();
        assertEquals(null, victim.error.get());
        assertTrue(victim.flag.get(), "the flag is lost");
        Objects.requireNonNull(second.get()).close();
    }

    @Tag("exhaustive")
    @Test
    void joinInWhichNobodyComesEnds() throws InterruptedException {
        String job = Workers.newJobId();
        CommunicatorOptions options = CommunicatorOptions.DEFAULT.withTimeout(PATIENCE);
        Victim victim = new Victim(() -> LocalJob.join(job, 1, 2, options));
        victim.interruptInItsWait();
        String message = victim.message();
        assertTrue(message.contains("rank 1 of job " + job), message);
        assertEquals(List.of(), Workers.sharedFiles(job));
    }

    @ParameterizedTest
    @EnumSource
    void waitInWhichNothingComesEnds(What what) throws InterruptedException {
        List<Communicator> world = Communicator.local(2);
        try (Buffer first = buffer(world.get(0));
                Buffer second = buffer(world.get(1))) {
            Victim victim = new Victim(() -> what.call(world.get(0), first));
            victim.interruptInItsWait();
            String message = victim.message();
            assertTrue(message.contains("rank 0") && message.contains("rank 1"), message);
            // Ranks are in step: one that has left an operation is of no more use to the others.
            RankFailedException other =
                    assertThrows(RankFailedException.class, () -> what.call(world.get(1), second));
            assertTrue(String.valueOf(other.getMessage()).contains("interrupted"), other::toString);
        } finally {
            world.forEach(Communicator::close);
        }
    }

    /** Ranks leave their loops after different numbers of operations, and close nothing. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void shutdownNowEndsATrainingLoop(boolean inline) throws InterruptedException {
        List<Communicator> world = Communicator.local(3);
        AtomicInteger ended = new AtomicInteger();
        CountDownLatch underWay = new CountDownLatch(3);
        ExecutorService ranks = Executors.newFixedThreadPool(3);
        for (Communicator c : world) {
            ranks.execute(() -> {
                Stream stream = inline ? c.device().defaultStream() : c.device().newStream();
                try (Buffer gradients = buffer(c)) {
                    for (int step = 0; !Thread.interrupted(); step++) {
                        c.allReduce(gradients, ReduceOp.SUM, stream);
                        stream.synchronize();
                        if (step == 10) {
                            underWay.countDown();
                        }
                    }
                } catch (JcclException e) {
                    // Another rank has left, or nothing came any more.
                } finally {
                    ended.incrementAndGet();
                }
            });
        }
        assertTrue(underWay.await(PATIENCE.toSeconds(), TimeUnit.SECONDS));
        ranks.shutdownNow();
        assertTrue(
                ranks.awaitTermination(PATIENCE.toSeconds(), TimeUnit.SECONDS),
                () -> ended + " of 3 ranks have ended");
        // A rank that was a step ahead still has it on its stream, and this thread closes the ranks
        // one after the other: its close would wait for the others until the timeout.
        world.getFirst().abort("the loops have ended");
        world.forEach(Communicator::close);
    }

    @Test
    void closingWithWorkLeftEndsToo() throws InterruptedException {
        List<Communicator> world = Communicator.local(2);
        try (Stream stream = Device.host().newStream();
                Buffer buffer = buffer(world.get(0))) {
            world.get(0).allReduce(buffer, ReduceOp.SUM, stream);
            Victim victim = new Victim(() -> world.get(0).close());
            victim.interruptInItsWait();
            victim.join();
            assertEquals(null, victim.error.get());
            assertTrue(victim.flag.get());
            assertThrows(JcclException.class, () -> stream.synchronize(PATIENCE));
        } finally {
            world.forEach(Communicator::close);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void waitForAStreamEndsAndItsWorkGoesOn(boolean event) throws InterruptedException {
        CountDownLatch gate = new CountDownLatch(1);
        AtomicBoolean ran = new AtomicBoolean();
        try (Stream stream = Device.host().newStream();
                Event mark = Device.host().newEvent()) {
            stream.launchHostFunction(() -> {
                try {
                    ran.set(gate.await(60, TimeUnit.SECONDS));
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            mark.record(stream);
            Victim victim =
                    new Victim(() -> {
                        if (event) {
                            mark.synchronize(Duration.ofDays(1));
                        } else {
                            stream.synchronize();
                        }
                    });
            victim.interruptInItsWait();
            victim.message();
            assertFalse(ran.get());
            gate.countDown();
            stream.synchronize(PATIENCE);
            assertTrue(ran.get() && mark.query());
        }
    }

    /** However long it has waited before. */
    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void interruptedWaitForAStreamGoesOnForAMoment(boolean event) throws InterruptedException {
        CountDownLatch gate = new CountDownLatch(1);
        try (Stream stream = Device.host().newStream();
                Event mark = Device.host().newEvent()) {
            stream.launchHostFunction(() -> Waits.await(gate, PATIENCE.toNanos()));
            mark.record(stream);
            Victim victim =
                    new Victim(() -> {
                        if (event) {
                            mark.synchronize(PATIENCE);
                        } else {
                            stream.synchronize(PATIENCE);
                        }
                    });
            Thread.sleep(1_500);
            victim.interruptInItsWait();
            Thread.sleep(100);
            gate.countDown();
            victim.join();
            assertEquals(null, victim.error.get());
            assertTrue(victim.flag.get(), "the flag is lost");
        }
    }
}
