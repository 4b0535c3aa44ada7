package io.jccl.parallel;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.device.Buffer;
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
    /** Most elements per call of a kernel, whose counts are ints. */
    private static final long MOST = 1 << 20;

    private final List<Communicator> workers;
    private final Stream stream;
    private final long first;
    private final ServerOptions options;

    /** How many steps a worker may be ahead; negative if synchronous. */
    private final int bound;

    private final Buffer parameters;

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
        List<Buffer> made = new ArrayList<>();
        try {
            parameters = device.allocate(type, count);
            made.add(parameters);
            for (int i = 0; i < n; i++) {
                requests[i] = device.allocate(DataType.INT64, 1);
                made.add(requests[i]);
                gradients[i] = device.allocate(type, count);
                made.add(gradients[i]);
                copies[i] = device.allocate(type, bound < 0 ? 0 : count);
                made.add(copies[i]);
            }
        } catch (RuntimeException e) {
            made.forEach(Buffer::close);
            throw e;
        }
    }

    Buffer parameters() {
        return parameters;
    }

    /** Receives the first worker's parameters and sends them to the others. */
    void take(Stream on) {
        workers.getFirst().recv(parameters, 0, on);
        for (int i = 1; i < workers.size(); i++) {
            workers.get(i).send(parameters, 0, on);
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
        synchronized (this) {
            f = failure;
        }
        if (f instanceof Error e) {
            throw e;
        }
        if (f != null) {
            throw new JcclException("the parameter server failed: " + f.getMessage(), f);
        }
    }

    private void run(int worker) {
        try {
            while (serveOne(worker)) {}
        } catch (Throwable t) {
            fail(worker, t);
        }
    }

    /** The first failure ends all threads, so that none waits for a worker that has gone. */
    private void fail(int worker, Throwable t) {
        synchronized (this) {
            if (failure != null) {
                return;
            }
            failure = t;
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
                options.update().apply(parameters, gradients[worker], first, steps++);
            }
            notifyAll();
        }
    }

    private void pull(int worker, Communicator c) {
        awaitProgress(worker, Math.max(0, bound));
        if (bound < 0) {
            // The next update needs this worker's gradient, so the parameters cannot change now.
            c.send(parameters, 0, stream);
            return;
        }
        synchronized (this) {
            copies[worker].copyFrom(parameters.asSegment());
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
                if (sum == null) {
                    sum = gradients[i];
                } else {
                    add(sum, gradients[i]);
                }
            }
        }
        if (sum == null) {
            return;
        }
        divide(sum, pushed);
        options.update().apply(parameters, sum, first, steps);
        steps++;
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
        List<AutoCloseable> all = new ArrayList<>();
        for (int i = 0; i < requests.length; i++) {
            all.addAll(List.of(copies[i], gradients[i], requests[i]));
        }
        all.add(parameters);
        Closing.all(all);
    }
}
