package io.jccl.cuda;

import io.jccl.CollectiveTimeoutException;
import io.jccl.bindings.CudaApi;
import io.jccl.bindings.JcclException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** A queue of a GPU. */
public final class CudaStream implements Stream {
    /** What enqueues work that can fail later, and is asked for it when somebody waits. */
    public interface Source {
        /** Throws the error that this source's work met, if any. */
        void throwIfFailed();

        /** All work enqueued here so far is complete. Called by the thread that waited. */
        void synchronizedWith(CudaStream stream);
    }

    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);

    /** How a waiting thread looks again: at once, then yielding, then asleep. */
    private static final int SPINS = 2_000;

    private static final int YIELDS = 200;
    private static final long LONGEST_SLEEP_NANOS = 500_000;

    private final CudaDevice device;
    private final long handle;

    /** Whether closing destroys it: neither the default stream nor a foreign one. */
    private final boolean owned;

    private final List<Source> sources = new CopyOnWriteArrayList<>();
    private final AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
    private volatile boolean closed;

    /** Host functions of the capture under way; null while there is none. */
    private volatile @Nullable List<Long> capture;

    private CudaStream(CudaDevice device, long handle, boolean owned) {
        this.device = device;
        this.handle = handle;
        this.owned = owned;
    }

    static CudaStream create(CudaDevice device, int flags, boolean permanent) {
        long handle =
                device.current(() -> {
                    MemorySegment slot = CudaRuntime.slot();
                    CudaRuntime.check(
                            CudaRuntime.api().cudaStreamCreateWithFlags(slot, flags),
                            "cudaStreamCreateWithFlags");
                    return CudaRuntime.readLong(slot);
                });
        return new CudaStream(device, handle, !permanent);
    }

    /** See {@link io.jccl.device.Cuda#wrapStream}. */
    public static CudaStream wrap(CudaDevice device, long handle) {
        return new CudaStream(device, handle, false);
    }

    /** The stream of a stream, checked to be one of a device. */
    public static CudaStream of(Stream stream, CudaDevice device) {
        if (stream instanceof CudaStream s && s.device == device) {
            return s;
        }
        throw new IllegalArgumentException(
                "the stream belongs to device "
                        + Objects.requireNonNull(stream, "stream").device()
                        + ", expected one of "
                        + device);
    }

    /** CUDA's handle; the stream must be open. */
    public long handle() {
        if (closed) {
            throw new IllegalStateException("the stream of " + device + " is closed");
        }
        return handle;
    }

    CudaDevice cudaDevice() {
        return device;
    }

    /** Lets a source's errors surface where somebody waits for this stream. */
    public void attach(Source source) {
        if (!sources.contains(source)) {
            sources.add(source);
        }
    }

    /** Ends what {@link #attach} began. */
    public void detach(Source source) {
        sources.remove(source);
    }

    /** Whether {@link CudaGraph} records what is enqueued here. */
    public boolean isCapturing() {
        return capture != null;
    }

    /**
     * Records a bare event behind the work enqueued so far, unless the stream is closed or what is
     * enqueued is being recorded, where a mark of ours would become part of it.
     *
     * @return whether it was recorded
     */
    public synchronized boolean recordIfNotCapturing(long event) {
        if (closed || capture != null) {
            return false;
        }
        CudaRuntime.check(CudaRuntime.api().cudaEventRecord(event, handle), "cudaEventRecord");
        return true;
    }

    /** Begins or ends the time in which what is enqueued is recorded. */
    void setCapture(@Nullable List<Long> hostFunctions) {
        this.capture = hostFunctions;
    }

    /** Notes a host function of the capture. */
    void captured(long number) {
        Objects.requireNonNull(capture).add(number);
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public boolean query() {
        return done(CudaRuntime.api().cudaStreamQuery(handle()), "cudaStreamQuery");
    }

    /** Tells done from not ready, and both from an error. */
    static boolean done(int result, String operation) {
        if (result == cudart_h.cudaErrorNotReady()) {
            // Not an error, but CUDA remembers it as one.
            CudaRuntime.api().cudaGetLastError();
            return false;
        }
        CudaRuntime.check(result, operation);
        return true;
    }

    @Override
    public void synchronize() {
        synchronize(Duration.ofDays(36_500));
    }

    @Override
    public void synchronize(Duration timeout) {
        CudaApi api = CudaRuntime.api();
        long stream = handle();
        if (!await(timeout, () -> done(api.cudaStreamQuery(stream), "cudaStreamQuery"))) {
            throw new CollectiveTimeoutException(
                    "the stream of " + device + " still has work to complete after " + timeout);
        }
        throwIfFailed();
        for (Source s : sources) {
            s.synchronizedWith(this);
        }
    }

    private void throwIfFailed() {
        Throwable t = error.getAndSet(null);
        switch (t) {
            case null -> {}
            case JcclException e -> throw e;
            case Error e -> throw e;
            default -> throw new JcclException("a host function failed: " + t, t);
        }
        for (Source s : sources) {
            s.throwIfFailed();
        }
    }

    /** What {@link #await} looks at. */
    interface Condition {
        boolean holds();
    }

    /** Waits without holding up a core for long. */
    private boolean await(Duration timeout, Condition condition) {
        return await(timeout, condition, this::throwIfFailed);
    }

    static boolean await(Duration timeout, Condition condition, Runnable whileWaiting) {
        long limit =
                timeout.compareTo(Duration.ofDays(36_500)) >= 0
                        ? Long.MAX_VALUE / 2
                        : timeout.toNanos();
        long began = System.nanoTime();
        long sleep = 1_000;
        boolean interrupted = false;
        try {
            for (int i = 0; !condition.holds(); i++) {
                if (i < SPINS) {
                    Thread.onSpinWait();
                    continue;
                }
                whileWaiting.run();
                if (System.nanoTime() - began > limit) {
                    return condition.holds();
                }
                if (i < SPINS + YIELDS) {
                    Thread.yield();
                } else {
                    interrupted |= Thread.interrupted();
                    LockSupport.parkNanos(sleep);
                    sleep = Math.min(sleep * 2, LONGEST_SLEEP_NANOS);
                }
            }
            return true;
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void copy(Buffer source, Buffer target) {
        if (source.dataType() != target.dataType() || source.count() != target.count()) {
            throw new IllegalArgumentException(
                    "source holds "
                            + source.count()
                            + " elements of "
                            + source.dataType().label()
                            + ", target "
                            + target.count()
                            + " of "
                            + target.dataType().label());
        }
        long bytes = source.byteSize();
        long from = reachable(source, "source");
        long to = reachable(target, "target");
        if (from < to + bytes && to < from + bytes) {
            throw new IllegalArgumentException(
                    "source at 0x"
                            + Long.toHexString(from)
                            + " and target at 0x"
                            + Long.toHexString(to)
                            + " overlap");
        }
        CudaRuntime.check(
                CudaRuntime.api()
                        .cudaMemcpyAsync(to, from, bytes, cudart_h.cudaMemcpyDefault(), handle()),
                "cudaMemcpyAsync");
    }

    /** The address that CUDA can use; addresses of all devices and the host are distinct. */
    private static long reachable(Buffer buffer, String name) {
        boolean open =
                buffer instanceof CudaBuffer b ? b.isOpen() : buffer.asSegment().scope().isAlive();
        if (!open) {
            throw new IllegalStateException(name + " is closed: " + buffer);
        }
        if (!(buffer instanceof CudaBuffer) && !buffer.asSegment().isNative()) {
            throw new IllegalArgumentException(
                    name
                            + " is an array on the Java heap, which the garbage collector may move"
                            + " while a device copies; use a buffer of Cuda.pinned or Device.host()");
        }
        return buffer.address();
    }

    @Override
    public void launchHostFunction(Runnable function) {
        HostFunction.launch(this, Objects.requireNonNull(function, "function"));
    }

    /** Keeps the first error of a host function for whoever waits. */
    void failed(Throwable t) {
        error.compareAndSet(null, t);
    }

    @Override
    public void waitFor(Event event) {
        if (!(event instanceof CudaEvent e)) {
            throw new IllegalArgumentException("the event is no event of a CUDA device: " + event);
        }
        CudaRuntime.check(
                CudaRuntime.api().cudaStreamWaitEvent(handle(), e.handle(), 0),
                "cudaStreamWaitEvent");
    }

    @Override
    public void close() {
        if (!owned) {
            return;
        }
        synchronized (this) {
            if (closed) {
                return;
            }
            CudaApi api = CudaRuntime.api();
            try {
                await(
                        CLOSE_WAIT,
                        () -> api.cudaStreamQuery(handle) != cudart_h.cudaErrorNotReady(),
                        () -> {});
            } finally {
                closed = true;
                api.cudaGetLastError();
                // Work that is left goes on; CUDA frees the stream behind it.
                CudaRuntime.check(api.cudaStreamDestroy(handle), "cudaStreamDestroy");
            }
        }
    }

    @Override
    public String toString() {
        return "stream 0x" + Long.toHexString(handle) + " of " + device;
    }
}
