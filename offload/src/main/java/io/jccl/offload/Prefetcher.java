package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.internal.Waits;
import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;
import java.util.Objects;

/** Brings layers into slots ahead of their work, in its own thread, one step after another. */
final class Prefetcher {
    private static final Phase[] PHASES = Phase.values();

    private final ScheduleContext context;
    private final ScheduleState state;
    private final WriteBack writeBack;
    private final boolean staged;
    private final Thread thread;
    private final Fetch fetch = new Fetch();

    /**
     * A prefetcher that is not started.
     *
     * @param staged whether some tensors are in a store, and pass through pinned memory
     */
    Prefetcher(ScheduleContext context, ScheduleState state, WriteBack writeBack, boolean staged) {
        this.context = context;
        this.state = state;
        this.writeBack = writeBack;
        this.staged = staged;
        this.thread = Thread.ofPlatform().daemon().name("jccl-layers").unstarted(this::run);
    }

    void start() {
        thread.start();
    }

    void join(Duration patience) {
        Waits.join(thread, patience);
    }

    private void run() {
        while (state.awaitWork()) {
            try {
                if (state.choose(fetch)) {
                    fetch();
                }
            } catch (Throwable e) {
                state.fail(e);
            }
        }
    }

    /** Brings the layer of {@link #fetch} into its slot. */
    private void fetch() {
        LoadedLayer before = fetch.loaded;
        if (before != null) {
            // Its copies ended long ago; their errors are reported here.
            before.checkFetched(fetch.loadedPhase, context.options().timeout());
        }
        Slot slot = Objects.requireNonNull(fetch.slot);
        LoadedLayer r = slot.loadedLayers[fetch.layer];
        if (r == null) {
            r = new LoadedLayer(context, fetch.layer, slot);
            slot.loadedLayers[fetch.layer] = r;
        }
        bringIn(slot, r);
    }

    private void bringIn(Slot slot, LoadedLayer r) {
        int old = fetch.old;
        SlotTensor[] checkpoint = fetch.phase == Phase.BACKWARD ? r.checkpoint : null;
        if (staged) {
            if (old >= 0) {
                awaitStage(old);
            }
            if (checkpoint != null) {
                writeBack.await(r.layer, Phase.FORWARD);
                read(checkpoint);
            }
            read(r.parameters);
        }
        // From here on the slot's last work must be in the compute stream.
        if (!state.awaitReleased(fetch.lastStep)) {
            return;
        }
        Event free = state.free(slot);
        if (old >= 0) {
            context.stats().evicted();
            evicted(old, r.layer);
            for (Phase p : PHASES) {
                LoadedLayer out = writeBack.last(old, p);
                if (out != null && out == slot.loadedLayers[old]) {
                    writeBack.await(old, p);
                }
            }
        }
        if (checkpoint != null) {
            writeBack.await(r.layer, Phase.FORWARD);
        }
        awaitRead(r.parameters);
        state.loading(slot, r, fetch.step);
        for (SlotTensor s : r.parameters) {
            s.fetch(free);
        }
        if (checkpoint != null) {
            awaitRead(checkpoint);
            for (SlotTensor s : checkpoint) {
                s.fetch(free);
            }
        }
        state.fetched(fetch.step, slot);
    }

    /** Waits until what the slot's stage holds for its last layer is needed no more. */
    private void awaitStage(int old) {
        Layer l = context.layers().get(old);
        boolean outputs = !l.gradients().isEmpty() || l.checkpoint() != null;
        if (outputs || state.isReleased(fetch.lastStep)) {
            state.awaitReleased(fetch.lastStep);
            for (Phase p : PHASES) {
                writeBack.await(old, p);
            }
        }
    }

    private static void read(SlotTensor[] tensors) {
        for (SlotTensor s : tensors) {
            if (s.tensor.place() != null) {
                s.startRead();
            }
        }
    }

    private static void awaitRead(SlotTensor[] tensors) {
        for (SlotTensor s : tensors) {
            s.awaitIo(Track.NVME_READ);
        }
    }

    private void evicted(int old, int layer) {
        Layer l = context.layers().get(old);
        ChromeTrace trace = context.trace();
        if (trace != null) {
            long now = System.nanoTime();
            trace.record(Track.EVICT, l.name(), "evict", now, now, l.deviceBytes());
        }
        if (ScheduleEvents.evictions()) {
            ScheduleEvents.EvictEvent e = new ScheduleEvents.EvictEvent();
            e.layer = l.name();
            e.forLayer = context.layers().get(layer).name();
            e.bytes = l.deviceBytes();
            e.commit();
        }
    }
}
