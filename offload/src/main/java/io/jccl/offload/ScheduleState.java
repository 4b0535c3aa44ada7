package io.jccl.offload;

import io.jccl.device.Event;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import io.jccl.offload.LayerSchedule.Pass;
import io.jccl.offload.LayerSchedule.Phase;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * How far a pass is, and which slot holds which layer. A step is one run of one layer; steps are
 * counted on over passes. At any time {@code base <= released <= fed <= limit}: the pass's first
 * step, the next one to release, the next one to fetch, and the first that must not be fetched yet.
 *
 * <p><b>Threads:</b> any. This object's monitor guards everything that changes, the ring and the
 * slots included.
 */
final class ScheduleState {
    private final ScheduleContext context;
    private final SlotRing ring;
    private final int layers;

    /** Steps that may be fetched and not released. */
    private final int window;

    // All below is guarded by this.
    private @Nullable Pass pass;
    private long base;

    /** Steps of the pass. */
    private int length;

    private long fed;
    private long limit;
    private long released;
    private boolean held;
    private boolean feeding;
    private boolean draining;
    private boolean closed;

    /** Whether draining did not end in time. */
    private boolean broken;

    /** Whether a cyclic schedule must not use what it has fetched for the next pass. */
    private boolean invalid;

    private @Nullable Throwable failure;

    /** The slot of each step that is fed and not released, and whether it was fetched for it. */
    private final Slot[] slotOf;

    private final boolean[] fetched;

    ScheduleState(ScheduleContext context, SlotRing ring, int window) {
        this.context = context;
        this.ring = ring;
        this.layers = context.layers().size();
        this.window = window;
        this.slotOf = new Slot[window];
        this.fetched = new boolean[window];
    }

    /** Takes the memory of the slots. */
    synchronized void takeSlots() {
        ring.take();
    }

    // ---- Steps and layers

    /** The layer that the given step of a pass runs. */
    static int layer(int place, int layers) {
        return place < layers ? place : 2 * layers - 1 - place;
    }

    /** The phase in which the given step of a pass runs its layer. */
    static Phase phase(int place, int layers) {
        return place < layers ? Phase.FORWARD : Phase.BACKWARD;
    }

    private synchronized int place(long step) {
        return (int) Math.floorMod(step - base, (long) length);
    }

    synchronized int layerAt(long step) {
        return layer(place(step), layers);
    }

    synchronized Phase phaseAt(long step) {
        return phase(place(step), layers);
    }

    private int index(long step) {
        return (int) (step % window);
    }

    synchronized Slot slotOf(long step) {
        return slotOf[index(step)];
    }

    /** Whether the layer was copied for this step, and not left in its slot by an earlier one. */
    synchronized boolean wasFetched(long step) {
        return fetched[index(step)];
    }

    synchronized boolean isTraining() {
        return length > layers;
    }

    synchronized int slots() {
        return ring.size();
    }

    long slotBytes() {
        return ring.slotBytes;
    }

    // ---- A pass

    /** Whether a pass can go on with the layers that were fetched ahead for it. */
    synchronized boolean canContinue(Pass kind) {
        checkOpen();
        if (pass != null) {
            throw new IllegalStateException("a pass is under way: end or abort it before the next");
        }
        return context.options().cyclic()
                && length == kind.steps(layers)
                && base + length == released
                && !invalid;
    }

    /** Begins a pass, and the fetches of its first layers. */
    synchronized void begin(Pass kind, boolean goOn) {
        boolean cyclic = context.options().cyclic();
        if (goOn) {
            base += length;
        }
        length = kind.steps(layers);
        if (!goOn) {
            base = released;
            fed = released;
            ring.reset();
        }
        invalid = false;
        limit = base + (cyclic ? 2L : 1L) * length;
        if (context.options().depth() == ScheduleOptions.AUTOMATIC) {
            ring.grow(context.stats().depth(length, cyclic) + 1);
        }
        pass = kind;
        context.stats().begin();
        notifyAll();
    }

