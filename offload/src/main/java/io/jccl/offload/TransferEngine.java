package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Closing;
import io.jccl.internal.Deadline;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Copies between a device and host memory concurrently with the device's work: one stream in each
 * direction, in addition to the compute stream.
 *
 * {@snippet class="snippets.Offload" region="transfer"}
 *
 * <p>A transfer is cut into chunks. Chunks are put into the direction's stream a few at a time,
 * always from the waiting transfer of the highest priority (of equal ones, the oldest), so that an
 * urgent transfer overtakes the remaining chunks of others. A transfer that waits for an event is
 * overtaken by those that can start; if there are none, the stream waits for the event.
 *
 * <p>On a GPU, host memory that is not pinned is copied through a ring of pinned slots, one for
 * each chunk in flight. On the host device the copies are real and run in one thread per direction.
 *
 * <p>A failed transfer throws where it is awaited; the engine continues.
 *
 * <p><b>Threads:</b> any, except host functions of the engine's own transfers. Starting a transfer
 * waits while the queue of its direction is full.
 */
public final class TransferEngine implements AutoCloseable {
    private final Device device;
    private final TransferOptions options;
    private final Stream compute;
    private final CopyQueue up;
    private final CopyQueue down;
    private final AtomicLong numbers = new AtomicLong();
    private boolean closed;

    /**
     * Statistics of one direction.
     *
     * @param transfers transfers started
     * @param bytes bytes copied
     * @param chunks chunks that went through the stream
     * @param stagedChunks chunks copied through a pinned slot
     * @param overtakings chunks taken while another transfer was partly copied
     * @param failures transfers that failed
     * @param cancellations transfers that were cancelled
     * @param queued transfers waiting now
     * @param peakInFlight the most chunks in the stream at any time
     */
    public record Stats(
            long transfers,
            long bytes,
            long chunks,
            long stagedChunks,
            long overtakings,
            long failures,
            long cancellations,
            int queued,
            int peakInFlight) {}

    private TransferEngine(Device device, TransferOptions options, Budgets budgets) {
        this.device = device;
        this.options = options;
        this.compute = device.newStream();
        this.up = new CopyQueue(true, device, options, budgets);
        this.down = new CopyQueue(false, device, options, budgets);
    }

    /**
     * Creates an engine whose rings of pinned slots are not limited by a budget.
     *
     * @param device the device that computes
     * @param options chunks and queues
     * @return the engine
     */
    public static TransferEngine create(Device device, TransferOptions options) {
        return create(device, options, new Budgets(Map.of()));
    }

    /**
     * Creates an engine. Its two rings of pinned slots, of {@code depth} chunks each, are allocated
     * when memory that is not pinned is first copied in their direction.
     *
     * @param device the device that computes
     * @param options chunks and queues
     * @param budgets what tier {@link Tier#PINNED} may hold
     * @return the engine
     */
    public static TransferEngine create(Device device, TransferOptions options, Budgets budgets) {
        TransferEngine engine =
                new TransferEngine(
                        Objects.requireNonNull(device, "device"),
                        Objects.requireNonNull(options, "options"),
                        Objects.requireNonNull(budgets, "budgets"));
        engine.up.start();
        engine.down.start();
        return engine;
    }

    /**
     * The compute device.
     *
     * @return the device
     */
    public Device device() {
        return device;
    }

    /**
     * The stream for the device's work, concurrent with the copies.
     *
     * @return a stream that lives as long as the engine
     */
    public Stream compute() {
        return compute;
    }

    /**
     * Starts a copy to the device.
     *
     * @param host elements to read, in host memory
     * @param device where to write them, in memory of the engine's device; same type and count
     * @param priority higher goes first
     * @return the transfer
     */
    public Transfer toDevice(Buffer host, Buffer device, int priority) {
        return start(true, host, device, priority, null, null);
    }

