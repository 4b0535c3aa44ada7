package io.jccl.device.cuda;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * A capture of work into a graph, and afterwards the host functions of the graph, which stay
 * registered until the graph is closed and its last launch has run them.
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

    /** Whether the capture is in progress. */
    boolean isActive() {
        return active;
    }

    void end() {
        active = false;
    }

    /** The graph that it became. */
    void became(CudaGraph graph) {
        this.graph = graph;
    }

    /** Notes that its graph was destroyed, or never created. */
    void vanished() {
        gone = true;
    }

    /** Whether CUDA no longer holds any part of it. */
    public boolean isGone() {
        return gone;
    }

    /** Closes the graph; later launches are rejected with this reason. */
    public void end(String reason) {
        CudaGraph g = graph;
        if (g != null) {
            g.end(reason);
        }
    }

    synchronized void add(long function) {
        functions.add(function);
    }

    /** Called before each launch, which will run every host function once. */
    synchronized void launching(CudaStream stream) {
        outstanding += functions.size();
        launchedOn = stream;
    }

    /** Undoes {@link #launching}. */
    synchronized void notLaunched() {
        outstanding -= functions.size();
        forgetIfDone();
    }

    /** Called when a host function of a launch has run, and may have failed. */
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
