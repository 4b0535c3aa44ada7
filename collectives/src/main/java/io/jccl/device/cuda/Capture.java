package io.jccl.device.cuda;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A recording of work into a graph, and afterwards the host functions that are in the graph: they
 * stay known until the graph is closed and the last launch has run them.
 *
 * <p><b>Threads:</b> any.
 */
final class Capture {
    private final List<Long> functions = new ArrayList<>();
    private volatile boolean active = true;
    private boolean closed;
    private long outstanding;
    private @Nullable CudaStream launchedOn;

    /** Whether it still records. */
    boolean isActive() {
        return active;
    }

    void end() {
        active = false;
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
}
