package io.jccl.offload.nvme;

import io.jccl.device.Buffer;
import java.lang.foreign.MemorySegment;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;

/**
 * The memory of a buffer in the forms that I/O needs, created once per buffer, so that operations
 * create no objects.
 */
final class MemoryView {
    /** A ByteBuffer has at most 2^31 - 1 bytes. A block begins in one window and ends in it. */
    private static final int WINDOW_LOG2 = 30;

    final MemorySegment memory;
    private final WeakReference<Buffer> buffer;

    /** For each worker its own, since a ByteBuffer has a position. Empty for memory on the heap. */
    private final ByteBuffer[][] windows;

    MemoryView(Buffer buffer, int workers, int blockBytes) {
        this(buffer, buffer.asSegment(), workers, blockBytes);
    }

    /** A worker's own memory. */
    MemoryView(MemorySegment memory, int workers) {
        this(null, memory, workers, 0);
    }

    private MemoryView(
            @org.jspecify.annotations.Nullable Buffer buffer,
            MemorySegment memory,
            int workers,
            int blockBytes) {
        this.buffer = new WeakReference<>(buffer);
        this.memory = memory;
        long size = memory.byteSize();
        windows = new ByteBuffer[memory.isNative() ? workers : 0][];
        for (int w = 0; w < windows.length; w++) {
            windows[w] = new ByteBuffer[(int) ((size - 1) >> WINDOW_LOG2) + 1];
            for (int i = 0; i < windows[w].length; i++) {
                long from = (long) i << WINDOW_LOG2;
                long length = Math.min(size - from, (1L << WINDOW_LOG2) + blockBytes);
                windows[w][i] = memory.asSlice(from, length).asByteBuffer();
            }
        }
    }

    boolean isOf(Buffer other, MemorySegment now) {
        return memory == now && buffer.refersTo(other);
    }

    /** Whether the drive can reach the bytes from an offset on without a copy. */
    boolean isAligned(long at, int alignment) {
        return windows.length > 0 && ((memory.address() + at) & (alignment - 1)) == 0;
    }

    /** Some of the bytes, for one worker until its next call. */
    ByteBuffer bytes(int worker, long at, int length) {
        ByteBuffer window = windows[worker][(int) (at >> WINDOW_LOG2)];
        int from = (int) (at & ((1L << WINDOW_LOG2) - 1));
        window.limit(from + length).position(from);
        return window;
    }
}
