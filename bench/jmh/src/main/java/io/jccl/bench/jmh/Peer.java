package io.jccl.bench.jmh;

import io.jccl.Communicator;
import io.jccl.error.JcclException;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Two ranks that repeat one operation: JMH's thread is rank 0 and calls {@link #run}, a thread of
 * this class is rank 1 and repeats it for as long as rank 0 lives.
 *
 * <p>The operation itself keeps the two in step: rank 1 waits inside it between two iterations of
 * JMH, so no other handshake is needed, which would cost time or memory. At the end rank 0 leaves,
 * which ends rank 1's wait with an error that is expected then.
 */
final class Peer {
    private final List<Communicator> ranks = Communicator.local(2);
    private final Operation.Prepared own;
    private final Operation.Prepared others;
    private final Runnable body;
    private final Thread thread;
    private volatile boolean ending;
    private volatile @Nullable JcclException failure;

    /**
     * Starts rank 1.
     *
     * @param operation what both repeat
     * @param bytes size of its larger buffer
     */
    Peer(Operation operation, long bytes) {
        this.own = operation.prepare(ranks.get(0), bytes);
        this.others = operation.prepare(ranks.get(1), bytes);
        this.body = own.body();
        this.thread = new Thread(this::repeat, "rank-1");
        thread.setDaemon(true);
        thread.start();
    }

    private void repeat() {
        Runnable mirror = others.body();
        try {
            while (true) {
                mirror.run();
            }
        } catch (JcclException e) {
            if (!ending) {
                failure = e; // rank 0 gets an error of its own and JMH reports that one
            }
        }
    }

    /** One operation of rank 0. */
    void run() {
        body.run();
    }

    /** Ends rank 1 and frees what both used. */
    void stop() throws InterruptedException {
        ending = true;
        ranks.get(0).close();
        thread.join();
        ranks.get(1).close();
        own.close();
        others.close();
        if (failure != null) {
            throw new IllegalStateException("rank 1 failed before the end", failure);
        }
    }
}
