package io.jccl.offload;

import io.jccl.device.Buffer;
import io.jccl.device.Event;
import org.jspecify.annotations.Nullable;

/**
 * A part of device memory that holds one layer at a time. What changes is guarded by the {@link
 * ScheduleState}.
 */
final class Slot {
    final Buffer memory;
    final @Nullable Buffer stage;

    /** Behind the last work of each phase. */
    final Event[] worked;

    final @Nullable LoadedLayer[] loadedLayers;

    /** The layer it is meant for, and the last step that will use it; -1 for none. */
    int layer = -1;

    long lastStep = -1;

    /** What was last fetched into it, for which step, and whether that is known to be good. */
    @Nullable LoadedLayer loaded;

    long loadedFor = -1;

    /** The event after the work of the last released step; null if none since a reset. */
    @Nullable Event free;

    Slot(Buffer memory, @Nullable Buffer stage, Event[] worked, int layers) {
        this.memory = memory;
        this.stage = stage;
        this.worked = worked;
        this.loadedLayers = new LoadedLayer[layers];
    }

    /** Waits for reads of a store into it, however they end; returns whether they did. */
    boolean endReads(long deadline) {
        boolean ended = true;
        for (LoadedLayer l : loadedLayers) {
            ended &= l == null || l.endReads(deadline);
        }
        return ended;
    }

    /** Forgets what it holds. */
    void reset() {
        layer = -1;
        lastStep = -1;
        loaded = null;
        free = null;
    }
}
