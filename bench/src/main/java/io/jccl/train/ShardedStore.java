package io.jccl.train;

import io.jccl.Communicator;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.optim.Optimizer;
import io.jccl.offload.optim.ParameterGroup;
import io.jccl.offload.zero.ShardedLayer;
import io.jccl.offload.zero.StepResult;
import io.jccl.offload.zero.ZeroOptimizer;
import io.jccl.offload.zero.ZeroOptions;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Parameters, gradients and optimizer state in a {@link ZeroOptimizer}. One layer at a time is
 * copied to the model's buffers, widened if it is bfloat16; its gradients are rounded when they are
 * accumulated.
 */
final class ShardedStore implements ParameterStore {
    private static final String PADDING = ".padding";

    private final List<Part.Layer> layers;
    private final ZeroOptimizer zero;
    private final LossScale scale;
    private final double firstScale;
    private final boolean scales;
    private final Operations operations;
    private final Stream stream;
    private final float factor;
    private final Owned owned;
    private final Buffer values;
    private final Buffer gradients;
    private final Buffer[][] weights;
    private final Buffer[][] weightGradients;
    private final long[] counts;
    private final int states;
    private long waited;

    /**
     * Allocates memory. All ranks call it.
     *
     * @param comm the ranks that the state is sharded over
     * @param part what this rank computes
     * @param layers its weights
     * @param optimizer the update rule
     * @param recipe its groups
     * @param options what is sharded, and where it is stored
     * @param scale the loss scale
     * @param tiers the memory tiers; closed by the caller
     * @param factor factor of the mean gradient
     * @param operations of the communicator's device
     */
    ShardedStore(
            Communicator comm,
            Part part,
            List<Part.Layer> layers,
            Optimizer optimizer,
            Recipe recipe,
            ZeroOptions options,
            LossScale scale,
            Tiers tiers,
            double factor,
            Operations operations) {
        this.owned = new Owned(tiers.device());
        this.layers = layers;
        this.scale = scale;
        this.firstScale = scale.value();
        this.scales = options.type() == DataType.FLOAT16;
        this.operations = operations;
        this.stream = comm.device().defaultStream();
        this.states = 1 + optimizer.moments();
        this.factor = (float) factor;
        counts = new long[layers.size()];
        long most = 0;
        Map<String, ParameterGroup> groups = new HashMap<>();
        List<ShardedLayer> whole = new ArrayList<>();
        for (int l = 0; l < counts.length; l++) {
            List<ShardedLayer.Tensor> tensors = new ArrayList<>();
            for (GptShape.Weight w : layers.get(l).weights()) {
                String layer = layers.get(l).name();
                groups.put(
                        layer + "." + w.name(),
                        recipe.group(optimizer, layer, w.name(), part.counts(w)));
                long count = part.count(w);
                long padding = Weights.places(optimizer, List.of(count))[1] - count;
                tensors.add(new ShardedLayer.Tensor(w.name(), count, part.shape(w).columns()));
                if (padding > 0) {
                    // The state of each weight has its own blocks.
                    String name = w.name() + PADDING;
                    tensors.add(new ShardedLayer.Tensor(name, padding));
                    groups.put(
                            layer + "." + name,
                            recipe.group(optimizer, layer, w.name(), part.counts(w)));
                }
                counts[l] += count + padding;
            }
            whole.add(new ShardedLayer(layers.get(l).name(), tensors));
            most = Math.max(most, counts[l]);
        }
        try {
            zero =
                    owned.add(
                            ZeroOptimizer.create(
                                    comm,
                                    whole,
                                    optimizer,
                                    (l, t) -> Objects.requireNonNull(groups.get(l + "." + t)),
                                    options,
                                    scale,
                                    tiers));
            values = owned.floats(comm.device(), most);
            gradients = owned.floats(comm.device(), most);
        } catch (RuntimeException | Error e) {
            owned.close();
            throw e;
        }
        weights = new Buffer[counts.length][];
        weightGradients = new Buffer[counts.length][];
        for (int l = 0; l < counts.length; l++) {
            int n = layers.get(l).weights().size();
            weights[l] = new Buffer[n];
            weightGradients[l] = new Buffer[n];
            long at = 0;
            for (int w = 0; w < n; w++) {
                long count = part.count(layers.get(l).weights().get(w));
                weights[l][w] = values.slice(at, count);
                weightGradients[l][w] = gradients.slice(at, count);
                at += Weights.places(optimizer, List.of(count))[1];
            }
        }
    }

