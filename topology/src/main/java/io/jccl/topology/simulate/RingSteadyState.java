package io.jccl.topology.simulate;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Rings over machines that all do the same at any time: a machine receives from its predecessor
 * what it sends to its successor. Therefore one machine is simulated, and its last hop feeds its
 * first. A position of the ring sends all chunks of a block in each step, in the order in which it
 * got them in the step before.
 *
 * <p>Not thread-safe.
 */
final class RingSteadyState {
    /**
     * A ring: its hops in a machine and to the next.
     *
     * @param paths arcs of each hop
     * @param gbps planned rate
     * @param chunks of a block
     * @param chunkBytes size of each
     */
    record Rail(int[][] paths, double gbps, long chunks, double chunkBytes) {}

    /** Most chunks that one machine sends: some seconds of simulation. */
    private static final double MAX_TRANSFERS = 4e8;

    private record Key(long[] bits) {
        @Override
        public boolean equals(Object o) {
            return o instanceof Key k && Arrays.equals(bits, k.bits);
        }

        @Override
        public int hashCode() {
            return Arrays.hashCode(bits);
        }
    }

    final Network network;
    final double[] carried;
    private final int lanes;
    private final int[] before;
    private final long[] chunks;
    private final double[] size;
    private final long[] total;
    private final long[] done;
    private final Map<Key, double[]> rates = new HashMap<>();

    RingSteadyState(List<Rail> rails, double[] capacityGBps, long steps) {
        int count = 0;
        for (Rail rail : rails) {
            count += rail.paths.length;
        }
        lanes = count;
        before = new int[lanes];
        chunks = new long[lanes];
        size = new double[lanes];
        total = new long[lanes];
        done = new long[lanes];
        int[][] paths = new int[lanes][];
        double[] weights = new double[lanes];
        int lane = 0;
        double work = 0;
        for (Rail rail : rails) {
            int g = rail.paths.length;
            for (int i = 0; i < g; i++, lane++) {
                before[lane] = i == 0 ? lane + g - 1 : lane - 1;
                chunks[lane] = rail.chunks;
                size[lane] = rail.chunkBytes;
                total[lane] = steps * rail.chunks;
                work += total[lane];
                paths[lane] = rail.paths[i];
                weights[lane] = rail.gbps;
            }
        }
        if (work > MAX_TRANSFERS) {
            throw new IllegalArgumentException(
                    (long) work + " chunks on each machine: take larger ones or a smaller size");
        }
        network = new Network(capacityGBps, paths, weights);
        carried = new double[capacityGBps.length];
    }

    long transfers() {
        return Arrays.stream(done).sum();
    }

    /** Seconds until every lane has sent all its chunks. */
    double play() {
        double now = 0;
        boolean[] active = new boolean[lanes];
        double[] left = new double[lanes];
        double[] rate = new double[lanes];
        boolean changed = start(active, left);
        while (true) {
            if (changed) {
                rate = share(active);
            }
            double step = Double.POSITIVE_INFINITY;
            for (int lane = 0; lane < lanes; lane++) {
                if (active[lane]) {
                    step = Math.min(step, left[lane] / rate[lane]);
                }
            }
            if (Double.isInfinite(step)) {
                break;
            }
            now += step;
            for (int lane = 0; lane < lanes; lane++) {
                if (active[lane]) {
                    left[lane] -= step * rate[lane];
                    if (!(left[lane] > 1e-9 * size[lane])) {
                        done[lane]++;
                        left[lane] = 0;
                    }
                }
            }
            changed = start(active, left);
        }
        for (int lane = 0; lane < lanes; lane++) {
            for (int arc : network.arcs[lane]) {
                carried[arc] += done[lane] * size[lane];
            }
        }
        return now;
    }

    /** Starts what can be sent; whether the set of active lanes is another. */
    private boolean start(boolean[] active, double[] left) {
        boolean changed = false;
        for (int lane = 0; lane < lanes; lane++) {
            if (left[lane] > 0) {
                continue;
            }
            long next = done[lane];
            boolean can =
                    next < total[lane]
                            && (next < chunks[lane] || done[before[lane]] > next - chunks[lane]);
            if (can) {
                left[lane] = size[lane];
            }
            changed |= active[lane] != can;
            active[lane] = can;
        }
        return changed;
    }

    /** Rates of a set of active lanes: the same few sets come again and again. */
    private double[] share(boolean[] active) {
        long[] bits = new long[(lanes + 63) / 64];
        for (int lane = 0; lane < lanes; lane++) {
            bits[lane / 64] |= active[lane] ? 1L << (lane % 64) : 0;
        }
        if (rates.size() > 10_000) {
            rates.clear();
        }
        return rates.computeIfAbsent(
                new Key(bits),
                k -> {
                    network.share(active);
                    return network.rate.clone();
                });
    }
}
