package io.jccl.train.fit;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.offload.LayerBuffers;
import io.jccl.offload.LayerSchedule;
import io.jccl.offload.LayerTensor;
import io.jccl.offload.ScheduleOptions;
import io.jccl.offload.Tiers;
import io.jccl.offload.optim.Adam;
import io.jccl.offload.optim.LossScale;
import io.jccl.offload.zero.ShardedLayer;
import io.jccl.offload.zero.StepResult;
import io.jccl.offload.zero.ZeroOptimizer;
import io.jccl.train.Owned;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Trains one model on one rank. The constructor allocates all memory or none. */
final class RankTrainer implements AutoCloseable {
    private final Communicator comm;
    private final Settings settings;
    private final TechniqueSet set;
    private final int blocks;
    private final int microBatches;
    private final int rows;
    private final byte[] text;
    private final Owned owned = new Owned();
    private final ZeroOptimizer zero;
    private final Network network;

    /** Tensors kept by each block or, with recomputation, by the block that ran last. */
    private final List<Network.Kept> kept = new ArrayList<>();

    private final @Nullable Buffer recomputed;

    /** Offloads the blocks' inputs and fetches them back; null if they stay on the device. */
    private final @Nullable LayerSchedule inputs;

    /**
     * Memory that the optimizer needs during initialization; allocated early, so that it is
     * counted.
     */
    private final Buffer reserve;

    private final Buffer lossSum;
    private int step;

    RankTrainer(Communicator comm, Settings s, TechniqueSet set, int blocks, Tiers tiers) {
        this.comm = comm;
        this.settings = s;
        this.set = set;
        this.blocks = blocks;
        this.microBatches = set.accumulation() ? s.microBatches() : 1;
        this.rows = s.share() / microBatches;
        this.text = Network.text(s.seed());
        try {
            List<ShardedLayer> layers = Network.layers(s.hidden(), blocks);
            zero =
                    owned.add(
                            ZeroOptimizer.create(
                                    comm,
                                    layers,
                                    Adam.defaults(),
                                    set.options(microBatches),
                                    LossScale.fixed(1),
                                    tiers));
            long most = layers.stream().mapToLong(ShardedLayer::count).max().orElseThrow();
            reserve =
                    owned.add(tiers.pinned().allocate(DataType.FLOAT32, padded(most, comm.size())));
            network = new Network(s.hidden(), rows, set.type(), tiers.device(), owned);
            long row = (long) rows * s.hidden();
            Buffer again = null;
            LayerSchedule schedule = null;
            if (set.recomputation()) {
                again = owned.add(tiers.device().allocate(set.type(), (Network.KEPT - 1) * row));
            }
            if (set.checkpointsOnHost()) {
                schedule = owned.add(schedule(tiers, row));
            } else {
                for (int i = 0; i < blocks; i++) {
                    kept.add(
                            again == null
                                    ? Network.Kept.in(
                                            owned.add(
                                                    tiers.device()
                                                            .allocate(
                                                                    set.type(),
                                                                    Network.KEPT * row)),
                                            row)
                                    : Network.Kept.with(
                                            owned.add(tiers.device().allocate(set.type(), row)),
                                            again));
                }
            }
            recomputed = again;
            inputs = schedule;
            lossSum = owned.add(comm.device().allocate(DataType.FLOAT64, 1));
        } catch (RuntimeException | Error e) {
            close();
            throw e;
        }
    }

    private static long padded(long count, int ranks) {
        return (count + ranks - 1) / ranks * ranks;
    }

    private LayerSchedule schedule(Tiers tiers, long row) {
        List<io.jccl.offload.Layer> layers = new ArrayList<>();
        for (int i = 0; i < blocks; i++) {
            Buffer home = owned.add(tiers.pinned().allocate(set.type(), row));
            layers.add(
                    io.jccl.offload.Layer.of("block" + i)
                            .withCheckpoint(LayerTensor.pinned("input", home)));
        }
        return LayerSchedule.create(layers, tiers, ScheduleOptions.DEFAULT.withDepth(1));
    }

    /** Initializes the parameters, once every rank has its memory. */
    void initialize() {
        owned.release(reserve);
        zero.initialize((layer, tensor, values) ->
                Network.initialize(
                        settings.seed(),
                        settings.hidden(),
                        blocks,
                        layer,
                        tensor,
                        values.asSegment()));
    }

    /**
     * Runs one training step.
     *
     * @return the loss before it, the mean over the samples of all ranks
     */
    double step() {
        step++;
        int[] at = Network.samples(settings.seed(), step, settings.batch(), text.length);
        int first = comm.rank() * settings.share();
        double sum = 0;
        for (int m = 0; m < microBatches; m++) {
            sum += microStep(at, first + m * rows);
        }
        StepResult result = zero.step(settings.learningRate());
        lossSum.set(0, sum);
        Stream stream = comm.device().defaultStream();
        comm.allReduce(lossSum, ReduceOp.SUM, stream);
        stream.synchronize();
        double loss = lossSum.get(0) / settings.batch();
        if (!result.taken() || !Double.isFinite(loss)) {
            throw new JcclException(
                    set.title()
                            + " with "
                            + blocks
                            + " blocks: step "
                            + step
                            + " has a loss of "
                            + loss
                            + " and a gradient norm of "
                            + result.gradientNorm()
                            + ", expected finite numbers; lower --lr");
        }
        return loss;
    }

    private double microStep(int[] at, int from) {
        network.embed(zero.gather(0), text, at, from);
        zero.release(0);
        double[] loss = new double[1];
        if (inputs == null) {
            for (int i = 0; i < blocks; i++) {
                forward(i, kept.get(i));
            }
            loss[0] = output(at, from);
            for (int i = blocks - 1; i >= 0; i--) {
                backward(i, kept.get(i));
            }
        } else {
            inputs.train(
                    (i, buffers, compute) -> forward(i, kept(buffers, compute)),
                    (i, buffers, compute) -> {
                        if (i == blocks - 1) {
                            loss[0] = output(at, from);
                        }
                        backward(i, kept(buffers, compute));
                    });
        }
        zero.gather(0);
        network.embedBackward(zero.gradients(0), text, at, from);
        zero.release(0);
        zero.reduce(0);
        return loss[0];
    }

    /** The work runs on this thread, which therefore waits for the block's input. */
    private Network.Kept kept(LayerBuffers buffers, Stream compute) {
        compute.synchronize();
        if (recomputed == null) {
            throw new IllegalStateException("inputs move only with recomputation");
        }
        return Network.Kept.with(buffers.checkpoint(), recomputed);
    }

    private void forward(int block, Network.Kept k) {
        network.forward(zero.gather(block + 1), k);
        zero.release(block + 1);
    }

    private void backward(int block, Network.Kept k) {
        Buffer parameters = zero.gather(block + 1);
        if (set.recomputation()) {
            network.recompute(parameters, k);
        }
        network.backward(parameters, k, zero.gradients(block + 1));
        zero.release(block + 1);
        zero.reduce(block + 1);
    }

    private double output(int[] at, int from) {
        int layer = blocks + 1;
        double loss =
                network.output(
                        zero.gather(layer),
                        zero.gradients(layer),
                        text,
                        at,
                        from,
                        zero.lossScale());
        zero.release(layer);
        zero.reduce(layer);
        return loss;
    }

    @Override
    public void close() {
        owned.close();
    }
}
