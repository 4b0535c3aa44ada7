package io.jccl.bootstrap;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * A process's mappings of the other processes' heap chunks: valid until it leaves, or until their
 * owner, which no longer uses them, has deleted the file.
 *
 * <p><b>Threads:</b> any.
 */
final class PeerChunks {
    private record Chunk(MemorySegment memory, Arena arena) {}

    private final SharedFolder folder;
    private final ConcurrentHashMap<Long, Chunk> chunks = new ConcurrentHashMap<>();

    PeerChunks(SharedFolder folder) {
        this.folder = folder;
    }

    /** The file of a chunk of a rank's heap. */
    static String file(int rank, int chunk) {
        return files(rank) + chunk;
    }

    /** How the names of a rank's files begin. */
    static String files(int rank) {
        return "heap-" + rank + "-";
    }

    private static Long key(int rank, int chunk) {
        return (long) rank << 32 | chunk;
    }

    /** A mapping; null if it was not needed before. */
    @Nullable MemorySegment get(int rank, int chunk) {
        Chunk known = chunks.get(key(rank, chunk));
        return known == null ? null : known.memory;
    }

    MemorySegment map(int rank, int chunk) {
        return chunks.computeIfAbsent(key(rank, chunk), k -> open(file(rank, chunk))).memory;
    }

    private Chunk open(String file) {
        Arena arena = Arena.ofShared();
        boolean done = false;
        try {
            Chunk opened = new Chunk(folder.map(file, -1, arena), arena);
            done = true;
            return opened;
        } finally {
            if (!done) {
                arena.close();
            }
        }
    }

    /** Unmaps what its owner has deleted; returns whether there was anything. */
    boolean unmapDeleted() {
        boolean any = false;
        for (long key : chunks.keySet()) {
            int owner = (int) (key >>> 32);
            // What a rank leaves behind at its end remains readable.
            if (folder.size(file(owner, (int) key)) < 0 && folder.isHeld(owner)) {
                unmap(key);
                any = true;
            }
        }
        return any;
    }

    void unmapAll() {
        chunks.keySet().forEach(this::unmap);
    }

    private void unmap(long key) {
        Chunk chunk = chunks.remove(key);
        if (chunk != null) {
            chunk.arena.close();
        }
    }
}
