package io.jccl.train;

import io.jccl.offload.optim.Optimizer;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;

/**
 * Settings of a training run.
 *
 * @param shape the model
 * @param techniques the techniques to use
 * @param batch sequences of a step, of all ranks
 * @param steps optimizer steps from the first to the last
 * @param learningRate of the optimizer, the highest of its schedule
 * @param optimizer the update rule
 * @param recipe schedule, clipping and groups
 * @param evaluation measurements on held-out text, and generation of text at the end
 * @param seed of initial parameters and batches
 * @param threads that compute, for each rank
 * @param nvme folder for optimizer state in files; null without
 * @param checkpoint folder for checkpoints; null for none
 * @param every steps between two checkpoints; the last step is saved too
 * @param resume {@link #START}, {@link #NEWEST}, or the step of the checkpoint to resume from
 * @param load safetensors file, index or folder to begin with; null for initial values by the seed
 * @param save folder for safetensors files after the last step; null for none
 */
public record RunSettings(
        GptShape shape,
        Techniques techniques,
        int batch,
        int steps,
        double learningRate,
        Optimizer optimizer,
        Recipe recipe,
        Evaluation evaluation,
        long seed,
        int threads,
        @Nullable Path nvme,
        @Nullable Path checkpoint,
        int every,
        int resume,
        @Nullable Path load,
        @Nullable Path save) {
    /** No checkpoint is loaded. */
    public static final int START = -1;

    /** The newest complete checkpoint is loaded. */
    public static final int NEWEST = 0;

    /** Sequences of a micro-batch. */
    int sequences() {
        return batch / techniques.microBatches();
    }

    /**
     * These settings with another number of steps.
     *
     * @param value steps from the first to the last
     * @return new settings
     */
    public RunSettings withSteps(int value) {
        return new RunSettings(
                shape,
                techniques,
                batch,
                value,
                learningRate,
                optimizer,
                recipe,
                evaluation,
                seed,
                threads,
                nvme,
                checkpoint,
                every,
                resume,
                load,
                save);
    }
}
