package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * What one rank does to check split layers against plain double loops; any engine. On devices whole
 * columns are not gathered and not split: the layers refuse that.
 */
final class LinearRanks {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final Communicator comm;
    private final Matmul matmul;
    private final List<Buffer> buffers = new ArrayList<>();

    private LinearRanks(Communicator comm, Matmul matmul) {
        this.comm = comm;
        this.matmul = matmul;
    }

    /** A whole layer, the same on all ranks. */
    private record Layer(
            int tokens, int inputs, int outputs, double[] x, double[] w, double[] b, double[] dy) {
        static Layer random(Random random) {
            int tokens = 1 + random.nextInt(40);
            int inputs = 1 + random.nextInt(50);
            int outputs = 1 + random.nextInt(50);
            return new Layer(
                    tokens,
                    inputs,
                    outputs,
                    values(random, tokens * inputs),
                    values(random, inputs * outputs),
                    values(random, outputs),
                    values(random, tokens * outputs));
        }

        private static double[] values(Random random, int count) {
            double[] v = new double[count];
            for (int i = 0; i < count; i++) {
                v[i] = (float) (random.nextDouble() * 2 - 1);
            }
            return v;
        }

        double[] y() {
            double[] y = product(x, w, tokens, inputs, outputs, false, false);
            for (int i = 0; i < y.length; i++) {
                y[i] += b[i % outputs];
            }
            return y;
        }

        double[] dx() {
            return product(dy, w, tokens, outputs, inputs, false, true);
        }

        double[] dw() {
            return product(x, dy, inputs, tokens, outputs, true, false);
        }

        double[] db() {
            double[] sum = new double[outputs];
            for (int i = 0; i < dy.length; i++) {
                sum[i % outputs] += dy[i];
            }
            return sum;
        }

        private static double[] product(
                double[] a, double[] b, int m, int k, int n, boolean ta, boolean tb) {
            double[] c = new double[m * n];
            for (int i = 0; i < m; i++) {
                for (int j = 0; j < n; j++) {
                    for (int p = 0; p < k; p++) {
                        double x = ta ? a[p * m + i] : a[i * k + p];
                        double y = tb ? b[j * k + p] : b[p * n + j];
                        c[i * n + j] += x * y;
                    }
                }
            }
            return c;
        }
    }

    /** Checks random layers. */
    static void check(Communicator comm, long seed, int rounds) {
        Random random = new Random(seed);
        try (Matmul matmul = Matmul.of(comm.device(), 1);
                Stream own = comm.device().newStream()) {
            for (int i = 0; i < rounds; i++) {
                LinearRanks ranks = new LinearRanks(comm, matmul);
                String what = "seed " + seed + " round " + i + " rank " + comm.rank();
                Stream stream = random.nextBoolean() ? own : comm.device().defaultStream();
                try {
                    ranks.column(random, stream, what);
                    ranks.row(random, stream, what);
                } finally {
                    ranks.buffers.forEach(Buffer::close);
                }
            }
        }
    }

    private boolean isHost() {
        return comm.device().kind() == Device.Kind.HOST;
    }

    private Matrix matrix(double[] whole, int columns, Part rows, Part cols, boolean padded) {
        int stride = (int) cols.count() + (padded ? 3 : 0);
        Buffer b = comm.device().allocate(DataType.FLOAT32, rows.count() * stride);
        buffers.add(b);
        // All at once: on a device each access to an element is a copy.
        float[] values = new float[(int) b.count()];
        Arrays.fill(values, 17);
        for (int i = 0; i < rows.count(); i++) {
            for (int j = 0; j < cols.count(); j++) {
                values[i * stride + j] =
                        (float) whole[(int) ((rows.from() + i) * columns + cols.from() + j)];
            }
        }
        b.copyFrom(values);
        return Matrix.of(b, rows.count(), stride).columns(0, cols.count());
    }

    private Matrix empty(long rows, long columns) {
        return matrix(
                new double[(int) (rows * columns)], (int) columns, all(rows), all(columns), false);
    }

    private static Part all(long count) {
        return new Part(0, count);
    }

    private void expect(
            double[] whole,
            int columns,
            Part rows,
            Part cols,
            Matrix got,
            double times,
            String what) {
        float[] values = new float[(int) got.buffer().count()];
        got.buffer().copyTo(values);
        for (long i = 0; i < rows.count(); i++) {
            for (long j = 0; j < cols.count(); j++) {
                double e = times * whole[(int) ((rows.from() + i) * columns + cols.from() + j)];
                double v =
                        values[(int) (got.offset() + i * got.rowStride() + j * got.columnStride())];
                // Sums of at most 60 products of numbers below 1, twice: 120 roundings of 2^-24.
                assertTrue(
                        Math.abs(v - e) <= 120 * 120 * Math.scalb(1.0, -24),
                        what + " (" + i + "," + j + "): " + v + " != " + e);
            }
        }
    }

