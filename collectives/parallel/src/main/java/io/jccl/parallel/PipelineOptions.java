package io.jccl.parallel;

import io.jccl.device.DataType;
import java.util.List;
import java.util.Objects;

/**
 * Settings of a pipeline. All ranks pass the same schedule, micro-batches, type and overlap.
 *
 * @param schedule the order of computations
 * @param microBatches micro-batches per batch, 1 or more
 * @param type element type of activations and their gradients
 * @param inputCount elements per micro-batch received from the previous stage, 1 or more; ignored
 *     on the first stage
 * @param outputCount elements per micro-batch sent to the next stage, equal to its inputCount;
 *     ignored on the last stage
 * @param overlap whether communication overlaps computation. It takes up to four communicators and
 *     as many streams, one more buffer for inputs, and two buffers instead of one for outputs and
 *     each kind of gradient. Otherwise a rank sends and receives between computations
 */
public record PipelineOptions(
        PipelineSchedule schedule,
        int microBatches,
        DataType type,
        long inputCount,
        long outputCount,
        boolean overlap) {
    /** Checks the numbers. */
    public PipelineOptions {
        Objects.requireNonNull(schedule, "schedule");
        Objects.requireNonNull(type, "type");
        if (microBatches < 1 || inputCount < 1 || outputCount < 1) {
            throw new IllegalArgumentException(
                    ("microBatches, inputCount and outputCount are %s, %s and %s, expected 1 or"
                                    + " more of each")
                            .formatted(microBatches, inputCount, outputCount));
        }
    }

    /**
     * 1F1B with overlap and the same number of elements between all stages.
     *
     * @param microBatches micro-batches per batch
     * @param type element type of activations and their gradients
     * @param count elements per micro-batch
     * @return options
     */
    public static PipelineOptions of(int microBatches, DataType type, long count) {
        return new PipelineOptions(
                PipelineSchedule.ONE_F_ONE_B, microBatches, type, count, count, true);
    }

    /**
     * These options with another schedule.
     *
     * @param value the order of computations
     * @return new options
     */
    public PipelineOptions withSchedule(PipelineSchedule value) {
        return new PipelineOptions(value, microBatches, type, inputCount, outputCount, overlap);
    }

    /**
     * These options with or without overlap.
     *
     * @param value whether communication overlaps computation
     * @return new options
     */
    public PipelineOptions withOverlap(boolean value) {
        return new PipelineOptions(schedule, microBatches, type, inputCount, outputCount, value);
    }

    /** What all ranks must have in common. */
    List<String> common() {
        return List.of(
                "schedule " + schedule.label(),
                microBatches + " micro-batches",
                "type " + type.label(),
                "overlap " + overlap);
    }
}
