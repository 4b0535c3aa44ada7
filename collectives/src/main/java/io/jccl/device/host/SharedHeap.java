package io.jccl.device.host;

import io.jccl.internal.Waits;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Objects;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Memory of one process that the other processes of the job can map: files of a folder in a
 * shared-memory file system, each cut into blocks by first fit. Freed blocks are reused. A file is
 * deleted when the process leaves the job, or earlier if the file system is full and no buffer uses
 * it.
 *
 * <p><b>Threads:</b> any.
 */
public final class SharedHeap {
    private static final long FIRST_CHUNK = 4L << 20;
    private static final long MAX_GROWTH = 64L << 20;

    /** The last pause while memory is unmapped; each is twice as long as the one before. */
    private static final long UNMAP_MILLIS = 256;

    /** Blocks are aligned to cache lines, large ones to pages. */
    private static final long LINE = 64;

    private static final long PAGE = 4096;

    /** A run of bytes in a chunk. */
    record Block(int chunk, long at, long bytes, MemorySegment segment) {}

    /** The files of the chunks, which have numbers from 0. */
    public interface ChunkSource {
        MemorySegment create(int chunk, long bytes);

        /** Deletes a file; its memory is free once no process maps it. */
        void delete(int chunk);

        /** Unmaps what other processes have deleted; returns whether there was anything. */
        boolean unmapDeleted();
    }

    private record Chunk(MemorySegment memory, NavigableMap<Long, Long> free) {
        long freeBytes() {
            return free.values().stream().mapToLong(Long::longValue).sum();
        }
    }

    private static final Chunk DELETED = new Chunk(MemorySegment.NULL, new TreeMap<>());

    private final ChunkSource source;
    private final List<Chunk> chunks = new ArrayList<>();
    private long nextChunk = FIRST_CHUNK;

    public SharedHeap(ChunkSource source) {
        this.source = source;
    }

    private static long roundUp(long value, long unit) {
        return (value + unit - 1) / unit * unit;
    }

    synchronized Block allocate(long bytes) {
        long size = roundUp(Math.max(bytes, 1), bytes >= PAGE ? PAGE : LINE);
        for (int c = 0; c < chunks.size(); c++) {
            long at = take(chunks.get(c).free, size);
            if (at >= 0) {
                Block b = block(c, at, bytes);
                b.segment.fill((byte) 0);
                return b;
            }
        }
        MemorySegment memory = create(roundUp(size, PAGE));
        nextChunk = Math.min(nextChunk * 2, MAX_GROWTH);
        NavigableMap<Long, Long> free = new TreeMap<>();
        free.put(0L, memory.byteSize());
        chunks.add(new Chunk(memory, free));
        return block(chunks.size() - 1, take(free, size), bytes);
    }

    private MemorySegment create(long least) {
        // As much again as is free in blocks that are too small, up to twice the request: otherwise
        // each of many buffers of growing sizes would leave a chunk in which the next one does not
        // fit.
        long free = chunks.stream().mapToLong(Chunk::freeBytes).sum();
        long wanted = Math.max(least, Math.max(nextChunk, Math.min(free, 2 * least)));
        try {
            return source.create(chunks.size(), wanted);
        } catch (SharedMemoryFullException e) {
            // Extra growth is optional; only the requested size must fit.
        }
        try {
            return source.create(chunks.size(), least);
        } catch (SharedMemoryFullException e) {
            boolean deleted = deleteUnused();
            if (source.unmapDeleted() || deleted) {
                return createAfterUnmapping(least, free);
            }
            throw e;
        }
    }

    private boolean deleteUnused() {
        boolean any = false;
        for (int c = 0; c < chunks.size(); c++) {
            Chunk chunk = chunks.get(c);
            long bytes = chunk.memory.byteSize(); // 0 if it is deleted already
            if (bytes > 0 && chunk.freeBytes() == bytes) {
                source.delete(c);
                chunks.set(c, DELETED);
                any = true;
            }
        }
        return any;
    }

    /** This process unmaps its own chunks when they are garbage, others when they are full too. */
    private MemorySegment createAfterUnmapping(long least, long free) {
        for (long millis = 1; ; millis *= 2) {
            System.gc();
            Waits.park(TimeUnit.MILLISECONDS.toNanos(millis));
            boolean unused = source.unmapDeleted();
            try {
                return source.create(chunks.size(), least);
            } catch (SharedMemoryFullException e) {
                if (millis >= UNMAP_MILLIS) {
                    throw new SharedMemoryFullException(
                            ("%s. Closed buffers of this rank have left %s bytes, in pieces that"
                                            + " are too small or that a process still has mapped")
                                    .formatted(e.getMessage(), free));
                }
            }
        }
    }

    private Block block(int chunk, long at, long bytes) {
        return new Block(chunk, at, bytes, chunks.get(chunk).memory.asSlice(at, bytes));
    }

    private static long take(NavigableMap<Long, Long> free, long size) {
        // Large blocks are rounded to pages, so a partial page before one is skipped.
        long unit = size >= PAGE ? PAGE : LINE;
        long from = -1;
        for (Map.Entry<Long, Long> e : free.entrySet()) {
            if (roundUp(e.getKey(), unit) + size <= e.getKey() + e.getValue()) {
                from = e.getKey();
                break;
            }
        }
        if (from < 0) {
            return -1;
        }
        long end = from + Objects.requireNonNull(free.remove(from));
        long at = roundUp(from, unit);
        if (at > from) {
            free.put(from, at - from);
        }
        if (at + size < end) {
            free.put(at + size, end - at - size);
        }
        return at;
    }

    synchronized void free(Block b) {
        NavigableMap<Long, Long> free = chunks.get(b.chunk).free;
        long at = b.at;
        long size = roundUp(Math.max(b.bytes, 1), b.bytes >= PAGE ? PAGE : LINE);
        Map.Entry<Long, Long> before = free.lowerEntry(at);
        if (before != null && before.getKey() + before.getValue() == at) {
            free.remove(before.getKey());
            at = before.getKey();
            size += before.getValue();
        }
        Long after = free.remove(at + size);
        free.put(at, after == null ? size : size + after);
    }

    /** This process's mapping of a chunk. */
    public synchronized MemorySegment chunk(int chunk) {
        return chunks.get(chunk).memory;
    }
}
