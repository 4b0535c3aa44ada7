package io.jccl.offload.nvme;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.offload.TierStore;

/**
 * Elements of one type in an {@link NvmeStore}. They are zeros until they are written.
 *
 * <p><b>Threads:</b> any. Operations on overlapping elements are unordered unless the first is
 * awaited before the second begins.
 */
public final class Region implements TierStore.Place {
    // Flags of a block's state.
    /** Which slot the last commit points to: 0 or 1. */
    static final int SLOT = 1;

    /** The last commit has the block; a block of a scratch store was written. */
    static final int WRITTEN = 2;

    /** The other slot has the block of the step that is not committed yet. */
    static final int DIRTY = 4;

    /** A write of this step failed or was cancelled. */
    static final int INCOMPLETE = 8;

    final NvmeStore store;
    final String name;
    final DataType type;
    final long count;

    /** Where slot 0 begins in the file. */
    final long base;

    /** Bytes of a slot, whole units of the store's padding. */
    final long slotBytes;

    final int slots;

    // All below is guarded by this.
    final byte[] flags;
    final int[][] checksums;

    /** Readers of each block; -1 if it is written. */
    private final byte[] users;

    private int waiting;
    private boolean closed;

    Region(NvmeStore store, String name, DataType type, long count, long base, int slots) {
        this.store = store;
        this.name = name;
        this.type = type;
        this.count = count;
        this.base = base;
        this.slots = slots;
        this.slotBytes = slotBytes(type, count, store.padding());
        int blocks = blocks(type, count, store.blockBytes());
        flags = new byte[blocks];
        checksums = new int[slots][blocks];
        users = new byte[blocks];
    }

    static long slotBytes(DataType type, long count, int padding) {
        return (count * type.size() + padding - 1) / padding * padding;
    }

    static int blocks(DataType type, long count, int blockBytes) {
        long blocks = (count * type.size() + blockBytes - 1) / blockBytes;
        if (blocks > Integer.MAX_VALUE - 8) {
            throw new IllegalArgumentException(
                    ("%s elements of %s take %s blocks of %s bytes, which are too many: take larger"
                                    + " blocks")
                            .formatted(count, type.label(), blocks, blockBytes));
        }
        return (int) blocks;
    }

    /**
     * The name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Element type.
     *
     * @return the type
     */
    public DataType dataType() {
        return type;
    }

    /**
     * Number of elements.
     *
     * @return 0 or more
     */
    public long count() {
        return count;
    }

    /**
     * Size of all elements. They take more on the drive, see {@link NvmeStore}.
     *
     * @return bytes
     */
    public long byteSize() {
        return count * type.size();
    }

    @Override
    public IoTicket read(Buffer pinned) {
        checkWhole(pinned);
        return store.read(this, 0, pinned);
    }

    @Override
    public IoTicket write(Buffer pinned) {
        checkWhole(pinned);
        return store.write(this, 0, pinned);
    }

    private void checkWhole(Buffer pinned) {
        if (pinned.count() != count) {
            throw new IllegalArgumentException(
                    ("the buffer has %s elements, %s; both need the same: for a part of the region"
                                    + " give its first element")
                            .formatted(pinned.count(), this));
        }
    }

    /**
     * In a scratch store, frees the room for new regions; all operations on the region must be
     * done. In a store that commits it does nothing: the elements stay.
     */
    @Override
    public void close() {
        if (store.isScratch()) {
            synchronized (this) {
                if (closed) {
                    return;
                }
                closed = true;
            }
            store.free(this);
        }
    }

    synchronized boolean isClosed() {
        return closed;
    }

    /** Elements of a block, in bytes. */
    int length(int block) {
        long from = (long) block * store.blockBytes();
        return (int) Math.min(store.blockBytes(), byteSize() - from);
    }

    long position(int block, int slot) {
        return base + slot * slotBytes + (long) block * store.blockBytes();
    }

    /** Takes a block, alone or together with other readers. */
    synchronized void enter(int block, boolean alone) {
        while (alone ? users[block] != 0 : users[block] < 0 || users[block] == Byte.MAX_VALUE) {
            waiting++;
            try {
                wait();
            } catch (InterruptedException e) {
                // Only the store's own threads come here, and only close() ends them.
            } finally {
                waiting--;
            }
        }
        users[block] = (byte) (alone ? -1 : users[block] + 1);
    }

    synchronized void leave(int block) {
        users[block] = (byte) (users[block] < 0 ? 0 : users[block] - 1);
        if (waiting > 0) {
            notifyAll();
        }
    }

    /** The slot with the newest content of a block, or -1 if it was never written. */
    synchronized int newest(int block) {
        int f = flags[block];
        if ((f & DIRTY) != 0) {
            return ~f & SLOT;
        }
        return (f & WRITTEN) != 0 ? f & SLOT : -1;
    }

    /** The slot to write a block to: never the one that the last commit points to. */
    synchronized int target(int block) {
        return slots == 1 ? 0 : ~flags[block] & SLOT;
    }

    synchronized int checksum(int block, int slot) {
        return checksums[slot][block];
    }

    synchronized void written(int block, int slot, int checksum, boolean whole) {
        checksums[slot][block] = checksum;
        flags[block] |= (byte) (slots == 1 ? WRITTEN : DIRTY);
        if (whole) {
            flags[block] &= ~INCOMPLETE;
        }
    }

    synchronized void incomplete(int from, int to) {
        for (int b = from; b < to; b++) {
            flags[b] |= INCOMPLETE;
        }
    }

    /** The first block that a failed write left incomplete, or -1. */
    synchronized int firstIncomplete() {
        for (int b = 0; b < flags.length; b++) {
            if ((flags[b] & INCOMPLETE) != 0) {
                return b;
            }
        }
        return -1;
    }

    /** Makes the newest content that of the last commit. */
    synchronized void committed() {
        for (int b = 0; b < flags.length; b++) {
            if ((flags[b] & DIRTY) != 0) {
                flags[b] = (byte) ((~flags[b] & SLOT) | WRITTEN);
            }
        }
    }

    /** What was written since the last commit cannot be trusted. */
    synchronized void distrust() {
        for (int b = 0; b < flags.length; b++) {
            if ((flags[b] & DIRTY) != 0) {
                flags[b] |= INCOMPLETE;
            }
        }
    }

    synchronized void rolledBack() {
        for (int b = 0; b < flags.length; b++) {
            flags[b] &= ~(DIRTY | INCOMPLETE);
        }
    }

    /** The state of a block after the next commit; see {@link Manifest}. */
    synchronized int stateToCommit(int block) {
        int slot = newest(block);
        return slot < 0 ? 0 : WRITTEN | slot;
    }

    synchronized void restore(int block, int state, int checksum) {
        flags[block] = (byte) state;
        if ((state & WRITTEN) != 0) {
            checksums[state & SLOT][block] = checksum;
        }
    }

    @Override
    public String toString() {
        return "region '" + name + "' of " + count + " x " + type.label();
    }
}
