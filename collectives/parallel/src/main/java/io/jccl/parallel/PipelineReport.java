package io.jccl.parallel;

import java.time.Duration;
import java.util.List;

/**
 * How the ranks of a pipeline spent the last run.
 *
 * @param schedule the order of computations
 * @param microBatches how many
 * @param computed the bubble that the schedule alone makes; see {@link PipelineSchedule#bubble}
 * @param total time of the run, on the rank that took longest
 * @param stages one for each rank
 */
public record PipelineReport(
        PipelineSchedule schedule,
        int microBatches,
        double computed,
        Duration total,
        List<Stage> stages) {
    /**
     * One rank's run.
     *
     * @param rank which
     * @param compute time in its stage's forward and backward
     * @param idle share of the total in which it did not compute: it waited for other stages, or
     *     for messages to arrive
     */
    public record Stage(int rank, Duration compute, double idle) {}

    /** Copies the list. */
    public PipelineReport {
        stages = List.copyOf(stages);
    }

    /**
     * The bubble as measured: the mean over ranks of the share in which they did not compute.
     *
     * @return 0 to 1
     */
    public double measured() {
        return stages.stream().mapToDouble(Stage::idle).average().orElse(0);
    }
}
