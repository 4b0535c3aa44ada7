package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.optim.GradientNorm;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.OptimizerState;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.ReducerOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Whole float32 parameters on each rank; {@link GradientReducer} averages their gradients. */
final class PlainStore implements ParameterStore {
    private final Communicator comm;
    private final Optimizer optimizer;
    private final double factor;
    private final double lossFactor;
    private final Owned owned = new Owned();
    private final OptimizerState state;
    private final GradientReducer reducer;
    private final GradientNorm norm;

    /** Index of each layer's first weight; the last entry is the number of weights. */
    private final int[] firstWeight;

    /** Start of each weight among the parameters. */
    private final long[] from;

    private final Buffer[] weights;
    private long steps;
    private long waited;

    /**
     * Allocates memory. All ranks call it.
     *
     * @param comm the ranks that hold the same parameters
     * @param part what this rank computes
     * @param layers its weights
     * @param optimizer the update rule
     * @param reducerOptions settings of the gradient reducer
     * @param microSteps micro-batches per step
     * @param factor factor of the mean gradient
     */
    PlainStore(
            Communicator comm,
            Part part,
            List<Part.Layer> layers,
            Optimizer optimizer,
            ReducerOptions reducerOptions,
            int microSteps,
            double factor) {
        this.comm = comm;
        this.optimizer = optimizer;
        this.factor = factor;
        this.lossFactor = 1.0 / microSteps;
        firstWeight = new int[layers.size() + 1];
        List<GradientReducer.Parameter> parameters = new ArrayList<>();
        List<Long> counts = new ArrayList<>();
        for (int l = 0; l < layers.size(); l++) {
            for (GptShape.Weight w : layers.get(l).weights()) {
                long count = part.count(w);
                counts.add(count);
                boolean byRows = w.split() == GptShape.Split.ROWS;
                long columns = byRows ? w.columns() : count / w.rows();
                parameters.add(
                        new GradientReducer.Parameter(
                                layers.get(l).name() + "." + w.name(),
                                count / columns,
                                columns,
                                DataType.FLOAT32));
            }
            firstWeight[l + 1] = counts.size();
        }
        from = new long[counts.size() + 1];
        for (int i = 0; i < counts.size(); i++) {
            from[i + 1] = from[i] + counts.get(i);
        }
        norm = new GradientNorm(counts.size());
        try {
            Device device = comm.device();
            state = owned.add(OptimizerState.allocate(optimizer, device, from[counts.size()]));
            reducer = owned.add(GradientReducer.create(comm, parameters, reducerOptions));
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
        weights = new Buffer[counts.size()];
        for (int i = 0; i < weights.length; i++) {
            weights[i] = state.parameters().slice(from[i], counts.get(i));
            reducer.gradient(i).zero();
        }
    }

    @Override
    public Buffer weight(int layer, int weight) {
        return weights[firstWeight[layer] + weight];
    }

    @Override
    public Buffer gradient(int layer, int weight) {
        return reducer.gradient(firstWeight[layer] + weight);
    }

    @Override
    public double lossFactor() {
        return lossFactor;
    }

    @Override
    public void initialize(Initial values) {
        for (int l = 0; l + 1 < firstWeight.length; l++) {
            for (int w = 0; w < firstWeight[l + 1] - firstWeight[l]; w++) {
                values.fill(l, w, weight(l, w));
            }
        }
    }

    @Override
    public int states() {
        return 1 + state.moments();
    }

    @Override
    public void visit(int number, Initial visitor) {
        Buffer all = number == 0 ? state.parameters() : state.moment(number - 1);
        for (int l = 0; l + 1 < firstWeight.length; l++) {
            for (int i = firstWeight[l]; i < firstWeight[l + 1]; i++) {
                visitor.fill(l, i - firstWeight[l], all.slice(from[i], from[i + 1] - from[i]));
            }
        }
    }

    @Override
    public void restore(long taken, State values) {
        for (int k = 0; k < states(); k++) {
            int number = k;
            visit(
                    number,
                    (l, w, to) -> {
                        to.zero();
                        values.fill(number, l, w, to);
                    });
        }
        steps = taken;
        reducer.carried().forEach(Buffer::zero);
    }

    @Override
    public void begin(boolean last) {
        reducer.begin(last);
    }

    @Override
    public void load(int layer) {}

    @Override
    public void unload(int layer) {}

    @Override
    public void open(int layer) {}

    @Override
    public void ready(int layer) {
        for (int i = firstWeight[layer + 1] - 1; i >= firstWeight[layer]; i--) {
            reducer.ready(i);
        }
    }

    @Override
    public void end() {
        long start = System.nanoTime();
        reducer.finish();
        waited += System.nanoTime() - start;
    }

    @Override
    public void step(double learningRate) {
        for (int i = 0; i < weights.length; i++) {
            norm.add(i, reducer.gradient(i));
        }
        if (!Double.isFinite(norm.norm())) {
            throw new JcclException(
                    "step "
                            + (steps + 1)
                            + " has a gradient norm of "
                            + norm.norm()
                            + ", expected a finite number; lower --lr");
        }
        steps++;
        for (int i = 0; i < weights.length; i++) {
            Buffer gradient = reducer.gradient(i);
            optimizer.step(state, from[i], gradient, null, steps, learningRate, factor);
            gradient.zero();
        }
    }

    @Override
    public long waitedNanos() {
        return waited;
    }

    @Override
    public void save(Path folder) throws IOException {
        if (comm.rank() == 0) {
            state.save(file(folder), steps);
        }
        if (!reducer.carried().isEmpty()) {
            CarriedFile.save(CarriedFile.in(folder, comm.rank(), comm.size()), reducer.carried());
        }
    }

    @Override
    public void load(Path folder) throws IOException {
        steps = state.restore(file(folder));
        Path carried = CarriedFile.in(folder, comm.rank(), comm.size());
        // Missing if the number of ranks changed or gradients were not compressed before.
        if (!reducer.carried().isEmpty() && Files.exists(carried)) {
            CarriedFile.load(carried, reducer.carried());
        } else {
            // Discards the values of a damaged step.
            reducer.carried().forEach(Buffer::zero);
        }
    }

    private static Path file(Path folder) {
        return folder.resolve("parameters.state");
    }

    @Override
    public void close() {
        owned.close();
    }
}
