package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Device;
import io.jccl.device.Event;
import io.jccl.device.Stream;
import io.jccl.internal.Deadline;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * Copies between a device and host memory beside the device's work: one stream in each direction,
 * next to the stream that computes.
 *
 * <p>A transfer is cut into chunks. Chunks go into the direction's stream a few at a time, always
 * from the waiting transfer of the highest priority (the oldest of those), so that an urgent one
 * overtakes what is left of the others. A transfer that is to start after an event lets those that
 * can start now overtake it; if there are none, the stream waits for the event by itself.
 *
 * <p>On a GPU, host memory that is not pinned is copied by way of a ring of pinned slots, one for
 * each chunk in flight. On the host device the copies are real and run in a thread for each
 * direction.
 *
 * <p>A transfer that fails tells whoever awaits it; the engine goes on.
 *
 * <p><b>Threads:</b> any, but not host functions of the engine's own transfers. Starting a transfer
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
     * What one direction has done.
     *
     * @param transfers transfers started
     * @param bytes bytes copied
     * @param chunks chunks that went through the stream
     * @param stagedChunks chunks that went by way of a pinned slot
     * @param overtakings chunks taken while another transfer that had begun was left waiting
     * @param failures transfers that failed
     * @param cancellations transfers that were cancelled
     * @param queued transfers that wait now
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
     * An engine whose ring of pinned slots no budget limits.
     *
     * @param device the device that computes
     * @param options chunks and queues
     * @return the engine
     */
    public static TransferEngine create(Device device, TransferOptions options) {
        return create(device, options, new Budgets(Map.of()));
    }

    /**
     * An engine. Its two rings of pinned slots, of {@code depth} chunks each, are allocated when
     * memory that is not pinned is first copied in that direction.
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
     * The device that computes.
     *
     * @return the device
     */
    public Device device() {
        return device;
    }

    /**
     * How it cuts and queues.
     *
     * @return the options it was made with
     */
    public TransferOptions options() {
        return options;
    }

    /**
     * The stream for the device's work, beside which the copies run.
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
     * @param after an event whose last recording was made before this call; it stays as it is until
     *     the transfer is done. What it marks must not need a later transfer of this direction,
     *     which may have to wait behind this one
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
                    "source holds "
                            + source.count()
                            + " elements of "
                            + source.dataType().label()
                            + ", target "
                            + target.count()
                            + " of "
                            + target.dataType().label()
                            + "; both need the same");
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
                    "the device's buffer is on "
                            + onDevice.device()
                            + ", expected one on "
                            + device);
        }
    }

    /**
     * What went to the device.
     *
     * @return numbers of this moment
     */
    public Stats toDeviceStats() {
        return up.stats();
    }

    /**
     * What went to the host.
     *
     * @return numbers of this moment
     */
    public Stats toHostStats() {
        return down.stats();
    }

    /**
     * Cancels what waits, waits for what is in the streams as long as {@link
     * TransferOptions#closeTimeout} says, and ends the threads. A stream that does not complete by
     * then is left alone with its memory, and its transfers fail. Closing twice does nothing.
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
        up.finishClose(deadline);
        down.finishClose(deadline);
        compute.close();
    }

    @Override
    public String toString() {
        return "transfer engine of " + device;
    }
}
