package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A GPU, by its number in this process, as limited by {@code CUDA_VISIBLE_DEVICES}.
 *
 * <p>Each call restores the calling thread's current device. A virtual thread could move to another
 * native thread while the device is set, so virtual threads are rejected.
 */
public final class CudaDevice implements Device {
    /** All devices, looked up once; null until that has succeeded. */
    private static @Nullable CudaDevice @Nullable [] devices;

    /** Devices on which JCCL has created something. */
    private static final Set<Integer> USED = ConcurrentHashMap.newKeySet();

    /** Pinned or registered host memory is accessible from every device. */
    private static final int PORTABLE = cudart_h.cudaHostAllocPortable();

    private static final int PCI_ID_BYTES = 32;

    private final int index;

    /** Whether this is one of several views of a GPU. */
    private final boolean shared;

    private final CudaStream defaultStream;

    /** One permit for each access on the default stream; a capture of it takes all to begin. */
    private final Semaphore accesses = new Semaphore(Integer.MAX_VALUE);

    /** See {@link #element}. */
    private @Nullable CudaBuffer element;

    private volatile boolean poolKept;

    /** 0 until it was queried. */
    private volatile int capability;

    private CudaDevice(int index, int streamFlags, boolean shared) {
        this.index = index;
        this.shared = shared;
        USED.add(index);
        this.defaultStream = CudaStream.create(this, streamFlags, true);
    }

    /** Number of devices, 0 without a driver or a GPU. */
    public static int count() {
        MemorySegment slot = CudaRuntime.slot();
        CudaApi api = CudaRuntime.api();
        int result = api.cudaGetDeviceCount(slot);
        if (result == cudart_h.cudaErrorNoDevice()
                || result == cudart_h.cudaErrorInsufficientDriver()) {
            api.cudaGetLastError();
            return 0;
        }
        CudaRuntime.check(result, "cudaGetDeviceCount");
        return CudaRuntime.readInt(slot);
    }

    /** See {@link io.jccl.device.Cuda#device}. */
    public static CudaDevice of(int index) {
        @Nullable CudaDevice[] all = checked(index);
        synchronized (all) {
            CudaDevice known = all[index];
            if (known == null) {
                // A separate stream instead of CUDA's null stream, which belongs to the current
                // device and cannot be captured. It is ordered with the null stream, which other
                // libraries of the process may use.
                known = new CudaDevice(index, cudart_h.cudaStreamDefault(), false);
                all[index] = known;
            }
            return known;
        }
    }

    /** See {@link io.jccl.device.Cuda#view}. */
    public static CudaDevice view(int index) {
        checked(index);
        // Streams ordered with the null stream would be ordered with those of other views.
        return new CudaDevice(index, cudart_h.cudaStreamNonBlocking(), true);
    }

    private static synchronized @Nullable CudaDevice[] all() {
        @Nullable CudaDevice[] known = devices;
        if (known == null) {
            known = new CudaDevice[count()];
            devices = known;
        }
        return known;
    }

    private static @Nullable CudaDevice[] checked(int index) {
        @Nullable CudaDevice[] all = all();
        if (index < 0 || index >= all.length) {
            throw new IllegalArgumentException(
                    all.length == 0
                            ? "CUDA device "
                                    + index
                                    + " is not there: this process sees no GPU; see jccl doctor"
                            : "CUDA device "
                                    + index
                                    + " is not there, expected 0 to "
                                    + (all.length - 1)
                                    + " (CUDA_VISIBLE_DEVICES limits what a process sees)");
        }
        return all;
    }

    /** The CUDA device of a device, checked. */
    public static CudaDevice of(Device device) {
        if (device instanceof CudaDevice d) {
            return d;
        }
        throw new IllegalArgumentException(
                "device is "
                        + Objects.requireNonNull(device, "device")
                        + ", expected a CUDA device");
    }

    /**
     * Runs a call with this device as the thread's current one.
     *
     * @throws IllegalStateException on a virtual thread
     */
    public <T extends @Nullable Object> T current(Supplier<T> call) {
        int previous = enter();
        try {
            return call.get();
        } finally {
            exit(previous);
        }
    }

    /** Makes this device current; {@link #exit} takes the result. */
    public int enter() {
        refuseVirtualThread();
        MemorySegment slot = CudaRuntime.slot();
        CudaApi api = CudaRuntime.api();
        CudaRuntime.check(api.cudaGetDevice(slot), "cudaGetDevice");
        int previous = CudaRuntime.readInt(slot);
        if (previous != index) {
            int result = api.cudaSetDevice(index);
            if (result != 0) {
                CudaRuntime.check(result, "cudaSetDevice(" + index + ")");
            }
        }
        return previous;
    }

    /**
     * Restores the device that was current before {@link #enter}, if it has a context. A thread
     * that never chose a device has device 0, where {@code cudaSetDevice} would create a context:
     * some hundreds of MB of that GPU for each process.
     */
    public void exit(int previous) {
        if (previous != index && isUsed(previous)) {
            // An error here could only follow from an earlier one, which is more informative.
            CudaRuntime.api().cudaSetDevice(previous);
        }
    }