    private LinearWeights weights(Layer l, Part in, Part out, boolean withBias) {
        Buffer bias = null;
        Buffer biasGradient = null;
        if (withBias) {
            bias = comm.device().allocate(DataType.FLOAT32, out.count());
            biasGradient = comm.device().allocate(DataType.FLOAT32, out.count());
            buffers.add(bias);
            buffers.add(biasGradient);
            float[] b = new float[(int) out.count()];
            for (int i = 0; i < b.length; i++) {
                b[i] = (float) l.b[(int) out.from() + i];
            }
            bias.copyFrom(b);
            Arrays.fill(b, Float.NaN);
            biasGradient.copyFrom(b);
        }
        return new LinearWeights(
                matrix(l.w, l.outputs, in, out, true),
                bias,
                empty(in.count(), out.count()),
                biasGradient);
    }

    private void column(Random random, Stream stream, String round) {
        Layer l = Layer.random(random);
        boolean gather = random.nextBoolean() && isHost();
        boolean sequence = random.nextBoolean();
        boolean overlap = random.nextBoolean();
        boolean bias = random.nextBoolean();
        boolean inputGradient = random.nextInt(4) > 0;
        var options = new ColumnLinear.Options(gather, sequence, overlap);
        String what = round + " column " + l.tokens + "x" + l.inputs + "x" + l.outputs + options;
        try (ColumnLinear linear =
                ColumnLinear.create(comm, matmul, l.tokens, l.inputs, l.outputs, options)) {
            Part rows = linear.tokensHere();
            Part out = linear.outputsHere();
            Part wide = gather ? all(l.outputs) : out;
            Part in = all(l.inputs);
            LinearWeights w = weights(l, in, out, bias);
            Matrix y = empty(l.tokens, wide.count());
            Matrix dx = inputGradient ? empty(rows.count(), l.inputs) : null;
            ColumnLinear.Pass pass =
                    linear.pass(
                            w,
                            matrix(l.x, l.inputs, rows, in, !sequence),
                            y,
                            matrix(l.dy, l.outputs, all(l.tokens), wide, true),
                            dx);
            pass.forward(stream);
            stream.synchronize(LIMIT);
            double[] expected = bias ? l.y() : withoutBias(l);
            expect(expected, l.outputs, all(l.tokens), wide, y, 1, what + " y");
            backwardTwice(stream, pass::backward);
            gradients(l, w, in, out, what);
            if (dx != null) {
                expect(l.dx(), l.inputs, rows, in, dx, 1, what + " dx");
            }
        }
    }

    private static double[] withoutBias(Layer l) {
        return new Layer(l.tokens, l.inputs, l.outputs, l.x, l.w, new double[l.outputs], l.dy).y();
    }

    private interface Backward {
        void run(boolean accumulate, Stream stream);
    }

    /** Over what was there, and then on top of it. */
    private static void backwardTwice(Stream stream, Backward backward) {
        backward.run(false, stream);
        backward.run(true, stream);
        stream.synchronize(LIMIT);
    }

    private void gradients(Layer l, LinearWeights w, Part in, Part out, String what) {
        Matrix dw = w.weightGradient();
        if (dw == null) {
            throw new AssertionError("no gradient");
        }
        expect(l.dw(), l.outputs, in, out, dw, 2, what + " dw");
        Buffer db = w.biasGradient();
        if (db != null) {
            Matrix row = Matrix.of(db, 1, db.count());
            expect(l.db(), l.outputs, all(1), out, row, 2, what + " db");
        }
    }

    private void row(Random random, Stream stream, String round) {
        Layer l = Layer.random(random);
        boolean parallel = random.nextBoolean() || !isHost();
        boolean sequence = random.nextBoolean();
        boolean bias = random.nextBoolean();
        boolean inputGradient = random.nextInt(4) > 0;
        var options = new RowLinear.Options(parallel, sequence);
        String what = round + " row " + l.tokens + "x" + l.inputs + "x" + l.outputs + options;
        try (RowLinear linear =
                RowLinear.create(comm, matmul, l.tokens, l.inputs, l.outputs, options)) {
            Part rows = linear.tokensHere();
            Part in = linear.inputsHere();
            Part wide = parallel ? in : all(l.inputs);
            Part out = all(l.outputs);
            LinearWeights w = weights(l, in, out, bias);
            Matrix y = empty(rows.count(), l.outputs);
            @Nullable Matrix dx = inputGradient ? empty(l.tokens, wide.count()) : null;
            RowLinear.Pass pass =
                    linear.pass(
                            w,
                            matrix(l.x, l.inputs, all(l.tokens), wide, true),
                            y,
                            matrix(l.dy, l.outputs, rows, out, false),
                            dx);
            pass.forward(stream);
            stream.synchronize(LIMIT);
            double[] expected = bias ? l.y() : withoutBias(l);
            expect(expected, l.outputs, rows, out, y, 1, what + " y");
            backwardTwice(stream, pass::backward);
            gradients(l, w, in, out, what);
            if (dx != null) {
                expect(l.dx(), l.inputs, all(l.tokens), wide, dx, 1, what + " dx");
            }
        }
    }
}
