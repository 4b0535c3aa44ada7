package io.jccl.train;

import io.jccl.compute.Compute;
import io.jccl.compute.Update;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Float32 parameters and moments where a model computes, and their update. */
interface Weights extends AutoCloseable {
    /**
     * Allocates zeros.
     *
     * @param device the host or a GPU
     */
    static Weights allocate(Optimizer optimizer, Device device, long count) {
        return device.kind() == Device.Kind.CUDA
                ? new OnGpu(optimizer, device, count)
                : new OnHost(optimizer, device, count);
    }

    /** Parameters and moments per element. */
    int states();

    /** All parameters (0), or a moment of them. */
    Buffer state(int number);

    /**
     * Steps, unless the gradients' norm is infinite or not a number.
     *
     * @param gradients one after the other those of all parameters
     * @param step number of the step, 1 or more
     * @param factor what gradients are multiplied by, above 0
     * @return the norm
     */
    double step(List<Buffer> gradients, long step, double learningRate, double factor);

    /** As {@link OptimizerState#save}. */
    void save(Path file, long step) throws IOException;

    /** As {@link OptimizerState#restore}. */
    long restore(Path file) throws IOException;

    @Override
    void close();

    /** Updated by loops. */
    final class OnHost implements Weights {
        private final Optimizer optimizer;
        private final OptimizerState state;
        private @Nullable GradientNorm norm;

        OnHost(Optimizer optimizer, Device device, long count) {
            this.optimizer = optimizer;
            state = OptimizerState.allocate(optimizer, device, count);
        }

        @Override
        public int states() {
            return 1 + state.moments();
        }

        @Override
        public Buffer state(int number) {
            return number == 0 ? state.parameters() : state.moment(number - 1);
        }

        @Override
        public double step(List<Buffer> gradients, long step, double rate, double factor) {
            GradientNorm sum = norm;
            if (sum == null) {
                sum = new GradientNorm(gradients.size());
                norm = sum;
            }
            for (int i = 0; i < gradients.size(); i++) {
                sum.add(i, gradients.get(i));
            }
            double found = sum.norm();
            long from = 0;
            for (int i = 0; Double.isFinite(found) && i < gradients.size(); i++) {
                Buffer g = gradients.get(i);
                optimizer.step(state, from, g, null, step, rate, factor);
                from += g.count();
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

        /** Parameters, then moments. */
        private final Buffer[] state;

        private final Buffer norm;

        OnGpu(Optimizer optimizer, Device device, long count) {
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
        public Buffer state(int number) {
            return state[number];
        }

        /** Waits once, when everything has been enqueued. */
        @Override
        public double step(List<Buffer> gradients, long step, double rate, double factor) {
            Stream stream = device.defaultStream();
            for (int i = 0; i < gradients.size(); i++) {
                compute.sumOfSquares(gradients.get(i), norm, i > 0, stream);
            }
            compute.stepControl(norm, 1 / factor, Double.POSITIVE_INFINITY, stream);
            Update rule = optimizer.update(step, rate);
            long from = 0;
            for (Buffer g : gradients) {
                compute.update(
                        rule,
                        state[0].slice(from, g.count()),
                        moment(1, from, g),
                        moment(2, from, g),
                        g,
                        null,
                        1,
                        norm,
                        stream);
                from += g.count();
            }
            return Math.sqrt(norm.get(0));
        }

        private @Nullable Buffer moment(int at, long from, Buffer gradient) {
            return at < state.length ? state[at].slice(from, gradient.count()) : null;
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
