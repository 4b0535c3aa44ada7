package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.RankFailedException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Who releases the memory that ranks share, and when. */
class ThreadTransportTest {
    private static final int[] BOTH = {0, 1};

    @Test
    void splitThatFailsOnOneRankIsClosedByTheLast() {
        SharedMemoryTransport parent = new ThreadTransport(2);
        List<SharedMemoryTransport> children = new ArrayList<>();
        Runnable other =
                () -> {
                    if (children.isEmpty()) {
                        children.add(parent.split(1, 1, 0, BOTH, () -> {}));
                    }
                    throw new IllegalStateException("the barrier has failed");
                };
        assertThrows(IllegalStateException.class, () -> parent.split(0, 1, 0, BOTH, other));
        SharedMemoryTransport child = children.getFirst();
        child.leave(1);
        assertFalse(child.control.memory.scope().isAlive());
        parent.leave(0);
        parent.leave(1);
    }

    private static void leave(SharedMemoryTransport... all) {
        for (SharedMemoryTransport each : all) {
            each.leave(0);
            each.leave(1);
        }
    }

    /** Its own deadline has passed, but the other one uses the new communicator already. */
    @Test
    void noRankGivesUpOnceTheOthersGoOn() {
        ThreadTransport parent = new ThreadTransport(2);
        ThreadTransport child = new ThreadTransport(2);
        assertTrue(child.control.decide(true));
        try (Regroup meeting = new Regroup(parent, 1, BOTH, Duration.ofNanos(1))) {
            meeting.threads(new CountDownLatch(2), child.control);
        }
        assertFalse(child.control.aborted());
        leave(parent, child);
    }

    /** All have come, but one of them has given up before it saw that. */
    @Test
    void noRankGoesOnOnceAnotherHasGivenUp() {
        ThreadTransport parent = new ThreadTransport(2);
        ThreadTransport child = new ThreadTransport(2);
        CountDownLatch came = new CountDownLatch(2);
        Regroup hasty = new Regroup(parent, 1, BOTH, Duration.ofNanos(1));
        assertThrows(CollectiveTimeoutException.class, () -> hasty.threads(came, child.control));
        Regroup late = new Regroup(parent, 0, BOTH, Duration.ofMinutes(1));
        Throwable error =
                assertThrows(RankFailedException.class, () -> late.threads(came, child.control));
        String message = String.valueOf(error.getMessage());
        assertTrue(message.startsWith("rank 1 gave up: rank 1 waited PT0.000000001S"), message);
        leave(parent, child);
    }

    @Test
    void severalThreadsMayClose() throws InterruptedException {
        AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
        for (int i = 0; i < 100; i++) {
            List<Communicator> ranks = Communicator.local(2);
            CountDownLatch start = new CountDownLatch(1);
            List<Thread> threads = new ArrayList<>();
            for (int k = 0; k < 4; k++) {
                Communicator rank = ranks.get(k % 2);
                Runnable close =
                        () -> {
                            try {
                                start.await();
                                rank.close();
                            } catch (Throwable t) {
                                error.set(t);
                            }
                        };
                threads.add(Thread.ofPlatform().daemon().start(close));
            }
            start.countDown();
            for (Thread thread : threads) {
                thread.join();
            }
        }
        assertNull(error.get());
    }
}
