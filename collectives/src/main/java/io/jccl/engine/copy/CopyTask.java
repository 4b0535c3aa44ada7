package io.jccl.engine.copy;

import java.util.ArrayList;
import java.util.List;

/** One copy before it has its place in the order of a {@link CopyProgram}. */
final class CopyTask {
    final int lane;
    final CopyProgram.Place source;
    final long sourceAt;
    final CopyProgram.Place target;
    final long targetAt;
    final long bytes;
    final double micros;
    final int index;

    /** Copies that it waits for. */
    final List<CopyTask> needs = new ArrayList<>(2);

    /** Copies that wait for it. */
    final List<CopyTask> dependents = new ArrayList<>();

    int open;
    double ready;

    /** Dependents on other lanes that are not enqueued yet, and the event they wait for. */
    int waiters;

    int event = -1;

    CopyTask(
            int index,
            int lane,
            CopyProgram.Place source,
            long sourceAt,
            CopyProgram.Place target,
            long targetAt,
            long bytes,
            double micros) {
        this.index = index;
        this.lane = lane;
        this.source = source;
        this.sourceAt = sourceAt;
        this.target = target;
        this.targetAt = targetAt;
        this.bytes = bytes;
        this.micros = micros;
    }

    void after(CopyTask other) {
        needs.add(other);
        other.dependents.add(this);
        open++;
    }
}
