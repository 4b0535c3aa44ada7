package io.jccl.spark;

import org.apache.spark.TaskContext;
import scala.Option;

/** Methods that Spark keeps for itself, but that Java may call. */
final class SparkInternals {
    private SparkInternals() {}

    /** Why Spark kills a task. */
    static String killReason(TaskContext context) {
        Option<String> reason = context.getKillReason();
        return reason.isDefined() ? reason.get() : "it gave no reason";
    }

    /**
     * Ends an {@link org.apache.spark.BarrierTaskContext#allGather} on another thread. It has no
     * other end of its own than that Spark kills the task, or {@code spark.barrier.sync.timeout},
     * which is a year.
     */
    static void endWaiting(TaskContext context, String reason) {
        context.markInterrupted(reason);
    }
}
