package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.gemm.Matmul;
import io.jccl.gemm.Matrix;
import io.jccl.testkit.AllocationRounds;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * A chain of square layers with a rectifier each, spread over the ranks of a pipeline; any engine.
 * Its loss is half the sum of squares, so the gradient of the output is the output.
 */
final class PipelineRanks {
    static final int LAYERS = 5;

    private PipelineRanks() {}

    /** Some of the layers, with what backward needs by slot. */
    static final class Chain implements PipelineStage, AutoCloseable {
        final Part layers;
        private final int rows;
        private final int width;
        private final int microBatches;
        private final Matmul matmul;
        private final boolean first;
        private final boolean last;
        private final List<Buffer> buffers = new ArrayList<>();
        private final Matrix[] weights;
        private final Matrix[] transposed;
        final Matrix[] gradients;

        /** The input of the whole chain, by micro-batch. */
        private final Matrix[] data;

        /** By slot and layer: what goes into a layer; behind the last, what comes out. */
        private final Matrix[][] states;

        private final Matrix[][] turned;
        private final Matrix[] errors;
        private int slots;

        Chain(Communicator comm, int rows, int width, int microBatches, int slots, long seed) {
            this.layers = Part.of(LAYERS, comm.rank(), comm.size());
            this.rows = rows;
            this.width = width;
            this.microBatches = microBatches;
            this.slots = slots;
            this.first = comm.rank() == 0;
            this.last = comm.rank() == comm.size() - 1;
            this.matmul = Matmul.of(comm.device(), 1);
            int n = (int) layers.count();
            weights = new Matrix[n];
            transposed = new Matrix[n];
            gradients = new Matrix[n];
            for (int l = 0; l < n; l++) {
                weights[l] = weight(comm.device(), width, layers.from() + l, seed);
                buffers.add(weights[l].buffer());
                transposed[l] = weights[l].transposed();
                gradients[l] = matrix(comm.device(), width);
            }
            data = new Matrix[first ? microBatches : 0];
            for (int i = 0; i < data.length; i++) {
                data[i] = matrix(comm.device(), rows);
                data[i].buffer().copyFrom(floats(input(rows, width, i, seed)));
            }
            states = new Matrix[slots][n + 1];
            turned = new Matrix[slots][n + 1];
            for (int s = 0; s < slots; s++) {
                for (int l = 0; l <= n; l++) {
                    states[s][l] = matrix(comm.device(), rows);
                    turned[s][l] = states[s][l].transposed();
                }
            }
            errors = new Matrix[] {matrix(comm.device(), rows), matrix(comm.device(), rows)};
        }

        static double[] input(int rows, int width, int microBatch, long seed) {
            Random random = new Random(seed + 31L * microBatch);
            double[] x = new double[rows * width];
            for (int i = 0; i < x.length; i++) {
                x[i] = (float) (random.nextDouble() - 0.3);
            }
            return x;
        }

        static double[] weightValues(int width, long layer, long seed) {
            Random random = new Random(seed + 1000 + layer);
            double[] w = new double[width * width];
            for (int i = 0; i < w.length; i++) {
                w[i] = (float) ((random.nextDouble() - 0.4) / Math.sqrt(width));
            }
            return w;
        }

        private static Matrix weight(Device device, int width, long layer, long seed) {
            Buffer b = device.allocate(DataType.FLOAT32, (long) width * width);
            b.copyFrom(floats(weightValues(width, layer, seed)));
            return Matrix.of(b, width, width);
        }

        private static float[] floats(double[] values) {
            float[] f = new float[values.length];
            for (int i = 0; i < f.length; i++) {
                f[i] = (float) values[i];
            }
            return f;
        }

        /** All at once: on a device each access is a copy. */
        static float[] floats(Buffer b) {
            float[] f = new float[Math.toIntExact(b.count())];
            b.copyTo(f);
            return f;
        }

        private Matrix matrix(Device device, int high) {
            Buffer b = device.allocate(DataType.FLOAT32, (long) high * width);
            buffers.add(b);
            return Matrix.of(b, high, width);
        }

