package io.jccl.train.fit;

import java.nio.file.Path;

/**
 * Settings common to all techniques.
 *
 * @param ranks number of threads, each with its own device
 * @param hidden width of the blocks, a multiple of {@link Network#MULTIPLE}
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
        int ranks,
        int hidden,
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
    /** Samples of a step on one rank. */
    int share() {
        return batch / ranks;
    }
}
