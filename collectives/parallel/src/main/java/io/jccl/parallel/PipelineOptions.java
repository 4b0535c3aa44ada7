package io.jccl.parallel;

import io.jccl.device.DataType;
import java.util.Objects;

/**
 * What a pipeline does. All ranks pass the same schedule, micro-batches and type.
 *
 * @param schedule the order of computations
 * @param microBatches how many a batch consists of, 1 or more
 * @param type element type of what goes from stage to stage
 * @param inputCount elements of one micro-batch that come from the stage before, 1 or more; the
 *     first stage's is ignored
 * @param outputCount elements of one micro-batch that go to the next stage, the same number as that
 *     one's inputCount; the last stage's is ignored
 * @param overlap whether messages travel while stages compute. It takes up to four communicators
 *     and as many streams, one more buffer for inputs, and two in place of one for outputs and each
 *     kind of gradient. Without it a rank sends and receives between computations, with none of
 *     these
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
                    "microBatches, inputCount and outputCount are "
                            + microBatches
                            + ", "
                            + inputCount
                            + " and "
                            + outputCount
                            + ", expected 1 or more of each");
        }
    }

    /**
     * One forward, one backward, with as many elements between all stages, and messages that travel
     * while stages compute.
     *
     * @param microBatches how many a batch consists of
     * @param type element type of what goes from stage to stage
     * @param count elements of one micro-batch
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
     * These options, but messages travel while stages compute or not.
     *
     * @param value whether they do
     * @return new options
     */
    public PipelineOptions withOverlap(boolean value) {
        return new PipelineOptions(schedule, microBatches, type, inputCount, outputCount, value);
    }
}
