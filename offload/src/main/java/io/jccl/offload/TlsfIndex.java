package io.jccl.offload;

import java.util.Arrays;

/**
 * The blocks that slabs are cut into, in units of the pool's alignment; no memory. Free blocks are
 * kept by size in two levels (powers of two, each cut into 32), so that taking and giving back cost
 * the same however many blocks there are; neighbours that are free become one block. Source: M.
 * Masmano et al., TLSF: a new dynamic memory allocator for real-time systems, ECRTS 2004.
 *
 * <p><b>Threads:</b> one at a time: the pool's monitor guards it.
 */
final class TlsfIndex {
    /** No block. */
    static final int NONE = -1;

    private static final int SUBDIVISIONS_LOG2 = 5;
    private static final int SUBDIVISIONS = 1 << SUBDIVISIONS_LOG2;

    /** First free block of each size class. */
    private final int[][] heads = new int[Long.SIZE][SUBDIVISIONS];

    /** Which classes of a power of two have free blocks, and which powers have any. */
    private final int[] classes = new int[Long.SIZE];

    private long powers;

    // Blocks, one index each.
    private int[] slabOf = new int[0];
    private long[] start = new long[0];
    private long[] size = new long[0];
    private int[] before = new int[0];
    private int[] after = new int[0];
    private int[] nextFree = new int[0];
    private int[] previousFree = new int[0];

    /** Odd while the block is out; part of the handle, so that an old handle is known. */
    private int[] generation = new int[0];

    /** Unused block indices, linked by {@link #after}. */
    private int spare = NONE;

    private int blocks;

    TlsfIndex() {
        for (int[] row : heads) {
            Arrays.fill(row, NONE);
        }
    }

    /** Block indices in use or spare: all are below. */
    int blocks() {
        return blocks;
    }

    /** Capacity in block indices, for arrays parallel to those here. */
    int capacity() {
        return start.length;
    }

    /** The slab that a block is part of, negative if the index is of no block. */
    int slab(int block) {
        return slabOf[block];
    }

    /** Where a block starts in its slab. */
    long start(int block) {
        return start[block];
    }

    long size(int block) {
        return size[block];
    }

    int generation(int block) {
        return generation[block];
    }

    boolean isFree(int block) {
        return (generation[block] & 1) == 0;
    }

    /** A free block that is a whole slab. */
    int add(int slab, long units) {
        int block = newBlock(slab, 0, units);
        before[block] = NONE;
        after[block] = NONE;
        link(block);
        return block;
    }

    /** Forgets a free block that is a whole slab. */
    void remove(int block) {
        unlink(block);
        discard(block);
    }

    /** Takes the first units of a free block; the rest stays free. */
    void take(int block, long units) {
        unlink(block);
        if (size[block] > units) {
            int rest = newBlock(slabOf[block], start[block] + units, size[block] - units);
            after[rest] = after[block];
            before[rest] = block;
            if (after[rest] != NONE) {
                before[after[rest]] = rest;
            }
            after[block] = rest;
            size[block] = units;
            link(rest);
        }
        generation[block]++;
    }

    /** Makes a block free, and one with its neighbours that are. */
    void give(int block) {
        generation[block]++;
        int next = after[block];
        if (next != NONE && isFree(next)) {
            unlink(next);
            absorb(block, next);
        }
        int previous = before[block];
        if (previous != NONE && isFree(previous)) {
            unlink(previous);
            absorb(previous, block);
            block = previous;
        }
        link(block);
    }

    /** Extends {@code block} to the end of {@code next}, which is then no longer a block. */
    private void absorb(int block, int next) {
        size[block] += size[next];
        after[block] = after[next];
        if (after[block] != NONE) {
            before[after[block]] = block;
        }
        discard(next);
    }

    // A size class: its power of two, and which of the parts of that power.

    private static int power(long units) {
        return Long.SIZE - 1 - Long.numberOfLeadingZeros(units);
    }

    private static int part(long units, int power) {
        return power < SUBDIVISIONS_LOG2
                ? (int) (units << (SUBDIVISIONS_LOG2 - power)) & (SUBDIVISIONS - 1)
                : (int) (units >>> (power - SUBDIVISIONS_LOG2)) & (SUBDIVISIONS - 1);
    }

    private void link(int block) {
        int power = power(size[block]);
        int part = part(size[block], power);
        int head = heads[power][part];
        previousFree[block] = NONE;
        nextFree[block] = head;
        if (head != NONE) {
            previousFree[head] = block;
        }
        heads[power][part] = block;
        classes[power] |= 1 << part;
        powers |= 1L << power;
    }

    private void unlink(int block) {
        int next = nextFree[block];
        int previous = previousFree[block];
        if (next != NONE) {
            previousFree[next] = previous;
        }
        if (previous != NONE) {
            nextFree[previous] = next;
            return;
        }
        int power = power(size[block]);
        int part = part(size[block], power);
        heads[power][part] = next;
        if (next == NONE) {
            classes[power] &= ~(1 << part);
            if (classes[power] == 0) {
                powers &= ~(1L << power);
            }
        }
    }

    /** A free block of at least this many units, or {@link #NONE}. */
    int find(long units) {
        int power = power(units);
        int part = part(units, power);
        // Blocks of the same class may be a little too small: look at the first, which often
        // fits, as sizes repeat. All in higher classes fit.
        int same = heads[power][part];
        if (same != NONE && size[same] >= units) {
            return same;
        }
        int larger = part + 1 == SUBDIVISIONS ? 0 : classes[power] & (-1 << (part + 1));
        if (larger == 0) {
            long above = power + 1 == Long.SIZE ? 0 : powers & (-1L << (power + 1));
            if (above == 0) {
                return sameClass(same, units);
            }
            power = Long.numberOfTrailingZeros(above);
            larger = classes[power];
        }
        return heads[power][Integer.numberOfTrailingZeros(larger)];
    }

    /** The last resort before another slab: the rest of the class. */
    private int sameClass(int block, long units) {
        while (block != NONE && size[block] < units) {
            block = nextFree[block];
        }
        return block;
    }

    private int newBlock(int slab, long from, long units) {
        int block = spare;
        if (block == NONE) {
            block = blocks;
            if (block == start.length) {
                int room = Math.max(64, 2 * block);
                slabOf = Arrays.copyOf(slabOf, room);
                start = Arrays.copyOf(start, room);
                size = Arrays.copyOf(size, room);
                before = Arrays.copyOf(before, room);
                after = Arrays.copyOf(after, room);
                nextFree = Arrays.copyOf(nextFree, room);
                previousFree = Arrays.copyOf(previousFree, room);
                generation = Arrays.copyOf(generation, room);
            }
            blocks++;
        } else {
            spare = after[block];
        }
        slabOf[block] = slab;
        start[block] = from;
        size[block] = units;
        return block;
    }

    /** Keeps an index, with its generation, for the next block. */
    private void discard(int block) {
        slabOf[block] = NONE;
        after[block] = spare;
        spare = block;
    }
}
