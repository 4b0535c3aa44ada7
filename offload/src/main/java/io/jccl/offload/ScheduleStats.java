package io.jccl.offload;

import io.jccl.offload.LayerSchedule.Phase;

/**
 * What a schedule has counted and measured, and the depth that follows from it.
 *
 * <p><b>Threads:</b> any.
 */
final class ScheduleStats {
    /** A shorter gap before a layer is the stream's own hand-over. */
    static final long STALL_NANOS = 20_000;

    /** Passes after which an automatic depth is looked at again. */
    private static final int LEARNING = 4;

    private final long[] fetchNanos;
    private final long[][] workNanos;
    private long lastWorked;
    private long passes;
    private long fetches;
    private long hits;
    private long evictions;
    private long bytesIn;
    private long bytesOut;
    private long timedPasses;
    private long computeNanos;
    private long stalls;
    private long stallNanos;

    ScheduleStats(int layers) {
        this.fetchNanos = new long[layers];
        this.workNanos = new long[Phase.values().length][layers];
    }

    synchronized void begin() {
        lastWorked = System.nanoTime();
    }

    synchronized void end(boolean timed) {
        passes++;
        if (timed) {
            timedPasses++;
        }
    }

    synchronized void hit() {
        hits++;
    }

    synchronized void fetched() {
        fetches++;
    }

    synchronized void evicted() {
        evictions++;
    }

    synchronized void read(int layer, long nanos) {
        fetchNanos[layer] += nanos;
    }

    synchronized void cameIn(int layer, long nanos, long bytes) {
        fetchNanos[layer] += nanos;
        bytesIn += bytes;
    }

    synchronized void wentOut(long bytes) {
        bytesOut += bytes;
    }

    /** Work begins; returns when that before it ended. */
    synchronized long working(long now) {
        if (now - lastWorked >= STALL_NANOS) {
            stalls++;
            stallNanos += now - lastWorked;
        }
        return lastWorked;
    }

    synchronized void worked(int layer, Phase phase, long began, long ended) {
        lastWorked = ended;
        computeNanos += ended - began;
        workNanos[phase.ordinal()][layer] += ended - began;
    }

    /** Whether the first passes are under way, whose times choose the depth. */
    synchronized boolean learning() {
        return passes < LEARNING;
    }

    /**
     * The depth that measured times make worthwhile.
     *
     * @param length steps of a pass
     * @return layers to fetch ahead; 0 if nothing has been measured, or the depth is settled
     */
    synchronized int depth(int length, boolean cyclic) {
        if (timedPasses == 0 || passes > LEARNING) {
            return 0;
        }
        int layers = fetchNanos.length;
        long came = Math.max(1, Math.max(1, fetches) / layers);
        long[] fetch = new long[length];
        long[] work = new long[length];
        for (int i = 0; i < length; i++) {
            int layer = ScheduleState.layer(i, layers);
            fetch[i] = fetchNanos[layer] / came;
            work[i] = workNanos[ScheduleState.phase(i, layers).ordinal()][layer] / timedPasses;
        }
        // A slot that holds a layer more than there are would never be used.
        return DepthModel.choose(fetch, work, Math.max(0, layers - 1), cyclic);
    }

    synchronized LayerSchedule.Stats stats(int slots, long slotBytes) {
        return new LayerSchedule.Stats(
                passes,
                fetches,
                hits,
                evictions,
                bytesIn,
                bytesOut,
                slots,
                slotBytes,
                slots - 1,
                timedPasses,
                computeNanos,
                stalls,
                stallNanos);
    }
}
