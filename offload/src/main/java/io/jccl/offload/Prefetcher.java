package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;

/**
 * Brings layers into slots, ahead of their work, in a thread of its own: one step after the other,
 * as far as {@link ScheduleState#limit} and free slots let it.
 */
final class Prefetcher {
    private static final Phase[] PHASES = Phase.values();

    private final ScheduleContext context;
    private final ScheduleState state;
    private final SlotRing ring;
    private final WriteBack writeBack;
    private final Thread thread;

    Prefetcher(ScheduleContext context, ScheduleState state, SlotRing ring, WriteBack writeBack) {
        this.context = context;
        this.state = state;
        this.ring = ring;
        this.writeBack = writeBack;
        this.thread = Thread.ofPlatform().daemon().name("jccl-layers").unstarted(this::run);
    }

    void start() {
        thread.start();
    }

    void join(Duration patience) throws InterruptedException {
        thread.join(patience);
    }

    private void run() {
        while (true) {
            synchronized (state) {
                state.feeding = false;
                state.notifyAll();
                while (!state.closed && isEnough()) {
                    state.await();
                }
                if (state.closed) {
                    return;
                }
                state.feeding = true;
            }
            try {
                feedOne();
            } catch (Throwable e) {
                synchronized (state) {
                    state.fail(e);
                    state.limit = state.fed;
                }
            }
        }
    }

    private boolean isEnough() {
        return state.draining
                || state.fed >= state.limit
                || state.fed - state.released >= state.window;
    }

    /** Waits until no step is being fed; tells whether that came before the deadline. */
    boolean awaitIdle(long deadline) {
        boolean interrupted = false;
        boolean clean = true;
        synchronized (state) {
            while (state.feeding) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    clean = false;
                    break;
                }
                try {
                    state.wait(left / 1_000_000 + 1);
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return clean;
    }

    /** Brings the next step's layer in, unless it is there. */
    private void feedOne() {
        long step;
        int layer;
        Phase phase;
        Slot slot;
        int old;
        long lastStep;
        LoadedLayer loaded;
        Phase loadedPhase;
        synchronized (state) {
            step = state.fed;
            layer = state.layerAt(step);
            phase = state.phaseAt(step);
            slot = ring.get(0);
            for (int i = 0; i < ring.size(); i++) { // no iterator: no garbage
                Slot s = ring.get(i);
                if (s.layer == layer) {
                    s.lastStep = step;
                    state.ready(step, s, false);
                    context.stats().hit();
                    return;
                }
                if (s.lastStep < slot.lastStep) {
                    slot = s;
                }
            }
            old = slot.layer;
            lastStep = slot.lastStep;
            loaded = slot.loaded;
            loadedPhase = loaded == null ? Phase.FORWARD : state.phaseAt(slot.loadedFor);
            slot.layer = layer;
            slot.lastStep = step;
        }
        if (loaded != null) {
            // Its copies are long over; this is where their errors are seen.
            loaded.checkFetched(loadedPhase, context.options().timeout());
        }
        LoadedLayer r = slot.loadedLayers[layer];
        if (r == null) {
            r = new LoadedLayer(context, layer, slot);
            slot.loadedLayers[layer] = r;
        }
        boolean done = false;
        try {
            done = bringIn(step, slot, r, phase, old, lastStep);
        } finally {
            if (!done) {
                // A read under way must not meet the next one into the same memory.
                r.endReads();
            }
        }
    }

    private boolean bringIn(
            long step, Slot slot, LoadedLayer r, Phase phase, int old, long lastStep) {
        int layer = r.layer;
        SlotTensor[] checkpoint = phase == Phase.BACKWARD ? r.checkpoint : null;
        if (ring.stageBytes > 0) {
            if (old >= 0) {
                awaitStage(old, lastStep);
            }
            if (checkpoint != null) {
                writeBack.await(layer, Phase.FORWARD);
                read(checkpoint);
            }
            read(r.parameters);
        }
        // From here on the slot's last work must be in the compute stream.
        Event free;
        synchronized (state) {
            while (!state.draining && !state.closed && lastStep >= state.released) {
                state.await();
            }
            if (state.draining || state.closed) {
                return false;
            }
            free = slot.free;
            if (old >= 0) {
                context.stats().evicted();
            }
        }
        if (old >= 0) {
            evicted(old, layer);
            for (Phase p : PHASES) {
                LoadedLayer out = writeBack.last(old, p);
                if (out != null && out == slot.loadedLayers[old]) {
                    writeBack.await(old, p);
                }
            }
        }
        if (checkpoint != null) {
            writeBack.await(layer, Phase.FORWARD);
        }
        awaitRead(r.parameters);
        synchronized (state) {
            slot.loaded = r;
            slot.loadedFor = step;
        }
        for (SlotTensor s : r.parameters) {
            s.fetch(free);
        }
        if (checkpoint != null) {
            awaitRead(checkpoint);
            for (SlotTensor s : checkpoint) {
                s.fetch(free);
            }
        }
        synchronized (state) {
            context.stats().fetched();
            state.ready(step, slot, true);
        }
        return true;
    }

    /** Waits until what the slot's stage holds for its last layer is needed no more. */
    private void awaitStage(int old, long lastStep) {
        synchronized (state) {
            while (!state.draining && !state.closed && lastStep >= state.released) {
                Layer l = context.layers().get(old);
                if (l.gradients().isEmpty() && l.checkpoint() == null) {
                    return;
                }
                state.await();
            }
        }
        for (Phase p : PHASES) {
            writeBack.await(old, p);
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
        if (ScheduleEvents.EVICT.isEnabled()) {
            ScheduleEvents.EvictEvent e = new ScheduleEvents.EvictEvent();
            e.layer = l.name();
            e.forLayer = context.layers().get(layer).name();
            e.bytes = l.deviceBytes();
            e.commit();
        }
    }
}
