package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Work of a stream, captured once and launched repeatedly. */
public final class CudaGraph implements Graph {
    private final CudaDevice device;
    private final long executable;
    private final Capture capture;

    /** The reason for which it is closed; null while it is open. */
    private @Nullable String closed;

    private CudaGraph(CudaDevice device, long executable, Capture capture) {
        this.device = device;
        this.executable = executable;
        this.capture = capture;
        capture.became(this);
    }

    /** See {@link Graph#capture}. */
    public static CudaGraph capture(Stream stream, Runnable body) {
        CudaDevice device = CudaDevice.of(Objects.requireNonNull(stream, "stream").device());
        Objects.requireNonNull(body, "body");
        CudaStream s = CudaStream.of(stream, device);
        if (s.isCapturing()) {
            throw new IllegalStateException(s + " is being captured already");
        }
        Capture capture = new Capture(s);
        int previous = device.enter();
        boolean done = false;
        try {
            long executable = record(s, body, capture);
            done = true;
            return new CudaGraph(device, executable, capture);
        } finally {
            if (!done) {
                capture.close();
                capture.vanished();
            }
            device.exit(previous);
        }
    }

    private static long record(CudaStream stream, Runnable body, Capture capture) {
        CudaApi api = CudaRuntime.api();
        MemorySegment slot = CudaRuntime.slot();
        stream.cudaDevice().beginCapture(stream, capture);
        long graph = 0;
        boolean recorded = false;
        try {
            body.run();
            recorded = true;
        } finally {
            // After an exception, too, the stream must not stay in capture.
            int result = stream.endCapture(capture, slot);
            graph = result == 0 ? CudaRuntime.readLong(slot) : 0;
            if (recorded) {
                CudaRuntime.check(result, "cudaStreamEndCapture");
            } else {
                api.cudaGetLastError();
                if (graph != 0) {
                    api.cudaGraphDestroy(graph);
                }
            }
        }
        try {
            CudaRuntime.check(
                    api.cudaGraphInstantiateWithFlags(slot, graph, 0), "cudaGraphInstantiate");
            return CudaRuntime.readLong(slot);
        } finally {
            api.cudaGraphDestroy(graph);
        }
    }

    @Override
    public synchronized void launch(Stream stream) {
        if (closed != null) {
            throw new IllegalStateException("the graph of " + device + " is closed" + closed);
        }
        CudaStream s = CudaStream.of(stream, device);
        if (s.isCapturing()) {
            throw new IllegalStateException(
                    s + " is being captured, and a graph cannot be launched into another");
        }
        capture.launching(s);
        boolean launched = false;
        try {
            CudaRuntime.check(
                    s.call(() -> CudaRuntime.api().cudaGraphLaunch(executable, s.handle())),
                    "cudaGraphLaunch");
            launched = true;
        } finally {
            if (!launched) {
                capture.notLaunched();
            }
        }
    }

    @Override
    public void close() {
        end("");
    }

    synchronized void end(String reason) {
        if (closed == null) {
            closed = reason;
            // CUDA also frees a graph's resources only after launches in progress.
            capture.close();
            device.claim();
            int result = CudaRuntime.api().cudaGraphExecDestroy(executable);
            capture.vanished();
            CudaRuntime.check(result, "cudaGraphExecDestroy");
        }
    }
}
