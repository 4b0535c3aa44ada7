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
 * What a rank says when it is asked how far it is.
 *
 * @param text for reports
 * @param standing for the table of all ranks; null if it could not be read
 * @param collectives the last collectives that it has enqueued, by their order
 */
record NcclProgress(
        String text, @Nullable RankStatus standing, SortedMap<Long, String> collectives) {
    /** Characters of a standing: a store takes more. */
    private static final int ROOM = 4000;

    /** As one value of a store. */
    String write() {
        StringBuilder s = new StringBuilder(text).append('\n');
        s.append(standing == null ? "" : standing.write(ROOM));
        collectives.forEach((order, what) -> s.append('\n').append(order).append(' ').append(what));
        return s.toString();
    }

    /** What {@link #write} has written. */
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
     * The first collective that ranks called differently: who called what, or null if there is none
     * that any two still remember.
     *
     * @param all what each rank said; null where it said nothing
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
                                        : isPast(p, order) ? "is past it" : "has not come to it");
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
