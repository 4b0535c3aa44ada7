package io.jccl.host;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bindings.JcclException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;

/** Makes communicators of the host engine. */
public final class HostWorld {
    private HostWorld() {}

    /** See {@link Communicator#local(int, CommunicatorOptions)}. */
    public static List<Communicator> local(int size, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        checkSize("size", size);
        Fabric fabric = new Fabric.Threads(size);
        List<Communicator> ranks = new ArrayList<>(size);
        for (int r = 0; r < size; r++) {
            ranks.add(new HostCommunicator(fabric, r, options));
        }
        return List.copyOf(ranks);
    }

    private static void checkSize(String name, int size) {
        if (size < 1 || size > Control.MAX_RANKS) {
            throw new IllegalArgumentException(
                    name
                            + " is "
                            + size
                            + ", expected 1 to "
                            + Control.MAX_RANKS
                            + " ranks on one machine");
        }
    }

    /** See {@link Communicator#runLocal(int, CommunicatorOptions, Communicator.RankBody)}. */
    public static void runLocal(int size, CommunicatorOptions options, Communicator.RankBody body) {
        Objects.requireNonNull(body, "body");
        List<Communicator> ranks = local(size, options);
        AtomicReference<RankError> first = new AtomicReference<>();
        List<Throwable> errors = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (Communicator c : ranks) {
            threads.add(
                    Thread.ofPlatform()
                            .name("jccl-rank-" + c.rank())
                            .start(() -> runRank(c, body, first, errors)));
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
            Communicator.RankBody body,
            AtomicReference<RankError> first,
            List<Throwable> errors) {
        try (c) {
            try {
                body.run(c);
            } catch (Throwable t) {
                // Before the communicator is closed, so that the others learn the reason.
                first.compareAndSet(null, new RankError(c.rank(), t));
                c.abort(t.toString());
                synchronized (errors) {
                    errors.add(t);
                }
            }
        }
    }

    /** See {@link Communicator#fromEnvironment(CommunicatorOptions)}. */
    public static Communicator fromEnvironment(
            Map<String, String> env, CommunicatorOptions options) {
        Objects.requireNonNull(options, "options");
        LaunchEnvironment launch = LaunchEnvironment.of(env);
        if (launch.size() == 1) {
            return local(1, options).getFirst();
        }
        checkSize(launch.sizeVariable(), launch.size());
        Fabric fabric = ProcessJob.join(launch.jobId(), launch.rank(), launch.size(), options);
        HostCommunicator c = new HostCommunicator(fabric, launch.rank(), options);
        boolean ready = false;
        try {
            // Everyone has written where its scratch memory is when all have come here.
            c.barrier(c.device().defaultStream());
            ready = true;
        } finally {
            if (!ready) {
                c.close();
            }
        }
        return c;
    }

    /** See {@link io.jccl.LocalJob#sharedFolder}. */
    public static Path sharedFolder() {
        return SharedFolder.root();
    }

    /** See {@link io.jccl.LocalJob#cleanUp}. */
    public static void cleanUp(String jobId) {
        SharedFolder.removeJob(jobId);
    }
}
