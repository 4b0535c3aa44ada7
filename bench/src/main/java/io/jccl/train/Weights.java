package io.jccl.train;

import io.jccl.compute.Compute;
import io.jccl.compute.ReusableUpdate;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.offload.optim.StateTensor;
import io.jccl.offload.optim.TensorShape;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Float32 parameters and moments where a model computes, and their update. */
interface Weights extends AutoCloseable {
    /**
     * Allocates zeros.
     *
     * @param optimizer the update rule
     * @param device the host or a GPU
     * @param places where each weight begins, and the end
     * @param shapes of the weights
     */
    static Weights allocate(
            Optimizer optimizer, Device device, long[] places, List<TensorShape> shapes) {
        long count = places[places.length - 1];
        return device.kind() == Device.Kind.CUDA
                ? new OnGpu(optimizer, device, count, places)
                : new OnHost(optimizer, device, count, places, shapes);
    }

    /** Parameters and moments per element. */
    int states();

    /**
     * Where weights of some counts begin, and the end: each at a multiple of what the optimizer
     * stores together.
     */
    static long[] places(Optimizer optimizer, List<Long> counts) {
        long unit = 1;
        for (StateTensor t : optimizer.state()) {
            unit = Math.max(unit, t.unit());
        }
        long[] places = new long[counts.size() + 1];
        for (int i = 0; i < counts.size(); i++) {
            places[i + 1] = places[i] + (counts.get(i) + unit - 1) / unit * unit;
        }
        return places;
    }

    /**
     * Parameters (0) or a moment of some elements as float32: themselves, or a copy of those that
     * are stored in another way, for {@link #set}.
     */
    Buffer values(int number, long from, long count);

    /** Stores what {@link #values} returned, after a change. */
    default void set(int number, long from, Buffer values) {}

    /** The sum of squares of the gradients that count. */
    double sumOfSquares(List<Buffer> gradients, ParameterGroup[] groups);

    /**
     * Steps, unless the gradients' norm is infinite or not a number.
     *
     * @param gradients those of each weight
     * @param groups the group of each weight
     * @param step number of the step, 1 or more
     * @param factor of the gradients, above 0
     * @return the norm
     */
    double step(
            List<Buffer> gradients,
            ParameterGroup[] groups,
            long step,
            double learningRate,
            double factor);

    /** As {@link OptimizerState#save}. */
    void save(Path file, long step) throws IOException;

    /** As {@link OptimizerState#restore}. */
    long restore(Path file) throws IOException;

    @Override
    void close();

    /** Updated by loops. */
    final class OnHost implements Weights {
        private final long[] places;
        private final OptimizerState state;

        /** If it is stored in blocks, the state of each weight, which may end within one. */
        private final List<OptimizerState> apart = new ArrayList<>();

        private final GradientNorm one = new GradientNorm(1);
        private @Nullable GradientNorm norm;

        OnHost(
                Optimizer optimizer,
                Device device,
                long count,
                long[] places,
                List<TensorShape> shapes) {
            this.places = places;
            // Weights that are stored in blocks have padding between them, which no shape has.
            state =
                    optimizer.passes() > 2
                            ? OptimizerState.allocate(optimizer, device, shapes)
                            : OptimizerState.allocate(optimizer, device, count);
            boolean blocks = optimizer.state().stream().anyMatch(t -> t.unit() > 1);
            for (int i = 0; blocks && i < shapes.size(); i++) {
                apart.add(weight(optimizer, places[i], shapes.get(i).count()));
            }
        }

        private OptimizerState weight(Optimizer optimizer, long from, long count) {
            Buffer[] moments = new Buffer[state.moments()];
            for (int k = 0; k < moments.length; k++) {
                StateTensor t = state.tensor(k);
                moments[k] = state.moment(k).slice(t.count(from), t.count(count));
            }
            return OptimizerState.of(optimizer, state.parameters().slice(from, count), moments);
        }

        @Override
        public int states() {
            return 1 + state.moments();
        }

        @Override
        public Buffer values(int number, long from, long count) {
            if (number == 0) {
                return state.parameters().slice(from, count);
            }
            StateTensor t = state.tensor(number - 1);
            if (t.layout() == StateTensor.Layout.FLOAT32) {
                return state.moment(number - 1).slice(from, count);
            }
            float[] copy = new float[Math.toIntExact(count)];
            Buffer values = Buffer.wrap(MemorySegment.ofArray(copy), DataType.FLOAT32);
            state.decode(number - 1, from, values);
            return values;
        }

        @Override
        public void set(int number, long from, Buffer values) {
            if (number > 0 && state.tensor(number - 1).layout() != StateTensor.Layout.FLOAT32) {
                if (apart.isEmpty()) {
                    state.encode(number - 1, from, values);
                } else {
                    apart.get(Arrays.binarySearch(places, from)).encode(number - 1, 0, values);
                }
            }
        }

        @Override
        public double sumOfSquares(List<Buffer> gradients, ParameterGroup[] groups) {
            double sum = 0;
            for (int i = 0; i < groups.length; i++) {
                if (groups[i].counted()) {
                    one.add(0, gradients.get(i));
                    sum += one.sumOfSquares();
                }
            }
            return sum;
        }

