package io.jccl.train.fit;

import io.jccl.device.Device;
import io.jccl.offload.Tier;
import io.jccl.offload.optim.Adam;
import io.jccl.train.Architecture;
import io.jccl.train.Evaluation;
import io.jccl.train.GptShape;
import io.jccl.train.Recipe;
import io.jccl.train.RunSettings;
import io.jccl.train.Techniques;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * Settings common to all techniques.
 *
 * @param devices that of each rank; a rank is a thread
 * @param hidden width of the blocks, a multiple of {@link #HEAD}
 * @param context tokens of a sample
 * @param batch samples of a step, of all ranks together
 * @param microBatches micro-batches per rank for gradient accumulation
 * @param steps steps of a counted run
 * @param maxBlocks maximum number of blocks to try
 * @param learningRate of Adam
 * @param seed of text, initial parameters and batches
 * @param deviceBytes memory of each rank's device
 * @param hostBytes pinned memory of the machine
 * @param nvmeBytes of the machine's drive
 * @param folder on the drive
 */
public record Settings(
        List<? extends Device> devices,
        int hidden,
        int context,
        int batch,
        int microBatches,
        int steps,
        int maxBlocks,
        double learningRate,
        long seed,
        long deviceBytes,
        long hostBytes,
        long nvmeBytes,
        Path folder) {
    /** Width of an attention head. */
    public static final int HEAD = 32;

    /** Number of ranks. */
    public int ranks() {
        return devices.size();
    }

    /** Whether ranks have GPUs. */
    boolean onGpu() {
        return devices.getFirst().kind() == Device.Kind.CUDA;
    }

    /** A rank's limit in each tier. */
    Map<Tier, Long> limits() {
        return Map.of(
                Tier.DEVICE, deviceBytes,
                Tier.PINNED, hostBytes / ranks(),
                Tier.NVME, nvmeBytes / ranks());
    }

    /** The run that trains a model of the given number of blocks. */
    RunSettings run(TechniqueSet set, int blocks, int vocabulary, int count) {
        int heads = hidden / HEAD;
        GptShape shape =
                new GptShape(
                        blocks,
                        hidden,
                        heads,
                        context,
                        vocabulary,
                        Architecture.of(Architecture.Kind.JCCL, hidden, heads));
        Techniques techniques = set.on(ranks(), microBatches);
        techniques.check(shape, batch);
        return new RunSettings(
                shape,
                techniques,
                batch,
                count,
                learningRate,
                Adam.defaults(),
                Recipe.NONE,
                Evaluation.NONE,
                seed,
                1,
                null,
                null,
                count,
                RunSettings.START,
                null,
                null);
    }
}
