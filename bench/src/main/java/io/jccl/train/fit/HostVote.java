package io.jccl.train.fit;

import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Waits;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;

/**
 * Whether all ranks of this process have something. They agree on the host: some may still free
 * memory, in which CUDA waits for all that runs on the device.
 */
final class HostVote implements AutoCloseable {
    /** Above what any step takes. */
    static final Duration PATIENCE = Duration.ofMinutes(5);

    private final CountDownLatch missing;
    private volatile boolean all = true;

    HostVote(int ranks) {
        missing = new CountDownLatch(ranks);
    }

    /**
     * Waits for all ranks, each of which calls this once; whether all of them have it.
     *
     * @throws JcclTimeoutException if one neither calls it nor fails
     */
    boolean all(boolean mine) {
        if (!mine) {
            all = false;
        }
        missing.countDown();
        if (!Waits.await(missing, PATIENCE.toNanos())) {
            throw new JcclTimeoutException("a rank has not set up its model within " + PATIENCE);
        }
        return all;
    }

    /** Ends the others' wait if this rank fails before it calls {@link #all}. */
    @Override
    public void close() {
        if (missing.getCount() > 0) {
            all = false;
        }
        while (missing.getCount() > 0) {
            missing.countDown();
        }
    }
}