    /**
     * Called by the user's threads before work for this device, such as querying an event. A thread
     * whose current device has no context keeps this one, since CUDA would otherwise create a
     * context on device 0 for it. JCCL's own threads call {@link #adopt}.
     */
    public void claim() {
        if (CudaRuntime.isFresh() && !Thread.currentThread().isVirtual()) {
            exit(enter());
            CudaRuntime.notFresh();
        }
    }

    /** Makes this the thread's device and its context current; an error shows in later calls. */
    void bind() {
        CudaRuntime.api().cudaSetDevice(index);
    }

    /**
     * Makes this the device of a thread of JCCL's, which from then on does not disturb a capture of
     * another library; an error shows in later calls.
     */
    public void adopt() {
        bind();
        CudaRuntime.exchangeCaptureMode(cudart_h.cudaStreamCaptureModeRelaxed());
    }

    /**
     * Whether a current device already has a context. Without the driver library, any device but 0
     * counts as chosen by the application.
     */
    private static boolean isUsed(int device) {
        return USED.contains(device) || CudaRuntime.hasContext(device, device != 0);
    }

    /**
     * Makes a call that sets the current device, to close something: a virtual thread has it made
     * by another one, since what is not closed now would stay for good.
     */
    public static void onPlatformThread(Runnable call) {
        if (!Thread.currentThread().isVirtual()) {
            call.run();
            return;
        }
        Thread.Builder other = Thread.ofPlatform().daemon().name("jccl-close");
        join(CompletableFuture.runAsync(call, other::start));
    }

    /** Waits for a call; throws its error. */
    static void join(CompletableFuture<Void> call) {
        try {
            call.join();
        } catch (CompletionException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : e;
        }
    }

    /** Throws on a virtual thread. */
    public static void refuseVirtualThread() {
        if (Thread.currentThread().isVirtual()) {
            throw new IllegalStateException(
                    "this is a virtual thread, and CUDA keeps the current device and NCCL the open"
                            + " group per native thread; use a platform thread");
        }
    }

    @Override
    public Kind kind() {
        return Kind.CUDA;
    }

    @Override
    public int index() {
        return index;
    }

    @Override
    public Buffer allocate(DataType type, long count) {
        beginAccess();
        try {
            // cudaFree waits for all work of the device, including that of other ranks on it, which
            // may wait for this one.
            CudaBuffer buffer =
                    shared
                            ? CudaBuffer.allocateAsync(defaultStream, type, count)
                            : CudaBuffer.allocate(this, type, count);
            boolean done = false;
            try {
                buffer.zero();
                done = true;
                return buffer;
            } finally {
                if (!done) {
                    buffer.close();
                }
            }
        } finally {
            endAccess();
        }
    }

    /**
     * An int32 whose content does not matter. That of a view is one for all callers, and stays when
     * they close it: {@code cudaFree} waits for the other ranks on the device, which may wait for
     * who closes it, and the memory of {@link #allocate} belongs to the order of one stream.
     */
    public synchronized Buffer element() {
        if (!shared) {
            return CudaBuffer.allocate(this, DataType.INT32, 1);
        }
        CudaBuffer known = element;
        if (known == null) {
            known = CudaBuffer.allocate(this, DataType.INT32, 1);
            element = known;
        }
        return known.slice(0, 1);
    }

    @Override
    public CudaStream defaultStream() {
        return defaultStream;
    }

    /**
     * Begins work of JCCL's own on the default stream, which is not to become part of a graph: no
     * {@code Graph.capture} of the stream begins before {@link #endAccess}. The stream can still
     * join the capture of another one by waiting for its event. The stream's lock is not held
     * meanwhile, since the watchdog needs it to end work for which this access may wait.
     *
     * @throws IllegalStateException if the stream is being captured
     */
    void beginAccess() {
        accesses.acquireUninterruptibly();
        boolean outside = false;
        try {
            outside = !defaultStream.isRecorded();
        } finally {
            if (!outside) {
                endAccess();
            }
        }
        if (!outside) {
            throw new IllegalStateException(
                    ("%s, the default stream, is being captured, and memory is allocated, read and"
                                    + " written on it; do that before or after the capture, or"
                                    + " capture another stream")
                            .formatted(defaultStream));
        }
    }

    void endAccess() {
        accesses.release();
    }

    /** Begins a capture of a stream, outside of all accesses. */
    void beginCapture(CudaStream stream, Capture capture) {
        int permits = stream == defaultStream ? Integer.MAX_VALUE : 0;
        accesses.acquireUninterruptibly(permits);
        try {
            stream.beginCapture(capture);
        } finally {
            accesses.release(permits);
        }
    }

    @Override
    public Stream newStream() {
        return CudaStream.create(this, cudart_h.cudaStreamNonBlocking(), false);
    }

    @Override
    public Event newEvent() {
        return CudaEvent.create(this);
    }

