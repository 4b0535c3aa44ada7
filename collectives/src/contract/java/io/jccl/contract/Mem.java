package io.jccl.contract;

import io.jccl.contract.Case.Memory;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A buffer of one kind of memory, with guard bytes around it wherever the kind has room for them.
 */
final class Mem implements AutoCloseable {
    private static final byte POISON = (byte) 0xA5;
    private static final int GUARD_ELEMENTS = 37;
    private static final Memory[] KINDS = {
        Memory.LIBRARY,
        Memory.HEAP,
        Memory.OFF_HEAP,
        Memory.LIBRARY_SLICE,
        Memory.HEAP_TYPED,
        Memory.UNALIGNED,
        Memory.ADDRESS
    };

    private final Buffer buffer;
    private final MemorySegment whole;
    private final long start;
    private final long end;
    private final @Nullable Buffer owner;
    private final @Nullable Arena arena;

    /** All of the device's memory that {@link #whole} mirrors, where the host cannot touch it. */
    private final @Nullable Buffer mirrored;

    private Mem(
            Buffer buffer,
            MemorySegment whole,
            long start,
            @Nullable Buffer owner,
            @Nullable Arena arena) {
        this(buffer, whole, start, owner, arena, null);
    }

    private Mem(
            Buffer buffer,
            MemorySegment whole,
            long start,
            @Nullable Buffer owner,
            @Nullable Arena arena,
            @Nullable Buffer mirrored) {
        this.buffer = buffer;
        this.whole = whole;
        this.start = start;
        this.end = start + buffer.byteSize();
        this.owner = owner;
        this.arena = arena;
        this.mirrored = mirrored;
        poison();
    }

    /** Gives the device what the host has written. */
    void push() {
        if (mirrored != null) {
            mirrored.copyFrom(whole);
        }
    }

    /** Gives the host what the device has written. */
    void pull() {
        if (mirrored != null) {
            mirrored.copyTo(whole);
        }
    }

    /** Device memory of each kind that devices have, with guards and a mirror on the host. */
    private static Mem onGpu(Device device, Memory kind, DataType type, long count) {
        boolean guarded = kind != Memory.LIBRARY;
        long room = guarded ? count + 2L * GUARD_ELEMENTS : count;
        int from = !guarded ? 0 : kind == Memory.UNALIGNED ? 3 : 32;
        Buffer all =
                switch (kind) {
                    case HEAP -> Cuda.allocateAsync(device.defaultStream(), type, room);
                    case HEAP_TYPED -> Cuda.allocateForNccl(device, type, room);
                    default -> device.allocate(type, room);
                };
        device.defaultStream().synchronize();
        Buffer part =
                kind == Memory.ADDRESS || kind == Memory.OFF_HEAP
                        ? Cuda.wrapAddress(
                                device, all.address() + (long) from * type.size(), type, count)
                        : guarded ? all.slice(from, count) : all;
        Arena arena = Arena.ofShared();
        MemorySegment mirror = arena.allocate(Math.max(all.byteSize(), 1), 64);
        return new Mem(
                part,
                mirror.asSlice(0, all.byteSize()),
                (long) from * type.size(),
                all,
                arena,
                all);
    }

    /**
     * Allocates.
     *
     * @param which tells the buffers of one case apart, for MIXED
     */
    static Mem allocate(Device device, Memory kind, int which, DataType type, long count) {
        int size = type.size();
        if (device.kind() == Device.Kind.CUDA && kind != Memory.MIXED) {
            return onGpu(device, kind, type, count);
        }
        long bytes = count * size;
        long room = bytes + 2L * GUARD_ELEMENTS * size + 16;
        return switch (kind) {
            case MIXED ->
                    allocate(device, KINDS[Math.floorMod(which, KINDS.length)], 0, type, count);
            case LIBRARY -> {
                Buffer all = device.allocate(type, count);
                yield new Mem(all, all.asSegment(), 0, all, null);
            }
            case LIBRARY_SLICE -> {
                Buffer all = device.allocate(type, count + 2 * GUARD_ELEMENTS);
                Buffer part = all.slice(3, count);
                yield new Mem(part, all.asSegment(), 3L * size, all, null);
            }
            case OFF_HEAP, UNALIGNED, ADDRESS -> {
                Arena arena = Arena.ofShared();
                MemorySegment all = arena.allocate(room, 64);
                long at = kind == Memory.UNALIGNED ? 3L * size + 1 : 8L * size;
                MemorySegment part = all.asSlice(at, bytes);
                Buffer view =
                        kind == Memory.ADDRESS
                                ? Buffer.wrapAddress(part.address(), type, count)
                                : Buffer.wrap(part, type);
                yield new Mem(view, all, at, null, arena);
            }
            case HEAP, HEAP_TYPED -> {
                boolean typed = kind == Memory.HEAP_TYPED;
                MemorySegment all = array(typed ? size : 1, type, Math.toIntExact(room));
                long at = typed ? 3L * size : 5;
                Buffer view = Buffer.wrap(all.asSlice(at, bytes), type);
                yield new Mem(view, all, at, null, null);
            }
        };
    }

    private static MemorySegment array(int size, DataType type, int bytes) {
        return switch (size) {
            case 1 -> MemorySegment.ofArray(new byte[bytes]);
            case 2 -> MemorySegment.ofArray(new short[bytes / 2]);
            case 4 ->
                    type.isInteger()
                            ? MemorySegment.ofArray(new int[bytes / 4])
                            : MemorySegment.ofArray(new float[bytes / 4]);
            default ->
                    type.isInteger()
                            ? MemorySegment.ofArray(new long[bytes / 8])
                            : MemorySegment.ofArray(new double[bytes / 8]);
        };
    }

    Buffer buffer() {
        return buffer;
    }

    /** Fills all of it, guards too. */
    void poison() {
        whole.fill(POISON);
    }

    void fill(Pattern pattern, long from, long count, long phase) {
        pattern.fill(whole, start + from * buffer.dataType().size(), count, phase);
    }

    @Nullable String check(Pattern pattern, long from, long count, long phase) {
        return pattern.check(whole, start + from * buffer.dataType().size(), count, phase);
    }

    /** Says whether elements that nobody should have written were written. */
    @Nullable String checkPoison(long from, long count) {
        int size = buffer.dataType().size();
        return poisonFrom(start + from * size, start + (from + count) * size);
    }

    @Nullable String checkGuards() {
        String before = poisonFrom(0, start);
        return before != null ? before : poisonFrom(end, whole.byteSize());
    }

    private @Nullable String poisonFrom(long from, long to) {
        for (long at = from; at < to; ) {
            int n = (int) Math.min(to - at, POISON_BYTES.byteSize());
            long differs = MemorySegment.mismatch(whole, at, at + n, POISON_BYTES, 0, n);
            if (differs >= 0) {
                return "byte "
                        + (at + differs - start)
                        + " of "
                        + (end - start)
                        + " was overwritten";
            }
            at += n;
        }
        return null;
    }

    private static final MemorySegment POISON_BYTES =
            MemorySegment.ofArray(new byte[1 << 16]).fill(POISON);

    @Override
    public void close() {
        buffer.close();
        if (owner != null) {
            owner.close();
        }
        if (arena != null) {
            arena.close();
        }
    }
}
