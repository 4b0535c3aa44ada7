package io.jccl.offload;

import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import org.jspecify.annotations.Nullable;

/** Runs on the compute stream before and after a layer's work, and measures its time. */
final class ComputeTimer implements Runnable {
    private int layer;
    private Phase phase = Phase.FORWARD;
    private long began;
    private long before;
    private ScheduleEvents.@Nullable ComputeEvent event;

    private final ScheduleContext context;
    private final @Nullable ComputeTimer begin;

    /** Placed before the work if begin is null, else after the work that begin started. */
    ComputeTimer(ScheduleContext context, @Nullable ComputeTimer begin) {
        this.context = context;
        this.begin = begin;
    }

    void set(int nextLayer, Phase nextPhase) {
        layer = nextLayer;
        phase = nextPhase;
    }

    @Override
    public void run() {
        long now = System.nanoTime();
        String name = context.layers().get(layer).name();
        ComputeTimer b = begin;
        if (b == null) {
            began = now;
            before = context.stats().working(now);
            if (ScheduleEvents.compute()) {
                event = new ScheduleEvents.ComputeEvent();
                event.layer = name;
                event.phase = phase.name();
                event.begin();
            }
            return;
        }
        context.stats().worked(layer, phase, b.began, now);
        boolean stalled = b.began - b.before >= ScheduleStats.STALL_NANOS;
        ChromeTrace trace = context.trace();
        if (trace != null) {
            if (stalled) {
                trace.record(Track.STALL, name, "stall", b.before, b.began, 0);
            }
            trace.record(Track.COMPUTE, name, phase.name(), b.began, now, 0);
        }
        if (stalled && ScheduleEvents.stalls()) {
            ScheduleEvents.StallEvent e = new ScheduleEvents.StallEvent();
            e.layer = name;
            e.stallTime = b.began - b.before;
            e.commit();
        }
        ScheduleEvents.ComputeEvent e = b.event;
        if (e != null) {
            e.commit();
            b.event = null;
        }
    }
}
