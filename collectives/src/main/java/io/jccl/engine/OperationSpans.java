package io.jccl.engine;

import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Measures when the operations of one GPU run there: an event is recorded on an operation's stream
 * before it is enqueued and another one after it. Nothing waits for them until {@link #end}. A
 * group counts as one operation. The time of an operation includes its waiting for other ranks, and
 * its stream's own waits if they were enqueued after the operation was called.
 *
 * <p>Events are created when more operations than before run between {@link #begin} and {@link
 * #end}; after that nothing is created. Without an object of this class an operation only reads one
 * field.
 *
 * <p><b>Threads:</b> one for {@link #begin} and {@link #end}; operations may be called by any.
 */
public final class OperationSpans implements AutoCloseable {
    /** The current measurement; null if there is none. */
    private static volatile @Nullable OperationSpans current;

    private final Device device;
    private final Event base;
    private final List<Slot> slots = new ArrayList<>();
    private int used;
    private boolean measuring;

    /**
     * Time in an operation or a group.
     *
     * @param communicator its identity, as {@code Communicator.history} names it
     * @param fromNanos when it began, after {@link #begin}
     * @param toNanos when it ended
     */
    public record Span(String communicator, long fromNanos, long toNanos) {}

    /** The events of an operation; reused. */
    private static final class Slot {
        private final Event start;
        private final Event end;
        private @Nullable EngineCommunicator owner;
        private @Nullable Stream stream;
        private boolean ended;

        Slot(Device device) {
            start = device.newEvent();
            end = device.newEvent();
        }
    }

    private OperationSpans(Device device) {
        this.device = device;
        base = device.newEvent();
    }

    /**
     * Measures the operations of a device from now on.
     *
     * @param device a GPU
     * @return the measurement, which the caller closes
     * @throws IllegalArgumentException if it is the host, where calls last as long as operations
     * @throws IllegalStateException if operations of this process are measured already
     */
    public static OperationSpans of(Device device) {
        if (device.kind() != Device.Kind.CUDA) {
            throw new IllegalArgumentException(
                    "operations of " + device + " are measured by their calls, expected a GPU");
        }
        synchronized (OperationSpans.class) {
            if (current != null) {
                throw new IllegalStateException(
                        "operations are measured already, on "
                                + current.device
                                + "; close that first");
            }
            OperationSpans spans = new OperationSpans(device);
            current = spans;
            return spans;
        }
    }

    // ---- called for each operation

    static void before(EngineCommunicator owner, @Nullable Stream stream) {
        OperationSpans spans = current;
        if (spans != null && stream != null && spans.isOn(stream)) {
            spans.record(owner, stream);
        }
    }

    static void after(EngineCommunicator owner) {
        OperationSpans spans = current;
        if (spans != null) {
            spans.finish(owner);
        }
    }

    private boolean isOn(Stream stream) {
        Device d = stream.device();
        return d.kind() == device.kind() && d.index() == device.index();
    }

    private synchronized void record(EngineCommunicator owner, Stream stream) {
        if (!measuring) {
            return;
        }
        try {
            if (used == slots.size()) {
                slots.add(new Slot(device));
            }
            Slot s = slots.get(used);
            s.owner = owner;
            s.stream = stream;
            s.ended = false;
            s.start.record(stream);
            used++;
        } catch (JcclException e) {
            // An error of the device surfaces in the operation, or where its stream is waited for.
            measuring = false;
        }
    }

    private synchronized void finish(EngineCommunicator owner) {
        // Operations of other communicators may have begun since, by other threads.
        for (int i = used - 1; i >= 0; i--) {
            Slot s = slots.get(i);
            if (s.owner == owner) {
                if (!s.ended) {
                    end(s);
                }
                return;
            }
        }
    }

    private void end(Slot s) {
        try {
            s.end.record(Objects.requireNonNull(s.stream));
            s.ended = true;
        } catch (JcclException e) {
            measuring = false; // as above
        }
    }

    // ---- called by the measuring code

    /** Starts a measurement; the spans of an earlier one are discarded. */
    public synchronized void begin() {
        used = 0;
        measuring = true;
        base.record(device.defaultStream());
    }

    /**
     * Ends what {@link #begin} began, and waits for the operations.
     *
     * @return those that did not fail, in the order of their calls; none if an event could not be
     *     recorded
     */
    public List<Span> end() {
        synchronized (this) {
            if (!measuring) {
                return List.of();
            }
            measuring = false;
        }
        List<Span> spans = new ArrayList<>(used);
        device.defaultStream().synchronize();
        for (int i = 0; i < used; i++) {
            Slot s = slots.get(i);
            if (s.ended) {
                if (!s.end.query()) {
                    Objects.requireNonNull(s.stream).synchronize();
                }
                spans.add(
                        new Span(
                                Objects.requireNonNull(s.owner).communicatorId(),
                                s.start.elapsedSince(base).toNanos(),
                                s.end.elapsedSince(base).toNanos()));
            }
        }
        return spans;
    }

    /** Ends measuring. Closing twice does nothing. */
    @Override
    public void close() {
        synchronized (OperationSpans.class) {
            if (current != this) {
                return;
            }
            current = null;
        }
        synchronized (this) {
            used = 0;
            measuring = false;
            List<AutoCloseable> events = new ArrayList<>(List.of(base));
            for (Slot s : slots) {
                events.add(s.start);
                events.add(s.end);
            }
            slots.clear();
            Closing.all(events);
        }
    }
}
