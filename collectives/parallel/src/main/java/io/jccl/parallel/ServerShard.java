package io.jccl.parallel;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import io.jccl.internal.Deadline;
import io.jccl.kernel.Kernel;
import io.jccl.parallel.ServerOptions.Consistency;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** One server's range of the parameters, with a thread for each worker. */
final class ServerShard implements AutoCloseable {
    /** Maximum elements per kernel call, since counts are ints. */
    private static final long MOST = 1 << 20;

    private final List<Communicator> workers;
    private final Stream stream;
    private final long first;
    private final ServerOptions options;

    /** How many steps a worker may be ahead; negative if synchronous. */
    private final int bound;

    private final Buffer parameters;
    private final StagedParts sent;

    // On a GPU: the kernels that add gradients, their sum, and one worker's; null on the host.
    private final @Nullable Compute compute;
    private final @Nullable Buffer total;
    private final @Nullable Buffer addend;

    private final List<AutoCloseable> owned = new ArrayList<>();

    // For each worker: its gradients and, with bounded staleness, the parameters sent to it.
    private final Buffer[] requests;
    private final Buffer[] gradients;
    private final Buffer[] copies;

    // ---- guarded by this

    /** Number of pushes of each worker. */
    private final long[] clocks;

    private final boolean[] left;

    /** Number of updates; if synchronous, the number of rounds. */
    private long steps;

    private @Nullable Throwable failure;

    /** The worker whose request failed. */
    private int failedFor;

    ServerShard(
            Device device,
            List<Communicator> workers,
            long first,
            long count,
            DataType type,
            ServerOptions options) {
        this.workers = List.copyOf(workers);
        this.stream = device.defaultStream();
        this.first = first;
        this.options = options;
        this.bound =
                switch (options.consistency()) {
                    case Consistency.Synchronous s -> -1;
                    case Consistency.BoundedStaleness b -> b.bound();
                };
        int n = workers.size();
        this.clocks = new long[n];
        this.left = new boolean[n];
        this.requests = new Buffer[n];
        this.gradients = new Buffer[n];
        this.copies = new Buffer[n];
        Device where = options.device();
        boolean gpu = where.kind() == Device.Kind.CUDA;
        boolean done = false;
        try {
            parameters = own(where.allocate(type, count));
            sent = new StagedParts(parameters);
            owned.add(sent);
            compute = gpu ? Compute.of(where) : null;
            if (compute != null) {
                owned.add(compute);
            }
            total = gpu ? own(where.allocate(type, count)) : null;
            addend = gpu ? own(where.allocate(type, count)) : null;
            for (int i = 0; i < n; i++) {
                requests[i] = own(device.allocate(DataType.INT64, 1));
                gradients[i] = own(gpu ? Cuda.pinned(type, count) : device.allocate(type, count));
                copies[i] = own(device.allocate(type, bound < 0 ? 0 : count));
            }
            done = true;
        } finally {
            if (!done) {
                close();
            }
        }
    }

    private Buffer own(Buffer b) {
        owned.add(b);
        return b;
    }

    Buffer parameters() {
        return parameters;
    }

    /** Receives the first worker's parameters and sends them to the others. */
    void take(Stream on) {
        workers.getFirst().recv(sent.host(), 0, on);
        sent.toDevice();
        for (int i = 1; i < workers.size(); i++) {
            workers.get(i).send(sent.host(), 0, on);
        }
    }