        @Override
        public void forward(
                int microBatch, @Nullable Buffer input, @Nullable Buffer output, Stream stream) {
            assertEquals(first, input == null);
            assertEquals(last, output == null);
            Matrix[] x = states[microBatch % slots];
            stream.copy(input == null ? data[microBatch].buffer() : input, x[0].buffer());
            for (int l = 0; l < weights.length; l++) {
                matmul.multiply(x[l], weights[l], x[l + 1], 0, stream);
                stream.synchronize(); // elements are set by this thread
                rectify(x[l + 1].buffer());
            }
            if (output != null) {
                stream.copy(x[weights.length].buffer(), output);
            }
        }

        private static void rectify(Buffer b) {
            float[] x = floats(b);
            for (int i = 0; i < x.length; i++) {
                x[i] = Math.max(0, x[i]);
            }
            b.copyFrom(x);
        }

        @Override
        public void backward(
                int microBatch,
                @Nullable Buffer outputGradient,
                @Nullable Buffer inputGradient,
                Stream stream) {
            assertEquals(first, inputGradient == null);
            assertEquals(last, outputGradient == null);
            Matrix[] x = states[microBatch % slots];
            Matrix[] xt = turned[microBatch % slots];
            Matrix dy = errors[0];
            Matrix dx = errors[1];
            stream.copy(
                    outputGradient == null ? x[weights.length].buffer() : outputGradient,
                    dy.buffer());
            for (int l = weights.length - 1; l >= 0; l--) {
                stream.synchronize();
                float[] out = floats(x[l + 1].buffer());
                float[] error = floats(dy.buffer());
                for (int i = 0; i < error.length; i++) {
                    error[i] = out[i] > 0 ? error[i] : 0;
                }
                dy.buffer().copyFrom(error);
                matmul.multiply(xt[l], dy, gradients[l], microBatch == 0 ? 0 : 1, stream);
                matmul.multiply(dy, transposed[l], dx, 0, stream);
                Matrix swap = dy;
                dy = dx;
                dx = swap;
            }
            if (inputGradient != null) {
                stream.copy(dy.buffer(), inputGradient);
            }
        }

        @Override
        public void close() {
            matmul.close();
            buffers.forEach(Buffer::close);
        }

        @Override
        public String toString() {
            return "layers " + layers + " of " + rows + " x " + width + ", " + microBatches;
        }
    }

    /** The gradients of all layers by plain loops in float64. */
    static double[][] expected(int rows, int width, int microBatches, long seed) {
        double[][] w = new double[LAYERS][];
        double[][] dw = new double[LAYERS][width * width];
        for (int l = 0; l < LAYERS; l++) {
            w[l] = Chain.weightValues(width, l, seed);
        }
        for (int b = 0; b < microBatches; b++) {
            double[][] x = new double[LAYERS + 1][rows * width];
            x[0] = Chain.input(rows, width, b, seed);
            for (int l = 0; l < LAYERS; l++) {
                for (int i = 0; i < rows; i++) {
                    for (int j = 0; j < width; j++) {
                        double sum = 0;
                        for (int p = 0; p < width; p++) {
                            sum += x[l][i * width + p] * w[l][p * width + j];
                        }
                        x[l + 1][i * width + j] = Math.max(0, sum);
                    }
                }
            }
            double[] dy = x[LAYERS].clone();
            for (int l = LAYERS - 1; l >= 0; l--) {
                double[] dx = new double[rows * width];
                for (int i = 0; i < rows; i++) {
                    for (int j = 0; j < width; j++) {
                        double e = x[l + 1][i * width + j] > 0 ? dy[i * width + j] : 0;
                        for (int p = 0; p < width; p++) {
                            dw[l][p * width + j] += x[l][i * width + p] * e;
                            dx[i * width + p] += e * w[l][p * width + j];
                        }
                    }
                }
                dy = dx;
            }
        }
        return dw;
    }

