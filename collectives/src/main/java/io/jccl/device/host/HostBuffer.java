package io.jccl.device.host;

import io.jccl.bindings.internal.ForeignMemory;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.jspecify.annotations.Nullable;

/** Elements in host memory. */
public final class HostBuffer implements Buffer {
    /** The chunk number of memory that other processes cannot see. */
    public static final int PRIVATE = -1;

    private final HostDevice device;
    private final MemorySegment segment;
    private final MemorySegment.Scope scope;
    private final DataType type;
    private final long count;

    /** The array on the Java heap, or null for native memory. */
    private final @Nullable Object base;

    private final long address;
    private final boolean plain;

    /** Where other processes find the elements: a chunk of this process's shared heap. */
    private final int chunk;

    private final long chunkAt;

    /** The buffer that owns the memory; this one unless it is a slice. */
    private final HostBuffer owner;

    /** The buffer that lent the memory; closing it closes this one. Null if none did. */
    private final @Nullable HostBuffer lender;

    private final @Nullable Runnable release;
    private volatile boolean closed;

    /** The last slice of this buffer; slices have no state, so any thread may see any of them. */
    private @Nullable HostBuffer lastSlice;

    /** Whether the memory outlives this buffer; guarded by this. */
    private boolean kept;

    private HostBuffer(
            HostDevice device,
            MemorySegment segment,
            DataType type,
            long count,
            int chunk,
            long chunkAt,
            @Nullable HostBuffer owner,
            @Nullable HostBuffer lender,
            @Nullable Runnable release) {
        this.device = device;
        this.segment = segment;
        this.type = type;
        this.count = count;
        this.base = segment.heapBase().orElse(null);
        this.address = segment.address();
        this.plain = base == null && (address & (type.size() - 1)) == 0;
        this.scope = segment.scope();
        this.chunk = chunk;
        this.chunkAt = chunkAt;
        this.owner = owner == null ? this : owner;
        this.lender = lender;
        this.release = release;
    }

    static HostBuffer owned(
            HostDevice device,
            MemorySegment segment,
            DataType type,
            long count,
            int chunk,
            long chunkAt,
            Runnable release) {
        return new HostBuffer(device, segment, type, count, chunk, chunkAt, null, null, release);
    }

    /** Memory not managed by the JVM, freed when the buffer is closed. */
    public static HostBuffer owning(
            MemorySegment memory, DataType type, long count, Runnable release) {
        return owned(HostDevice.local(), memory, type, count, PRIVATE, 0, release);
    }

    /** See {@link Buffer#wrap}. */
    public static HostBuffer wrap(MemorySegment memory, DataType type) {
        Objects.requireNonNull(memory, "memory");
        Objects.requireNonNull(type, "type");
        if (memory.byteSize() % type.size() != 0) {
            throw new IllegalArgumentException(
                    ("the memory has %s bytes, which is not a multiple of the %s that an element"
                                    + " of %s takes")
                            .formatted(memory.byteSize(), type.size(), type.label()));
        }
        if (memory.isReadOnly()) {
            throw new IllegalArgumentException("the memory is read-only; wrap writable memory");
        }
        if (!memory.isAccessibleBy(Probe.THREAD)) {
            throw new IllegalArgumentException(
                    "the memory is confined to one thread, but other ranks' threads read it; allocate"
                            + " it from Arena.ofShared() or ofAuto()");
        }
        return new HostBuffer(
                HostDevice.local(),
                memory,
                type,
                memory.byteSize() / type.size(),
                PRIVATE,
                0,
                null,
                null,
                null);
    }

    /** A thread that never runs, to check whether memory is accessible to other threads. */
    private static final class Probe {
        static final Thread THREAD = Thread.ofPlatform().unstarted(() -> {});
    }

    /** See {@link Buffer#wrapAddress}. */
    public static HostBuffer wrapAddress(long address, DataType type, long count) {
        long bytes = HostDevice.bytes(type, count);
        if (address == 0 && count > 0) {
            throw new IllegalArgumentException(
                    "address is 0, expected the address of " + count + " elements");
        }
        return wrap(ForeignMemory.at(address, bytes), type);
    }

    /** Buffers whose memory is never freed; they also keep its lender and wrappers reachable. */
    private static final Queue<HostBuffer> KEPT = new ConcurrentLinkedQueue<>();

    /**
     * Keeps the memory allocated until the process ends, even after this buffer, its slices and its
     * lender are closed, since native code that cannot be stopped may still access it. Closing
     * works as usual but frees nothing. This does not cover wrapped memory that the user frees.
     */
    public void keep() {
        HostBuffer o = owner;
        synchronized (o) {
            if (o.kept) {
                return;
            }
            o.kept = true;
        }
        KEPT.add(o);
        if (o.lender != null) {
            o.lender.keep();
        }
    }

    /** The memory, also of a closed buffer. */
    public MemorySegment segment() {
        return segment;
    }

    public int chunk() {
        return chunk;
    }

    public long chunkAt() {
        return chunkAt;
    }

    /** The array on the Java heap; null for native memory. */
    public @Nullable Object base() {
        return base;
    }

    /** Whether this is native memory that is aligned for its type, so that C can use it. */
    public boolean isPlain() {
        return plain;
    }

    public boolean isOpen() {
        HostBuffer o = owner;
        return !o.closed && scope.isAlive() && (o.lender == null || o.lender.isOpen());
    }

    private MemorySegment open() {
        if (!isOpen()) {
            throw new IllegalStateException("the buffer of " + count + " elements is closed");
        }
        return segment;
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
        MemorySegment open = open();
        long at = from * type.size();
        HostBuffer last = lastSlice;
        if (last != null && last.address == address + at && last.count == count) {
            return last;
        }
        HostBuffer slice =
                new HostBuffer(
                        device,
                        open.asSlice(at, count * type.size()),
                        type,
                        count,
                        chunk,
                        chunkAt + at,
                        owner,
                        null,
                        null);
        lastSlice = slice;
        return slice;
    }

    @Override
    public Buffer lease(long fromByte, DataType type, long count, Runnable release) {
        long bytes = HostDevice.bytes(type, count);
        Objects.checkFromIndexSize(fromByte, bytes, byteSize());
        Objects.requireNonNull(release, "release");
        return new HostBuffer(
                device,
                open().asSlice(fromByte, bytes),
                type,
                count,
                chunk,
                chunkAt + fromByte,
                null,
                owner,
                release);
    }

    @Override
    public MemorySegment asSegment() {
        return open();
    }

    @Override
    public double get(long index) {
        return Codec.get(open(), type, Objects.checkIndex(index, count));
    }

    @Override
    public void set(long index, double value) {
        Codec.set(open(), type, Objects.checkIndex(index, count), value);
    }

    @Override
    public long getLong(long index) {
        return Codec.getLong(open(), type, Objects.checkIndex(index, count));
    }

    @Override
    public void setLong(long index, long value) {
        Codec.setLong(open(), type, Objects.checkIndex(index, count), value);
    }

    @Override
    public Buffer zero() {
        open().fill((byte) 0);
        return this;
    }

    @Override
    public void close() {
        if (owner != this) {
            return;
        }
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            if (kept) {
                return;
            }
        }
        if (release != null && (lender == null || lender.isOpen())) {
            release.run();
        }
    }

    @Override
    public String toString() {
        return "Buffer[" + count + " x " + type.label() + (isOpen() ? "]" : ", closed]");
    }
}
