package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Gradients and checkpoints on their way to their homes. A separate thread writes those for a
 * store, once they have arrived from the device.
 *
 * <p><b>Threads:</b> any.
 */
final class WriteBack {
    private static final Phase[] PHASES = Phase.values();

    private final ScheduleContext context;
    private final Consumer<Throwable> fail;
    private final @Nullable Thread writer;

    // All below is guarded by this.

    /** Where a layer's outputs of a phase last went out from; null if they never did. */
    private final @Nullable LoadedLayer[][] lastOut;

    /** What the writer has yet to write. */
    private final @Nullable LoadedLayer[] toWrite;

    private int toWriteHead;
    private int toWriteCount;
    private boolean closed;

    /** Whether a write did not end in time: it may still read its slot's memory. */
    private boolean stuck;

    /** Takes errors of the writer to {@code fail}; {@code writes}: whether it is needed. */
    WriteBack(ScheduleContext context, boolean writes, Consumer<Throwable> fail) {
        int n = context.layers().size();
        this.context = context;
        this.fail = fail;
        this.lastOut = new LoadedLayer[PHASES.length][n];
        this.toWrite = new LoadedLayer[2 * n];
        this.writer =
                writes
                        ? Thread.ofPlatform()
                                .daemon()
                                .name("jccl-layer-writes")
                                .unstarted(this::write)
                        : null;
    }

    void start() {
        if (writer != null) {
            writer.start();
        }
    }

    /** Sends a layer's outputs home behind an event; those before of the same must be there. */
    void send(LoadedLayer r, Phase phase, SlotTensor[] outputs, Event worked) {
        synchronized (this) {
            lastOut[phase.ordinal()][r.layer] = r;
        }
        boolean store = false;
        for (SlotTensor s : outputs) {
            s.sendOut(worked);
            store |= s.tensor.place() != null;
        }
        if (store) {
            synchronized (this) {
                r.writing[phase.ordinal()] = true;
                toWrite[(toWriteHead + toWriteCount++) % toWrite.length] = r;
                notifyAll();
            }
        }
    }

    /** From which slot a layer's outputs last went out. */
    synchronized @Nullable LoadedLayer last(int layer, Phase phase) {
        return lastOut[phase.ordinal()][layer];
    }

    /** Waits until a layer's outputs have been written back. */
    void await(int layer, Phase phase) {
        await(layer, phase, context.options().timeout());
    }

    /** Waits until all are. */
    void awaitAll() {
        for (Phase phase : PHASES) {
            for (int layer = 0; layer < context.layers().size(); layer++) {
                await(layer, phase);
            }
        }
    }

    void await(int layer, Phase phase, Duration timeout) {
        LoadedLayer r = last(layer, phase);
        SlotTensor[] outputs = r == null ? null : r.outputs(phase);
        if (r == null || outputs == null) {
            return;
        }
        for (SlotTensor s : outputs) {
            s.out.await(timeout);
        }
        awaitWritten(r, phase, timeout);
    }

    /** Waits until the writer has no more to do with a layer's outputs, however that ends. */
    private void awaitWritten(LoadedLayer r, Phase phase, Duration timeout) {
        long deadline = Deadline.after(timeout);
        synchronized (this) {
            while (r.writing[phase.ordinal()]) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(
                            "the outputs of layer '%s' were not written within %s"
                                    .formatted(context.layers().get(r.layer).name(), timeout));
                }
                Waits.on(this, left);
            }
        }
    }

    /** Drops what is queued, and waits for the rest, however it ends; returns whether it did. */
    boolean settle(long deadline) {
        boolean clean = true;
        for (Phase phase : PHASES) {
            for (int layer = 0; layer < context.layers().size(); layer++) {
                LoadedLayer r = last(layer, phase);
                SlotTensor[] outputs = r == null ? null : r.outputs(phase);
                if (r != null && outputs != null) {
                    clean &= LoadedLayer.settle(outputs, false, deadline);
                    try {
                        awaitWritten(r, phase, Deadline.left(deadline));
                    } catch (JcclTimeoutException e) {
                        clean = false;
                    }
                }
                synchronized (this) {
                    lastOut[phase.ordinal()][layer] = null;
                }
            }
        }
        synchronized (this) {
            return clean && !stuck;
        }
    }

    private void write() {
        while (true) {
            LoadedLayer r;
            Phase phase;
            synchronized (this) {
                while (!closed && toWriteCount == 0) {
                    try {
                        wait();
                    } catch (InterruptedException e) {
                        // Only close() ends this thread.
                    }
                }
                if (toWriteCount == 0) {
                    return;
                }
                r = Objects.requireNonNull(toWrite[toWriteHead]);
                toWrite[toWriteHead] = null;
                toWriteHead = (toWriteHead + 1) % toWrite.length;
                toWriteCount--;
                phase = r.writing[Phase.FORWARD.ordinal()] ? Phase.FORWARD : Phase.BACKWARD;
            }
            Throwable error = null;
            try {
                SlotTensor[] outputs = Objects.requireNonNull(r.outputs(phase));
                for (SlotTensor s : outputs) {
                    s.out.await(context.options().timeout());
                    if (s.tensor.place() != null) {
                        s.startWrite();
                    }
                }
                for (SlotTensor s : outputs) {
                    s.awaitIo(Track.NVME_WRITE);
                }
            } catch (Throwable e) {
                error = e;
            }
            boolean ended = true;
            if (error != null) {
                fail.accept(error);
                // The writes that were started still read the slot's memory.
                ended =
                        LoadedLayer.endIo(
                                Objects.requireNonNull(r.outputs(phase)),
                                Deadline.after(context.options().timeout()));
            }
            synchronized (this) {
                stuck |= !ended;
                r.writing[phase.ordinal()] = false;
                notifyAll();
            }
        }
    }

    /** Ends the writer once its queue is empty. */
    synchronized void close() {
        closed = true;
        notifyAll();
    }

    void join(Duration patience) {
        if (writer != null) {
            Waits.join(writer, patience);
        }
    }
}
