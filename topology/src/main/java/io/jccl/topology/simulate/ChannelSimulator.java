package io.jccl.topology.simulate;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.PriorityQueue;

/**
 * Simulates a schedule from event to event, each the end of some transfers. Tracks for every rank
 * and chunk which contributions are in it, and whether any is in it more than once.
 *
 * <p>Not thread-safe.
 */
final class ChannelSimulator {
    /** Longs of state that a run may keep: 1 GiB. */
    private static final long MAX_STATE = 1L << 27;

    private final Schedule s;
    private final Network network;
    private final double alpha;
    private final int words;
    private final long[] once;
    private final long[] twice;
    private final double[] carried;
    private final int lanes;
    private final int[] current;
    private final double[] remaining;
    private final List<ArrayDeque<Integer>> queues = new ArrayList<>();
    private final long[] inFlight;
    private int done;

    /** Seconds. */
    double now;

    ChannelSimulator(Schedule s, double[] capacityGBps, double alphaUs) {
        this.s = s;
        alpha = alphaUs * 1e-6;
        lanes = s.lanePaths.size();
        double[] weights = new double[lanes];
        for (int i = 0; i < lanes; i++) {
            weights[i] = s.laneWeights.get(i);
            queues.add(new ArrayDeque<>());
        }
        network = new Network(capacityGBps, s.lanePaths.toArray(new int[0][]), weights);
        words = (s.ranks + 63) / 64;
        long state = 2L * s.ranks * s.units * words;
        if (state > MAX_STATE) {
            throw new IllegalArgumentException(
                    "%s chunks on %s ranks need %s MiB: take larger chunks or a smaller size"
                            .formatted(s.units, s.ranks, state >> 17));
        }
        once = new long[(int) (state / 2)];
        twice = new long[(int) (state / 2)];
        carried = new double[capacityGBps.length];
        current = new int[lanes];
        Arrays.fill(current, -1);
        remaining = new double[lanes];
        inFlight = new long[2 * lanes * words];
        for (int u = 0; u < s.units; u++) {
            for (int r = 0; r < s.ranks; r++) {
                if (s.unitSource[u] < 0 || s.unitSource[u] == r) {
                    once[at(r, u) + r / 64] |= 1L << (r % 64);
                }
            }
        }
    }

    private int at(int rank, int unit) {
        return (unit * s.ranks + rank) * words;
    }

    private record Release(double time, int transfer) {}

    Network.Outcome play(List<String> arcNames) {
        int[] waits = Arrays.copyOf(s.waitsFor, s.transfers);
        PriorityQueue<Release> later =
                new PriorityQueue<>((x, y) -> Double.compare(x.time, y.time));
        boolean[] active = new boolean[lanes];
        for (int i = 0; i < s.transfers; i++) {
            if (waits[i] == 0) {
                queues.get(s.lane[i]).add(i);
            }
        }
        boolean changed = false;
        for (int lane = 0; lane < lanes; lane++) {
            changed |= start(lane, active);
        }
        int[] ended = new int[lanes];
        while (true) {
            if (changed) {
                network.share(active);
            }
            double step = Double.POSITIVE_INFINITY;
            for (int lane = 0; lane < lanes; lane++) {
                if (active[lane]) {
                    step = Math.min(step, remaining[lane] / network.rate[lane]);
                }
            }
            if (!later.isEmpty()) {
                step = Math.min(step, Math.max(0, later.peek().time - now));
            }
            if (Double.isInfinite(step)) {
                break;
            }
            now += step;
            int ends = 0;
            for (int lane = 0; lane < lanes; lane++) {
                if (active[lane]) {
                    remaining[lane] -= step * network.rate[lane];
                    // Rounding: the remainder is negligible against the chunk's size.
                    if (!(remaining[lane] > 1e-9 * s.bytes[current[lane]])) {
                        ended[ends++] = lane;
                    }
                }
            }
            for (int i = 0; i < ends; i++) {
                int transfer = current[ended[i]];
                arrive(transfer, ended[i]);
                current[ended[i]] = -1;
                for (int e = s.firstEdge[transfer]; e >= 0; e = s.nextEdge[e]) {
                    int next = s.edgeTo[e];
                    if (--waits[next] == 0) {
                        if (alpha > 0) {
                            later.add(new Release(now + alpha, next));
                        } else {
                            queues.get(s.lane[next]).add(next);
                        }
                    }
                }
            }
            while (!later.isEmpty() && later.peek().time <= now) {
                int next = later.remove().transfer;
                queues.get(s.lane[next]).add(next);
            }
            changed = false;
            for (int lane = 0; lane < lanes; lane++) {
                if (current[lane] < 0) {
                    changed |= start(lane, active);
                }
            }
        }
        return outcome(arcNames);
    }

