package io.jccl.examples;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.compute.Compute;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.zero.ShardedLayer;
import io.jccl.offload.zero.ZeroOptimizer;
import io.jccl.offload.zero.ZeroOptions;
import io.jccl.parallel.GradientReducer;
import io.jccl.parallel.ParameterSync;
import io.jccl.parallel.ReducerOptions;
import java.util.ArrayList;
import java.util.List;

/** Two ways to train a {@link Network} on several ranks, each with examples of its own. */
final class Training {
    static final int FEATURES = 20;
    static final int STEPS = 40;
    private static final double RATE = 0.1;
    private static final double ADAM_RATE = 0.01;

    private Training() {}

    /** Every rank has all weights; a reducer averages the gradients. */
    static double[] reduced(Communicator comm, Network network, Regression examples) {
        List<Buffer> weights = network.weights();
        List<ParameterSync.Tensor> tensors = new ArrayList<>();
        List<GradientReducer.Parameter> parameters = new ArrayList<>();
        for (int w = 0; w < weights.size(); w++) {
            tensors.add(new ParameterSync.Tensor("w" + w, weights.get(w)));
            long count = weights.get(w).count();
            parameters.add(new GradientReducer.Parameter("w" + w, count, DataType.FLOAT32));
        }
        ParameterSync.broadcast(comm, tensors, 0);
        Stream stream = comm.device().defaultStream();
        double[] losses = new double[STEPS];
        try (GradientReducer reducer =
                        GradientReducer.create(comm, parameters, ReducerOptions.DEFAULT);
                Compute compute = Compute.of(comm.device())) {
            for (int step = 0; step < STEPS; step++) {
                losses[step] = mean(comm, network.backward(examples));
                reducer.begin(true);
                for (int w = weights.size() - 1; w >= 0; w--) {
                    copy(network, w, reducer.gradient(w));
                    reducer.ready(w); // averaged while the next one is copied
                }
                reducer.finish();
                for (int w = 0; w < weights.size(); w++) {
                    compute.axpy(-RATE, reducer.gradient(w), weights.get(w), stream);
                }
            }
            ParameterSync.requireEqual(comm, tensors);
        }
        return losses;
    }

    /** Each rank has a share of weights, gradients and Adam's moments, in host memory. */
    static double[] sharded(Communicator comm, Network network, Regression examples) {
        List<Buffer> weights = network.weights();
        List<ShardedLayer> layers = new ArrayList<>();
        for (int w = 0; w < weights.size(); w++) {
            layers.add(ShardedLayer.of("w" + w, weights.get(w).count()));
        }
        ZeroOptions options =
                ZeroOptions.stage(3)
                        .withTypes(DataType.FLOAT32, DataType.FLOAT32)
                        .withTiers(Tier.PINNED, Tier.PINNED, Tier.PINNED);
        double[] losses = new double[STEPS];
        try (ZeroOptimizer zero = ZeroOptimizer.create(comm, layers, Adam.defaults(), options)) {
            zero.initialize((layer, tensor, to) -> {
                Buffer from = weights.get(Integer.parseInt(layer.substring(1)));
                to.copyFrom(from.asSegment());
            });
            for (int step = 0; step < STEPS; step++) {
                for (int w = 0; w < weights.size(); w++) {
                    Buffer whole = zero.gather(w).slice(0, weights.get(w).count());
                    weights.get(w).copyFrom(whole.asSegment());
                    zero.release(w);
                }
                losses[step] = mean(comm, network.backward(examples));
                for (int w = weights.size() - 1; w >= 0; w--) {
                    copy(network, w, zero.gradients(w).slice(0, weights.get(w).count()));
                    zero.reduce(w);
                }
                zero.step(ADAM_RATE);
            }
        }
        return losses;
    }

    private static void copy(Network network, int weight, Buffer to) {
        try (Buffer gradient = network.gradient(weight)) {
            to.copyFrom(gradient.asSegment());
        }
    }

    /** The mean of a number over the ranks. */
    static double mean(Communicator comm, double mine) {
        try (Buffer one = comm.device().allocate(DataType.FLOAT64, 1)) {
            one.set(0, mine);
            comm.allReduce(one, ReduceOp.AVG, comm.device().defaultStream());
            return one.get(0);
        }
    }
}
