package io.jccl.offload.nvme;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.zip.CRC32C;
import org.jspecify.annotations.Nullable;

/**
 * Moves blocks between buffers and the file, one at a time, and computes and verifies checksums;
 * each worker of a store has one.
 */
final class BlockMover {
    private final StoreFiles files;
    private final int number;
    private final CRC32C crc = new CRC32C();
    private @Nullable MemoryView own;

    BlockMover(StoreFiles files, int number) {
        this.files = files;
        this.number = number;
    }

    /**
     * Moves the part of a block that an operation covers, and returns whether it had to be copied.
     */
    boolean move(IoTicket t, Region region, int block, MemoryView view) throws IOException {
        long blockAt = (long) block * files.blockBytes;
        int length = region.length(block);
        int from = (int) Math.max(0, t.from - blockAt);
        int to = (int) Math.min(length, t.to - blockAt);
        long at = blockAt + from - t.from;
        boolean whole = from == 0 && to == length;
        boolean inPlace =
                whole && length % files.padding == 0 && view.isAligned(at, files.file.alignment());
        if (t.write) {
            write(region, block, view, at, from, to, inPlace);
            return !inPlace;
        }
        int slot = region.newest(block);
        if (slot < 0) {
            view.memory.asSlice(at, to - from).fill((byte) 0);
            return false;
        }
        if (inPlace) {
            load(region, block, slot, view, at);
            return false;
        }
        MemoryView mine = own();
        load(region, block, slot, mine, 0);
        MemorySegment.copy(mine.memory, from, view.memory, at, to - from);
        return true;
    }

    private void write(
            Region region, int block, MemoryView view, long at, int from, int to, boolean inPlace)
            throws IOException {
        int length = region.length(block);
        int slot = region.target(block);
        MemoryView source = view;
        if (!inPlace) {
            source = own();
            if (to - from < length) {
                int newest = region.newest(block);
                if (newest < 0) {
                    source.memory.fill((byte) 0);
                } else {
                    load(region, block, newest, source, 0);
                }
            }
            MemorySegment.copy(view.memory, at, source.memory, from, to - from);
            at = 0;
        }
        crc.reset();
        crc.update(source.bytes(number, at, length));
        int checksum = (int) crc.getValue();
        files.file.write(source, number, at, padded(length), region.position(block, slot));
        region.written(block, slot, checksum, to - from == length);
    }

    /** Reads a block and verifies it. */
    private void load(Region region, int block, int slot, MemoryView into, long at)
            throws IOException {
        int length = region.length(block);
        long position = region.position(block, slot);
        int n = files.file.read(into, number, at, padded(length), position);
        if (n < length) {
            throw new CorruptStoreException(
                    files.data,
                    position + n,
                    "short read in block " + block + " of " + region,
                    length + " bytes",
                    n + " bytes",
                    "the file was cut short: restore it from a copy");
        }
        crc.reset();
        crc.update(into.bytes(number, at, length));
        int expected = region.checksum(block, slot);
        int found = (int) crc.getValue();
        if (expected != found) {
            throw new CorruptStoreException(
                    files.data,
                    position,
                    "block " + block + " of " + region + " was torn or changed",
                    "CRC32C 0x" + Integer.toHexString(expected),
                    "0x" + Integer.toHexString(found),
                    "roll back if this step wrote it, else restore the folder from a copy");
        }
    }

    private int padded(int length) {
        return (length + files.padding - 1) / files.padding * files.padding;
    }

    /** Aligned memory for a block that cannot move in place. */
    private MemoryView own() {
        MemoryView mine = own;
        if (mine == null) {
            mine =
                    new MemoryView(
                            MemorySegment.ofBuffer(
                                    FileBackend.aligned(
                                            files.blockBytes,
                                            Math.max(files.padding, files.file.alignment()))),
                            number + 1);
            own = mine;
        }
        return mine;
    }
}
