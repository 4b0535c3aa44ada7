package io.jccl.bench;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.parallel.Part;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * Checks this rank's rows of a product C = A B against the formula of the inputs: all elements of
 * small matrices, samples of larger ones, and all rows by products with random vectors.
 *
 * @see <a href="https://doi.org/10.1007/3-540-09526-8_5">Freivalds, "Fast probabilistic
 *     algorithms", MFCS 1979</a>
 */
final class MatmulCheck {
    private static final int TRIALS = 2;
    private static final int SPOTS = 64;
    private static final long ALL_UP_TO = 512;

    /** Access to this rank's tiles of C. */
    @FunctionalInterface
    interface Tiles {
        Buffer get(int tile, int strip);
    }

    private final Communicator comm;
    private final MatmulPlan plan;
    private final MatmulInputs inputs;
    private final Tiles tiles;
    private final Part rows;
    private final double[][] mine;
    private final Random random;
    private @Nullable String wrong;
    private long compared;

    MatmulCheck(Communicator comm, MatmulPlan plan, MatmulInputs inputs, Tiles tiles) {
        this.comm = comm;
        this.plan = plan;
        this.inputs = inputs;
        this.tiles = tiles;
        rows = plan.rows(comm.rank());
        mine = new double[TRIALS][(int) rows.count()];
        random = new Random(inputs.seed() ^ comm.rank());
    }

    long compared() {
        return compared;
    }

    /** Checks; returns the first difference, or null. All ranks call it. */
    @Nullable String run() {
        double[][] vectors = new double[TRIALS][(int) plan.n()];
        for (int t = 0; t < TRIALS; t++) {
            for (int k = 0; k < plan.n(); k++) {
                vectors[t][k] = inputs.vector(t, k);
            }
        }
        // A (B x) against C x.
        double[][] bx = new double[TRIALS][];
        for (int t = 0; t < TRIALS; t++) {
            bx[t] = gatherAll(times(MatmulInputs.B, vectors[t]));
        }
        boolean all = plan.n() <= ALL_UP_TO;
        for (int i = 0; i < plan.high(); i++) {
            for (int j = 0; j < plan.strips(); j++) {
                tile(i, j, vectors, all);
            }
        }
        for (int t = 0; t < TRIALS; t++) {
            double[] expected = times(MatmulInputs.A, bx[t]);
            for (int r = 0; r < expected.length && wrong == null; r++) {
                if (expected[r] != mine[t][r]) {
                    wrong =
                            "row "
                                    + (rows.from() + r)
                                    + " of C times a random vector is "
                                    + mine[t][r]
                                    + ", A times B times it "
                                    + expected[r];
                }
            }
        }
        return wrong;
    }

    /** This rank's rows of a factor times a vector. */
    private double[] times(int which, double[] x) {
        double[] y = new double[(int) rows.count()];
        for (int r = 0; r < y.length; r++) {
            double sum = 0;
            for (int k = 0; k < x.length; k++) {
                sum += inputs.value(which, rows.from() + r, k) * x[k];
            }
            y[r] = sum;
        }
        return y;
    }

    private void tile(int i, int j, double[][] vectors, boolean all) {
        Part high = plan.tile(comm.rank(), i);
        Part wide = plan.strip(j);
        Buffer tile = tiles.get(i, j);
        var s = tile.asSegment();
        long at = 0;
        for (int r = 0; r < high.count(); r++) {
            for (int k = 0; k < wide.count(); k++) {
                double v = s.getAtIndex(ValueLayout.JAVA_FLOAT, at++);
                for (int t = 0; t < TRIALS; t++) {
                    mine[t][(int) high.from() + r] += v * vectors[t][(int) wide.from() + k];
                }
                if (all) {
                    compare(high, wide, r, k, v);
                }
            }
        }
        for (int n = 0; n < SPOTS && !all; n++) {
            int r = random.nextInt((int) high.count());
            int k = random.nextInt((int) wide.count());
            compare(high, wide, r, k, tile.get(r * wide.count() + k));
        }
    }

    private void compare(Part high, Part wide, long r, long k, double v) {
        long row = rows.from() + high.from() + r;
        long column = wide.from() + k;
        double expected = inputs.product(plan.n(), row, column);
        compared++;
        if (v != expected && wrong == null) {
            wrong = "element (" + row + "," + column + ") is " + v + ", expected " + expected;
        }
    }

    private double[] gatherAll(double[] part) {
        int n = (int) plan.n();
        long[] counts = new long[comm.size()];
        long[] starts = new long[comm.size()];
        for (int r = 0; r < comm.size(); r++) {
            counts[r] = plan.rows(r).count();
            starts[r] = plan.rows(r).from();
        }
        double[] all = new double[n];
        Stream stream = comm.device().defaultStream();
        try (Buffer mine = comm.device().allocate(DataType.FLOAT64, part.length);
                Buffer whole = comm.device().allocate(DataType.FLOAT64, n)) {
            mine.copyFrom(MemorySegment.ofArray(part));
            comm.allGatherv(mine, whole, counts, starts, stream);
            stream.synchronize(MatmulRun.PATIENCE);
            whole.copyTo(MemorySegment.ofArray(all));
        }
        return all;
    }
}
