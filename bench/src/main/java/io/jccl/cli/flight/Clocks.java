package io.jccl.cli.flight;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Aligns the clocks of ranks. A synchronizing collective ends on all ranks at about the same time,
 * so the median difference of those ends estimates the clocks' offset. It is computed in up to
 * {@value #WINDOWS} windows and interpolated linearly between their centres, since clocks drift.
 * The remaining error is about the time that such a collective takes to end on all ranks.
 */
final class Clocks {
    private static final int WINDOWS = 32;

    /** Minimum number of collectives per window. */
    private static final int FEWEST = 16;

    /** Centres of the windows by the rank's own clock, and the offset there. */
    private record Line(long[] at, long[] add) {}

    private final Map<Integer, Line> lines = new HashMap<>();

    private Clocks() {}

    static Clocks none() {
        return new Clocks();
    }

    static Clocks of(World world) {
        Clocks clocks = new Clocks();
        List<Track> tracks = List.copyOf(world.tracks.values());
        for (int i = 1; i < tracks.size(); i++) {
            Line line = line(world, tracks.getFirst(), tracks.get(i));
            if (line != null) {
                clocks.lines.put(tracks.get(i).rank, line);
            }
        }
        return clocks;
    }

    boolean isEmpty() {
        return lines.isEmpty();
    }

    /** Converts a time of a rank's clock to the first rank's clock. */
    long aligned(int rank, long time) {
        return time + offset(rank, time);
    }

    long offset(int rank, long time) {
        Line line = lines.get(rank);
        if (line == null) {
            return 0;
        }
        int i = Arrays.binarySearch(line.at, time);
        int right = i >= 0 ? i : -i - 1;
        if (right == 0) {
            return line.add[0];
        }
        if (right == line.at.length) {
            return line.add[right - 1];
        }
        double part = (double) (time - line.at[right - 1]) / (line.at[right] - line.at[right - 1]);
        return line.add[right - 1] + Math.round(part * (line.add[right] - line.add[right - 1]));
    }

    private static @Nullable Line line(World w, Track a, Track b) {
        int most = Math.min(a.size, b.size);
        long[] at = new long[most];
        long[] add = new long[most];
        int n = 0;
        int i = 0;
        int j = 0;
        while (i < a.size && j < b.size) {
            if (a.sequence[i] == 0 || a.sequence[i] < b.sequence[j]) {
                i++;
            } else if (b.sequence[j] == 0 || b.sequence[j] < a.sequence[i]) {
                j++;
            } else {
                if (a.end[i] != Track.UNKNOWN
                        && b.end[j] != Track.UNKNOWN
                        && a.state[i] == Track.COMPLETED
                        && b.state[j] == Track.COMPLETED
                        && w.signature(a, i).synchronising()) {
                    at[n] = b.end[j];
                    add[n++] = a.end[i] - b.end[j];
                }
                i++;
                j++;
            }
        }
        if (n == 0) {
            return null;
        }
        int windows = Math.clamp(n / FEWEST, 1, WINDOWS);
        long[] middle = new long[windows];
        long[] median = new long[windows];
        for (int k = 0; k < windows; k++) {
            int from = (int) ((long) n * k / windows);
            int to = (int) ((long) n * (k + 1) / windows);
            long[] part = Arrays.copyOfRange(add, from, to);
            Arrays.sort(part);
            median[k] = part[part.length / 2];
            middle[k] = at[(from + to) / 2];
        }
        // Ends are in the order of the collectives, but equal ones would cause a division by zero.
        for (int k = 1; k < windows; k++) {
            middle[k] = Math.max(middle[k], middle[k - 1] + 1);
        }
        return new Line(middle, median);
    }
}
