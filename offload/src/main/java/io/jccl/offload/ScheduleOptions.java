package io.jccl.offload;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * How a {@link LayerSchedule} uses the device's memory and what it records.
 *
 * @param depth layers that are fetched ahead of the one that computes, 0 to 1,024; 0 needs memory
 *     for one layer only and overlaps nothing. {@link #AUTOMATIC} begins with one and takes more,
 *     as far as memory allows, if measured times show a gain
 * @param deviceBytes most device memory that the schedule takes, in addition to the limit of the
 *     pool's budget
 * @param cyclic whether the parameters on the host do not change from pass to pass, as in
 *     inference: then the first layers of the next pass, assumed to be of the same kind, are
 *     fetched while the last ones of this pass compute
 * @param timing whether {@link LayerSchedule.Stats} has compute and stall times of all passes. On a
 *     GPU this costs two host functions per layer
 * @param trace a timeline to write; null for none. The schedule does not close it
 * @param timeout how long the schedule waits for a copy, a drive or the device before it fails
 */
public record ScheduleOptions(
        int depth,
        long deviceBytes,
        boolean cyclic,
        boolean timing,
        @Nullable ChromeTrace trace,
        Duration timeout) {

    /** The depth is chosen from measured times. */
    public static final int AUTOMATIC = -1;

    static final int MAX_DEPTH = 1024;

    /** Automatic depth, no limit but the pool's, no trace, ten minutes. */
    public static final ScheduleOptions DEFAULT =
            new ScheduleOptions(
                    AUTOMATIC, Budgets.UNLIMITED, false, false, null, Duration.ofMinutes(10));

    /** Checks the arguments. */
    public ScheduleOptions {
        if (depth != AUTOMATIC && (depth < 0 || depth > MAX_DEPTH)) {
            throw new IllegalArgumentException(
                    "depth is " + depth + ", expected 0 to " + MAX_DEPTH + ", or AUTOMATIC (-1)");
        }
        if (deviceBytes < 0) {
            throw new IllegalArgumentException(
                    "deviceBytes is " + deviceBytes + ", expected 0 or more");
        }
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("timeout is " + timeout + ", expected more than 0");
        }
    }

    /**
     * With another depth.
     *
     * @param layers fetched ahead, or {@link #AUTOMATIC}
     * @return the changed copy
     */
    public ScheduleOptions withDepth(int layers) {
        return new ScheduleOptions(layers, deviceBytes, cyclic, timing, trace, timeout);
    }

    /**
     * With a limit for device memory.
     *
     * @param bytes the most that the schedule takes
     * @return the changed copy
     */
    public ScheduleOptions withDeviceBytes(long bytes) {
        return new ScheduleOptions(depth, bytes, cyclic, timing, trace, timeout);
    }

    /**
     * With or without fetching ahead into the next pass.
     *
     * @param unchanged whether parameters do not change between passes
     * @return the changed copy
     */
    public ScheduleOptions withCyclic(boolean unchanged) {
        return new ScheduleOptions(depth, deviceBytes, unchanged, timing, trace, timeout);
    }

    /**
     * With or without times in the statistics.
     *
     * @param measure whether to measure
     * @return the changed copy
     */
    public ScheduleOptions withTiming(boolean measure) {
        return new ScheduleOptions(depth, deviceBytes, cyclic, measure, trace, timeout);
    }

    /**
     * With a trace.
     *
     * @param file the timeline; null for none
     * @return the changed copy
     */
    public ScheduleOptions withTrace(@Nullable ChromeTrace file) {
        return new ScheduleOptions(depth, deviceBytes, cyclic, timing, file, timeout);
    }

    /**
     * With another timeout.
     *
     * @param limit how long
     * @return the changed copy
     */
    public ScheduleOptions withTimeout(Duration limit) {
        return new ScheduleOptions(depth, deviceBytes, cyclic, timing, trace, limit);
    }
}
