package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.host.HostDevice;
import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongConsumer;
import org.jspecify.annotations.Nullable;

/**
 * Elements in GPU memory. Java never dereferences the address: accesses to single elements and
 * arrays copy them, and wait for the device.
 */
public final class CudaBuffer implements Buffer {
    /** The owner of the memory, shared by a buffer and all its slices. */
    private static final class Allocation {
        final long address;
        final @Nullable LongConsumer release;
        final AtomicBoolean closed = new AtomicBoolean();

        /** The allocation that lent the memory; closing it closes this one. Null if none did. */
        final @Nullable Allocation lender;

        /** Whether CUDA's runtime allocated it: {@code cudaMalloc}, {@code cudaMallocAsync}. */
        final boolean ofRuntime;

        Allocation(
                long address,
                @Nullable LongConsumer release,
                @Nullable Allocation lender,
                boolean ofRuntime) {
            this.address = address;
            this.release = release;
            this.lender = lender;
            this.ofRuntime = ofRuntime;
        }

        boolean isOpen() {
            return !closed.get() && (lender == null || lender.isOpen());
        }
    }

    private final CudaDevice device;
    private final Allocation allocation;
    private final boolean whole;
    private final long address;
    private final DataType type;
    private final long count;

    /** The last slice of this buffer; slices have no state, so any thread may see any of them. */
    private @Nullable CudaBuffer lastSlice;

    private CudaBuffer(
            CudaDevice device,
            Allocation allocation,
            boolean whole,
            long address,
            DataType type,
            long count) {
        this.device = device;
        this.allocation = allocation;
        this.whole = whole;
        this.address = address;
        this.type = type;
        this.count = count;
    }

    /** Memory of {@code cudaMalloc}, not initialized. */
    public static CudaBuffer allocate(CudaDevice device, DataType type, long count) {
        long bytes = HostDevice.bytes(type, count);
        long address =
                device.current(() -> {
                    MemorySegment slot = CudaRuntime.slot();
                    CudaApi api = CudaRuntime.api();
                    allocated(
                            device,
                            api.cudaMalloc(slot, Math.max(bytes, 1)),
                            "cudaMalloc",
                            type,
                            count);
                    return CudaRuntime.readLong(slot);
                });
        return ofRuntime(device, address, type, count, at -> free(device, at));
    }

    private static void free(CudaDevice device, long address) {
        DeferredFree.call(
                device.index(),
                () -> CudaRuntime.check(CudaRuntime.api().cudaFree(address), "cudaFree"));
    }

    /** Memory of the device's pool, allocated in stream order. */
    public static CudaBuffer allocateAsync(CudaStream stream, DataType type, long count) {
        long bytes = HostDevice.bytes(type, count);
        CudaDevice device = stream.cudaDevice();
        device.claim();
        device.keepPool();
        MemorySegment slot = CudaRuntime.slot();
        CudaApi api = CudaRuntime.api();
        allocated(
                device,
                stream.call(() -> api.cudaMallocAsync(slot, Math.max(bytes, 1), stream.handle())),
                "cudaMallocAsync",
                type,
                count);
        return ofRuntime(
                device,
                CudaRuntime.readLong(slot),
                type,
                count,
                at -> {
                    if (stream.isOpen()) {
                        CudaRuntime.check(
                                stream.call(() -> api.cudaFreeAsync(at, stream.handle())),
                                "cudaFreeAsync");
                    } else {
                        free(device, at);
                    }
                });
    }

    private static CudaBuffer ofRuntime(
            CudaDevice device, long address, DataType type, long count, LongConsumer release) {
        Allocation allocation = new Allocation(address, release, null, true);
        return new CudaBuffer(device, allocation, true, address, type, count);
    }

    /** Foreign memory, freed by {@code release}, or never if that is null. */
    public static CudaBuffer owned(
            CudaDevice device,
            long address,
            DataType type,
            long count,
            @Nullable LongConsumer release) {
        return new CudaBuffer(
                device, new Allocation(address, release, null, false), true, address, type, count);
    }

