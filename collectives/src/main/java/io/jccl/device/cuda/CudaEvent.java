package io.jccl.device.cuda;

import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclTimeoutException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** An event of a GPU. */
public final class CudaEvent implements Event {
    private static final double NANOS_PER_MILLI = 1e6;

    private final CudaDevice device;
    private final long handle;

    /** Created once, so that a wait creates no object. */
    private final CudaStream.Condition complete = this::query;

    private volatile boolean recorded;
    private volatile boolean closed;
    private volatile @Nullable Capture capture;

    private CudaEvent(CudaDevice device, long handle) {
        this.device = device;
        this.handle = handle;
    }

    static CudaEvent create(CudaDevice device) {
        return new CudaEvent(device, newHandle(device, cudart_h.cudaEventDefault()));
    }

    /** The handle of an event without timing, for use without an object. */
    public static long newHandle(CudaDevice device, int flags) {
        return device.current(() -> {
            MemorySegment slot = CudaRuntime.slot();
            CudaRuntime.check(
                    CudaRuntime.api().cudaEventCreateWithFlags(slot, flags),
                    "cudaEventCreateWithFlags");
            return CudaRuntime.readLong(slot);
        });
    }

    long handle() {
        if (closed) {
            throw new IllegalStateException("the event of " + device + " is closed");
        }
        return handle;
    }

    @Override
    public void record(Stream stream) {
        CudaStream s = CudaStream.of(stream, device);
        CudaRuntime.check(
                s.call((on, event) -> CudaRuntime.api().cudaEventRecord(event, on), handle()),
                "cudaEventRecord");
        recorded = true;
        capture = s.capture();
    }

    /** The capture in progress that contains the last recording, or null. */
    @Nullable Capture capture() {
        Capture c = capture;
        return c != null && c.isActive() ? c : null;
    }

    @Override
    public boolean query() {
        device.claim();
        return CudaStream.done(CudaRuntime.api().cudaEventQuery(handle()), "cudaEventQuery");
    }

    @Override
    public void synchronize(Duration timeout) {
        if (!CudaStream.await(timeout, complete, true, () -> {})) {
            throw new JcclTimeoutException(
                    "the event did not complete within " + timeout + "; its stream is still busy");
        }
    }

    @Override
    public Duration elapsedSince(Event start) {
        if (!(start instanceof CudaEvent s)) {
            throw new IllegalArgumentException("start is not an event of a CUDA device: " + start);
        }
        s.checkComplete();
        checkComplete();
        MemorySegment milliseconds = CudaRuntime.slot();
        CudaRuntime.check(
                CudaRuntime.api().cudaEventElapsedTime(milliseconds, s.handle(), handle()),
                "cudaEventElapsedTime");
        return Duration.ofNanos(
                Math.round(milliseconds.get(ValueLayout.JAVA_FLOAT, 0) * NANOS_PER_MILLI));
    }

    private void checkComplete() {
        if (!recorded || !query()) {
            throw new IllegalStateException(
                    recorded
                            ? "the event has not completed; synchronize it first"
                            : "the event was never recorded");
        }
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            device.claim();
            CudaRuntime.check(CudaRuntime.api().cudaEventDestroy(handle), "cudaEventDestroy");
        }
    }

    @Override
    public String toString() {
        return "event of " + device;
    }
}
