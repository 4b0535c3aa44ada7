package io.jccl.engine.nccl;

import io.jccl.flight.RankStatus;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A rank's answer to a request for its progress.
 *
 * @param text for reports
 * @param standing its row in the table of all ranks; null if it could not be read
 * @param collectives the latest collectives that it has enqueued, by their order
 */
record NcclProgress(
        String text, @Nullable RankStatus standing, SortedMap<Long, String> collectives) {
    /** Maximum length of a row; a store accepts more. */
    private static final int ROOM = 4000;

    /** As one value of a store. */
    String write() {
        StringBuilder s = new StringBuilder(text).append('\n');
        s.append(standing == null ? "" : standing.write(ROOM));
        collectives.forEach((order, what) -> s.append('\n').append(order).append(' ').append(what));
        return s.toString();
    }

    /** Parses the result of {@link #write}. */
    static NcclProgress read(String written) {
        String[] lines = written.split("\n", -1);
        SortedMap<Long, String> collectives = new TreeMap<>();
        for (int i = 2; i < lines.length; i++) {
            int blank = lines[i].indexOf(' ');
            collectives.put(Long.parseLong(lines[i], 0, blank, 10), lines[i].substring(blank + 1));
        }
        return new NcclProgress(lines[0], RankStatus.read(lines[1]), collectives);
    }

    /**
     * Describes the first collective in which the ranks' calls differ; null if no two ranks still
     * have differing records.
     *
     * @param all each rank's answer; null if it has not answered
     */
    static @Nullable String disagreement(List<@Nullable NcclProgress> all) {
        Set<Long> orders = new TreeSet<>();
        for (NcclProgress p : all) {
            if (p != null) {
                orders.addAll(p.collectives.keySet());
            }
        }
        for (long order : orders) {
            Set<String> different = new HashSet<>();
            StringBuilder s = new StringBuilder("collective #").append(order).append(':');
            for (int r = 0; r < all.size(); r++) {
                NcclProgress p = all.get(r);
                String what = p == null ? null : p.collectives.get(order);
                if (what != null) {
                    different.add(what);
                }
                s.append(r == 0 ? " " : "; ").append("rank ").append(r).append(' ');
                s.append(
                        what != null
                                ? "calls " + what
                                : p == null
                                        ? "gives no answer"
                                        : isPast(p, order) ? "is past it" : "has not reached it");
            }
            if (different.size() > 1) {
                return s.toString();
            }
        }
        return null;
    }

    private static boolean isPast(NcclProgress p, long order) {
        return !p.collectives.isEmpty() && p.collectives.lastKey() > order;
    }
}
