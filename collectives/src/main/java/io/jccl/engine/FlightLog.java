package io.jccl.engine;

import io.jccl.FlightHistory;
import io.jccl.flight.FlightDump;
import io.jccl.flight.FlightEvents;
import io.jccl.flight.FlightRecorder;
import io.jccl.flight.FlightSettings;
import io.jccl.flight.RankStatus;
import io.jccl.flight.StatusPoller;
import io.jccl.internal.HostName;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The history of one rank of a communicator: every operation when it is called and when it
 * completes, the first failure, and the corresponding events of the JVM's flight recorder.
 *
 * <p><b>Threads:</b> {@link #note} and {@link #ended} by the thread that calls or runs an
 * operation, in order; the others by any thread.
 */
public final class FlightLog {
    private static final System.Logger LOG = System.getLogger("io.jccl");

    /** Those of this process's open communicators; unreachable ones are dropped. */
    private static final Set<FlightLog> OPEN =
            Collections.newSetFromMap(new WeakHashMap<FlightLog, Boolean>());

    private final EngineCommunicator owner;
    private final boolean completesLater;
    private final FlightRecorder recorder = new FlightRecorder(FlightSettings.capacity());
    private final AtomicBoolean statusLogged = new AtomicBoolean();

    private final AtomicBoolean failed = new AtomicBoolean();

    /**
     * How far it was when its history was written, perhaps as another communicator failed; guarded
     * by this.
     */
    private long left = -1;

    FlightLog(EngineCommunicator owner, boolean completesLater) {
        this.owner = owner;
        this.completesLater = completesLater;
    }

    /** Begins the history: the communicator is complete, so that a failing one can ask it. */
    public void open() {
        synchronized (OPEN) {
            OPEN.add(this);
        }
    }

    /** The recorder itself, for what engines poll. */
    public FlightRecorder recorder() {
        return recorder;
    }

    FlightHistory history() {
        long last = recorder.last();
        long completed = Math.min(last, recorder.completed());
        return new FlightHistory(
                owner.communicatorId(),
                owner.engine(),
                owner.rank(),
                owner.size(),
                HostName.OWN,
                ProcessHandle.current().pid(),
                last,
                completed,
                recorder.site(),
                StatusPoller.epochNanos(System.nanoTime()),
                recorder.all(last, completed));
    }

    /** The progress of this rank. */
    public RankStatus status() {
        return RankStatus.of(owner.rank(), recorder);
    }

    /**
     * Records where the engine failed, and writes the history to {@code JCCL_FLIGHT_DIR} if that is
     * set, with those of the process's other communicators: ranks that wait for each other in two
     * of them fail in one only, and the other tells what they had not called. Only the first call
     * counts.
     *
     * @param error thrown on this thread
     */
    public void failed(Throwable error) {
        recorder.failed(error);
        if (!failed.compareAndSet(false, true)) {
            return;
        }
        leaveHistory(true);
        List<FlightLog> others;
        synchronized (OPEN) {
            others = List.copyOf(OPEN);
        }
        // Files may take long, and so may the store that knows an id: not while that is held.
        for (FlightLog other : others) {
            if (!other.failed.get()) {
                other.leaveHistory(false);
            }
        }
    }

    /** Grows with each operation that is called, and with each that completes. */
    private long reached() {
        return recorder.last() + recorder.completed();
    }

    private synchronized void leaveHistory(boolean again) {
        long reached = reached();
        if (again || left != reached) {
            left = reached;
            FlightDump.leave(owner.rank(), this::history);
        }
    }

    /** Logs the progress of all ranks; only the first call counts. */
    public void logStatus(String table) {
        if (statusLogged.compareAndSet(false, true)) {
            LOG.log(
                    System.Logger.Level.ERROR,
                    "communicator %s (%s): %s"
                            .formatted(owner.communicatorId(), owner.engine(), table));
        }
    }

    private String name() {
        return owner.engine() + ":" + owner.communicatorId();
    }

    /** For an engine that completes operations later: all up to this one are complete. */
    public void progress(long completed) {
        if (FlightEvents.progressOn()) {
            FlightEvents.progress(name(), owner.rank(), completed);
        }
    }

    /** Ends the history: the communicator is closed. */
    public void close() {
        StatusPoller.stopClock(recorder);
        synchronized (OPEN) {
            OPEN.remove(this);
        }
    }

    void note(Request request, boolean queued, boolean grouped) {
        request.word =
                FlightRecorder.word(
                        request.op,
                        request.type,
                        request.reduceOp.kind(),
                        request.root,
                        queued,
                        grouped,
                        request.inPlace);
        request.order = recorder.nextOrder(request.op);
        request.sequence = recorder.note(request.word, request.elements(), request.order);
        if (FlightEvents.on()) {
            FlightEvents.Kept event = request.event;
            if (event == null) {
                event = FlightEvents.make(name(), owner.rank(), owner.size());
                request.event = event;
            }
            request.traced = true;
            FlightEvents.begin(event);
        }
        if (!grouped) {
            OperationSpans.before(owner, request.stream);
        }
    }

    /** Called after all operations of a group were noted. */
    void groupNoted(Batch batch) {
        OperationSpans.before(owner, batch.get(0).stream);
    }

    void ended(QueuedWork work, boolean done) {
        if (done) {
            OperationSpans.after(owner);
        }
        if (done && !completesLater) {
            recorder.complete(work.lastSequence());
        }
        work.ended(
                !done
                        ? FlightEvents.State.FAILED
                        : completesLater
                                ? FlightEvents.State.ENQUEUED
                                : FlightEvents.State.COMPLETED);
    }
}
