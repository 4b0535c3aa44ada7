package io.jccl.spark;

import org.apache.spark.TaskContext;
import scala.Option;

/** Methods that are private to Spark in Scala, but accessible from Java. */
final class SparkInternals {
    private SparkInternals() {}

    /** The reason for which Spark kills a task. */
    static String killReason(TaskContext context) {
        Option<String> reason = context.getKillReason();
        return reason.isDefined() ? reason.get() : "it gave no reason";
    }

    /**
     * Ends an {@link org.apache.spark.BarrierTaskContext#allGather} on another thread. Otherwise it
     * ends only when Spark kills the task, or after {@code spark.barrier.sync.timeout}, which is a
     * year. Spark then takes the task for killed, for the reason given.
     */
    static void endWaiting(TaskContext context, String reason) {
        context.markInterrupted(reason);
    }
}
