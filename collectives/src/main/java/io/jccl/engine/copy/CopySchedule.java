package io.jccl.engine.copy;

import io.jccl.engine.copy.CopyProgram.Lane;
import io.jccl.engine.copy.CopyProgram.Step;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;
import java.util.PriorityQueue;

/**
 * Orders the copies of a {@link CopyProgram} by simulation with the channels' bandwidths: a lane
 * takes the copy that is ready first, so no copy waits in a lane for a chunk that has not arrived
 * yet. The order is topological: every copy is enqueued after those that it waits for, so the
 * program cannot hang.
 */
final class CopySchedule {
    private final List<Lane> lanes;
    private final List<CopyTask> tasks;
    private final List<Step> steps = new ArrayList<>();

    /** By rank: events that its device needs. */
    private final int[] events;

    /** By rank: events that can be recorded again. */
    private final List<Deque<Integer>> idle = new ArrayList<>();

    /** Orders {@code tasks} on {@code lanes} of {@code n} ranks. */
    CopySchedule(List<Lane> lanes, List<CopyTask> tasks, int n) {
        this.lanes = lanes;
        this.tasks = tasks;
        events = new int[n];
        for (int r = 0; r < n; r++) {
            idle.add(new ArrayDeque<>());
        }
        schedule();
    }

    /** The copies in the order in which they are enqueued. */
    Step[] steps() {
        return steps.toArray(Step[]::new);
    }

    /** By rank: number of events that its device needs. */
    int[] events() {
        return events;
    }

    private void schedule() {
        record Entry(double time, int lane) {}
        Comparator<CopyTask> first =
                Comparator.comparingDouble((CopyTask t) -> t.ready).thenComparing(t -> t.index);
        List<PriorityQueue<CopyTask>> waiting = new ArrayList<>();
        double[] free = new double[lanes.size()];
        boolean[] queued = new boolean[lanes.size()];
        for (int i = 0; i < lanes.size(); i++) {
            waiting.add(new PriorityQueue<>(first));
        }
        PriorityQueue<Entry> next =
                new PriorityQueue<>(
                        Comparator.comparingDouble(Entry::time).thenComparingInt(Entry::lane));
        for (CopyTask t : tasks) {
            if (t.open == 0) {
                waiting.get(t.lane).add(t);
            }
        }
        for (int i = 0; i < lanes.size(); i++) {
            if (!waiting.get(i).isEmpty()) {
                next.add(new Entry(0, i));
                queued[i] = true;
            }
        }
        while (!next.isEmpty()) {
            Entry entry = next.remove();
            int lane = entry.lane;
            CopyTask t = waiting.get(lane).element();
            double start = Math.max(free[lane], t.ready);
            if (start > entry.time) {
                next.add(new Entry(start, lane));
                continue;
            }
            waiting.get(lane).remove();
            queued[lane] = false;
            emit(t);
            free[lane] = start + t.micros;
            for (CopyTask d : t.dependents) {
                d.ready = Math.max(d.ready, free[lane]);
                if (--d.open == 0) {
                    waiting.get(d.lane).add(d);
                    if (!queued[d.lane]) {
                        next.add(new Entry(Math.max(free[d.lane], d.ready), d.lane));
                        queued[d.lane] = true;
                    }
                }
            }
            CopyTask behind = waiting.get(lane).peek();
            if (behind != null && !queued[lane]) {
                next.add(new Entry(Math.max(free[lane], behind.ready), lane));
                queued[lane] = true;
            }
        }
        if (steps.size() != tasks.size()) {
            throw new IllegalStateException(
                    steps.size() + " of " + tasks.size() + " copies could be ordered");
        }
    }

    /**
     * Enqueues a copy. An event can be recorded again once all copies that wait for it have been
     * enqueued, since a wait refers to the latest recording before it.
     */
    private void emit(CopyTask t) {
        Lane lane = lanes.get(t.lane);
        List<CopyTask> others = t.needs.stream().filter(o -> o.lane != t.lane).toList();
        int[] waits = new int[others.size()];
        int[] waitsOn = new int[others.size()];
        for (int i = 0; i < waits.length; i++) {
            CopyTask other = others.get(i);
            waits[i] = other.event;
            waitsOn[i] = lanes.get(other.lane).from();
            if (--other.waiters == 0) {
                idle.get(waitsOn[i]).push(other.event);
            }
        }
        for (CopyTask d : t.dependents) {
            t.waiters += d.lane == t.lane ? 0 : 1;
        }
        if (t.waiters > 0) {
            Integer reused = idle.get(lane.from()).poll();
            t.event = reused != null ? reused : events[lane.from()]++;
        }
        steps.add(
                new Step(
                        t.lane,
                        lane.from(),
                        lane.to(),
                        t.source,
                        t.sourceAt,
                        t.target,
                        t.targetAt,
                        t.bytes,
                        waits,
                        waitsOn,
                        t.event));
    }
}