    /** Runs a pipeline, with overlap and without, and checks this rank's gradients. */
    static PipelineReport check(
            Communicator comm, PipelineSchedule schedule, int microBatches, long seed) {
        check(comm, schedule, microBatches, seed, false);
        return check(comm, schedule, microBatches, seed, true);
    }

    private static PipelineReport check(
            Communicator comm,
            PipelineSchedule schedule,
            int microBatches,
            long seed,
            boolean overlap) {
        int rows = 6;
        int width = 16;
        double[][] dw = expected(rows, width, microBatches, seed);
        int slots = schedule.inFlight(comm.size(), comm.rank(), microBatches);
        var options =
                PipelineOptions.of(microBatches, DataType.FLOAT32, (long) rows * width)
                        .withSchedule(schedule)
                        .withOverlap(overlap);
        try (Chain chain = new Chain(comm, rows, width, microBatches, slots, seed);
                Pipeline pipeline = Pipeline.create(comm, chain, options)) {
            assertEquals(slots, pipeline.slots());
            for (int run = 0; run < 3; run++) {
                pipeline.run();
                for (int l = 0; l < chain.layers.count(); l++) {
                    double[] e = dw[(int) chain.layers.from() + l];
                    float[] got = Chain.floats(chain.gradients[l].buffer());
                    for (int i = 0; i < e.length; i++) {
                        // 5 products of 16 and sums of 6 x micro-batches, values of a few units.
                        assertEquals(
                                e[i],
                                got[i],
                                1e-5 * microBatches * Math.max(1, Math.abs(e[i])),
                                "layer " + l + " element " + i + " of " + chain);
                    }
                }
            }
            return pipeline.report();
        }
    }

    /** All gradients of this rank's layers, in bits. */
    static float[][] gradients(
            Communicator comm,
            PipelineSchedule schedule,
            int microBatches,
            long seed,
            boolean overlap) {
        int rows = 6;
        int width = 16;
        int slots = schedule.inFlight(comm.size(), comm.rank(), microBatches);
        var options =
                PipelineOptions.of(microBatches, DataType.FLOAT32, (long) rows * width)
                        .withSchedule(schedule)
                        .withOverlap(overlap);
        try (Chain chain = new Chain(comm, rows, width, microBatches, slots, seed);
                Pipeline pipeline = Pipeline.create(comm, chain, options)) {
            pipeline.run();
            float[][] all = new float[LAYERS][];
            for (int l = 0; l < chain.layers.count(); l++) {
                all[(int) chain.layers.from() + l] = Chain.floats(chain.gradients[l].buffer());
            }
            return all;
        }
    }

    /** Runs that must not allocate on this thread. */
    static void repeat(
            Communicator comm,
            PipelineSchedule schedule,
            boolean overlap,
            AllocationRounds rounds) {
        int slots = schedule.inFlight(comm.size(), comm.rank(), 6);
        var options =
                PipelineOptions.of(6, DataType.FLOAT32, 64)
                        .withSchedule(schedule)
                        .withOverlap(overlap);
        try (Chain chain = new Chain(comm, 4, 16, 6, slots, 1);
                Pipeline pipeline = Pipeline.create(comm, new Bare(chain), options)) {
            rounds.repeat(comm.rank(), 50, pipeline::run);
        }
    }

    /** Products alone: elements one by one and copies of buffers are what a test may allocate. */
    private record Bare(Chain chain) implements PipelineStage {
        @Override
        public void forward(int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
            Matrix[] x = chain.states[i % chain.slots];
            for (int l = 0; l < chain.weights.length; l++) {
                chain.matmul.multiply(x[l], chain.weights[l], x[l + 1], 0, stream);
            }
        }

        @Override
        public void backward(int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
            Matrix[] x = chain.turned[i % chain.slots];
            for (int l = 0; l < chain.weights.length; l++) {
                chain.matmul.multiply(
                        x[l], chain.states[i % chain.slots][l], chain.gradients[l], 1, stream);
            }
        }
    }
}