    /** See {@link io.jccl.device.Cuda#wrapAddress}. */
    public static CudaBuffer wrapAddress(
            CudaDevice device, long address, DataType type, long count) {
        HostDevice.bytes(type, count);
        if (address == 0 && count > 0) {
            throw new IllegalArgumentException(
                    "address is 0, expected the address of " + count + " elements");
        }
        device.claim();
        Memory memory = count == 0 ? null : Memory.at(address);
        if (memory != null && !memory.isOn(device)) {
            throw new IllegalArgumentException(
                    "address 0x%s is %s, expected memory of %s"
                            .formatted(Long.toHexString(address), memory, device));
        }
        return owned(device, address, type, count, null);
    }

    private static void allocated(
            CudaDevice device, int result, String operation, DataType type, long count) {
        if (result == cudart_h.cudaErrorMemoryAllocation()) {
            CudaRuntime.api().cudaGetLastError();
            throw new JcclException(
                    ("no memory on %s for a buffer of %s elements of %s (%s bytes): %s failed, %s;"
                                    + " free other buffers, or use smaller ones")
                            .formatted(
                                    device,
                                    count,
                                    type.label(),
                                    count * type.size(),
                                    operation,
                                    device.memory()));
        }
        CudaRuntime.check(result, operation);
    }

    /** Whether the memory is still allocated, as far as JCCL knows. */
    public boolean isOpen() {
        return allocation.isOpen();
    }

    /**
     * Whether the memory is of {@code cudaMalloc} or {@code cudaMallocAsync}. CUDA has no handle of
     * such memory by which NCCL could map it for other ranks. Of foreign memory this is not known.
     */
    public boolean isOfRuntime() {
        return allocation.ofRuntime;
    }

    private long open() {
        if (!isOpen()) {
            throw new IllegalStateException(
                    "the buffer of " + count + " elements on " + device + " is closed");
        }
        return address;
    }

    private long at(long index) {
        return open() + Objects.checkIndex(index, count) * type.size();
    }

    @Override
    public DataType dataType() {
        return type;
    }

