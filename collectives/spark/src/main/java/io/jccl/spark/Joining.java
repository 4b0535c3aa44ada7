package io.jccl.spark;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.LocalJob;
import io.jccl.device.Device;
import io.jccl.error.JcclException;
import io.jccl.internal.Deadline;
import io.jccl.rendezvous.Store;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.TaskKilledException;
import org.jspecify.annotations.Nullable;

/**
 * One task that joins a communicator. Its wait for the other tasks can neither be interrupted nor
 * be given a deadline, so another thread waits, and the task's own thread watches the timeout and
 * whether Spark kills the task.
 */
final class Joining {
    private static final long LOOK_MILLIS = 20;

    /** Spark asks once a second whether all tasks have come. */
    private static final Duration LEAST = Duration.ofSeconds(3);

    private final BarrierTaskContext context;
    private final Device device;
    private final CommunicatorOptions options;
    private final int rank;
    private final int size;

    /** How long to wait for the other tasks. */
    private final Duration patience;

    private final FutureTask<Communicator> work = new FutureTask<>(this::join);

    /** Whether all tasks have joined. */
    private volatile boolean gathered;

    /** Guarded by this: whether the task has stopped waiting for the communicator. */
    private boolean abandoned;

    Joining(BarrierTaskContext context, Device device, CommunicatorOptions options) {
        this.context = context;
        this.device = device;
        this.options = options;
        this.rank = context.partitionId();
        this.size = context.numPartitions();
        Duration timeout = options.timeout();
        this.patience = timeout.compareTo(LEAST) < 0 ? LEAST : timeout;
    }

    Communicator await() {
        Thread.ofPlatform().daemon().name("jccl-spark-join-" + rank).start(work);
        long deadline = Deadline.after(patience);
        boolean done = false;
        String why = TaskGuard.name(context) + " no longer joins";
        try {
            while (true) {
                try {
                    Communicator made = work.get(LOOK_MILLIS, TimeUnit.MILLISECONDS);
                    done = true;
                    return made;
                } catch (TimeoutException e) {
                    if (context.isInterrupted()) {
                        throw new TaskKilledException(SparkInternals.killReason(context));
                    }
                    if (!gathered && System.nanoTime() - deadline > 0) {
                        CollectiveTimeoutException absent = absent();
                        why = String.valueOf(absent.getMessage());
                        throw absent;
                    }
                }
            }
        } catch (ExecutionException e) {
            done = true;
            Throwable cause = e.getCause();
            throw asIs(cause == null ? e : cause);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw context.isInterrupted()
                    ? new TaskKilledException(SparkInternals.killReason(context))
                    : new JcclException(
                            TaskGuard.name(context) + " was interrupted while it joined", e);
        } finally {
            if (!done) {
                abandon(why);
            }
        }
    }

    private static RuntimeException asIs(Throwable cause) {
        if (cause instanceof Error error) {
            throw error;
        }
        return cause instanceof RuntimeException e ? e : new JcclException(cause.toString(), cause);
    }

    private CollectiveTimeoutException absent() {
        return new CollectiveTimeoutException(
                ("rank %s of %s (%s) waited %s for the other tasks to join, but not all came."
                                + " Check that every task of the stage calls"
                                + " SparkCommunicator.join, as often as the others")
                        .formatted(rank, size, TaskGuard.name(context), patience));
    }

    private void abandon(String why) {
        synchronized (this) {
            abandoned = true;
        }
        if (!gathered) {
            SparkInternals.endWaiting(context, why);
        }
    }

    private Communicator join() {
        boolean cuda = device.kind() != Device.Kind.HOST;
        String address = context.getTaskInfos()[rank].address();
        // Rank 0 publishes the address of its store before it knows whether all tasks are on GPUs.
        ServedStore.@Nullable Server served =
                rank == 0 && cuda ? ServedStore.Server.open(Seat.host(address)) : null;
        boolean inUse = false;
        try {
            String job = UUID.randomUUID().toString();
            String store = served == null ? "" : served.announcement();
            String[] said = context.allGather(Seat.here(address, device, job, store).text());
            gathered = true;
            Seating seating = Seating.parse(said);
            Seating.Engine engine = seating.engine();
            inUse = engine == Seating.Engine.NCCL;
            return switch (engine) {
                case HOST -> host(seating.seats().getFirst());
                case NCCL -> nccl(seating.seats().getFirst(), served);
            };
        } finally {
            if (served != null && !inUse) {
                served.server().close();
            }
        }
    }

    private Communicator host(Seat first) {
        // Stage and attempt are for the reader: the random part distinguishes runs.
        String id =
                "spark-%s.%s-%s"
                        .formatted(context.stageId(), context.stageAttemptNumber(), first.job());
        Communicator made = LocalJob.join(id, rank, size, options);
        handOver(made, () -> {});
        return made;
    }

    private Communicator nccl(Seat first, ServedStore.@Nullable Server served) {
        boolean done = false;
        @Nullable Store store = null;
        try {
            Store connected = ServedStore.connect(first, options.timeout());
            store = connected;
            Communicator made = Communicator.join(connected, "spark", rank, size, device, options);
            handOver(made, () -> ServedStore.leave(connected, size, served));
            done = true;
            return made;
        } finally {
            if (!done && store != null) {
                ServedStore.leave(store, size, served);
            } else if (!done && served != null) {
                served.server().close();
            }
        }
    }

    /** Ends the communicator with the task, or now if the task no longer waits for it. */
    private synchronized void handOver(Communicator made, Runnable afterwards) {
        if (abandoned) {
            made.abort(TaskGuard.name(context) + " no longer joins");
        }
        TaskGuard.start(context, made, afterwards);
    }
}
