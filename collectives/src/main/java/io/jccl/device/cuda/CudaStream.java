package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.device.host.CopyChecks;
import io.jccl.device.host.Leaks;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Interrupts;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/** A stream of a GPU. */
public final class CudaStream implements Stream {
    /** Enqueues work that can fail later; its error surfaces when a thread waits for the stream. */
    public interface Source {
        /** Throws the error of this source's work, if any. */
        void throwIfFailed();

        /** Called by the thread that waited when all work enqueued before that is complete. */
        void synchronizedWith(CudaStream stream);
    }

    private static final Duration CLOSE_WAIT = Duration.ofSeconds(10);

    /** Polls without a pause, before a waiting thread yields and then sleeps between polls. */
    private static final int SPINS = 2_000;

    private static final int YIELDS = 200;

    /** A sleep lasts this fraction of the time waited, so that it hardly prolongs the wait. */
    private static final int SLEEP_PART = 64;

    /** Less than the time that a thread needs to fall asleep and wake up. */
    private static final long SHORTEST_SLEEP_NANOS = 5_000;

    private static final long LONGEST_SLEEP_NANOS = 500_000;

    /**
     * {@code cudaStreamLegacy}, another handle of stream 0, the null stream of the current device.
     */
    private static final long LEGACY = 1;

    /** {@code cudaStreamPerThread}. */
    private static final long PER_THREAD = 2;

    private final CudaDevice device;
    private final long handle;

    /** Replaced as a whole: a list's iterator would be an object for each poll. */
    private volatile Source[] sources = {};

    private final Object attaching = new Object(); // no native call holds it
    private final AtomicReference<@Nullable Throwable> error = new AtomicReference<>();
    private final AtomicBoolean closing = new AtomicBoolean();
    private volatile boolean closed;

    /**
     * Created once, so that a wait creates no object: its condition, and its action while waiting.
     */
    private final Condition done = this::isDone;

    private final Runnable waiting = this::throwIfFailed;

    /** Reports an owned stream that is never closed; the driver's resources stay allocated. */
    private final Leaks.@Nullable Watched watched;

    /** The last capture that this stream was part of; it may have ended. */
    private volatile @Nullable Capture capture;

    /** Closing destroys the stream if it is owned; the default stream and foreign ones are not. */
    private CudaStream(CudaDevice device, long handle, boolean owned) {
        this.device = device;
        this.handle = handle;
        this.watched = owned ? Leaks.watch(this, toString(), () -> {}) : null;
    }

    public static CudaStream create(CudaDevice device, int flags, boolean permanent) {
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
        if (handle == PER_THREAD) {
            throw new IllegalArgumentException(
                    "the per-thread default stream (cudaStreamPerThread) differs between"
                            + " threads, expected a stream that all threads of the process share");
        }
        return new CudaStream(device, handle, false);
    }

    /** The CUDA stream of a stream, checked to belong to a device. */
    public static CudaStream of(Stream stream, CudaDevice device) {
        if (stream instanceof CudaStream s && s.device == device) {
            return s;
        }
        throw new IllegalArgumentException(
                "the stream belongs to device %s, expected one of %s"
                        .formatted(Objects.requireNonNull(stream, "stream").device(), device));
    }

    /** CUDA's handle; the stream must be open. */
    public long handle() {
        if (closed) {
            throw new IllegalStateException("the stream of " + device + " is closed");
        }
        return handle;
    }

    public boolean isOpen() {
        return !closed;
    }

    CudaDevice cudaDevice() {
        return device;
    }

    /** Whether it is the null stream, which CUDA takes from the current device. */
    boolean isNull() {
        return handle == 0 || handle == LEGACY;
    }

    /** Lets a source's errors surface when a thread waits for this stream. */
    public void attach(Source source) {
        for (Source s : sources) {
            if (s == source) {
                return;
            }
        }
        synchronized (attaching) {
            Source[] more = Arrays.copyOf(sources, sources.length + 1);
            more[sources.length] = source;
            sources = more;
        }
    }

    /** Undoes {@link #attach}. */
    public void detach(Source source) {
        synchronized (attaching) {
            sources = Arrays.stream(sources).filter(s -> s != source).toArray(Source[]::new);
        }
    }

