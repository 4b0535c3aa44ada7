package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.offload.ChromeTrace.Track;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** One tensor in one slot: its memory, its home, and the transfers between them. */
final class SlotTensor {
    final Layer layer;
    final int index;
    final LayerTensor tensor;
    final Buffer onDevice;

    /** Its home, or where it stops between a store and the device. */
    final Buffer onHost;

    final Transfer in;
    final Transfer out;
    private final ScheduleContext context;

    /** The last read or write of a store, unless it succeeded. */
    private volatile @Nullable Completion io;

    private long ioBegan;
    private ScheduleEvents.@Nullable TransferEvent inEvent;
    private ScheduleEvents.@Nullable TransferEvent outEvent;

    SlotTensor(
            ScheduleContext context,
            int index,
            LayerTensor tensor,
            Buffer onDevice,
            Buffer onHost) {
        TransferEngine engine = context.tiers().engine();
        this.context = context;
        this.layer = context.layers().get(index);
        this.index = index;
        this.tensor = tensor;
        this.onDevice = onDevice;
        this.onHost = onHost;
        this.in = engine.prepare(true, onHost, onDevice, 0, this::cameIn);
        this.out = engine.prepare(false, onDevice, onHost, 0, this::wentOut);
    }

    void fetch(@Nullable Event after) {
        inEvent = event("in");
        restart(in, after);
    }

    void sendOut(Event after) {
        outEvent = event("out");
        restart(out, after);
    }

    private void restart(Transfer t, @Nullable Event after) {
        synchronized (t.queue) {
            t.after = after;
        }
        t.restart();
    }

    private ScheduleEvents.@Nullable TransferEvent event(String direction) {
        if (!ScheduleEvents.transfers()) {
            return null;
        }
        ScheduleEvents.TransferEvent e = new ScheduleEvents.TransferEvent();
        e.layer = layer.name();
        e.tensor = tensor.name();
        e.direction = direction;
        e.bytes = tensor.byteSize();
        e.begin();
        return e;
    }

    private void cameIn() {
        long took = report(Track.TO_DEVICE, in, inEvent);
        context.stats().cameIn(index, took, in.bytes);
    }

    private void wentOut() {
        report(Track.TO_HOST, out, outEvent);
        context.stats().wentOut(out.bytes);
    }

    private long report(Track track, Transfer t, ScheduleEvents.@Nullable TransferEvent event) {
        long began = t.startedNanos();
        long ended = t.finishedNanos();
        if (began == 0) {
            return 0;
        }
        ChromeTrace trace = context.trace();
        if (trace != null) {
            trace.record(track, layer.name(), tensor.name(), began, ended, t.bytes);
        }
        if (event != null) {
            event.copyTime = ended - began;
            event.commit();
        }
        return ended - began;
    }

    void startRead() {
        ioBegan = System.nanoTime();
        io = Objects.requireNonNull(tensor.place()).read(onHost);
    }

    void startWrite() {
        ioBegan = System.nanoTime();
        io = Objects.requireNonNull(tensor.place()).write(onHost);
    }

    /** Waits for a read or a write of a store, however it ends; returns whether it did. */
    boolean endIo(long deadline) {
        Completion c = io;
        return c == null || ended(c, deadline);
    }

    void awaitIo(Track track) {
        Completion c = io;
        if (c != null) {
            c.await(context.options().timeout());
            io = null;
            long ended = System.nanoTime();
            ChromeTrace trace = context.trace();
            if (trace != null) {
                trace.record(track, layer.name(), tensor.name(), ioBegan, ended, tensor.byteSize());
            }
            if (track == Track.NVME_READ) {
                context.stats().read(index, ended - ioBegan);
            }
        }
    }

    /** Cancels what is queued, and waits for the rest, however it ends; returns whether it did. */
    boolean settle(boolean inwards, long deadline) {
        Transfer t = inwards ? in : out;
        t.cancel();
        return ended(t, deadline);
    }

    private static boolean ended(Completion c, long deadline) {
        try {
            c.await(Deadline.left(deadline));
        } catch (JcclTimeoutException e) {
            return false;
        } catch (RuntimeException e) {
            // The pass has failed already.
        }
        return true;
    }
}
