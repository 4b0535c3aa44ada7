package io.jccl.device.host;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The host's memory and cores. Buffers are in private memory or in memory shared with other
 * processes.
 */
public final class HostDevice implements Device {
    private static final HostDevice LOCAL = new HostDevice(null);
    private static final long ALIGNMENT = 64;

    private final @Nullable SharedHeap heap;
    private final HostStream defaultStream = HostStream.inline(this);

    public HostDevice(@Nullable SharedHeap heap) {
        this.heap = heap;
    }

    /** See {@link Device#host}. */
    public static HostDevice local() {
        return LOCAL;
    }

    /** Size of elements in bytes, checked. */
    public static long bytes(DataType type, long count) {
        Objects.requireNonNull(type, "type");
        if (count < 0 || count > Long.MAX_VALUE / 16) {
            throw new IllegalArgumentException(
                    "count is " + count + ", expected 0 to " + Long.MAX_VALUE / 16);
        }
        return count * type.size();
    }

    @Override
    public Kind kind() {
        return Kind.HOST;
    }

    @Override
    public int index() {
        return 0;
    }

    @Override
    public Buffer allocate(DataType type, long count) {
        long bytes = bytes(type, count);
        if (heap != null) {
            SharedHeap.Block b = heap.allocate(bytes);
            return HostBuffer.owned(
                    this, b.segment(), type, count, b.chunk(), b.at(), () -> heap.free(b));
        }
        Arena arena = Arena.ofShared();
        try {
            MemorySegment s = arena.allocate(bytes, ALIGNMENT);
            return HostBuffer.owned(this, s, type, count, HostBuffer.PRIVATE, 0, arena::close);
        } catch (OutOfMemoryError e) {
            arena.close();
            String why = String.valueOf(e.getMessage());
            // The JVM's own limit has such a message; otherwise the system has refused it.
            String limit =
                    why.startsWith("Cannot reserve")
                            ? "-XX:MaxDirectMemorySize"
                            : "the process's limit (ulimit -v)";
            throw new JcclException(
                    ("no memory for a buffer of %s elements of %s (%s bytes): %s; free other"
                                    + " buffers, or raise %s")
                            .formatted(count, type.label(), bytes, why, limit),
                    e);
        }
    }

    @Override
    public Stream defaultStream() {
        return defaultStream;
    }

    @Override
    public Stream newStream() {
        return HostStream.threaded(this);
    }

    @Override
    public Event newEvent() {
        return new HostEvent();
    }

    @Override
    public String toString() {
        return heap == null ? "host" : "host (shared memory)";
    }
}
