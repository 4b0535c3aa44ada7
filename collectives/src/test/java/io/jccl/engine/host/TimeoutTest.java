package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.Group;
import io.jccl.RankFailedException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The other ranks are asked how far they are before the timeout has passed, not after it. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class TimeoutTest {
    private static final Duration TIMEOUT = Duration.ofSeconds(1);

    /** Both ranks have to come within it. */
    private static final CommunicatorOptions SOON =
            CommunicatorOptions.DEFAULT.withTimeout(Workers.patience(TIMEOUT));

    /** Less than the two seconds that were once given to ranks that do not answer. */
    private static final Duration MORE = Duration.ofMillis(1500);

    /** A machine that stops this process at the wrong moment gets further chances. */
    private static final int TRIES = 5;

    /** Rank 0 of two in a barrier that rank 1 does not enter by itself. */
    private static final class Wait implements AutoCloseable {
        final SharedMemoryTransport fabric = new ThreadTransport(2);
        final AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
        final CommunicatorOptions options;
        final HostCommunicator own;
        final Thread thread;

        Wait(Duration timeout) {
            options = CommunicatorOptions.DEFAULT.withTimeout(timeout);
            own = new HostCommunicator(fabric, 0, options);
            thread =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                try {
                                    own.barrier(own.device().defaultStream());
                                } catch (RuntimeException e) {
                                    error.set(e);
                                }
                            });
        }

        /** Rank 1, which is not there before and gives no answer. */
        HostCommunicator other() {
            return new HostCommunicator(fabric, 1, options);
        }

        @Override
        public void close() {
            own.close();
        }
    }

    /** It ends before the wait that is shorter than it would be then, for a rank that answers. */
    @Test
    void rankWithoutAnswerDoesNotProlongTheTimeout() throws InterruptedException {
        for (int i = 0; i < TRIES; i++) {
            boolean first;
            try (Wait longer = new Wait(TIMEOUT.plus(MORE));
                    HostCommunicator answers = longer.other();
                    Wait alone = new Wait(TIMEOUT)) {
                alone.thread.join();
                first = longer.thread.isAlive();
                answers.abort("it is over");
                longer.thread.join();
                Throwable t = alone.error.get();
                assertInstanceOf(CollectiveTimeoutException.class, t);
                assertTrue(
                        String.valueOf(t.getMessage()).contains("rank 1 gives no answer"),
                        t::toString);
                assertEquals(1, alone.fabric.control.asked(), "questions");
                alone.other().close();
            }
            if (first) {
                return;
            }
        }
        fail("a rank that answers is waited for as long, and " + MORE);
    }

    /** Who comes after the question, and thus before the timeout has passed, ends the wait. */
    @Test
    void ranksAreAskedBeforeTheTimeoutHasPassed() throws InterruptedException {
        for (int i = 0; i < TRIES; i++) {
            // On a busy machine half a second is too short for this thread to come in between.
            try (Wait wait = new Wait(TIMEOUT.multipliedBy(1L << i))) {
                while (wait.fabric.control.asked() == 0 && wait.thread.isAlive()) {
                    Thread.sleep(1);
                }
                try (HostCommunicator late = wait.other()) {
                    late.barrier(late.device().defaultStream());
                } catch (CollectiveTimeoutException e) {
                    // This thread was stopped until then.
                }
                wait.thread.join();
                Throwable t = wait.error.get();
                if (t == null) {
                    return;
                }
                assertInstanceOf(CollectiveTimeoutException.class, t);
            }
        }
        fail("nobody is asked in time");
    }

    @Test
    void sendsThatWaitForEachOtherAreNamed() {
        for (boolean grouped : new boolean[] {false, true}) {
            JcclException error =
                    assertThrows(
                            JcclException.class,
                            () -> Communicator.runLocal(2, SOON, c -> sendFirst(c, grouped)));
            String message = String.valueOf(Objects.requireNonNull(error.getCause()).getMessage());
            // In a group the recvs are missing, which is another fault.
            assertEquals(!grouped, message.contains("send waits for send"), message);
            assertEquals(!grouped, message.contains("one Group"), message);
            assertTrue(message.contains("send(float, count 100000, peer "), message);
        }
    }

    private static void sendFirst(Communicator c, boolean grouped) {
        Stream stream = c.device().defaultStream();
        try (Buffer buffer = c.device().allocate(DataType.FLOAT32, 100_000)) {
            Runnable send = () -> c.send(buffer, 1 - c.rank(), stream);
            if (grouped) {
                Group.run(c, send);
            } else {
                send.run();
                c.recv(buffer, 1 - c.rank(), stream);
            }
        }
    }

    private static String messageOf(Communicator.RankBody body) {
        JcclException error =
                assertThrows(JcclException.class, () -> Communicator.runLocal(2, SOON, body));
        return String.valueOf(Objects.requireNonNull(error.getCause()).getMessage());
    }

    /** It has finished its last collective, and a message has no number. */
    @Test
    void rankThatSendsNothingIsNamedWithItsLastCollective() {
        CountDownLatch over = new CountDownLatch(1);
        String message =
                messageOf(c -> {
                    Stream stream = c.device().defaultStream();
                    try (Buffer buffer = c.device().allocate(DataType.FLOAT32, 10)) {
                        c.barrier(stream);
                        c.broadcast(buffer, 0, stream);
                        if (c.rank() == 1) {
                            assertTrue(over.await(30, TimeUnit.SECONDS));
                        } else {
                            try {
                                c.recv(buffer, 1, stream);
                            } finally {
                                over.countDown();
                            }
                        }
                    }
                });
        assertTrue(
                message.contains(
                        "in recv(float, count 10, peer 1) for: rank 1, whose last collective is #2"
                                + " broadcast(float, count 10, root 0). Look"),
                message);
    }

    @Test
    void collectiveThatWaitsBehindItsStreamIsNamed() {
        CountDownLatch over = new CountDownLatch(1);
        String message =
                messageOf(c -> {
                    try (Stream stream = c.device().newStream()) {
                        if (c.rank() == 0) {
                            stream.launchHostFunction(() -> {
                                boolean unused = Waits.await(over, TimeUnit.SECONDS.toNanos(30));
                            });
                            c.barrier(stream);
                            assertTrue(over.await(30, TimeUnit.SECONDS));
                            stream.synchronize();
                        } else {
                            try {
                                c.barrier(c.device().defaultStream());
                            } finally {
                                over.countDown();
                            }
                        }
                    }
                });
        assertTrue(
                message.contains(
                        "rank 0, which has entered no collective yet (it has called #1, which waits"
                                + " behind other work of its streams). Look"),
                message);
    }

    @Test
    void collectiveThatCannotBeEnteredHasItsOwnNumber() {
        List<Communicator> ranks = Communicator.local(2);
        ranks.get(0).abort("it is ill");
        Communicator other = ranks.get(1);
        Runnable barrier = () -> other.barrier(other.device().defaultStream());
        String message = Messages.of(RankFailedException.class, () -> Group.run(other, barrier));
        assertEquals("rank 0: it is ill; rank 1 was in barrier #1 and cannot go on", message);
        ranks.forEach(Communicator::close);
    }
}