    /**
     * Makes a call that takes the handle. The null stream belongs to the current device, so this
     * device must be current.
     */
    int call(IntSupplier call) {
        if (!isNull()) {
            device.claim();
            return call.getAsInt();
        }
        int previous = device.enter();
        try {
            return call.getAsInt();
        } finally {
            device.exit(previous);
        }
    }

    /** A call with the handle and one argument; it captures no variables, so none is allocated. */
    interface HandleCall {
        int make(long stream, long argument);
    }

    /** The same for frequent calls. */
    int call(HandleCall call, long argument) {
        return call(call, handle(), argument);
    }

    private int call(HandleCall call, long stream, long argument) {
        if (!isNull()) {
            device.claim();
            return call.make(stream, argument);
        }
        int previous = device.enter();
        try {
            return call.make(stream, argument);
        } finally {
            device.exit(previous);
        }
    }

    /** Whether {@link CudaGraph} is capturing this stream. */
    boolean isCapturing() {
        return capture() != null;
    }

    /** The capture in progress, or null. */
    public @Nullable Capture capture() {
        Capture c = capture;
        return c != null && c.isActive() ? c : null;
    }

    /**
     * Records an event after the work enqueued so far, unless the stream is closed or is being
     * captured, where the event would become part of the graph.
     *
     * @return whether it was recorded
     */
    public synchronized boolean recordIfNotCapturing(long event) {
        if (closed || isRecorded()) {
            return false;
        }
        CudaRuntime.check(
                call((s, e) -> CudaRuntime.api().cudaEventRecord(e, s), event), "cudaEventRecord");
        return true;
    }

    /** Whether this stream is being captured, by JCCL or by another library. */
    public boolean isRecorded() {
        if (isCapturing()) {
            return true;
        }
        MemorySegment status = CudaRuntime.slot();
        int result =
                call(
                        (s, unused) ->
                                CudaRuntime.api().cudaStreamIsCapturing(s, CudaRuntime.slot()),
                        0);
        if (result == cudart_h.cudaErrorStreamCaptureImplicit()) {
            // The null stream, while a stream that is ordered with it is being captured.
            CudaRuntime.api().cudaGetLastError();
            return true;
        }
        CudaRuntime.check(result, "cudaStreamIsCapturing");
        return CudaRuntime.readInt(status) != cudart_h.cudaStreamCaptureStatusNone();
    }

    /** Starts a capture. */
    synchronized void beginCapture(Capture c) {
        // The other modes forbid this thread to allocate, and even to query another stream.
        CudaRuntime.check(
                call(() ->
                        CudaRuntime.api()
                                .cudaStreamBeginCapture(
                                        handle(), cudart_h.cudaStreamCaptureModeRelaxed())),
                "cudaStreamBeginCapture");
        capture = c;
    }

    /** Ends a capture; returns CUDA's result, and the graph in the slot. */
    synchronized int endCapture(Capture c, MemorySegment slot) {
        int result = CudaRuntime.api().cudaStreamEndCapture(handle, slot);
        c.end();
        return result;
    }

