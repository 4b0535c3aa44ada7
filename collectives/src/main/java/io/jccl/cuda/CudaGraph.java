package io.jccl.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** Work of a stream, recorded once and launched often. */
public final class CudaGraph implements Graph {
    private final CudaDevice device;
    private final long executable;
    private final List<Long> hostFunctions;
    private boolean closed;

    private CudaGraph(CudaDevice device, long executable, List<Long> hostFunctions) {
        this.device = device;
        this.executable = executable;
        this.hostFunctions = hostFunctions;
    }

    /** See {@link Graph#capture}. */
    public static CudaGraph capture(Stream stream, Runnable body) {
        CudaDevice device = CudaDevice.of(Objects.requireNonNull(stream, "stream").device());
        Objects.requireNonNull(body, "body");
        CudaStream s = CudaStream.of(stream, device);
        if (s.isCapturing()) {
            throw new IllegalStateException(s + " is being captured already");
        }
        List<Long> hostFunctions = new ArrayList<>();
        int previous = device.enter();
        boolean done = false;
        try {
            long executable = record(s, body, hostFunctions);
            done = true;
            return new CudaGraph(device, executable, hostFunctions);
        } finally {
            if (!done) {
                hostFunctions.forEach(HostFunction::forget);
            }
            device.exit(previous);
        }
    }

    private static long record(CudaStream stream, Runnable body, List<Long> hostFunctions) {
        CudaApi api = CudaRuntime.api();
        MemorySegment slot = CudaRuntime.slot();
        // Thread-local: other threads may go on allocating meanwhile.
        synchronized (stream) {
            CudaRuntime.check(
                    api.cudaStreamBeginCapture(
                            stream.handle(), cudart_h.cudaStreamCaptureModeThreadLocal()),
                    "cudaStreamBeginCapture");
            stream.setCapture(hostFunctions);
        }
        long graph = 0;
        boolean recorded = false;
        try {
            body.run();
            recorded = true;
        } finally {
            stream.setCapture(null);
            // Also after an exception: the stream must not stay in capture.
            int result = api.cudaStreamEndCapture(stream.handle(), slot);
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
        if (closed) {
            throw new IllegalStateException("the graph of " + device + " is closed");
        }
        CudaRuntime.check(
                CudaRuntime.api()
                        .cudaGraphLaunch(executable, CudaStream.of(stream, device).handle()),
                "cudaGraphLaunch");
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            try {
                CudaRuntime.check(
                        CudaRuntime.api().cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
            } finally {
                hostFunctions.forEach(HostFunction::forget);
            }
        }
    }
}
