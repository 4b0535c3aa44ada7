package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;

/**
 * Brings layers into slots, ahead of their work, in a thread of its own: one step after the other,
 * as far as {@link Steps#limit} and free slots let it.
 */
final class Feeder {
    private static final Phase[] PHASES = Phase.values();

    private final ScheduleContext context;
    private final Steps steps;
    private final SlotRing ring;
    private final Outputs outputs;
    private final Thread thread;

    Feeder(ScheduleContext context, Steps steps, SlotRing ring, Outputs outputs) {
        this.context = context;
        this.steps = steps;
        this.ring = ring;
        this.outputs = outputs;
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
            synchronized (steps) {
                steps.feeding = false;
                steps.notifyAll();
                while (!steps.closed && isEnough()) {
                    steps.await();
                }
                if (steps.closed) {
                    return;
                }
                steps.feeding = true;
            }
            try {
                feedOne();
            } catch (Throwable e) {
                synchronized (steps) {
                    steps.fail(e);
                    steps.limit = steps.fed;
                }
            }
        }
    }

    private boolean isEnough() {
        return steps.draining
                || steps.fed >= steps.limit
                || steps.fed - steps.released >= steps.window;
    }

    /** Waits until no step is being fed; tells whether that came before the deadline. */
    boolean awaitIdle(long deadline) {
        boolean interrupted = false;
        boolean clean = true;
        synchronized (steps) {
            while (steps.feeding) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    clean = false;
                    break;
                }
                try {
                    steps.wait(left / 1_000_000 + 1);
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
        Resident loaded;
        Phase loadedPhase;
        synchronized (steps) {
            step = steps.fed;
            layer = steps.layerAt(step);
            phase = steps.phaseAt(step);
            slot = ring.get(0);
            for (int i = 0; i < ring.size(); i++) { // no iterator: no garbage
                Slot s = ring.get(i);
                if (s.layer == layer) {
                    s.lastStep = step;
                    steps.ready(step, s, false);
                    context.times().hit();
                    return;
                }
                if (s.lastStep < slot.lastStep) {
                    slot = s;
                }
            }
            old = slot.layer;
            lastStep = slot.lastStep;
            loaded = slot.loaded;
            loadedPhase = loaded == null ? Phase.FORWARD : steps.phaseAt(slot.loadedFor);
            slot.layer = layer;
            slot.lastStep = step;
        }
        if (loaded != null) {
            // Its copies are long over; this is where their errors are seen.
            loaded.checkFetched(loadedPhase, context.options().timeout());
        }
        Resident r = slot.residents[layer];
        if (r == null) {
            r = new Resident(context, layer, slot);
            slot.residents[layer] = r;
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

    private boolean bringIn(long step, Slot slot, Resident r, Phase phase, int old, long lastStep) {
        int layer = r.layer;
        Seat[] checkpoint = phase == Phase.BACKWARD ? r.checkpoint : null;
        if (ring.stageBytes > 0) {
            if (old >= 0) {
                awaitStage(old, lastStep);
            }
            if (checkpoint != null) {
                outputs.await(layer, Phase.FORWARD);
                read(checkpoint);
            }
            read(r.parameters);
        }
        // From here on the slot's last work must be in the compute stream.
        Event free;
        synchronized (steps) {
            while (!steps.draining && !steps.closed && lastStep >= steps.released) {
                steps.await();
            }
            if (steps.draining || steps.closed) {
                return false;
            }
            free = slot.free;
            if (old >= 0) {
                context.times().evicted();
            }
        }
        if (old >= 0) {
            evicted(old, layer);
            for (Phase p : PHASES) {
                Resident out = outputs.last(old, p);
                if (out != null && out == slot.residents[old]) {
                    outputs.await(old, p);
                }
            }
        }
        if (checkpoint != null) {
            outputs.await(layer, Phase.FORWARD);
        }
        awaitRead(r.parameters);
        synchronized (steps) {
            slot.loaded = r;
            slot.loadedFor = step;
        }
        for (Seat s : r.parameters) {
            s.fetch(free);
        }
        if (checkpoint != null) {
            awaitRead(checkpoint);
            for (Seat s : checkpoint) {
                s.fetch(free);
            }
        }
        synchronized (steps) {
            context.times().fetched();
            steps.ready(step, slot, true);
        }
        return true;
    }

    /** Waits until what the slot's stage holds for its last layer is needed no more. */
    private void awaitStage(int old, long lastStep) {
        synchronized (steps) {
            while (!steps.draining && !steps.closed && lastStep >= steps.released) {
                Layer l = context.layers().get(old);
                if (l.gradients().isEmpty() && l.checkpoint() == null) {
                    return;
                }
                steps.await();
            }
        }
        for (Phase p : PHASES) {
            outputs.await(old, p);
        }
    }

    private static void read(Seat[] seats) {
        for (Seat s : seats) {
            if (s.tensor.place() != null) {
                s.startRead();
            }
        }
    }

    private static void awaitRead(Seat[] seats) {
        for (Seat s : seats) {
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
