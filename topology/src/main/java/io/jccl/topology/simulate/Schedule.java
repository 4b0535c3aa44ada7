package io.jccl.topology.simulate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * All transfers of a run: which chunk goes over which lane, after which others. A chunk is for all
 * ranks or for one, and is one rank's data or the reduction of all.
 *
 * <p>Not thread-safe.
 */
final class Schedule {
    /** Most transfers that a run keeps in memory. */
    static final int MAX_TRANSFERS = 40_000_000;

    /** One way in which a chunk of the plan's data is moved: hops over ranks. */
    sealed interface Part permits Ring, Tree, Exchange {
        double gbps();
    }

    /** Position i sends to position i+1 over path i. */
    record Ring(int[] ranks, int[][] paths, double gbps) implements Part {}

    /** Hop i leads from a parent to a child over one path, and back over the other. */
    record Tree(int root, int[] from, int[] to, int[][] down, int[][] up, double gbps)
            implements Part {}

    /** Hop i is one transfer. */
    record Exchange(int[] from, int[] to, int[][] paths, double gbps) implements Part {}

    final int ranks;

    final List<int[]> lanePaths = new ArrayList<>();
    final List<Double> laneWeights = new ArrayList<>();

    int units;
    int[] unitChannel = new int[64];
    int[] unitSource = new int[64];
    int[] unitDestination = new int[64];
    int[] unitChunk = new int[64];

    int transfers;
    int[] lane = new int[1024];
    int[] unit = new int[1024];
    int[] from = new int[1024];
    int[] to = new int[1024];
    boolean[] reduces = new boolean[1024];
    double[] bytes = new double[1024];
    int[] waitsFor = new int[1024];

    /** Linked list of the transfers that wait for one: head by transfer, then edge by edge. */
    int[] firstEdge = new int[1024];

    int edges;
    int[] edgeTo = new int[1024];
    int[] nextEdge = new int[1024];

    Schedule(int ranks) {
        this.ranks = ranks;
        Arrays.fill(firstEdge, -1);
    }

    int lane(int[] path, double weight) {
        lanePaths.add(path);
        laneWeights.add(weight > 0 ? weight : 1);
        return lanePaths.size() - 1;
    }

    int unit(int channel, int source, int destination, int chunk) {
        if (units == unitChannel.length) {
            unitChannel = Arrays.copyOf(unitChannel, 2 * units);
            unitSource = Arrays.copyOf(unitSource, 2 * units);
            unitDestination = Arrays.copyOf(unitDestination, 2 * units);
            unitChunk = Arrays.copyOf(unitChunk, 2 * units);
        }
        unitChannel[units] = channel;
        unitSource[units] = source;
        unitDestination[units] = destination;
        unitChunk[units] = chunk;
        return units++;
    }

    int transfer(int onLane, int ofUnit, int sender, int receiver, boolean reduce, double size) {
        if (transfers == lane.length) {
            if (transfers >= MAX_TRANSFERS) {
                throw new IllegalArgumentException(
                        "more than "
                                + MAX_TRANSFERS
                                + " transfers: take larger chunks or a smaller size");
            }
            int more = Math.min(2 * transfers, MAX_TRANSFERS);
            lane = Arrays.copyOf(lane, more);
            unit = Arrays.copyOf(unit, more);
            from = Arrays.copyOf(from, more);
            to = Arrays.copyOf(to, more);
            reduces = Arrays.copyOf(reduces, more);
            bytes = Arrays.copyOf(bytes, more);
            waitsFor = Arrays.copyOf(waitsFor, more);
            firstEdge = Arrays.copyOf(firstEdge, more);
            Arrays.fill(firstEdge, transfers, more, -1);
        }
        lane[transfers] = onLane;
        unit[transfers] = ofUnit;
        from[transfers] = sender;
        to[transfers] = receiver;
        reduces[transfers] = reduce;
        bytes[transfers] = size;
        return transfers++;
    }

    void after(int first, int then) {
        if (edges == edgeTo.length) {
            edgeTo = Arrays.copyOf(edgeTo, 2 * edges);
            nextEdge = Arrays.copyOf(nextEdge, 2 * edges);
        }
        edgeTo[edges] = then;
        nextEdge[edges] = firstEdge[first];
        firstEdge[first] = edges++;
        waitsFor[then]++;
    }

    /** Goes on from a transfer (-1: from nothing) round a ring, from a position, some hops. */
    private int round(
            Ring ring,
            int[] lanes,
            int last,
            int unit,
            int start,
            int hops,
            boolean reduce,
            double size) {
        int m = ring.ranks.length;
        int before = last;
        for (int h = 0; h < hops; h++) {
            int i = (start + h) % m;
            int now =
                    transfer(lanes[i], unit, ring.ranks[i], ring.ranks[(i + 1) % m], reduce, size);
            if (before >= 0) {
                after(before, now);
            }
            before = now;
        }
        return before;
    }

    /**
     * Moves a chunk round a ring.
     *
     * @param gather it goes from its position to all others
     * @param scatter it is reduced from all others to its position, before that
     */
    void ring(
            Ring ring,
            int[] lanes,
            int unit,
            int position,
            boolean scatter,
            boolean gather,
            double size) {
        int m = ring.ranks.length;
        int last = -1;
        if (scatter) {
            last = round(ring, lanes, last, unit, (position + 1) % m, m - 1, true, size);
        }
        if (gather) {
            round(ring, lanes, last, unit, position, m - 1, false, size);
        }
    }

    /** Moves a chunk up a tree, down, or both. */
    void tree(
            Tree tree,
            int[] upLanes,
            int[] downLanes,
            int unit,
            boolean up,
            boolean down,
            double size) {
        int hops = tree.from.length;
        int[] ups = new int[hops];
        int[] downs = new int[hops];
        for (int h = 0; h < hops; h++) {
            ups[h] = up ? transfer(upLanes[h], unit, tree.to[h], tree.from[h], true, size) : -1;
        }
        for (int h = 0; h < hops; h++) {
            downs[h] =
                    down ? transfer(downLanes[h], unit, tree.from[h], tree.to[h], false, size) : -1;
        }
        // Hops by the rank they start at, and by the rank they lead to, as linked lists.
        int[] firstFrom = new int[ranks];
        int[] nextFrom = new int[hops];
        int[] firstTo = new int[ranks];
        int[] nextTo = new int[hops];
        Arrays.fill(firstFrom, -1);
        Arrays.fill(firstTo, -1);
        for (int h = hops - 1; h >= 0; h--) {
            nextFrom[h] = firstFrom[tree.from[h]];
            firstFrom[tree.from[h]] = h;
            nextTo[h] = firstTo[tree.to[h]];
            firstTo[tree.to[h]] = h;
        }
        for (int h = 0; h < hops; h++) {
            for (int g = firstTo[tree.from[h]]; g >= 0; g = nextTo[g]) {
                if (up) {
                    after(ups[h], ups[g]);
                }
                if (down) {
                    after(downs[g], downs[h]);
                }
            }
            if (firstTo[tree.from[h]] < 0 && up && down) {
                for (int g = firstFrom[tree.from[h]]; g >= 0; g = nextFrom[g]) {
                    after(ups[g], downs[h]);
                }
            }
        }
    }
}
