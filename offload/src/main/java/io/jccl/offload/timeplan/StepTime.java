package io.jccl.offload.timeplan;

import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Traffic;
import java.util.List;

/**
 * The predicted time of a step, in seconds. Compute, bubble, update and exposed transfers add up to
 * it.
 *
 * @param plan the plan that is timed
 * @param seconds of the step
 * @param compute of the slowest rank, recomputation included
 * @param recomputation part of {@code compute}
 * @param bubble a pipeline's idle time
 * @param update of the optimizer, including transfers it waits for
 * @param moved the plan's traffic with its times
 * @param peak TFLOP/s of a device, which utilization refers to
 */
public record StepTime(
        Plan plan,
        double seconds,
        double compute,
        double recomputation,
        double bubble,
        double update,
        List<Moved> moved,
        double peak) {
    /**
     * Bytes and their time.
     *
     * @param traffic the bytes
     * @param seconds that the transfers take, overlapped or not
     * @param exposed part during which the rank waits
     */
    public record Moved(Traffic traffic, double seconds, double exposed) {
        /**
         * Whether ranks exchange them.
         *
         * @return false for copies between a device, its host and drives
         */
        public boolean communication() {
            return traffic.group() != Traffic.Group.MACHINE;
        }
    }

    /** Copies the list. */
    public StepTime {
        moved = List.copyOf(moved);
    }

    /**
     * Tokens of all ranks per second.
     *
     * @return the rate
     */
    public double tokensPerSecond() {
        return (double) plan.compute().batch() * plan.job().model().sequence() / seconds;
    }

    /**
     * Tokens of one rank per second.
     *
     * @return the rate
     */
    public double tokensPerSecondAndGpu() {
        return tokensPerSecond() / ranks();
    }

    /**
     * Model FLOPs utilization: operations without recomputation, relative to the peak.
     *
     * @return 0 to 1
     */
    public double mfu() {
        return plan.compute().withoutRecomputation() / ranks() / seconds / (peak * 1e12);
    }

    /**
     * Operations of a rank per second, including recomputation.
     *
     * @return TFLOP/s
     */
    public double teraflops() {
        return plan.compute().flops() / ranks() / seconds * 1e-12;
    }

    /**
     * Time in which ranks wait for each other's data.
     *
     * @return seconds
     */
    public double exposed() {
        return moved.stream().filter(Moved::communication).mapToDouble(Moved::exposed).sum();
    }

    /**
     * Time of communication that compute hides.
     *
     * @return seconds
     */
    public double hidden() {
        return moved.stream()
                .filter(Moved::communication)
                .mapToDouble(m -> m.seconds() - m.exposed())
                .sum();
    }

    /**
     * Part of the step in which ranks wait for each other's data.
     *
     * @return 0 to 1
     */
    public double communicationShare() {
        return exposed() / seconds;
    }

    private int ranks() {
        return plan.job().machine().ranks();
    }
}
