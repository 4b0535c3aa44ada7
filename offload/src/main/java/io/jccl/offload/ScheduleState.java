package io.jccl.offload;

import io.jccl.offload.LayerSchedule.Pass;
import io.jccl.offload.LayerSchedule.Phase;
import org.jspecify.annotations.Nullable;

/**
 * How far a pass has come: one step for each time that a layer is run, counted on and on over
 * passes. Everything here, and what {@link Slot} says is, is guarded by this object's monitor.
 */
final class ScheduleState {
    private final int layers;

    /** Steps that may be fed and not released. */
    final int window;

    @Nullable Pass pass;

    /** The first step of this pass, and how many it has. */
    long base;

    int length;

    /** Steps whose layers are there or on their way, and how far that may go. */
    long fed;

    long limit;
    long released;
    boolean held;
    boolean feeding;
    boolean draining;
    boolean closed;
    boolean broken;
    boolean startsAnew;
    @Nullable Throwable failure;

    /** The slot of each step that is fed and not released, and whether it was fetched for it. */
    private final Slot[] slotOf;

    private final boolean[] fetched;

    ScheduleState(int layers, int window) {
        this.layers = layers;
        this.window = window;
        this.slotOf = new Slot[window];
        this.fetched = new boolean[window];
    }

    private int place(long step) {
        return (int) Math.floorMod(step - base, (long) length);
    }

    synchronized int layerAt(long step) {
        int at = place(step);
        return at < layers ? at : 2 * layers - 1 - at;
    }

    synchronized Phase phaseAt(long step) {
        return place(step) < layers ? Phase.FORWARD : Phase.BACKWARD;
    }

    int index(long step) {
        return (int) (step % window);
    }

    synchronized Slot slotOf(long step) {
        return slotOf[index(step)];
    }

    synchronized boolean wasFetched(long step) {
        return fetched[index(step)];
    }

    synchronized int lengthOf(Pass kind) {
        return kind == Pass.TRAINING ? 2 * layers : layers;
    }

    synchronized boolean isTraining() {
        return length > layers;
    }

    /** A step's layer is in a slot, or ordered to come there. */
    synchronized void ready(long step, Slot slot, boolean wasFetched) {
        slotOf[index(step)] = slot;
        fetched[index(step)] = wasFetched;
        fed = step + 1;
        notifyAll();
    }

    /** Keeps the first error; the pass ends with it. */
    synchronized void fail(Throwable e) {
        if (failure == null) {
            failure = e;
        }
        notifyAll();
    }

    synchronized @Nullable Throwable failure() {
        return failure;
    }

    /** Waits once; whoever calls it loops. */
    @SuppressWarnings("WaitNotInLoop")
    synchronized void await() {
        try {
            wait();
        } catch (InterruptedException e) {
            // Only close() ends the threads that wait here.
        }
    }

    synchronized void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the schedule is closed");
        }
        if (broken) {
            throw new IllegalStateException(
                    "the schedule could not be drained after an error: create another");
        }
    }

    synchronized void checkRunning() {
        checkOpen();
        if (pass == null) {
            throw new IllegalStateException("no pass is under way: begin one first");
        }
    }
}