    private void refuseWaitInCapture() {
        if (isCapturing()) {
            throw new IllegalStateException(
                    this
                            + " is being captured: nothing of it runs before the graph is launched,"
                            + " so there is nothing to wait for");
        }
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public boolean query() {
        handle();
        refuseWaitInCapture();
        return isDone();
    }

    /** Also while another thread closes the stream, which waits for the same. */
    public boolean isDone() {
        return done(
                call((s, unused) -> CudaRuntime.api().cudaStreamQuery(s), handle, 0),
                "cudaStreamQuery");
    }

    /** Whether a query's result is success rather than not ready; throws if it is an error. */
    static boolean done(int result, String operation) {
        if (result == cudart_h.cudaErrorNotReady()) {
            // Not an error, but CUDA stores it as one.
            CudaRuntime.api().cudaGetLastError();
            return false;
        }
        CudaRuntime.check(result, operation);
        return true;
    }

    @Override
    public void synchronize() {
        synchronize(Deadline.FOREVER);
    }

    @Override
    public void synchronize(Duration timeout) {
        handle();
        refuseWaitInCapture();
        if (!await(timeout, done, true, waiting)) {
            throw new JcclTimeoutException(
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

    /** The condition that {@link #await} polls. */
    public interface Condition {
        boolean holds();
    }

    /**
     * Waits for a condition without occupying a core for long.
     *
     * @param heedInterrupt whether an interrupt ends the wait with an error after some time
     * @return whether the condition holds
     */
    public static boolean await(
            Duration timeout, Condition condition, boolean heedInterrupt, Runnable whileWaiting) {
        long limit = Deadline.nanos(timeout);
        long began = System.nanoTime();
        long interrupted = 0;
        try {
            for (int i = 0; !condition.holds(); i++) {
                if (i < SPINS) {
                    Thread.onSpinWait();
                    continue;
                }
                whileWaiting.run();
                long now = System.nanoTime();
                long waited = now - began;
                if (waited > limit) {
                    return condition.holds();
                }
                if (i < SPINS + YIELDS) {
                    Thread.yield();
                } else {
                    interrupted = Interrupts.notice(interrupted, now);
                    if (heedInterrupt && Interrupts.overdue(interrupted, now)) {
                        throw Interrupts.error(
                                "the wait for a stream or an event of a GPU",
                                "the work enqueued there continues");
                    }
                    LockSupport.parkNanos(
                            Math.clamp(
                                    waited / SLEEP_PART,
                                    SHORTEST_SLEEP_NANOS,
                                    LONGEST_SLEEP_NANOS));
                }
            }
            return true;
        } finally {
            Interrupts.restore(interrupted);
        }
    }

    @Override
    public void copy(Buffer source, Buffer target) {
        CopyChecks.checkCopy(source, target);
        long bytes = source.byteSize();
        long from = reachable(source, "source");
        long to = reachable(target, "target");
        if (from < to + bytes && to < from + bytes) {
            throw CopyChecks.overlapping(source, target);
        }
        CudaRuntime.check(copy(from, to, bytes), "cudaMemcpyAsync");
    }

    /** {@link #call} for a copy, without an object for its arguments. */
    private int copy(long from, long to, long bytes) {
        long stream = handle();
        int kind = cudart_h.cudaMemcpyDefault();
        if (!isNull()) {
            device.claim();
            return CudaRuntime.api().cudaMemcpyAsync(to, from, bytes, kind, stream);
        }
        int previous = device.enter();
        try {
            return CudaRuntime.api().cudaMemcpyAsync(to, from, bytes, kind, stream);
        } finally {
            device.exit(previous);
        }
    }

    /** The address for CUDA; addresses of all devices and the host are distinct. */
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

    /** Keeps the first error of a host function for the thread that waits. */
    void failed(Throwable t) {
        error.compareAndSet(null, t);
    }

    /** Makes later work wait for an event's handle; the stream must not be in capture. */
    public void waitForEvent(long event) {
        CudaRuntime.check(
                call((s, e) -> CudaRuntime.api().cudaStreamWaitEvent(s, e, 0), event),
                "cudaStreamWaitEvent");
    }

    @Override
    public void waitFor(Event event) {
        if (!(event instanceof CudaEvent e)) {
            throw new IllegalArgumentException(
                    "the event is not an event of a CUDA device: " + event);
        }
        synchronized (this) {
            CudaRuntime.check(
                    call(
                            (s, other) -> CudaRuntime.api().cudaStreamWaitEvent(s, other, 0),
                            e.handle()),
                    "cudaStreamWaitEvent");
            Capture joined = e.capture();
            if (joined != null) {
                capture = joined;
            }
        }
    }

    @Override
    public void close() {
        if (watched == null || !closing.compareAndSet(false, true)) {
            return;
        }
        watched.closed();
        device.claim();
        CudaApi api = CudaRuntime.api();
        try {
            // Not under the lock, which the watchdog needs to end the wait.
            await(
                    CLOSE_WAIT,
                    () -> api.cudaStreamQuery(handle) != cudart_h.cudaErrorNotReady(),
                    false,
                    () -> {});
        } finally {
            synchronized (this) {
                closed = true;
            }
            api.cudaGetLastError();
            // Remaining work continues; CUDA frees the stream after it.
            CudaRuntime.check(api.cudaStreamDestroy(handle), "cudaStreamDestroy");
        }
    }

    @Override
    public String toString() {
        return "stream 0x" + Long.toHexString(handle) + " of " + device;
    }
}
