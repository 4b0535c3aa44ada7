package io.jccl.train.fit;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.bindings.CublasException;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.generated.cublas.cublas_h;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.internal.Statistics;
import io.jccl.offload.OffloadMemoryException;
import io.jccl.offload.Tier;
import io.jccl.train.Corpus;
import io.jccl.train.GptTrainer;
import io.jccl.train.Owned;
import io.jccl.train.RankMemory;
import io.jccl.train.RunSettings;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.DoubleStream;
import org.jspecify.annotations.Nullable;

/** The attempt to train one model: it trained within the budgets, or an allocation failed. */
public sealed interface Attempt {
    /** On the CPU models of fewer blocks run more steps. */
    int STEADY = 16;

    /** The model's blocks. */
    int blocks();

    /**
     * The model trained.
     *
     * @param blocks of the model
     * @param parameters of the model
     * @param losses before each step, nats per token
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
     * @param asked bytes of the failed allocation; 0 if a library made it, which reports neither
     *     this nor the free bytes
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
     * @param least number of steps; on the CPU small models run more, so that their speed is
     *     meaningful
     * @return the outcome
     * @throws JcclException if training failed for another reason
     */
    static Attempt run(Settings s, TechniqueSet set, int blocks, int least) {
        int steps = least == 1 || s.onGpu() ? least : least * Math.max(1, STEADY / blocks);
        Corpus corpus = Corpus.grammar(s.seed());
        RunSettings run = s.run(set, blocks, corpus.vocabulary().size(), steps);
        long parameters = run.shape().parameters();
        AtomicReference<@Nullable Refused> refused = new AtomicReference<>();
        AtomicReferenceArray<long[]> peaks = new AtomicReferenceArray<>(s.ranks());
        double[] losses = new double[steps];
        double[] seconds = new double[steps];
        Path folder = run.techniques().offload().drive() ? s.folder() : null;
        CommunicatorOptions patience = CommunicatorOptions.DEFAULT.withTimeout(HostVote.PATIENCE);
        HostVote memoryVote = new HostVote(s.ranks());
        HostVote trainerVote = new HostVote(s.ranks());
        Communicator.runLocal(
                s.devices(),
                patience,
                comm -> {
                    try (RankMemory memory = memory(s, folder, comm, blocks, parameters, refused);
                            Owned owned = new Owned();
                            memoryVote;
                            trainerVote) {
                        if (!memoryVote.all(memory != null) || memory == null) {
                            return;
                        }
                        GptTrainer trainer = null;
                        try {
                            trainer = owned.add(new GptTrainer(comm, corpus, run, memory));
                            trainer.initialize();
                        } catch (OffloadMemoryException e) {
                            trainer = null;
                            refused.compareAndSet(
                                    null, refused(blocks, parameters, memory, comm.device(), e));
                        } catch (CudaException | CublasException e) {
                            if (!isFull(e)) {
                                throw e;
                            }
                            trainer = null;
                            refused.compareAndSet(
                                    null, new Refused(blocks, parameters, Tier.DEVICE, 0, 0));
                        }
                        if (!trainerVote.all(trainer != null) || trainer == null) {
                            return;
                        }
                        for (int i = 0; i < steps; i++) {
                            long began = System.nanoTime();
                            double loss = trainer.step();
                            if (comm.rank() == 0) {
                                losses[i] = loss;
                                seconds[i] = (System.nanoTime() - began) / 1e9;
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

    /** Null if the drive's budget has no room for the header of its file. */
    private static @Nullable RankMemory memory(
            Settings s,
            @Nullable Path folder,
            Communicator comm,
            int blocks,
            long parameters,
            AtomicReference<@Nullable Refused> refused) {
        try {
            return new RankMemory(comm.device(), s.limits(), folder, comm.rank());
        } catch (OffloadMemoryException e) {
            refused.compareAndSet(
                    null, new Refused(blocks, parameters, e.tier(), e.asked(), e.free()));
            return null;
        }
    }

    /** The exception does not contain the free bytes, since a slab occupies the whole budget. */
    private static Refused refused(
            int blocks,
            long parameters,
            RankMemory memory,
            Device device,
            OffloadMemoryException e) {
        boolean system = e.getCause() != null;
        Tier tier = e.tier();
        long free =
                !system
                        ? memory.left(tier)
                        : tier == Tier.DEVICE && device.kind() == Device.Kind.CUDA
                                ? Cuda.freeMemory(device)
                                : e.free();
        return new Refused(blocks, parameters, tier, e.asked() - memory.slack(tier), free);
    }

    /**
     * Whether a library found no device memory: NCCL and cuBLAS allocate theirs in addition to the
     * model's.
     */
    private static boolean isFull(JcclException e) {
        return e instanceof CudaException cuda
                ? cuda.error() == cudart_h.cudaErrorMemoryAllocation()
                : e instanceof CublasException cublas
                        && cublas.status() == cublas_h.CUBLAS_STATUS_ALLOC_FAILED();
    }
}
