package io.jccl.topology.simulate;

import java.util.List;

/**
 * Arcs with capacities, and lanes over them. The active lanes share each arc by weighted max-min
 * fairness: rates rise together, in proportion to the weights, until an arc is saturated; its lanes
 * keep their rate and the others rise further, up to their weights. Weights are the plan's rates:
 * if the plan is feasible, every lane gets exactly its own, which keeps the hops of a pipeline in
 * step.
 *
 * <p>Not thread-safe.
 */
final class Network {
    /** What a run found. */
    record Outcome(
            long transfers, List<Fault> faults, long faultCount, long stuck, List<ArcUse> arcs) {}

    final double[] capacity;
    final int[][] arcs;
    final double[] weight;
    private final double[] left;
    private final double[] load;
    private final boolean[] fixed;
    private final int[] touched;

    /** Bytes a second. */
    final double[] rate;

    Network(double[] capacityGBps, int[][] arcs, double[] weight) {
        capacity = new double[capacityGBps.length];
        for (int i = 0; i < capacity.length; i++) {
            capacity[i] = capacityGBps[i] * 1e9;
        }
        this.arcs = arcs;
        this.weight = weight;
        left = new double[capacity.length];
        load = new double[capacity.length];
        touched = new int[capacity.length];
        fixed = new boolean[arcs.length];
        rate = new double[arcs.length];
    }

    /** Sets the rates of the active lanes. */
    void share(boolean[] active) {
        int touchedCount = 0;
        int open = 0;
        for (int lane = 0; lane < arcs.length; lane++) {
            fixed[lane] = !active[lane];
            if (!active[lane]) {
                continue;
            }
            if (arcs[lane].length == 0) {
                rate[lane] = Double.POSITIVE_INFINITY;
                fixed[lane] = true;
                continue;
            }
            open++;
            for (int arc : arcs[lane]) {
                if (load[arc] == 0) {
                    touched[touchedCount++] = arc;
                    left[arc] = capacity[arc];
                }
                load[arc] += weight[lane];
            }
        }
        while (open > 0) {
            double least = 1e9;
            for (int i = 0; i < touchedCount; i++) {
                int arc = touched[i];
                if (load[arc] > 0) {
                    least = Math.min(least, left[arc] / load[arc]);
                }
            }
            for (int lane = 0; lane < arcs.length; lane++) {
                if (fixed[lane] || (least < 1e9 && !tight(arcs[lane], least))) {
                    continue;
                }
                fixed[lane] = true;
                open--;
                rate[lane] = least * weight[lane];
            }
            if (open > 0) {
                settle(active, touchedCount);
            }
        }
        for (int i = 0; i < touchedCount; i++) {
            load[touched[i]] = 0;
        }
    }

    private boolean tight(int[] path, double least) {
        for (int arc : path) {
            if (left[arc] <= least * load[arc] * (1 + 1e-9)) {
                return true;
            }
        }
        return false;
    }

    /** Recounts what the lanes that are not fixed have to share. */
    private void settle(boolean[] active, int touchedCount) {
        for (int i = 0; i < touchedCount; i++) {
            load[touched[i]] = 0;
            left[touched[i]] = capacity[touched[i]];
        }
        for (int lane = 0; lane < arcs.length; lane++) {
            if (!active[lane]) {
                continue;
            }
            for (int arc : arcs[lane]) {
                if (fixed[lane]) {
                    left[arc] = Math.max(left[arc] - rate[lane], 0);
                } else {
                    load[arc] += weight[lane];
                }
            }
        }
    }
}