    /**
     * Starts a copy to the device that waits for an event.
     *
     * @param host elements to read, in host memory
     * @param device where to write them, in memory of the engine's device; same type and count
     * @param priority higher goes first
     * @param after an event whose last recording was made before this call; it must not be recorded
     *     again until the transfer is done. The work before it must not depend on a later transfer
     *     of this direction, which may have to wait for this one
     * @return the transfer
     */
    public Transfer toDevice(Buffer host, Buffer device, int priority, Event after) {
        return start(true, host, device, priority, Objects.requireNonNull(after, "after"), null);
    }

    /**
     * Starts a copy to the host.
     *
     * @param device elements to read, in memory of the engine's device
     * @param host where to write them, in host memory; same type and count
     * @param priority higher goes first
     * @return the transfer
     */
    public Transfer toHost(Buffer device, Buffer host, int priority) {
        return start(false, device, host, priority, null, null);
    }

    /**
     * Starts a copy to the host that waits for an event.
     *
     * @param device elements to read, in memory of the engine's device
     * @param host where to write them, in host memory; same type and count
     * @param priority higher goes first
     * @param after as for {@link #toDevice(Buffer, Buffer, int, Event)}
     * @return the transfer
     */
    public Transfer toHost(Buffer device, Buffer host, int priority, Event after) {
        return start(false, device, host, priority, Objects.requireNonNull(after, "after"), null);
    }

    /** Starts a copy; {@code whenDone} is {@link Transfer#whenDone}. */
    Transfer start(
            boolean toDevice,
            Buffer source,
            Buffer target,
            int priority,
            @Nullable Event after,
            @Nullable Runnable whenDone) {
        Transfer t = prepare(toDevice, source, target, priority, whenDone);
        t.after = after;
        t.queue.submit(t);
        return t;
    }

    /** A transfer to {@linkplain Transfer#restart start} later. */
    Transfer prepare(
            boolean toDevice,
            Buffer source,
            Buffer target,
            int priority,
            @Nullable Runnable whenDone) {
        CopyQueue queue = toDevice ? up : down;
        check(toDevice ? source : target, toDevice ? target : source);
        if (source.dataType() != target.dataType() || source.count() != target.count()) {
            throw new IllegalArgumentException(
                    "source holds %s elements of %s, target %s of %s; both need the same"
                            .formatted(
                                    source.count(),
                                    source.dataType().label(),
                                    target.count(),
                                    target.dataType().label()));
        }
        if (device.kind() == Device.Kind.HOST
                && source.asSegment().asOverlappingSlice(target.asSegment()).isPresent()) {
            throw new IllegalArgumentException(
                    "source " + source + " and target " + target + " overlap");
        }
        Transfer t = new Transfer(queue, source, target, numbers.incrementAndGet());
        t.priority = priority;
        t.whenDone = whenDone;
        return t;
    }

    private void check(Buffer host, Buffer onDevice) {
        if (host.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "the host's buffer is " + host + ", expected one in host memory");
        }
        host.asSegment(); // throws if it is closed
        if (onDevice.device() != device
                && (device.kind() != Device.Kind.HOST
                        || onDevice.device().kind() != Device.Kind.HOST)) {
            throw new IllegalArgumentException(
                    "the device's buffer is on %s, expected one on %s"
                            .formatted(onDevice.device(), device));
        }
    }

    /**
     * Statistics of copies to the device.
     *
     * @return a snapshot
     */
    public Stats toDeviceStats() {
        return up.stats();
    }

    /**
     * Statistics of copies to the host.
     *
     * @return a snapshot
     */
    public Stats toHostStats() {
        return down.stats();
    }

    /**
     * Cancels waiting transfers, waits for the streams for up to {@link
     * TransferOptions#closeTimeout}, and ends the threads. If a stream does not complete in time,
     * its memory is not freed, and its transfers fail. Closing twice does nothing.
     */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        long deadline = Deadline.after(options.closeTimeout());
        up.beginClose();
        down.beginClose();
        Closing.all(
                List.<AutoCloseable>of(
                        () -> up.finishClose(deadline), () -> down.finishClose(deadline), compute));
    }

    @Override
    public String toString() {
        return "transfer engine of " + device;
    }
}
