package io.jccl.offload;

import io.jccl.offload.ChromeTrace.Track;
import io.jccl.offload.LayerSchedule.Phase;
import org.jspecify.annotations.Nullable;

/** What runs on the compute stream before or behind a layer's work, to take its time. */
final class Marker implements Runnable {
    private int layer;
    private Phase phase = Phase.FORWARD;
    private long began;
    private long before;
    private ScheduleEvents.@Nullable ComputeEvent event;

    private final ScheduleContext context;
    private final @Nullable Marker begin;

    /** Before work, if there is no begin; behind the work of that. */
    Marker(ScheduleContext context, @Nullable Marker begin) {
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
        Marker b = begin;
        if (b == null) {
            began = now;
            before = context.times().working(now);
            if (ScheduleEvents.COMPUTE.isEnabled()) {
                event = new ScheduleEvents.ComputeEvent();
                event.layer = name;
                event.phase = phase.name();
                event.begin();
            }
            return;
        }
        context.times().worked(layer, phase, b.began, now);
        boolean stalled = b.began - b.before >= PassTimes.STALL_NANOS;
        ChromeTrace trace = context.trace();
        if (trace != null) {
            if (stalled) {
                trace.record(Track.STALL, name, "stall", b.before, b.began, 0);
            }
            trace.record(Track.COMPUTE, name, phase.name(), b.began, now, 0);
        }
        if (stalled && ScheduleEvents.STALL.isEnabled()) {
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
