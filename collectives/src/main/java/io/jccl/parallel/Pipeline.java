package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.Group;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.parallel.PipelineStep.Action;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Trains a model whose layers are split over ranks: rank i computes stage i, and a batch flows
 * through them in micro-batches, forward and then backward; see {@link PipelineSchedule}.
 *
 * <p>Activations are kept in as many slots as the schedule has micro-batches in flight. Everything
 * is allocated by {@link #create}; a run allocates nothing.
 *
 * <p><b>Errors:</b> what a stage throws, and the errors of send and recv, come out of {@link #run},
 * on a GPU from its end. A rank that dies ends the others within the communicator's timeout. After
 * an error abort the communicator, so that the other stages do not wait for this one.
 *
 * <p><b>Threads:</b> that of the communicator.
 */
public final class Pipeline implements AutoCloseable {
    private final Communicator comm;
    private final PipelineStage stage;
    private final PipelineOptions options;
    private final Stream stream;
    private final int slots;
    private final List<Buffer> inputs = new ArrayList<>();
    private final @Nullable Buffer output;
    private final @Nullable Buffer outputGradient;
    private final @Nullable Buffer inputGradient;
    private final Runnable[] work;
    private final Event began;
    private final Event ended;
    private final List<Event> marks = new ArrayList<>();
    private boolean ran;
    private boolean closed;

    private Pipeline(Communicator comm, PipelineStage stage, PipelineOptions options) {
        this.comm = comm;
        this.stage = stage;
        this.options = options;
        Device device = comm.device();
        this.stream = device.defaultStream();
        int rank = comm.rank();
        int stages = comm.size();
        this.slots = options.schedule().inFlight(stages, rank, options.microBatches());
        boolean first = rank == 0;
        boolean last = rank == stages - 1;
        for (int i = 0; i < slots && !first; i++) {
            inputs.add(device.allocate(options.type(), options.inputCount()));
        }
        this.inputGradient = first ? null : device.allocate(options.type(), options.inputCount());
        this.output = last ? null : device.allocate(options.type(), options.outputCount());
        this.outputGradient = last ? null : device.allocate(options.type(), options.outputCount());
        this.began = device.newEvent();
        this.ended = device.newEvent();
        List<PipelineStep> steps = options.schedule().steps(stages, rank, options.microBatches());
        this.work = new Runnable[steps.size()];
        for (int i = 0; i < work.length; i++) {
            work[i] = prepare(steps.get(i));
        }
    }

    /**
     * Prepares a pipeline. No rank waits for another.
     *
     * @param stages the ranks, in the order of the stages
     * @param stage this rank's part of the model
     * @param options what to do
     * @return the pipeline, which the caller closes
     */
    public static Pipeline create(
            Communicator stages, PipelineStage stage, PipelineOptions options) {
        return new Pipeline(stages, stage, options);
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
        Buffer input = inputs.isEmpty() ? null : inputs.get(i % slots);
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
        Event from = comm.device().newEvent();
        Event to = comm.device().newEvent();
        marks.add(from);
        marks.add(to);
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
     * How many micro-batches' inputs are kept: micro-batch i is in slot {@code i % slots()}.
     *
     * @return 1 or more
     */
    public int slots() {
        return slots;
    }

    /**
     * Takes a batch through the stages, forward and backward, and waits for its end on this rank.
     * All ranks call it.
     *
     * @throws io.jccl.bindings.JcclException if another rank failed, or a message did not come
     *     within the communicator's timeout
     */
    public void run() {
        if (closed) {
            throw new IllegalStateException("the pipeline is closed");
        }
        began.record(stream);
        for (Runnable step : work) {
            step.run();
        }
        ended.record(stream);
        stream.synchronize();
        ran = true;
    }

    /**
     * Gathers how all ranks spent the last run. All ranks call it.
     *
     * @return the same on all ranks
     * @throws IllegalStateException if there was no run
     */
    public PipelineReport report() {
        if (!ran) {
            throw new IllegalStateException("there was no run to report; call run() first");
        }
        long compute = 0;
        for (int i = 0; i < marks.size(); i += 2) {
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

    /** Frees the slots; no run may be under way. Closing twice does nothing. */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        marks.forEach(Event::close);
        began.close();
        ended.close();
        inputs.forEach(Buffer::close);
        for (Buffer b : new Buffer[] {output, outputGradient, inputGradient}) {
            if (b != null) {
                b.close();
            }
        }
    }
}