    /** The step whose turn it is, which must run the given layer. */
    synchronized long checkTurn(int layer) {
        checkRunning();
        if (held) {
            throw new IllegalStateException(
                    "layer " + layerAt(released) + " is held: release it first");
        }
        if (released == base + length) {
            throw new IllegalStateException(
                    "all layers of the pass have run: end it, and begin another");
        }
        if (layer != layerAt(released)) {
            throw new IllegalArgumentException(
                    "layer is %s, expected %s, which is the next one of the pass (%s)"
                            .formatted(layer, layerAt(released), phaseAt(released)));
        }
        return released;
    }

    /** Waits until the layer of a step is in its slot, or its copies are enqueued. */
    LoadedLayer awaitFed(long step) {
        Duration timeout = context.options().timeout();
        long deadline = Deadline.after(timeout);
        synchronized (this) {
            while (fed <= step && failure == null && !closed) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new JcclTimeoutException(
                            "layer '"
                                    + context.layers().get(layerAt(step)).name()
                                    + "' could not be fetched within "
                                    + timeout
                                    + ": its slot, its drive or the copies before it are busy");
                }
                Waits.on(this, left);
            }
        }
        throwFailure();
        synchronized (this) {
            checkOpen();
            return Objects.requireNonNull(slotOf(step).loadedLayers[layerAt(step)]);
        }
    }

    synchronized void hold() {
        held = true;
    }

    /** The step that is held. */
    synchronized long checkHeld() {
        checkRunning();
        if (!held) {
            throw new IllegalStateException("no layer is held: acquire one first");
        }
        return released;
    }

    /** Ends the use of the step that is held: its slot is free once an event is complete. */
    synchronized void release(Event worked) {
        slotOf(released).free = worked;
        held = false;
        released++;
        notifyAll();
    }

    /** Throws unless all layers of the pass have run. */
    synchronized void checkComplete() {
        checkRunning();
        if (held || released < base + length) {
            throw new IllegalStateException(
                    "layer %s%s: run all layers, or abort the pass"
                            .formatted(layerAt(released), held ? " is held" : " has not run"));
        }
    }

    /** Throws if a fetch of the pass failed; waits for those under way. */
    void checkFetches() {
        for (int i = 0; i < slots(); i++) {
            LoadedLayer loaded;
            Phase phase;
            synchronized (this) {
                Slot s = ring.get(i);
                loaded = s.loadedFor < base + length ? s.loaded : null;
                phase = loaded == null ? Phase.FORWARD : phaseAt(s.loadedFor);
            }
            if (loaded != null) {
                loaded.checkFetched(phase, context.options().timeout());
            }
        }
    }

    synchronized void end() {
        pass = null;
        notifyAll();
    }

    /** Gives up a pass; returns false if none is under way. */
    synchronized boolean giveUp() {
        if (pass == null) {
            return false;
        }
        pass = null;
        held = false;
        invalid = true;
        return true;
    }

    /** Makes the next pass fetch all its layers again. */
    synchronized void invalidate() {
        checkOpen();
        if (pass != null) {
            throw new IllegalStateException(
                    "a pass is under way and reads the parameters: end or abort it first");
        }
        invalid = true;
    }

    private void checkRunning() {
        checkOpen();
        if (pass == null) {
            throw new IllegalStateException("no pass is under way: begin one first");
        }
    }

    private synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the schedule is closed");
        }
        if (broken) {
            throw new IllegalStateException(
                    "the schedule could not be drained after an error: create another");
        }
    }

    // ---- Errors and the end

    /** Keeps the first error; the pass ends with it, and nothing is fetched until it is drained. */
    synchronized void fail(Throwable e) {
        if (failure == null) {
            failure = e;
        }
        notifyAll();
    }

    void throwFailure() {
        Throwable e;
        synchronized (this) {
            e = failure;
        }
        switch (e) {
            case null -> {}
            case Error error -> throw error;
            case OffloadMemoryException o -> throw o;
            default ->
                    throw new JcclException(
                            "the pass failed, and can be begun again: " + e.getMessage(), e);
        }
    }

    /** Stops, and waits for fetches under way; returns whether they ended before the deadline. */
    boolean drain(long deadline) {
        synchronized (this) {
            draining = true;
            limit = fed;
            notifyAll();
        }
        // What this waits for ends by itself.
        boolean idle = awaitIdle(deadline);
        boolean clean = idle;
        for (int i = 0; i < slots(); i++) {
            Slot s;
            LoadedLayer r;
            synchronized (this) {
                s = ring.get(i);
                r = s.loaded;
            }
            clean &= r == null || r.settleFetches(deadline);
            // A read under way must not overlap with the next one into the same memory.
            clean &= !idle || s.endReads(deadline);
        }
        return clean;
    }

    private synchronized boolean awaitIdle(long deadline) {
        long left = 1;
        while (feeding && left > 0) {
            left = deadline - System.nanoTime();
            if (left > 0) {
                Waits.on(this, left);
            }
        }
        return !feeding;
    }

    /** After {@link #drain}: forgets what was fetched, or that nothing can be used any more. */
    synchronized void drained(boolean clean) {
        if (!clean) {
            broken = true;
            return;
        }
        draining = false;
        failure = null;
        ring.reset();
        fed = released;
        base = released;
        length = Math.max(length, 1);
        limit = fed;
    }

    synchronized boolean isClosed() {
        return closed;
    }

    synchronized boolean isBroken() {
        return broken;
    }

    synchronized void close() {
        closed = true;
        notifyAll();
    }

    /** Gives the memory of the slots back once nothing uses it any more. */
    synchronized void free() {
        ring.close();
    }

    // ---- What the prefetcher's thread does

    /** Waits until a step's layer may be fetched; returns false once the schedule is closed. */
    synchronized boolean awaitWork() {
        feeding = false;
        notifyAll();
        while (!closed
                && (draining || failure != null || fed >= limit || fed - released >= window)) {
            await();
        }
        feeding = !closed;
        return feeding;
    }

    /**
     * Chooses a slot for the next step's layer: the one that was used longest ago.
     *
     * @return false if the layer is in a slot already
     */
    synchronized boolean choose(Fetch f) {
        long step = fed;
        int layer = layerAt(step);
        Slot slot = ring.get(0);
        for (int i = 0; i < ring.size(); i++) { // no iterator: no garbage
            Slot s = ring.get(i);
            if (s.layer == layer) {
                s.lastStep = step;
                ready(step, s, false);
                context.stats().hit();
                return false;
            }
            if (s.lastStep < slot.lastStep) {
                slot = s;
            }
        }
        f.step = step;
        f.layer = layer;
        f.phase = phaseAt(step);
        f.slot = slot;
        f.old = slot.layer;
        f.lastStep = slot.lastStep;
        f.loaded = slot.loaded;
        f.loadedPhase = slot.loaded == null ? Phase.FORWARD : phaseAt(slot.loadedFor);
        slot.layer = layer;
        slot.lastStep = step;
        return true;
    }

    /** Waits until a step is released; returns false if the schedule is drained or closed first. */
    synchronized boolean awaitReleased(long step) {
        while (!draining && !closed && step >= released) {
            await();
        }
        return !draining && !closed;
    }

    synchronized boolean isReleased(long step) {
        return step < released;
    }

    /** The event after the last work in a slot; null if there was none. */
    synchronized @Nullable Event free(Slot slot) {
        return slot.free;
    }

    /** The copies of a layer into a slot begin. */
    synchronized void loading(Slot slot, LoadedLayer layer, long step) {
        slot.loaded = layer;
        slot.loadedFor = step;
    }

    /** The copies of a layer into a slot are enqueued. */
    synchronized void fetched(long step, Slot slot) {
        context.stats().fetched();
        ready(step, slot, true);
    }

    /** Waits once; callers loop. */
    @SuppressWarnings("WaitNotInLoop")
    private synchronized void await() {
        try {
            wait();
        } catch (InterruptedException e) {
            // Only close() ends the thread.
        }
    }

    /** The layer of a step is in a slot, or its copies are enqueued. */
    private synchronized void ready(long step, Slot slot, boolean wasFetched) {
        slotOf[index(step)] = slot;
        fetched[index(step)] = wasFetched;
        fed = step + 1;
        notifyAll();
    }
}
