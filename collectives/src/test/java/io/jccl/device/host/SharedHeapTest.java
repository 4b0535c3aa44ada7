package io.jccl.device.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.testkit.Messages;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** How much memory closed buffers hold: each is larger than the one before. */
class SharedHeapTest {
    private static final long MIB = 1 << 20;

    /** Chunks in a file system with limited space. */
    private static final class Chunks implements SharedHeap.ChunkSource {
        final List<Long> sizes = new ArrayList<>();
        private final long space;

        Chunks(long space) {
            this.space = space;
        }

        long used() {
            return sizes.stream().mapToLong(Long::longValue).sum();
        }

        @Override
        public MemorySegment create(int chunk, long bytes) {
            if (used() + bytes > space) {
                throw new SharedMemoryFullException("full");
            }
            assertEquals(sizes.size(), chunk, "no number is used twice");
            sizes.add(bytes);
            return Arena.ofAuto().allocate(bytes);
        }

        @Override
        public void delete(int chunk) {
            sizes.set(chunk, 0L);
        }

        @Override
        public boolean unmapDeleted() {
            return false;
        }
    }

    @Test
    void chunksGrowWithWhatIsFree() {
        Chunks chunks = new Chunks(Long.MAX_VALUE);
        SharedHeap heap = new SharedHeap(chunks);
        long last = 72 * MIB;
        for (long bytes = 66 * MIB; bytes <= last; bytes += MIB) {
            heap.free(heap.allocate(bytes));
        }
        assertTrue(chunks.used() <= 4 * last, chunks.sizes::toString);
    }

    @Test
    void chunksThatNobodyUsesAreDeletedWhenSpaceIsShort() {
        Chunks chunks = new Chunks(16 * MIB);
        SharedHeap heap = new SharedHeap(chunks);
        SharedHeap.Block kept = heap.allocate(MIB);
        kept.segment().fill((byte) 7);
        for (long bytes = MIB; bytes <= 12 * MIB; bytes += MIB) {
            SharedHeap.Block block = heap.allocate(bytes);
            assertEquals(0, block.segment().get(ValueLayout.JAVA_LONG, 0), "not zero");
            block.segment().set(ValueLayout.JAVA_LONG, 0, bytes);
            if (bytes < 12 * MIB) {
                heap.free(block);
            }
        }
        assertEquals(7, kept.segment().get(ValueLayout.JAVA_BYTE, MIB - 1));
        assertTrue(chunks.used() <= 16 * MIB, chunks.sizes::toString);
        // Nothing can be deleted any more.
        assertEquals(
                "full", Messages.of(SharedMemoryFullException.class, () -> heap.allocate(5 * MIB)));
    }
}
