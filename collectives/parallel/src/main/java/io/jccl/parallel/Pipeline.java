package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Closing;
import io.jccl.parallel.PipelineStep.Action;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Pipeline parallelism: the layers of a model are split over ranks, rank i computes stage i, and a
 * batch passes through the stages in micro-batches, forward and backward; see {@link
 * PipelineSchedule}.
 *
 * <p>With {@link PipelineOptions#overlap} communication overlaps computation: the next micro-batch
 * is received, and the last result sent, while the current one is computed. Each direction between
 * two neighbours has its own communicator and stream. Results and the order of computations are the
 * same with and without it.
 *
 * <p>Activations are kept for as many micro-batches as the schedule has in flight. All memory is
 * allocated by {@link #create}; a run allocates nothing.
 *
 * <p><b>Errors:</b> {@link #run} throws the errors of the stage and of send and recv; on a GPU they
 * are thrown when it waits at the end. If a rank dies, the others throw within the communicator's
 * timeout. After an error, abort the communicator, so that the other stages do not wait for this
 * one. With overlap the pipeline has already aborted its own communicators and cannot run again.
 *
 * {@snippet class="snippets.Parallel" region="pipeline"}
 *
 * <p><b>Threads:</b> the thread of the communicator.
 */
public final class Pipeline implements AutoCloseable {
    private final Communicator comm;
    private final PipelineStage stage;
    private final PipelineOptions options;
    private final Stream stream;
    private final int slots;

    /** Micro-batch i uses buffer {@code i % size()}; empty if there is no neighbour. */
    private final List<Buffer> inputs = new ArrayList<>();

    private final List<Buffer> outputs = new ArrayList<>();
    private final List<Buffer> outputGradients = new ArrayList<>();
    private final List<Buffer> inputGradients = new ArrayList<>();

    /**
     * Communicators of lanes, in the same order on all ranks: forward and backward, from even ranks
     * and from odd ones.
     */
    private final List<Communicator> own = new ArrayList<>();

    private final List<PipelineLane> lanes = new ArrayList<>();
    private final Runnable[] work;
    private final Event began;
    private final Event ended;

    /** These two, then those before and after each computation. */
    private final List<Event> marks = new ArrayList<>();

    private boolean ran;
    private boolean closed;

    private Pipeline(Communicator comm, PipelineStage stage, PipelineOptions options) {
        this.comm = comm;
        this.stage = stage;
        this.options = options;
        this.stream = comm.device().defaultStream();
        int rank = comm.rank();
        int stages = comm.size();
        this.slots = options.schedule().inFlight(stages, rank, options.microBatches());
        int more = options.overlap() ? 1 : 0;
        long in = rank == 0 ? 0 : options.inputCount();
        long out = rank == stages - 1 ? 0 : options.outputCount();
        List<PipelineStep> steps = options.schedule().steps(stages, rank, options.microBatches());
        try {
            fill(inputs, slots + more, in);
            fill(outputs, 1 + more, out);
            fill(outputGradients, 1 + more, out);
            fill(inputGradients, 1 + more, in);
            this.began = mark();
            this.ended = mark();
            this.work =
                    options.overlap() && stages > 1
                            ? overlapped(steps)
                            : steps.stream().map(this::prepare).toArray(Runnable[]::new);
        } catch (RuntimeException | Error e) {
            close();
            throw e;
        }
    }

    private void fill(List<Buffer> ring, int number, long count) {
        for (int i = 0; i < Math.min(number, options.microBatches()) && count > 0; i++) {
            ring.add(comm.device().allocate(options.type(), count));
        }
    }

    private Event mark() {
        Event event = comm.device().newEvent();
        marks.add(event);
        return event;
    }

    private static @Nullable Buffer of(List<Buffer> ring, int microBatch) {
        return ring.isEmpty() ? null : ring.get(microBatch % ring.size());
    }

    /**
     * Prepares a pipeline. All ranks call it; it waits for them.
     *
     * @param stages the ranks, in the order of the stages
     * @param stage this rank's part of the model
     * @param options settings; all but the counts are the same on all ranks
     * @return the pipeline, which the caller closes
     * @throws io.jccl.CollectiveMismatchException if the ranks disagree; the message names the
     *     first difference
     */
    public static Pipeline create(
            Communicator stages, PipelineStage stage, PipelineOptions options) {
        Objects.requireNonNull(stage, "stage");
        // Messages of other numbers of micro-batches also match, over several runs.
        ConsistencyCheck.check(stages, "the options of a pipeline", options.common());
        return new Pipeline(stages, stage, options);
    }

    private @Nullable PipelineLane lane(int ofForward, boolean there, int peer, List<Buffer> ring) {
        if (!there) {
            return null;
        }
        PipelineLane lane = new PipelineLane(own.get(ofForward), peer, ring);
        lanes.add(lane);
        return lane;
    }

    /**
     * Computations in order; each posts the receives and enqueues the sends that the schedule has
     * around it.
     */
    private Runnable[] overlapped(List<PipelineStep> steps) {
        int rank = comm.rank();
        int pairs = Math.min(2, comm.size() - 1);
        for (int i = 0; i < 2 * pairs; i++) {
            own.add(Objects.requireNonNull(comm.split(0, rank)));
        }
        // A rank's neighbours have the other parity, so its lanes use different communicators.
        int after = rank % pairs;
        int before = (rank + 1) % pairs;
        boolean hasPrevious = rank > 0;
        boolean hasNext = rank < comm.size() - 1;
        PipelineLane input = lane(before, hasPrevious, rank - 1, inputs);
        PipelineLane output = lane(after, hasNext, rank + 1, outputs);
        PipelineLane outputGradient = lane(pairs + after, hasNext, rank + 1, outputGradients);
        PipelineLane inputGradient = lane(pairs + before, hasPrevious, rank - 1, inputGradients);

        List<Action> computations =
                steps.stream()
                        .flatMap(s -> s.actions().stream())
                        .filter(a -> a.kind().isCompute())
                        .toList();
        List<Runnable> all = new ArrayList<>();
        if (input != null) {
            all.add(() -> input.post(0));
        }
        for (int k = 0; k < computations.size(); k++) {
            Action a = computations.get(k);
            boolean forward = a.kind() == PipelineStep.Kind.FORWARD;
            // The receive of the first gradient is not posted long before it can arrive, because of
            // its timeout.
            if (outputGradient != null
                    && k + 1 < computations.size()
                    && computations.get(k + 1).equals(new Action(PipelineStep.Kind.BACKWARD, 0))) {
                all.add(() -> outputGradient.post(0));
            }
            all.add(forward ? around(a, input, output) : around(a, outputGradient, inputGradient));
        }
        return all.toArray(Runnable[]::new);
    }

    private Runnable around(Action action, @Nullable PipelineLane from, @Nullable PipelineLane to) {
        int i = action.microBatch();
        boolean more = i + 1 < options.microBatches();
        Runnable compute = prepare(action);
        return () -> {
            if (from != null) {
                from.await(i);
                if (more) {
                    from.post(i + 1);
                }
            }
            if (to != null) {
                to.beforeWriting(i);
            }
            compute.run();
            if (to != null) {
                to.send(i);
            }
        };
    }

    private Runnable prepare(PipelineStep step) {
        List<Action> actions = step.actions();
        if (actions.size() == 1) {
            return prepare(actions.getFirst());
        }
        Runnable[] parts = actions.stream().map(this::prepare).toArray(Runnable[]::new);
        Runnable all =
                () -> {
                    for (Runnable part : parts) {
                        part.run();
                    }
                };
        return () -> Group.run(comm, all);
    }

    private Runnable prepare(Action action) {
        int i = action.microBatch();
        Buffer input = of(inputs, i);
        Buffer output = of(outputs, i);
        Buffer outputGradient = of(outputGradients, i);
        Buffer inputGradient = of(inputGradients, i);
        int previous = comm.rank() - 1;
        int next = comm.rank() + 1;
        return switch (action.kind()) {
            case FORWARD -> timed(() -> stage.forward(i, input, output, stream));
            case BACKWARD -> timed(() -> stage.backward(i, outputGradient, inputGradient, stream));
            case RECV_INPUT -> recv(input, previous);
            case SEND_OUTPUT -> send(output, next);
            case RECV_GRADIENT -> recv(outputGradient, next);
            case SEND_GRADIENT -> send(inputGradient, previous);
        };
    }

    private Runnable timed(Runnable compute) {
        Event from = mark();
        Event to = mark();
        return () -> {
            from.record(stream);
            compute.run();
            to.record(stream);
        };
    }

    private Runnable send(@Nullable Buffer buffer, int peer) {
        Buffer b = present(buffer);
        return () -> comm.send(b, peer, stream);
    }

    private Runnable recv(@Nullable Buffer buffer, int peer) {
        Buffer b = present(buffer);
        return () -> comm.recv(b, peer, stream);
    }

    private static Buffer present(@Nullable Buffer buffer) {
        if (buffer == null) {
            throw new IllegalStateException("the schedule has a message without another end");
        }
        return buffer;
    }

    /**
     * Maximum number of micro-batches in flight: the slots that a stage needs for its activations.
     *
     * @return 1 or more
     */
    public int slots() {
        return slots;
    }

    /**
     * The communicators that carry the messages, for reading their flight recorders.
     *
     * @return the one passed to {@link #create}, or the pipeline's own ones, which it closes
     */
    public List<Communicator> communicators() {
        return own.isEmpty() ? List.of(comm) : List.copyOf(own);
    }

    /**
     * Time that {@link #run} has waited for overlapped messages on the host device. Messages
     * without overlap, and waits on a GPU, are not counted.
     *
     * @return nanoseconds, sum of all runs
     */
    public long waitedNanos() {
        long sum = 0;
        for (int i = 0; i < lanes.size(); i++) {
            sum += lanes.get(i).waitedNanos();
        }
        return sum;
    }

    /**
     * Runs a batch through the stages, forward and backward, and waits for completion on this rank.
     * All ranks call it.
     *
     * @throws io.jccl.error.JcclException if another rank failed, or a message did not arrive
     *     within the communicator's timeout
     */
    public void run() {
        if (closed) {
            throw new IllegalStateException("the pipeline is closed");
        }
        try {
            began.record(stream);
            for (Runnable step : work) {
                step.run();
            }
            ended.record(stream);
            stream.synchronize();
            for (int i = 0; i < lanes.size(); i++) {
                lanes.get(i).synchronize();
            }
        } catch (RuntimeException | Error e) {
            for (Communicator c : own) {
                c.abort("stage " + comm.rank() + " of the pipeline failed: " + e.getMessage());
            }
            throw e;
        }
        ran = true;
    }

    /**
     * Gathers the time that all ranks spent computing in the last run. All ranks call it.
     *
     * @return the same on all ranks
     * @throws IllegalStateException if there was no run
     */
    public PipelineReport report() {
        if (!ran) {
            throw new IllegalStateException("there was no run to report; call run() first");
        }
        long compute = 0;
        for (int i = 2; i < marks.size(); i += 2) {
            compute += marks.get(i + 1).elapsedSince(marks.get(i)).toNanos();
        }
        long total = ended.elapsedSince(began).toNanos();
        int n = comm.size();
        long[] computes = new long[n];
        long longest = 0;
        Device device = comm.device();
        try (Buffer mine = device.allocate(DataType.INT64, 2);
                Buffer all = device.allocate(DataType.INT64, 2L * n);
                Buffer host = Device.host().allocate(DataType.INT64, 2L * n)) {
            host.setLong(0, total);
            host.setLong(1, compute);
            mine.copyFrom(host.slice(0, 2).asSegment());
            comm.allGather(mine, all, stream);
            stream.synchronize();
            all.copyTo(host.asSegment());
            for (int r = 0; r < n; r++) {
                longest = Math.max(longest, host.getLong(2L * r));
                computes[r] = host.getLong(2L * r + 1);
            }
        }
        List<PipelineReport.Stage> stages = new ArrayList<>();
        for (int r = 0; r < n; r++) {
            double idle = longest == 0 ? 0 : 1 - (double) computes[r] / longest;
            stages.add(new PipelineReport.Stage(r, Duration.ofNanos(computes[r]), idle));
        }
        return new PipelineReport(
                options.schedule(),
                options.microBatches(),
                PipelineSchedule.bubble(n, options.microBatches()),
                Duration.ofNanos(longest),
                stages);
    }

    /** Frees the buffers; no run may be in progress. Closing twice has no effect. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        List<AutoCloseable> all = new ArrayList<>(lanes);
        all.addAll(own);
        all.addAll(marks);
        for (List<Buffer> ring : List.of(inputs, outputs, outputGradients, inputGradients)) {
            all.addAll(ring);
        }
        Closing.all(all);
    }
}
