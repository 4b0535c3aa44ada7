package io.jccl.engine.mpi;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Native memory that grows as needed and is kept for later operations. */
final class Scratch {
    private static final long LEAST = 4096;

    private @Nullable Arena arena;
    private MemorySegment segment = MemorySegment.NULL;

    /** At least that many bytes, aligned to a cache line. */
    MemorySegment atLeast(long bytes) {
        if (segment.byteSize() < bytes || arena == null) {
            free();
            Arena made = Arena.ofShared();
            arena = made;
            segment = made.allocate(Math.max(LEAST, bytes), 64);
        }
        return segment;
    }

    /** Frees the memory; only if MPI has no request that uses it. */
    void free() {
        if (arena != null) {
            arena.close();
            arena = null;
            segment = MemorySegment.NULL;
        }
    }
}
