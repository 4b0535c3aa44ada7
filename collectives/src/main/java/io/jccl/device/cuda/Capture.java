package io.jccl.device.cuda;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * A recording of work into a graph, and afterwards the host functions that are in the graph: they
 * stay known until the graph is closed and the last launch has run them.
 *
 * <p><b>Threads:</b> any.
 */
public final class Capture {
    private static final AtomicLong NUMBERS = new AtomicLong();

    private final String name;
    private final List<Long> functions = new ArrayList<>();
    private volatile boolean active = true;
    private boolean closed;
    private long outstanding;
    private @Nullable CudaStream launchedOn;
    private volatile @Nullable CudaGraph graph;
    private volatile boolean gone;

    Capture(CudaStream stream) {
        this.name = "graph " + NUMBERS.incrementAndGet() + " (captured on " + stream + ")";
    }

    /** Whether it still records. */
    boolean isActive() {
        return active;
    }

    void end() {
        active = false;
    }

    /** What it has become. */
    void became(CudaGraph graph) {
        this.graph = graph;
    }

    /** There is no graph of it any more, or never was. */
    void vanished() {
        gone = true;
    }

    /** Whether CUDA holds nothing of it any more. */
    public boolean isGone() {
        return gone;
    }

    /** Closes the graph, whose launches are refused with a reason from now on. */
    public void end(String reason) {
        CudaGraph g = graph;
        if (g != null) {
            g.end(reason);
        }
    }

    synchronized void add(long function) {
        functions.add(function);
    }

    /** Called before each launch: every host function will run once more. */
    synchronized void launching(CudaStream stream) {
        outstanding += functions.size();
        launchedOn = stream;
    }

    /** Takes {@link #launching} back. */
    synchronized void notLaunched() {
        outstanding -= functions.size();
        forgetIfDone();
    }

    /** A host function of a launch has run, and may have failed. */
    void ran(@Nullable Throwable error) {
        CudaStream stream;
        synchronized (this) {
            stream = launchedOn;
            outstanding--;
            forgetIfDone();
        }
        if (error != null && stream != null) {
            stream.failed(error);
        }
    }

    synchronized void close() {
        closed = true;
        forgetIfDone();
    }

    private void forgetIfDone() {
        if (closed && outstanding == 0) {
            functions.forEach(HostFunction::forget);
            functions.clear();
        }
    }

    @Override
    public String toString() {
        return name;
    }
}
