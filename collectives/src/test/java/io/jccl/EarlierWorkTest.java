package io.jccl;

import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Waits;
import io.jccl.testkit.Messages;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** An operation on the caller's thread that waits for its rank's earlier ones can be ended. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class EarlierWorkTest {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    /** What ends the wait of rank 0. */
    enum End {
        ABORT("rank 0 aborted: stop"),
        ABORT_OF_THE_PEER("rank 1 gave up: stop"),
        // The communicator waits as long for its work as the operation for its turn.
        CLOSE(""),
        TIMEOUT("rank 0 of 2 waited PT0.2S in barrier");

        final String message;

        End(String message) {
            this.message = message;
        }

        void come(Communicator own, Communicator peer) {
            switch (this) {
                case ABORT -> own.abort("stop");
                case ABORT_OF_THE_PEER -> peer.abort("stop");
                case CLOSE -> own.close();
                case TIMEOUT -> {}
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void waitEnds(End end) throws InterruptedException {
        boolean late = end == End.CLOSE || end == End.TIMEOUT;
        Duration timeout = late ? Duration.ofMillis(200) : Duration.ofMinutes(10);
        for (boolean grouped : new boolean[] {false, true}) {
            Throwable error =
                    errorOf(
                            timeout,
                            grouped,
                            (thread, ranks) -> end.come(ranks.get(0), ranks.get(1)));
            String message = String.valueOf(error.getMessage());
            assertTrue(message.contains(end.message), message);
        }
    }

    @Tag("exhaustive")
    @Test
    void interruptEndsTheWait() throws InterruptedException {
        Throwable error =
                errorOf(Duration.ofMinutes(10), false, (thread, ranks) -> thread.interrupt());
        assertInstanceOf(JcclException.class, error);
        assertTrue(String.valueOf(error.getMessage()).contains("was interrupted"), error::toString);
    }

    private interface Action {
        void on(Thread waiting, List<Communicator> ranks);
    }

    /** What rank 0's barrier throws that waits for a collective behind a function that waits. */
    private static Throwable errorOf(Duration timeout, boolean grouped, Action action)
            throws InterruptedException {
        List<Communicator> ranks =
                Communicator.local(2, CommunicatorOptions.DEFAULT.withTimeout(timeout));
        Communicator own = ranks.getFirst();
        CountDownLatch gate = new CountDownLatch(1);
        AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
        try (Stream stream = own.device().newStream();
                Buffer buffer = own.device().allocate(DataType.FLOAT32, 10)) {
            try {
                stream.launchHostFunction(() -> {
                    boolean unused = Waits.await(gate, PATIENCE.toNanos());
                });
                own.allReduce(buffer, ReduceOp.SUM, stream);
                Runnable barrier = () -> own.barrier(own.device().defaultStream());
                Thread thread =
                        Thread.ofPlatform()
                                .daemon()
                                .start(() -> {
                                    try {
                                        if (grouped) {
                                            Group.run(own, barrier);
                                        } else {
                                            barrier.run();
                                        }
                                    } catch (Throwable t) {
                                        error.set(t);
                                    }
                                });
                action.on(thread, ranks);
                assertTrue(thread.join(PATIENCE), "it still waits");
            } finally {
                gate.countDown();
                boolean unused = Thread.interrupted();
            }
        }
        ranks.forEach(Communicator::close);
        return Objects.requireNonNull(error.get());
    }

    @Test
    void communicatorFailsWithACollectiveThatIsDropped() {
        Communicator.runLocal(
                2,
                c -> {
                    try (Stream stream = c.device().newStream();
                            Buffer a = c.device().allocate(DataType.FLOAT32, 10);
                            Buffer b = c.device().allocate(DataType.FLOAT32, 10)) {
                        if (c.rank() == 0) {
                            stream.launchHostFunction(() -> {
                                throw new IllegalStateException("bad batch");
                            });
                        }
                        c.allReduce(a, ReduceOp.SUM, stream);
                        String message =
                                Messages.of(
                                        RankFailedException.class,
                                        () ->
                                                c.allReduce(
                                                        b,
                                                        ReduceOp.SUM,
                                                        c.device().defaultStream()));
                        assertTrue(
                                message.contains(
                                        "allReduce(float, count 10, sum) of rank 0 was dropped"
                                                + " because of an earlier error on its stream:"
                                                + " java.lang.IllegalStateException: bad batch"),
                                message);
                        Messages.of(JcclException.class, stream::synchronize);
                    }
                });
    }
}
