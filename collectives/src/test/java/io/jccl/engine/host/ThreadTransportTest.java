package io.jccl.engine.host;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.jccl.Communicator;
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