    /** Free and total memory in bytes, for messages. */
    String memory() {
        try {
            long[] both = freeAndTotal();
            return both[0] + " of " + both[1] + " bytes are free";
        } catch (CudaException e) {
            return "how much is free is unknown: " + e.getMessage();
        }
    }

    /** See {@link io.jccl.device.Cuda#freeMemory}. */
    public long freeMemory() {
        return freeAndTotal()[0];
    }

    long totalMemory() {
        return freeAndTotal()[1];
    }

    private long[] freeAndTotal() {
        return current(() -> {
            MemorySegment free = CudaRuntime.slot();
            MemorySegment total = CudaRuntime.otherSlot();
            CudaRuntime.check(CudaRuntime.api().cudaMemGetInfo(free, total), "cudaMemGetInfo");
            return new long[] {CudaRuntime.readLong(free), CudaRuntime.readLong(total)};
        });
    }

    /** A device attribute, such as {@code cudaDevAttrComputeCapabilityMajor}. */
    public int attribute(int attribute) {
        MemorySegment slot = CudaRuntime.slot();
        CudaRuntime.check(
                CudaRuntime.api().cudaDeviceGetAttribute(slot, attribute, index),
                "cudaDeviceGetAttribute");
        return CudaRuntime.readInt(slot);
    }

    /**
     * Makes the device's memory pool keep freed memory; called before the first allocation. By
     * default the pool returns freed memory to the driver at every synchronization, so each step
     * would allocate it again. A threshold set by the application is kept.
     */
    public void keepPool() {
        if (poolKept) {
            return;
        }
        CudaApi api = CudaRuntime.api();
        MemorySegment slot = CudaRuntime.slot();
        CudaRuntime.check(
                api.cudaDeviceGetMemPool(slot, index), "cudaDeviceGetMemPool(" + index + ")");
        long pool = CudaRuntime.readLong(slot);
        int attribute = cudart_h.cudaMemPoolAttrReleaseThreshold();
        CudaRuntime.check(
                api.cudaMemPoolGetAttribute(pool, attribute, slot), "cudaMemPoolGetAttribute");
        if (CudaRuntime.readLong(slot) == 0) {
            slot.set(ValueLayout.JAVA_LONG, 0, -1);
            CudaRuntime.check(
                    api.cudaMemPoolSetAttribute(pool, attribute, slot), "cudaMemPoolSetAttribute");
        }
        poolKept = true;
    }

    /** Ten times the compute capability, such as 90. */
    public int computeCapability() {
        int known = capability;
        if (known == 0) {
            known =
                    10 * attribute(cudart_h.cudaDevAttrComputeCapabilityMajor())
                            + attribute(cudart_h.cudaDevAttrComputeCapabilityMinor());
            capability = known;
        }
        return known;
    }

    /** PCI address, such as {@code 0000:3b:00.0}. */
    public String pciBusId() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment id = arena.allocate(PCI_ID_BYTES);
            CudaRuntime.check(
                    CudaRuntime.api().cudaDeviceGetPCIBusId(id, PCI_ID_BYTES, index),
                    "cudaDeviceGetPCIBusId");
            return id.getString(0);
        }
    }

    /** Whether this device can read and write another's memory directly. */
    public boolean canAccess(CudaDevice peer) {
        MemorySegment slot = CudaRuntime.slot();
        CudaRuntime.check(
                CudaRuntime.api().cudaDeviceCanAccessPeer(slot, index, peer.index),
                "cudaDeviceCanAccessPeer");
        return CudaRuntime.readInt(slot) != 0;
    }

    /** Lets this device's work read and write another's memory directly. */
    public void enablePeerAccess(CudaDevice peer) {
        int previous = enter();
        try {
            CudaApi api = CudaRuntime.api();
            int result = api.cudaDeviceEnablePeerAccess(peer.index, 0);
            if (result == cudart_h.cudaErrorPeerAccessAlreadyEnabled()) {
                api.cudaGetLastError();
                return;
            }
            CudaRuntime.check(
                    result, "cudaDeviceEnablePeerAccess(" + index + " to " + peer.index + ")");
        } finally {
            exit(previous);
        }
    }

    /** Host memory that devices copy from and to without staging. */
    public static MemorySegment allocatePinned(long bytes) {
        MemorySegment slot = CudaRuntime.slot();
        CudaApi api = CudaRuntime.api();
        int result = api.cudaHostAlloc(slot, Math.max(bytes, 1), PORTABLE);
        if (result == cudart_h.cudaErrorMemoryAllocation()) {
            api.cudaGetLastError();
            throw new JcclException(
                    "no pinned host memory for "
                            + bytes
                            + " bytes: cudaHostAlloc failed; pinned memory cannot be swapped, so it"
                            + " is limited by free RAM and by the memlock limit (ulimit -l)");
        }
        CudaRuntime.check(result, "cudaHostAlloc");
        return io.jccl.bindings.internal.ForeignMemory.at(CudaRuntime.readLong(slot), bytes);
    }

    @Override
    public String toString() {
        return "cuda:" + index;
    }
}
