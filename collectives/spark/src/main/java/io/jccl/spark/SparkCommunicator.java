package io.jccl.spark;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import java.io.Serializable;
import java.util.Iterator;
import java.util.Objects;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction2;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Creates a communicator among the tasks of a barrier stage. A task's rank is its partition's
 * number, and there are as many ranks as partitions.
 *
 * {@snippet class="snippets.OnSpark" region="average"}
 *
 * <p>The engine depends on where the tasks run. If Spark assigned a GPU to each, it is NCCL, on one
 * machine or many. Without GPUs it is the host engine, which needs all tasks on one machine; tasks
 * on several machines are refused with a message that lists where each runs.
 *
 * <p>The communicator ends with the task, and with it all that {@link Communicator#split} and
 * {@link Communicator#shrink} made from it: they are closed when the task completes. If the task
 * fails or Spark kills it, they are aborted, so that no other task waits for it. Pass a
 * communicator that the task has from elsewhere to {@link #tie}.
 *
 * <p><b>Threads:</b> any; the communicator has its own thread rule.
 */
public final class SparkCommunicator {
    private SparkCommunicator() {}

    /**
     * Joins the other tasks of the barrier stage with default options.
     *
     * @param context this task's
     * @return this task's rank
     * @see #join(BarrierTaskContext, CommunicatorOptions)
     */
    public static Communicator join(BarrierTaskContext context) {
        return join(context, CommunicatorOptions.DEFAULT);
    }

    /**
     * Joins the other tasks of the barrier stage, on the GPU that Spark assigned to this task by
     * the resource {@code gpu}, or on the host device if there is none. Every task calls it equally
     * often: it consists of one {@link BarrierTaskContext#allGather}, which takes Spark about a
     * second, and the start of the engine.
     *
     * @param context this task's
     * @param options settings, equal on all tasks. The timeout applies to each of the two steps, to
     *     the first one as at least 3 s
     * @return this task's rank
     * @throws CollectiveTimeoutException if not all tasks come within the timeout: Spark then kills
     *     the task for this reason, and it cannot continue even if it catches the exception; or if
     *     the engine does not start within it
     * @throws TaskKilledException if Spark kills the task while it joins, as it does when another
     *     task of the stage fails
     * @throws JcclException if there is no engine for tasks at these places; thrown on all of them
     */
    public static Communicator join(BarrierTaskContext context, CommunicatorOptions options) {
        return join(context, AssignedGpu.device(context.resourcesJMap()), options);
    }

    /**
     * Joins the other tasks of the barrier stage, on a given device.
     *
     * @param context this task's
     * @param device a CUDA device for NCCL, or the host device; of the same kind on all tasks
     * @param options settings, equal on all tasks
     * @return this task's rank
     * @throws CollectiveTimeoutException if not all tasks come within the timeout, after which the
     *     task cannot continue; or if the engine does not start within it
     * @throws TaskKilledException if Spark kills the task while it joins
     * @throws JcclException if there is no engine for tasks at these places; thrown on all of them
     * @see #join(BarrierTaskContext, CommunicatorOptions)
     */
    public static Communicator join(
            BarrierTaskContext context, Device device, CommunicatorOptions options) {
        Objects.requireNonNull(device, "device");
        Objects.requireNonNull(options, "options");
        return new Joining(context, device, options).await();
    }

    /**
     * Ties a communicator to a task: it and all that was made from it are closed when the task
     * completes, and aborted before if the task fails or Spark kills it. {@link #join} has already
     * done so for the communicator it returns.
     *
     * @param <C> kind of communicator
     * @param context the task's
     * @param communicator one that was neither made by {@link #join} nor from such a one
     * @return the communicator
     */
    public static <C extends Communicator> C tie(TaskContext context, C communicator) {
        TaskGuard.start(context, communicator, () -> {});
        return communicator;
    }

    /**
     * Runs a function on every partition in one barrier stage. Spark has no Java method for this.
     * All partitions need a free slot at the same time.
     *
     * @param <T> type of the rows
     * @param <R> type of the results
     * @param rdd the rows, with one partition for each rank
     * @param body receives its task's context and the rows of its partition
     * @return the results of the function
     */
    public static <T, R> JavaRDD<R> mapPartitions(
            JavaRDD<T> rdd, FlatMapFunction2<BarrierTaskContext, Iterator<T>, R> body) {
        Objects.requireNonNull(body, "body");
        ClassTag<R> any = ClassTag$.MODULE$.apply(Object.class);
        return new JavaRDD<>(
                rdd.rdd().barrier().mapPartitions(new BarrierBody<>(body), false, any), any);
    }

    /** The object that Spark serializes for a task. */
    private record BarrierBody<T, R>(FlatMapFunction2<BarrierTaskContext, Iterator<T>, R> body)
            implements Function1<scala.collection.Iterator<T>, scala.collection.Iterator<R>>,
                    Serializable {
        @Override
        public scala.collection.Iterator<R> apply(scala.collection.Iterator<T> rows) {
            try {
                return CollectionConverters.asScala(
                        body.call(BarrierTaskContext.get(), CollectionConverters.asJava(rows)));
            } catch (Exception e) {
                SparkCommunicator.<RuntimeException>rethrow(e);
                throw new AssertionError(e);
            }
        }
    }

    /** Not wrapped: Spark reports any exception of the function, checked or not. */
    @SuppressWarnings({"unchecked", "TypeParameterUnusedInFormals"})
    private static <E extends Exception> void rethrow(Exception e) throws E {
        throw (E) e;
    }
}