    @Override
    public long count() {
        return count;
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public long address() {
        return address;
    }

    @Override
    public Buffer slice(long from, long count) {
        Objects.checkFromIndexSize(from, count, this.count);
        long at = open() + from * type.size();
        CudaBuffer last = lastSlice;
        if (last != null && last.address == at && last.count == count) {
            return last;
        }
        CudaBuffer slice = new CudaBuffer(device, allocation, false, at, type, count);
        lastSlice = slice;
        return slice;
    }

    @Override
    public Buffer lease(long fromByte, DataType type, long count, Runnable release) {
        Objects.checkFromIndexSize(fromByte, HostDevice.bytes(type, count), byteSize());
        Objects.requireNonNull(release, "release");
        long from = open() + fromByte;
        return new CudaBuffer(
                device,
                new Allocation(from, at -> release.run(), allocation, allocation.ofRuntime),
                true,
                from,
                type,
                count);
    }

    @Override
    public MemorySegment asSegment() {
        throw new UnsupportedOperationException(
                ("the memory of %s cannot be accessed from the host: copy it to a host buffer with"
                                + " Stream.copy")
                        .formatted(device));
    }

    /** Accesses one element through a host buffer of one element. */
    private Buffer fetch(long index) {
        long from = at(index);
        Buffer one = Device.host().allocate(type, 1);
        boolean done = false;
        try {
            copy(one.address(), from, type.size());
            done = true;
            return one;
        } finally {
            if (!done) {
                one.close();
            }
        }
    }

    /**
     * Copies on the device's default stream, and waits. {@code cudaMemcpy} is not used: it waits
     * for every ordinary stream of the current device, whose work may be waiting for this same
     * thread.
     */
    private void copy(long to, long from, long bytes) {
        CudaStream stream = device.defaultStream();
        device.claim();
        device.beginAccess();
        try {
            CudaRuntime.check(
                    CudaRuntime.api()
                            .cudaMemcpyAsync(
                                    to, from, bytes, cudart_h.cudaMemcpyDefault(), stream.handle()),
                    "cudaMemcpyAsync");
            stream.synchronize();
        } finally {
            device.endAccess();
        }
    }

    @Override
    public double get(long index) {
        try (Buffer one = fetch(index)) {
            return one.get(0);
        }
    }

    @Override
    public long getLong(long index) {
        try (Buffer one = fetch(index)) {
            return one.getLong(0);
        }
    }

    @Override
    public void set(long index, double value) {
        long to = at(index);
        try (Buffer one = Device.host().allocate(type, 1)) {
            one.set(0, value);
            copy(to, one.address(), type.size());
        }
    }

    @Override
    public void setLong(long index, long value) {
        long to = at(index);
        try (Buffer one = Device.host().allocate(type, 1)) {
            one.setLong(0, value);
            copy(to, one.address(), type.size());
        }
    }

    @Override
    public Buffer zero() {
        long to = open();
        if (count > 0) {
            CudaStream stream = device.defaultStream();
            device.beginAccess();
            try {
                // A copy uses the stream's device, but a memset may be a kernel, which uses the
                // current one.
                int previous = device.enter();
                try {
                    CudaRuntime.check(
                            CudaRuntime.api().cudaMemsetAsync(to, 0, byteSize(), stream.handle()),
                            "cudaMemsetAsync");
                } finally {
                    device.exit(previous);
                }
                stream.synchronize();
            } finally {
                device.endAccess();
            }
        }
        return this;
    }

    @Override
    public Buffer copyFrom(MemorySegment source) {
        if (checked(source).isNative()) {
            try {
                copy(open(), source.address(), byteSize());
            } finally {
                Reference.reachabilityFence(source);
            }
        } else {
            try (Arena arena = Arena.ofConfined()) {
                copy(open(), stage(arena).copyFrom(source).address(), byteSize());
            }
        }
        return this;
    }

    @Override
    public void copyTo(MemorySegment target) {
        if (target.isReadOnly()) {
            throw new IllegalArgumentException("the memory to copy to is read-only");
        }
        if (checked(target).isNative()) {
            try {
                copy(target.address(), open(), byteSize());
            } finally {
                Reference.reachabilityFence(target);
            }
        } else {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment stage = stage(arena);
                copy(stage.address(), open(), byteSize());
                target.copyFrom(stage);
            }
        }
    }

    /** Native memory in the place of an array, which the garbage collector may move. */
    private MemorySegment stage(Arena arena) {
        return arena.allocate(Math.max(byteSize(), 1)).asSlice(0, byteSize());
    }

    private MemorySegment checked(MemorySegment memory) {
        if (memory.byteSize() != byteSize()) {
            throw new IllegalArgumentException(
                    this + " has " + byteSize() + " bytes, the memory " + memory.byteSize());
        }
        // CUDA receives only the address, so the segment's state is checked here.
        if (!memory.scope().isAlive()) {
            throw new IllegalStateException("the memory to copy from or to is closed: " + memory);
        }
        if (!memory.isAccessibleBy(Thread.currentThread())) {
            throw new WrongThreadException("the memory belongs to another thread: " + memory);
        }
        return memory;
    }

    @Override
    public void close() {
        if (!whole || !allocation.closed.compareAndSet(false, true)) {
            return;
        }
        Allocation lender = allocation.lender;
        LongConsumer release = allocation.release;
        if (release == null) {
            return;
        }
        if (lender == null) {
            CudaDevice.onPlatformThread(() -> release.accept(allocation.address));
        } else if (lender.isOpen()) {
            release.accept(allocation.address);
        }
    }

    @Override
    public String toString() {
        return "Buffer["
                + count
                + " x "
                + type.label()
                + " on "
                + device
                + (isOpen() ? "]" : ", closed]");
    }
}