    @Override
    public Buffer weight(int layer, int weight) {
        return weights[layer][weight];
    }

    @Override
    public Buffer gradient(int layer, int weight) {
        return weightGradients[layer][weight];
    }

    @Override
    public double lossFactor() {
        return zero.lossScale();
    }

    @Override
    public void initialize(Initial initial) {
        zero.initialize((layer, tensor, to) -> fill(initial, layer, tensor, to));
    }

    private void fill(Initial values, String layer, String tensor, Buffer buffer) {
        for (int l = 0; l < layers.size(); l++) {
            List<GptShape.Weight> all = layers.get(l).weights();
            for (int w = 0; layers.get(l).name().equals(layer) && w < all.size(); w++) {
                if (all.get(w).name().equals(tensor)) {
                    values.fill(l, w, buffer);
                }
            }
        }
    }

    @Override
    public int states() {
        return states;
    }

    @Override
    public void visit(int state, Initial visitor) {
        ZeroOptimizer.Visitor each = (layer, tensor, from) -> fill(visitor, layer, tensor, from);
        if (state == 0) {
            zero.forEachParameter(each);
        } else {
            zero.forEachMoment(state - 1, each);
        }
    }

    @Override
    public void restore(long steps, State values) {
        zero.restore(
                steps,
                (layer, tensor, moment, to) ->
                        fill((l, w, b) -> values.fill(moment + 1, l, w, b), layer, tensor, to));
    }

    @Override
    public long updates(long steps) {
        return zero.steps();
    }

    @Override
    public @Nullable LossScale lossScale() {
        return scales ? scale : null;
    }

    @Override
    public void begin(boolean last) {}

    @Override
    public void load(int layer) {
        long start = System.nanoTime();
        Buffer from = zero.gather(layer, stream);
        waited += System.nanoTime() - start;
        operations.convert(from, values.slice(0, counts[layer]));
    }

    @Override
    public void unload(int layer) {
        zero.release(layer, stream);
    }

    @Override
    public void open(int layer) {
        operations.zero(gradients.slice(0, counts[layer]));
    }

    /** No layer is loaded, so the parameters' memory is free. */
    @Override
    public void ready(int layer) {
        long count = counts[layer];
        long start = System.nanoTime();
        Buffer to = zero.gradients(layer);
        waited += System.nanoTime() - start;
        operations.accumulate(gradients.slice(0, count), factor, to, values.slice(0, count));
        start = System.nanoTime();
        zero.reduce(layer, stream);
        waited += System.nanoTime() - start;
    }

    @Override
    public void end() {}

    @Override
    public double sumOfSquares() {
        return zero.sumOfSquares();
    }

    @Override
    public void step(double learningRate, double clip) {
        StepResult result = zero.step(learningRate, clip);
        if (!result.taken()) {
            throw new JcclException(
                    "step %s has a gradient norm of %s, expected a finite number; lower --lr"
                            .formatted(zero.steps() + 1, result.gradientNorm()));
        }
    }

    @Override
    public void skip() {
        zero.clearGradients();
        scale.update(false);
        if (scale.value() < 1) {
            throw new JcclException(
                    "gradients are not finite in float16 with a loss scale of 1 either; lower --lr,"
                            + " or use --bf16 instead of --fp16");
        }
    }

    @Override
    public long waitedNanos() {
        return waited;
    }

    @Override
    public void save(Path folder) throws IOException {
        zero.save(folder);
    }

    @Override
    public void load(Path folder, boolean carried) throws IOException {
        zero.load(folder);
        if (!scales) {
            scale.restore(1, 0);
        } else if (scale.value() == 1 && scale.goodSteps() == 0) {
            // Saved without a scale, in another type.
            scale.restore(firstScale, 0);
        }
    }

    @Override
    public void close() {
        owned.close();
    }
}