    /** Starts what waits at a lane; true if the lane was idle and is active now, or the reverse. */
    private boolean start(int lane, boolean[] active) {
        Integer next = queues.get(lane).poll();
        boolean was = active[lane];
        active[lane] = next != null;
        if (next != null) {
            current[lane] = next;
            remaining[lane] = s.bytes[next];
            int from = at(s.from[next], s.unit[next]);
            System.arraycopy(once, from, inFlight, 2 * lane * words, words);
            System.arraycopy(twice, from, inFlight, (2 * lane + 1) * words, words);
        }
        return was != active[lane];
    }

    private void arrive(int transfer, int lane) {
        done++;
        int to = at(s.to[transfer], s.unit[transfer]);
        for (int w = 0; w < words; w++) {
            long a = inFlight[2 * lane * words + w];
            long b = inFlight[(2 * lane + 1) * words + w];
            if (s.reduces[transfer]) {
                twice[to + w] |= b | (once[to + w] & a);
                once[to + w] |= a;
            } else {
                once[to + w] = a;
                twice[to + w] = b;
            }
        }
        for (int arc : s.lanePaths.get(lane)) {
            carried[arc] += s.bytes[transfer];
        }
    }

    private Network.Outcome outcome(List<String> arcNames) {
        List<Fault> faults = new ArrayList<>();
        long count = 0;
        for (int u = 0; u < s.units; u++) {
            for (int r = 0; r < s.ranks; r++) {
                if (s.unitDestination[u] >= 0 && s.unitDestination[u] != r) {
                    continue;
                }
                boolean wrong = false;
                for (int w = 0; w < words && !wrong; w++) {
                    wrong = twice[at(r, u) + w] != 0 || once[at(r, u) + w] != expected(u, w);
                }
                if (wrong) {
                    count++;
                    if (faults.size() < Simulator.MAX_FAULTS) {
                        faults.add(fault(r, u));
                    }
                }
            }
        }
        return new Network.Outcome(
                done, faults, count, s.transfers - done, uses(carried, network, now, arcNames));
    }

    static List<ArcUse> uses(
            double[] carried, Network network, double seconds, List<String> arcNames) {
        List<ArcUse> arcs = new ArrayList<>();
        for (int a = 0; a < carried.length; a++) {
            if (carried[a] > 0) {
                arcs.add(
                        new ArcUse(
                                a,
                                arcNames.get(a),
                                carried[a],
                                carried[a] / (network.capacity[a] * seconds)));
            }
        }
        arcs.sort((x, y) -> Double.compare(y.use(), x.use()));
        return arcs;
    }

    private long expected(int unit, int word) {
        int source = s.unitSource[unit];
        if (source >= 0) {
            return source / 64 == word ? 1L << (source % 64) : 0;
        }
        int bits = Math.min(64, s.ranks - 64 * word);
        return bits == 64 ? -1L : (1L << bits) - 1;
    }

    private Fault fault(int rank, int unit) {
        List<Integer> missing = new ArrayList<>();
        List<Integer> doubled = new ArrayList<>();
        List<Integer> foreign = new ArrayList<>();
        for (int c = 0; c < s.ranks; c++) {
            long bit = 1L << (c % 64);
            boolean has = (once[at(rank, unit) + c / 64] & bit) != 0;
            boolean should = (expected(unit, c / 64) & bit) != 0;
            if (should && !has) {
                missing.add(c);
            }
            if (has && !should) {
                foreign.add(c);
            }
            if ((twice[at(rank, unit) + c / 64] & bit) != 0) {
                doubled.add(c);
            }
        }
        return new Fault(
                rank,
                s.unitChannel[unit],
                s.unitSource[unit],
                s.unitDestination[unit],
                s.unitChunk[unit],
                missing,
                doubled,
                foreign);
    }
}
