package io.jccl.bench;

import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Number of elements that an operation moves on one rank.
 *
 * @param count elements per block, shown in the column {@code count}
 * @param send elements each rank sends; the maximum over ranks if they differ
 * @param recv elements each rank receives; the maximum over ranks if they differ
 * @param sendShift in place, the sent block starts at this many elements times the rank
 * @param recvShift in place, the received block starts at this many elements times the rank
 * @param ranks number of ranks
 */
record Shape(long count, long send, long recv, long sendShift, long recvShift, int ranks) {

    /** How the requested size determines the counts of both sides. */
    enum Layout {
        /** Both sides have the whole size. */
        FLAT,
        /** One block goes out, all blocks come in. */
        GATHERED,
        /** All blocks go out, one block comes in. */
        SCATTERED,
        /** All blocks go out, all blocks come in. */
        EXCHANGED,
        /** As exchanged, with blocks of unequal counts. */
        UNEVEN,
        /** As gathered, with blocks of unequal counts. */
        GATHERED_UNEVEN,
        /** As scattered, with blocks of unequal counts. */
        SCATTERED_UNEVEN,
        /** No data. */
        NONE;

        /**
         * The counts for a size.
         *
         * @param bytes the requested size: that of the larger side
         * @param elementSize bytes in an element
         * @param n number of ranks
         * @return the counts. Blocks are rounded down to 16 bytes, so that each starts aligned
         */
        Shape shape(long bytes, int elementSize, int n) {
            long all = bytes / elementSize;
            long block = (all / n) & -Math.max(1, 16 / elementSize);
            return switch (this) {
                case FLAT -> new Shape(all, all, all, 0, 0, n);
                case GATHERED -> new Shape(block, block, block * n, block, 0, n);
                case SCATTERED -> new Shape(block, block * n, block, 0, block, n);
                case EXCHANGED -> new Shape(block, block * n, block * n, 0, 0, n);
                case UNEVEN, GATHERED_UNEVEN, SCATTERED_UNEVEN -> {
                    long[] blocks = unevenBlocks(block, n);
                    long sum = Arrays.stream(blocks).sum();
                    // The last rank's is the largest.
                    yield new Shape(
                            block,
                            this == GATHERED_UNEVEN ? blocks[n - 1] : sum,
                            this == SCATTERED_UNEVEN ? blocks[n - 1] : sum,
                            0,
                            0,
                            n);
                }
                case NONE -> new Shape(0, 0, 0, 0, 0, n);
            };
        }
    }

    /**
     * Elements that one rank sends to another when counts are unequal: they grow with the distance
     * (to - from) mod n, from none to the rank itself to twice the block to the previous rank.
     * Every rank sends and receives the same total.
     *
     * @param block elements if the counts were equal
     * @param from sender
     * @param to receiver
     * @param n number of ranks
     * @return elements, rounded down
     */
    static long unevenCount(long block, int from, int to, int n) {
        int distance = Math.floorMod(to - from, n);
        return n == 1 ? block : 2 * block * distance / (n - 1);
    }

    private static long[] unevenBlocks(long block, int n) {
        return IntStream.range(0, n).mapToLong(j -> unevenCount(block, 0, j, n)).toArray();
    }

    /**
     * Counts of the ranks' blocks in {@link Layout#GATHERED_UNEVEN} and {@link
     * Layout#SCATTERED_UNEVEN}: none of rank 0, twice the block of the last.
     *
     * @return one count per rank
     */
    long[] unevenBlocks() {
        return unevenBlocks(count, ranks);
    }

    /**
     * Counts of one rank's blocks in {@link Layout#UNEVEN}.
     *
     * @param rank the rank
     * @param sending true for what it sends, false for what it receives
     * @return one count per rank
     */
    long[] unevenCounts(int rank, boolean sending) {
        long[] counts = new long[ranks];
        for (int peer = 0; peer < ranks; peer++) {
            counts[peer] =
                    sending
                            ? unevenCount(count, rank, peer, ranks)
                            : unevenCount(count, peer, rank, ranks);
        }
        return counts;
    }

    /**
     * Starts of contiguous blocks.
     *
     * @param counts their counts
     * @return their starts
     */
    static long[] displacements(long[] counts) {
        long[] starts = new long[counts.length];
        for (int i = 1; i < counts.length; i++) {
            starts[i] = starts[i - 1] + counts[i - 1];
        }
        return starts;
    }

    /**
     * Elements of the larger side.
     *
     * @return what the {@code size} column shows, in elements; also the in-place buffer
     */
    long larger() {
        return Math.max(send, recv);
    }
}
