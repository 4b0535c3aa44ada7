package io.jccl.spark;

import io.jccl.Communicator;
import io.jccl.engine.Descendants;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;

/**
 * Ends a communicator, and what was made from it, with its task. Spark kills a task by a flag in
 * its context, which a thread waiting in an operation does not see; so another thread polls it.
 */
final class TaskGuard implements TaskFailureListener, TaskCompletionListener {
    private static final long LOOK_MILLIS = 20;

    private final TaskContext context;
    private final Communicator communicator;
    private final Runnable afterwards;
    private final CountDownLatch completed = new CountDownLatch(1);

    private TaskGuard(TaskContext context, Communicator communicator, Runnable afterwards) {
        this.context = context;
        this.communicator = communicator;
        this.afterwards = afterwards;
    }

    /**
     * Starts the guard.
     *
     * @param afterwards runs when the communicator is closed
     */
    static void start(TaskContext context, Communicator communicator, Runnable afterwards) {
        TaskGuard guard = new TaskGuard(context, communicator, afterwards);
        Thread.ofPlatform()
                .daemon()
                .name("jccl-spark-guard-" + context.partitionId())
                .start(guard::look);
        // Spark calls both immediately if the task has already ended.
        context.addTaskFailureListener(guard);
        context.addTaskCompletionListener(guard);
    }

    static String name(TaskContext context) {
        return "task "
                + context.partitionId()
                + " of stage "
                + context.stageId()
                + "."
                + context.stageAttemptNumber();
    }

    private void look() {
        try {
            while (!completed.await(LOOK_MILLIS, TimeUnit.MILLISECONDS)) {
                if (context.isInterrupted()) {
                    // Each time: the task may still make others from them.
                    abortAsKilled();
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void abortAsKilled() {
        abort("Spark killed " + name(context) + ": " + SparkInternals.killReason(context));
    }

    private void abort(String reason) {
        all().forEach(c -> c.abort(reason));
    }

    /** The communicator and, before it, what was made from it, in the same order on all ranks. */
    private List<Communicator> all() {
        List<Communicator> all = new ArrayList<>(Descendants.of(communicator));
        all.add(communicator);
        return all;
    }

    @Override
    public void onTaskFailure(TaskContext context, Throwable error) {
        abort(name(context) + " failed: " + error);
    }

    @Override
    public void onTaskCompletion(TaskContext context) {
        completed.countDown();
        try {
            if (context.isInterrupted()) {
                // The work of a killed task is not waited for.
                abortAsKilled();
            }
            Closing.all(all());
        } finally {
            afterwards.run();
        }
    }
}
