package io.jccl.train.fit;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.ReduceOp;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Statistics;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.DoubleStream;
import org.jspecify.annotations.Nullable;

/** The attempt to train one model: it trained within the budgets, or an allocation failed. */
public sealed interface Attempt {
    /** Models of fewer blocks run more steps. */
    int STEADY = 16;

    /** The model's blocks. */
    int blocks();

    /**
     * The model trained.
     *
     * @param blocks of the model
     * @param parameters of the model
     * @param losses before each step, nats per character
     * @param samplesPerSecond from the median step, without the first
     * @param deviceBytes peak of the fullest device
     * @param hostBytes peak of all ranks
     * @param nvmeBytes peak of all ranks
     */
    record Trained(
            int blocks,
            long parameters,
            List<Double> losses,
            double samplesPerSecond,
            long deviceBytes,
            long hostBytes,
            long nvmeBytes)
            implements Attempt {
        /** Whether the last loss is below the first. */
        boolean learns() {
            return losses.getLast() < losses.getFirst();
        }
    }

    /**
     * A tier was full.
     *
     * @param blocks of the model
     * @param parameters of the model
     * @param tier the full tier
     * @param asked bytes of the failed allocation
     * @param free free bytes on that rank
     */
    record Refused(int blocks, long parameters, Tier tier, long asked, long free)
            implements Attempt {}

    /**
     * Trains a model from scratch and frees all memory.
     *
     * @param s budgets and sizes
     * @param set the techniques
     * @param blocks of the model
     * @param least number of steps; small models run more, so that their speed is meaningful
     * @return the outcome
     * @throws JcclException if training failed for another reason
     */
    static Attempt run(Settings s, TechniqueSet set, int blocks, int least) {
        int steps = least == 1 ? 1 : least * Math.max(1, STEADY / blocks);
        AtomicReference<@Nullable Refused> refused = new AtomicReference<>();
        AtomicReferenceArray<long[]> peaks = new AtomicReferenceArray<>(s.ranks());
        double[] losses = new double[steps];
        double[] seconds = new double[steps];
        long parameters = Network.parameters(s.hidden(), blocks);
        CommunicatorOptions patience =
                CommunicatorOptions.DEFAULT.withTimeout(Duration.ofMinutes(5));
        Communicator.runLocal(
                s.ranks(),
                patience,
                comm -> {
                    try (RankMemory memory = new RankMemory(s, set.nvmeOffload(), comm.rank())) {
                        RankTrainer trainer = null;
                        try {
                            trainer = new RankTrainer(comm, s, set, blocks, memory.tiers);
                        } catch (OffloadMemoryException e) {
                            refused.compareAndSet(null, memory.refused(blocks, parameters, e));
                        }
                        try (RankTrainer t = trainer) {
                            if (!all(comm, t != null) || t == null) {
                                return;
                            }
                            t.initialize();
                            for (int i = 0; i < steps; i++) {
                                long began = System.nanoTime();
                                double loss = t.step();
                                if (comm.rank() == 0) {
                                    losses[i] = loss;
                                    seconds[i] = (System.nanoTime() - began) / 1e9;
                                }
                            }
                        }
                        peaks.set(
                                comm.rank(),
                                Arrays.stream(Tier.values()).mapToLong(memory::peak).toArray());
                    }
                });
        Refused no = refused.get();
        if (no != null) {
            return no;
        }
        double[] warm = Arrays.copyOfRange(seconds, steps > 1 ? 1 : 0, steps);
        long[] sum = new long[Tier.values().length];
        long device = 0;
        for (int r = 0; r < s.ranks(); r++) {
            long[] of = peaks.get(r);
            device = Math.max(device, of[Tier.DEVICE.ordinal()]);
            for (int t = 0; t < sum.length; t++) {
                sum[t] += of[t];
            }
        }
        return new Trained(
                blocks,
                parameters,
                DoubleStream.of(losses).boxed().toList(),
                s.batch() / Statistics.median(warm),
                device,
                sum[Tier.PINNED.ordinal()],
                sum[Tier.NVME.ordinal()]);
    }

    /** Whether it holds on all ranks. */
    private static boolean all(Communicator comm, boolean mine) {
        Stream stream = comm.device().defaultStream();
        try (Buffer flag = comm.device().allocate(DataType.INT32, 1)) {
            flag.setLong(0, mine ? 1 : 0);
            comm.allReduce(flag, ReduceOp.MIN, stream);
            stream.synchronize();
            return flag.getLong(0) == 1;
        }
    }
}
