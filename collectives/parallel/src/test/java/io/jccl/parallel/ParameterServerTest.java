package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveMismatchException;
import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.error.JcclException;
import io.jccl.parallel.ServerOptions.Consistency;
import io.jccl.testkit.Messages;
import io.jccl.testkit.Workers;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The parameter server on ranks that are threads. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ParameterServerTest {
    private static final ServerOptions OPTIONS = ServerOptions.synchronous(1);

    private final long seed = Long.getLong("jccl.seed", System.nanoTime());

    private interface Body {
        void run(ParameterServer server, Buffer parameters, Buffer gradients) throws Exception;
    }

    /** Four elements; servers serve, workers run the body. */
    private static void run(Communicator c, ServerOptions options, Body body) throws Exception {
        try (Buffer parameters = c.device().allocate(DataType.FLOAT32, 4);
                Buffer gradients = c.device().allocate(DataType.FLOAT32, 4);
                ParameterServer server =
                        ParameterServer.create(c, parameters, gradients, options)) {
            if (server.isServer()) {
                server.serve();
            } else {
                body.run(server, parameters, gradients);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = 3)
    void inStepIsTheSingleRankRun(int ranks) {
        System.out.println("ParameterServerTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        for (int i = 0; i < 3; i++) {
            long own = seed + i;
            Communicator.runLocal(ranks, c -> ParallelBodies.serverInStep(c, own));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 4, 5})
    void inStepIsTheSingleRankRunOnMoreRanks(int ranks) {
        inStepIsTheSingleRankRun(ranks);
    }

    @ParameterizedTest
    @ValueSource(ints = 4)
    void everyGradientCountsOnce(int ranks) {
        System.out.println("ParameterServerTest: " + ranks + " ranks, -Djccl.seed=" + seed);
        for (int i = 0; i < 3; i++) {
            long own = seed + i;
            Communicator.runLocal(ranks, c -> ParallelBodies.serverBounded(c, own));
        }
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(ints = {2, 3, 5})
    void everyGradientCountsOnceOnMoreRanks(int ranks) {
        everyGradientCountsOnce(ranks);
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 3})
    void fastWorkerIsAtMostTheBoundAhead(int bound) {
        AtomicInteger slow = new AtomicInteger();
        CountDownLatch ahead = new CountDownLatch(1);
        ServerOptions options = OPTIONS.withConsistency(new Consistency.BoundedStaleness(bound));
        Communicator.runLocal(
                3,
                c ->
                        run(
                                c,
                                options,
                                (server, parameters, gradients) -> {
                                    for (int step = 1; step <= 12; step++) {
                                        if (c.rank() == 1) {
                                            // It starts only when the other has used its bound.
                                            assertTrue(ahead.await(60, TimeUnit.SECONDS), "stuck");
                                            slow.incrementAndGet();
                                        }
                                        if (c.rank() == 0 && step == bound + 1) {
                                            ahead.countDown();
                                        }
                                        server.push();
                                        server.pull();
                                        if (c.rank() == 0) {
                                            assertTrue(
                                                    slow.get() >= step - bound,
                                                    step + " against " + slow.get());
                                        }
                                    }
                                }));
    }

    /** The next gradient of a worker in step waits for the first of the slowest. */
    @Test
    void workerMayPushTwiceBeforeItPulls() {
        CountDownLatch pushed = new CountDownLatch(1);
        Communicator.runLocal(
                3,
                c ->
                        run(
                                c,
                                OPTIONS,
                                (server, parameters, gradients) -> {
                                    if (c.rank() == 1) {
                                        assertTrue(pushed.await(60, TimeUnit.SECONDS), "stuck");
                                        // Time for the second gradient, which must wait.
                                        Thread.sleep(100);
                                    }
                                    gradients.set(0, 1);
                                    server.push();
                                    pushed.countDown();
                                    gradients.set(0, 10);
                                    server.push();
                                    server.pull();
                                    assertEquals(-11, parameters.get(0), "rank " + c.rank());
                                }));
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, 1})
    void othersGoOnWithoutAWorkerThatLeaves(int bound) {
        ServerOptions options =
                OPTIONS.withConsistency(
                        bound < 0
                                ? new Consistency.Synchronous()
                                : new Consistency.BoundedStaleness(bound));
        Communicator.runLocal(
                4,
                c ->
                        run(
                                c,
                                options,
                                (server, parameters, gradients) -> {
                                    // Rank r leaves after r + 1 pushes, whose last still counts.
                                    for (int step = 0; step <= c.rank(); step++) {
                                        gradients.set(3, -6);
                                        server.push();
                                        if (step < c.rank()) {
                                            server.pull();
                                        }
                                    }
                                    if (c.rank() == 2) {
                                        server.pull();
                                        assertEquals(bound < 0 ? 18 : 36, parameters.get(3));
                                    }
                                }));
    }

    @Test
    void updateThatThrowsEndsAll() {
        ServerOptions options =
                OPTIONS.withUpdate((parameters, gradient, first, step) -> {
                    if (step == 2) {
                        throw new IllegalStateException("no update today");
                    }
                });
        Communicator.runLocal(
                3,
                c -> {
                    JcclException e =
                            assertThrows(
                                    JcclException.class,
                                    () ->
                                            run(
                                                    c,
                                                    options,
                                                    (server, parameters, gradients) -> {
                                                        for (int i = 0; i < 100; i++) {
                                                            server.push();
                                                            server.pull();
                                                        }
                                                    }));
                    assertTrue(
                            String.valueOf(e.getMessage()).contains("no update today"),
                            e::toString);
                });
    }

    /** By its rank among all, not by that of the pair's communicator. */
    @Test
    void serverThatLeavesIsNamed() {
        Communicator.runLocal(
                3,
                c -> {
                    try (Buffer parameters = c.device().allocate(DataType.FLOAT32, 4);
                            Buffer gradients = c.device().allocate(DataType.FLOAT32, 4);
                            ParameterServer server =
                                    ParameterServer.create(c, parameters, gradients, OPTIONS)) {
                        if (server.isServer()) {
                            return;
                        }
                        String m = Messages.of(RankFailedException.class, server::pull);
                        assertTrue(
                                m.contains("worker rank " + c.rank())
                                        && m.contains("server rank 2"),
                                m);
                    }
                });
    }

    /** A worker that neither works nor leaves: the others give up in time. */
    @Test
    void workerThatHangsEndsAll() {
        CountDownLatch over = new CountDownLatch(2);
        Duration timeout = Workers.patience(Duration.ofSeconds(1));
        CommunicatorOptions longer =
                CommunicatorOptions.DEFAULT.withTimeout(timeout.multipliedBy(3));
        Communicator.runLocal(
                3,
                longer,
                c -> {
                    ServerOptions options = OPTIONS.withTimeout(timeout);
                    Body body =
                            (server, parameters, gradients) -> {
                                if (c.rank() == 1) {
                                    assertTrue(over.await(60, TimeUnit.SECONDS), "hangs");
                                }
                                server.push();
                                server.pull();
                            };
                    JcclException e =
                            assertThrows(JcclException.class, () -> run(c, options, body));
                    over.countDown();
                    if (c.rank() == 2) {
                        assertTrue(e.getCause() instanceof CollectiveTimeoutException, e::toString);
                        String m = String.valueOf(e.getMessage());
                        assertTrue(m.contains("worker rank 0") && m.contains("[1, 0]"), m);
                    }
                });
    }

    @Test
    void misuseIsRefused() {
        Communicator.runLocal(
                2,
                c -> {
                    String all =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () ->
                                            ParameterServer.create(
                                                    c, null, null, OPTIONS.withServers(2)));
                    assertTrue(all.contains("no worker among 2"), all);
                    // Worker 0's fault is told to all, and nobody hangs.
                    String none =
                            Messages.of(
                                    IllegalArgumentException.class,
                                    () -> ParameterServer.create(c, null, null, OPTIONS));
                    assertTrue(none.contains(c.rank() == 0 ? "is null" : "rank 0"), none);
                    String differ =
                            Messages.of(
                                    CollectiveMismatchException.class,
                                    () ->
                                            ParameterServer.create(
                                                    c,
                                                    null,
                                                    null,
                                                    OPTIONS.withServers(1 + c.rank())));
                    assertTrue(
                            differ.contains("1 servers") && differ.contains("2 servers"), differ);
                    try (Buffer p = c.device().allocate(DataType.FLOAT32, 10);
                            Buffer g = c.device().allocate(DataType.FLOAT32, 10);
                            ParameterServer server = ParameterServer.create(c, p, g, OPTIONS)) {
                        if (server.isServer()) {
                            assertThrows(IllegalStateException.class, server::push);
                            assertEquals(10, server.part().count());
                            server.serve();
                        } else {
                            assertThrows(IllegalStateException.class, server::serve);
                            assertThrows(IllegalStateException.class, server::part);
                            Runnable close = server::close;
                            close.run();
                            close.run();
                            assertThrows(IllegalStateException.class, server::pull);
                        }
                    }
                });
        assertThrows(IllegalArgumentException.class, () -> OPTIONS.withServers(0));
        assertThrows(IllegalArgumentException.class, () -> new Consistency.BoundedStaleness(-1));
    }
}
