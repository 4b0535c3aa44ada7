package io.jccl.parallel;

import java.time.Duration;
import java.util.List;

/**
 * The time that the ranks of a pipeline spent computing in the last run.
 *
 * @param schedule the order of computations
 * @param microBatches micro-batches per batch
 * @param computed the theoretical bubble of the schedule, see {@link PipelineSchedule#bubble}
 * @param total time of the run on the slowest rank
 * @param stages one per rank
 */
public record PipelineReport(
        PipelineSchedule schedule,
        int microBatches,
        double computed,
        Duration total,
        List<Stage> stages) {
    /**
     * The run of one rank.
     *
     * @param rank the rank
     * @param compute time in its stage's forward and backward methods
     * @param idle fraction of the total, 0 to 1, in which it did not compute but waited for other
     *     stages or messages
     */
    public record Stage(int rank, Duration compute, double idle) {}

    /** Copies the list. */
    public PipelineReport {
        stages = List.copyOf(stages);
    }

    /**
     * The measured bubble: the mean of the ranks' idle fractions.
     *
     * @return 0 to 1
     */
    public double measured() {
        return stages.stream().mapToDouble(Stage::idle).average().orElse(0);
    }
}
