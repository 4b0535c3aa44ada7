package io.jccl;

import io.jccl.error.JcclException;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

/** Runs the ranks of one process, each on its own thread. */
final class Ranks {
    private Ranks() {}

    /**
     * See {@link Communicator#runLocal(List, io.jccl.CommunicatorOptions, Communicator.RankBody)}.
     *
     * @param shares the CPUs of each rank; empty if they are not bound
     */
    static void run(List<Communicator> ranks, List<BitSet> shares, Communicator.RankBody body) {
        AtomicReference<RankError> first = new AtomicReference<>();
        List<Throwable> errors = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (Communicator c : ranks) {
            try {
                threads.add(
                        Thread.ofPlatform()
                                .name("jccl-rank-" + c.rank())
                                .start(() -> runRank(c, shares, body, first, errors)));
            } catch (OutOfMemoryError e) {
                // No more threads: those that have started would wait for this rank.
                note(c, e, first, errors);
                c.abort(e.toString());
                break;
            }
        }
        boolean interrupted = false;
        for (Thread t : threads) {
            while (t.isAlive()) {
                try {
                    t.join();
                } catch (InterruptedException e) {
                    interrupted = true;
                    ranks.getFirst().abort("the thread that started the ranks was interrupted");
                }
            }
        }
        for (Communicator c : ranks.subList(threads.size(), ranks.size())) {
            try {
                c.close();
            } catch (RuntimeException e) {
                note(c, e, first, errors);
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        RankError f = first.get();
        if (f != null) {
            JcclException e = new JcclException("rank " + f.rank + " failed: " + f.error, f.error);
            for (Throwable other : errors) {
                if (other != f.error) {
                    e.addSuppressed(other);
                }
            }
            throw e;
        }
    }

    private record RankError(int rank, Throwable error) {}

    private static void runRank(
            Communicator c,
            List<BitSet> shares,
            Communicator.RankBody body,
            AtomicReference<RankError> first,
            List<Throwable> errors) {
        try (c) {
            try {
                RankBinding.bind(shares, c.rank());
                body.run(c);
            } catch (Throwable t) {
                note(c, t, first, errors);
                // Before the communicator is closed, so that the others learn the reason.
                c.abort(t.toString());
            }
        } catch (Throwable t) {
            note(c, t, first, errors);
        }
    }

    private static void note(
            Communicator c,
            Throwable error,
            AtomicReference<RankError> first,
            List<Throwable> errors) {
        first.compareAndSet(null, new RankError(c.rank(), error));
        synchronized (errors) {
            errors.add(error);
        }
    }
}
