package io.jccl.offload;

import io.jccl.offload.LayerSchedule.Phase;
import org.jspecify.annotations.Nullable;

/** One fetch: what it is for, and what its slot held. Only the prefetcher's thread reads it. */
final class Fetch {
    long step;
    int layer;
    Phase phase = Phase.FORWARD;
    @Nullable Slot slot;

    /** The layer whose memory it takes; -1 if none. */
    int old;

    /** The last step that uses that memory. */
    long lastStep;

    /** What was fetched into the slot before, and for which phase. */
    @Nullable LoadedLayer loaded;

    Phase loadedPhase = Phase.FORWARD;
}
