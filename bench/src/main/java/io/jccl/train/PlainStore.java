package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.offload.optim.TensorShape;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.ReducerOptions;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** Whole float32 parameters on each rank; {@link GradientReducer} averages their gradients. */
final class PlainStore implements ParameterStore {
    private final Communicator comm;
    private final Operations operations;
    private final double factor;
    private final ParameterGroup[] groups;
    private final double lossFactor;
    private final Owned owned = new Owned();
    private final Weights state;
    private final GradientReducer reducer;

    /** Index of each layer's first weight; the last entry is the number of weights. */
    private final int[] firstWeight;

    private final Buffer[] weights;

    /** Where each weight begins in the state. */
    private final long[] places;

    private final List<Buffer> gradients = new ArrayList<>();
    private long steps;
    private long waited;

    /**
     * Allocates memory. All ranks call it.
     *
     * @param comm the ranks that hold the same parameters
     * @param part what this rank computes
     * @param layers its weights
     * @param optimizer the update rule
     * @param recipe its groups
     * @param reducerOptions settings of the gradient reducer
     * @param microSteps micro-batches per step
     * @param factor factor of the mean gradient
     * @param operations of the communicator's device
     */
    PlainStore(
            Communicator comm,
            Part part,
            List<Part.Layer> layers,
            Optimizer optimizer,
            Recipe recipe,
            ReducerOptions reducerOptions,
            int microSteps,
            double factor,
            Operations operations) {
        this.comm = comm;
        this.operations = operations;
        this.factor = factor;
        this.lossFactor = 1.0 / microSteps;
        firstWeight = new int[layers.size() + 1];
        List<GradientReducer.Parameter> parameters = new ArrayList<>();
        List<Long> counts = new ArrayList<>();
        List<TensorShape> shapes = new ArrayList<>();
        List<ParameterGroup> all = new ArrayList<>();
        for (int l = 0; l < layers.size(); l++) {
            for (GptShape.Weight w : layers.get(l).weights()) {
                long count = part.count(w);
                counts.add(count);
                all.add(recipe.group(optimizer, layers.get(l).name(), w.name(), part.counts(w)));
                TensorShape shape = part.shape(w);
                shapes.add(shape);
                parameters.add(
                        new GradientReducer.Parameter(
                                layers.get(l).name() + "." + w.name(),
                                shape.rows(),
                                shape.columns(),
                                DataType.FLOAT32));
            }
            firstWeight[l + 1] = counts.size();
        }
        groups = all.toArray(ParameterGroup[]::new);
        long[] places = Weights.places(optimizer, counts);
        try {
            state = owned.add(Weights.allocate(optimizer, comm.device(), places, shapes));
            reducer = owned.add(GradientReducer.create(comm, parameters, reducerOptions));
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
        weights = new Buffer[counts.size()];
        for (int i = 0; i < weights.length; i++) {
            weights[i] = state.values(0, places[i], counts.get(i));
            gradients.add(reducer.gradient(i).zero());
        }
        this.places = places;
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
        visit(0, (l, w, to) -> onHost(to, host -> values.fill(l, w, host)));
    }

    /** Fills a buffer by way of host memory. */
    private static void onHost(Buffer to, Consumer<Buffer> values) {
        if (to.device().kind() == Device.Kind.HOST) {
            values.accept(to);
            return;
        }
        try (Buffer host = Device.host().allocate(DataType.FLOAT32, to.count())) {
            values.accept(host);
            to.copyFrom(host.asSegment());
        }
    }

    @Override
    public int states() {
        return state.states();
    }

    @Override
    public void visit(int number, Initial visitor) {
        for (int l = 0; l + 1 < firstWeight.length; l++) {
            for (int i = firstWeight[l]; i < firstWeight[l + 1]; i++) {
                Buffer values = state.values(number, places[i], weights[i].count());
                visitor.fill(l, i - firstWeight[l], values);
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
                        onHost(
                                to,
                                host -> {
                                    host.zero();
                                    values.fill(number, l, w, host);
                                });
                        state.set(number, places[firstWeight[l] + w], to);
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
    public double sumOfSquares() {
        return state.sumOfSquares(gradients, groups) * factor * factor;
    }

    @Override
    public void step(double learningRate, double clip) {
        double norm = state.step(gradients, groups, steps + 1, learningRate, factor * clip);
        if (!Double.isFinite(norm)) {
            throw new JcclException(
                    "step %s has a gradient norm of %s, expected a finite number; lower --lr"
                            .formatted(steps + 1, norm));
        }
        steps++;
        for (int i = 0; i < gradients.size(); i++) {
            operations.zero(gradients.get(i));
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
    public void load(Path folder, boolean carried) throws IOException {
        steps = state.restore(file(folder));
        if (carried && !reducer.carried().isEmpty()) {
            CarriedFile.load(CarriedFile.in(folder, comm.rank(), comm.size()), reducer.carried());
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