        @Override
        public double step(
                List<Buffer> gradients,
                ParameterGroup[] groups,
                long step,
                double rate,
                double factor) {
            GradientNorm sum = norm;
            if (sum == null) {
                sum = new GradientNorm(gradients.size());
                norm = sum;
            }
            for (int i = 0; i < gradients.size(); i++) {
                sum.add(i, gradients.get(i));
            }
            double found = sum.norm();
            for (int i = 0; Double.isFinite(found) && i < gradients.size(); i++) {
                ParameterGroup p = groups[i];
                p.optimizer()
                        .step(
                                apart.isEmpty() ? state : apart.get(i),
                                apart.isEmpty() ? places[i] : 0,
                                gradients.get(i),
                                null,
                                step,
                                rate * p.rate(),
                                factor);
            }
            return found;
        }

        @Override
        public void save(Path file, long step) throws IOException {
            state.save(file, step);
        }

        @Override
        public long restore(Path file) throws IOException {
            return state.restore(file);
        }

        @Override
        public void close() {
            state.close();
        }
    }

    /** Updated by kernels, which also decide whether the step is taken. */
    final class OnGpu implements Weights {
        private final Owned owned = new Owned();
        private final Optimizer optimizer;
        private final Device device;
        private final Compute compute;
        private final long[] places;

        /** Parameters, then moments. */
        private final Buffer[] state;

        private final Buffer norm;
        private final ReusableUpdate formula = new ReusableUpdate();

        /** The state of each weight, from the first step on. */
        private Buffer[][] slices = {};

        OnGpu(Optimizer optimizer, Device device, long count, long[] places) {
            this.places = places;
            this.optimizer = optimizer;
            this.device = device;
            state = new Buffer[1 + optimizer.moments()];
            try {
                compute = owned.add(Compute.of(device));
                for (int i = 0; i < state.length; i++) {
                    state[i] = owned.floats(device, count);
                }
                norm = owned.add(device.allocate(DataType.FLOAT64, Compute.NORM_COUNT));
            } catch (RuntimeException | Error e) {
                owned.close();
                throw e;
            }
        }

        @Override
        public int states() {
            return state.length;
        }

        @Override
        public Buffer values(int number, long from, long count) {
            return state[number].slice(from, count);
        }

        @Override
        public double sumOfSquares(List<Buffer> gradients, ParameterGroup[] groups) {
            Stream stream = device.defaultStream();
            boolean add = false;
            for (int i = 0; i < groups.length; i++) {
                if (groups[i].counted()) {
                    compute.sumOfSquares(gradients.get(i), norm, add, stream);
                    add = true;
                }
            }
            stream.synchronize();
            return add ? norm.get(0) : 0;
        }

        /** Waits once, when everything has been enqueued. */
        @Override
        public double step(
                List<Buffer> gradients,
                ParameterGroup[] groups,
                long step,
                double rate,
                double factor) {
            Stream stream = device.defaultStream();
            for (int i = 0; i < gradients.size(); i++) {
                compute.sumOfSquares(gradients.get(i), norm, i > 0, stream);
            }
            compute.stepControl(norm, 1 / factor, Double.POSITIVE_INFINITY, stream);
            if (slices.length == 0) {
                slices = slices(gradients);
            }
            for (int i = 0; i < groups.length; i++) {
                Buffer[] of = slices[i];
                groups[i].optimizer().update(step, rate * groups[i].rate(), formula);
                compute.update(
                        formula,
                        of[0],
                        of.length > 1 ? of[1] : null,
                        of.length > 2 ? of[2] : null,
                        gradients.get(i),
                        null,
                        1,
                        norm,
                        stream);
            }
            return Math.sqrt(norm.get(0));
        }

        private Buffer[][] slices(List<Buffer> gradients) {
            Buffer[][] all = new Buffer[gradients.size()][state.length];
            for (int i = 0; i < all.length; i++) {
                for (int k = 0; k < state.length; k++) {
                    all[i][k] = state[k].slice(places[i], gradients.get(i).count());
                }
            }
            return all;
        }

        /** The state in host memory, for files. */
        private OptimizerState onHost() {
            return OptimizerState.allocate(optimizer, Device.host(), state[0].count());
        }

        private static Buffer of(OptimizerState host, int i) {
            return i == 0 ? host.parameters() : host.moment(i - 1);
        }

        @Override
        public void save(Path file, long step) throws IOException {
            try (OptimizerState host = onHost()) {
                for (int i = 0; i < state.length; i++) {
                    state[i].copyTo(of(host, i).asSegment());
                }
                host.save(file, step);
            }
        }

        @Override
        public long restore(Path file) throws IOException {
            try (OptimizerState host = onHost()) {
                long step = host.restore(file);
                for (int i = 0; i < state.length; i++) {
                    state[i].copyFrom(of(host, i).asSegment());
                }
                return step;
            }
        }

        @Override
        public void close() {
            owned.close();
        }
    }
}