    /** Runs a thread for each worker until all have left or one has failed. */
    void serve() {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < workers.size(); i++) {
            int worker = i;
            threads.add(
                    Thread.ofPlatform()
                            .daemon()
                            .name("jccl-server-" + worker)
                            .start(() -> run(worker)));
        }
        boolean interrupted = false;
        for (Thread t : threads) {
            while (t.isAlive()) {
                try {
                    t.join();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        Throwable f;
        int worker;
        synchronized (this) {
            f = failure;
            worker = failedFor;
        }
        if (f instanceof Error e) {
            throw e;
        }
        if (f != null) {
            throw new JcclException(
                    "the parameter server failed, serving worker rank %s (rank 0 of this pair): %s"
                            .formatted(worker, f.getMessage()),
                    f);
        }
    }

    private void run(int worker) {
        try {
            while (serveOne(worker)) {}
        } catch (Throwable t) {
            fail(worker, t);
        }
    }

    /** The first failure ends all threads, so that none waits for a worker that has left. */
    private void fail(int worker, Throwable t) {
        synchronized (this) {
            if (failure != null) {
                return;
            }
            failure = t;
            failedFor = worker;
            notifyAll();
        }
        String reason = "parameter server, serving worker rank " + worker + ": " + t.getMessage();
        for (Communicator c : workers) {
            c.abort(reason);
        }
    }

    private boolean serveOne(int worker) {
        Communicator c = workers.get(worker);
        c.recv(requests[worker], 0, stream);
        long what = requests[worker].getLong(0);
        if (what == ParameterServer.PUSH) {
            push(worker, c);
        } else if (what == ParameterServer.PULL) {
            pull(worker, c);
        } else {
            leave(worker);
        }
        return what != ParameterServer.LEAVE;
    }

    private void push(int worker, Communicator c) {
        if (bound < 0) {
            // Its last gradient is needed until then.
            awaitProgress(worker, 0);
        }
        c.recv(gradients[worker], 0, stream);
        synchronized (this) {
            checkFailure();
            clocks[worker]++;
            if (bound < 0) {
                round();
            } else {
                update(sum(null, gradients[worker]), 1);
            }
            notifyAll();
        }
    }

    private void pull(int worker, Communicator c) {
        awaitProgress(worker, Math.max(0, bound));
        if (bound < 0) {
            // The next update needs this worker's gradient, so the parameters cannot change now.
            c.send(sent.host(), 0, stream);
            return;
        }
        synchronized (this) {
            copies[worker].copyFrom(sent.host().asSegment());
        }
        c.send(copies[worker], 0, stream);
    }

    private synchronized void leave(int worker) {
        left[worker] = true;
        if (bound < 0) {
            round();
        }
        notifyAll();
    }

    /**
     * Applies the update once every remaining worker has pushed. Gradients pushed before a worker
     * left count.
     */
    private void round() {
        if (slowest() <= steps) {
            return;
        }
        int pushed = 0;
        Buffer sum = null;
        // In rank order, so that the result does not depend on the order of arrival.
        for (int i = 0; i < clocks.length; i++) {
            if (clocks[i] > steps) {
                pushed++;
                sum = sum(sum, gradients[i]);
            }
        }
        if (sum != null) {
            update(sum, pushed);
        }
    }

    /** Adds a worker's gradient to a sum, which it begins if there is none. */
    private Buffer sum(@Nullable Buffer sum, Buffer gradient) {
        if (compute == null || total == null || addend == null) {
            if (sum != null) {
                add(sum, gradient);
            }
            return sum == null ? gradient : sum;
        }
        Stream on = compute.device().defaultStream();
        if (sum == null) {
            on.copy(gradient, total);
        } else {
            on.copy(gradient, addend);
            compute.add(total, addend, total, on);
        }
        return total;
    }

    /** One update with the mean of that many gradients. */
    private void update(Buffer sum, int pushed) {
        if (compute == null) {
            divide(sum, pushed);
        } else {
            compute.divide(sum, pushed, sum, compute.device().defaultStream());
        }
        options.update().apply(parameters, sum, first, steps);
        steps++;
        // Waits until a GPU has read the workers' gradients, too.
        sent.toHost();
    }

    /**
     * Waits until the slowest worker is within the bound of this one; if synchronous, until this
     * worker's last gradient has been applied.
     */
    private synchronized void awaitProgress(int worker, long ahead) {
        long deadline = System.nanoTime() + Deadline.nanos(options.timeout());
        while (true) {
            checkFailure();
            long reached = bound < 0 ? steps : slowest();
            if (clocks[worker] - ahead <= reached) {
                return;
            }
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                throw new CollectiveTimeoutException(
                        "worker rank "
                                + worker
                                + " has pushed "
                                + clocks[worker]
                                + " times and waits for slower ones; all workers' pushes are "
                                + Arrays.toString(clocks)
                                + " after "
                                + options.timeout());
            }
            try {
                wait(left / 1_000_000 + 1);
            } catch (InterruptedException e) {
                throw new JcclException("the server's thread was interrupted", e);
            }
        }
    }

    private void checkFailure() {
        Throwable f = failure;
        if (f != null) {
            throw new JcclException("the parameter server has failed: " + f.getMessage(), f);
        }
    }

    /** Minimum over the remaining workers; the largest number if none remains. */
    private long slowest() {
        long least = Long.MAX_VALUE;
        for (int i = 0; i < clocks.length; i++) {
            least = left[i] ? least : Math.min(least, clocks[i]);
        }
        return least;
    }

    private static void add(Buffer sum, Buffer more) {
        Kernel kernel = Kernel.of(sum.dataType(), Kernel.Op.ADD);
        MemorySegment s = sum.asSegment();
        MemorySegment m = more.asSegment();
        int size = sum.dataType().size();
        for (long i = 0; i < sum.count(); i += MOST) {
            int n = (int) Math.min(MOST, sum.count() - i);
            kernel.combine(s, i * size, m, i * size, s, i * size, n);
        }
    }

    private static void divide(Buffer sum, int by) {
        MemorySegment s = sum.asSegment();
        if (by == 1) {
            return;
        }
        if (sum.dataType() == DataType.FLOAT32) {
            ValueLayout.OfFloat f = ValueLayout.JAVA_FLOAT;
            for (long i = 0; i < sum.count(); i++) {
                s.setAtIndex(f, i, s.getAtIndex(f, i) / by);
            }
        } else {
            ValueLayout.OfDouble d = ValueLayout.JAVA_DOUBLE;
            for (long i = 0; i < sum.count(); i++) {
                s.setAtIndex(d, i, s.getAtIndex(d, i) / by);
            }
        }
    }

    @Override
    public void close() {
        Closing.all(owned.reversed());
    }
}
