package io.jccl.bench;

import io.jccl.parallel.Part;
import java.util.ArrayList;
import java.util.List;

/**
 * The tiling of a product of two n x n matrices. Every rank holds some rows of A, B and C. It
 * computes its rows of C tile by tile; for each tile the panels of B are broadcast by the ranks
 * that hold them (SUMMA: van de Geijn and Watts, "SUMMA: Scalable Universal Matrix Multiplication
 * Algorithm", Concurrency 9:4, 1997, with ranks in one column), and those of A come from this
 * rank's memory.
 *
 * @param n rows and columns
 * @param ranks number of ranks
 * @param high number of row tiles of a rank's part of C
 * @param width maximum columns of a tile
 * @param depth maximum rows of a panel of B and columns of a panel of A
 */
public record MatmulPlan(long n, int ranks, int high, long width, long depth) {
    private static final int SIZE = Float.BYTES;
    private static final long DEEPEST = 512;
    private static final long SHALLOWEST = 8;

    /** Granularity of a tile's memory. */
    private static final long ROUND = 4096;

    private static final int BLOCKS = 8;

    /** Slots for panels: one is computed with while the next is received. */
    static final int SLOTS = 2;

    /** A panel of B: rows of one rank. */
    public record Panel(int owner, long from, long count) {}

    /**
     * Finds the plan with the least data movement.
     *
     * @param deviceBytes maximum device memory of a rank
     * @throws IllegalArgumentException if there is none; the message states the memory needed
     */
    public static MatmulPlan of(long n, int ranks, long deviceBytes) {
        if (n < ranks) {
            throw new IllegalArgumentException(
                    "--size is "
                            + n
                            + ", expected at least one row for each of "
                            + ranks
                            + " ranks");
        }
        long most = Part.of(n, 0, ranks).count();
        long least = Part.of(n, ranks - 1, ranks).count();
        MatmulPlan best = null;
        for (long depth = Math.min(most, DEEPEST);
                best == null && depth >= Math.min(most, SHALLOWEST);
                depth /= 2) {
            for (int high = 1; high <= least; high = Math.max(high + 1, high * 5 / 4)) {
                long rows = (most + high - 1) / high;
                long room = (deviceBytes - BLOCKS * ROUND) / SIZE - SLOTS * rows * depth;
                long width = Math.min(n, room / (SLOTS * rows + 2 * SLOTS * depth));
                if (width < Math.min(n, 16)) {
                    continue;
                }
                // Whole vectors, and strips of one width.
                long strips = (n + width - 1) / width;
                width = Math.min(width, ((n + strips - 1) / strips + 15) / 16 * 16);
                MatmulPlan plan = new MatmulPlan(n, ranks, high, width, depth);
                if (best == null || plan.moved() < best.moved()) {
                    best = plan;
                }
            }
        }
        if (best != null) {
            return best;
        }
        // The sizes above need not end on the smallest tiles.
        MatmulPlan smallest =
                new MatmulPlan(n, ranks, (int) least, Math.min(n, 16), Math.min(most, SHALLOWEST));
        if (smallest.deviceBytes() <= deviceBytes) {
            return smallest;
        }
        throw new IllegalArgumentException(
                "--device-memory is "
                        + deviceBytes
                        + " bytes, but the smallest tiles of a product of "
                        + n
                        + " need "
                        + smallest.deviceBytes()
                        + "; raise it");
    }

    /** Device memory that a rank needs: two each of tiles of C, panels of A, and of B twice. */
    public long deviceBytes() {
        long rows = (Part.of(n, 0, ranks).count() + high - 1) / high;
        return SIZE * (SLOTS * rows * width + SLOTS * rows * depth + 2 * SLOTS * depth * width)
                + BLOCKS * ROUND;
    }

    public int strips() {
        return Math.toIntExact((n + width - 1) / width);
    }

    public Part strip(int j) {
        long from = j * width;
        return new Part(from, Math.min(width, n - from));
    }

    public Part rows(int rank) {
        return Part.of(n, rank, ranks);
    }

    /** Rows of a tile, counted within the rank's. */
    public Part tile(int rank, int i) {
        return Part.of(rows(rank).count(), i, high);
    }

    public List<Panel> panels() {
        List<Panel> all = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            Part rows = rows(r);
            for (long at = 0; at < rows.count(); at += depth) {
                all.add(new Panel(r, rows.from() + at, Math.min(depth, rows.count() - at)));
            }
        }
        return all;
    }

    /** Bytes that a rank receives: all of B but its own rows, for every row of tiles. */
    public long received(int rank) {
        return (long) SIZE * high * n * (n - rows(rank).count());
    }

    /** Bytes copied to a rank's device: its A for every strip, its B for every row of tiles. */
    public long toDevice(int rank) {
        return SIZE * rows(rank).count() * n * (strips() + (long) high);
    }

    private long moved() {
        return received(0) + toDevice(0);
    }
}
