package io.jccl.flight;

import io.jccl.FlightHistory.Operation;
import io.jccl.internal.HostName;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The progress of a rank, which it reports when another rank's timeout is about to expire.
 *
 * @param rank the rank
 * @param process its machine and process
 * @param called number of the last collective that it has called; 0 if none
 * @param completed its last completed operation; empty if none
 * @param pending the first that has not completed; empty if none
 * @param waited milliseconds since the pending operation was called
 * @param site position of its thread; empty if unknown
 */
public record RankStatus(
        int rank,
        String process,
        long called,
        String completed,
        String pending,
        long waited,
        String site) {
    private static final String SEPARATOR = "\t";
    private static final String GROUPED = " in a group";

    /** A send outside a group. */
    private static final Pattern LONE_SEND = Pattern.compile("send\\(.*peer (\\d+)\\)");

    /** On an overloaded machine, or during a collection of garbage, a second is too short. */
    private static final long LONGEST_ANSWER_NANOS = TimeUnit.SECONDS.toNanos(5);

    private static final long SHORTEST_ANSWER_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /**
     * The last part of a timeout, in which a rank requests the status of the others, so that the
     * request does not prolong the timeout: a tenth of it, at most five seconds, and at least half
     * a second unless that is more than half of the timeout.
     */
    public static long answerNanos(long timeoutNanos) {
        long tenth = Math.min(LONGEST_ANSWER_NANOS, timeoutNanos / 10);
        return Math.max(tenth, Math.min(SHORTEST_ANSWER_NANOS, timeoutNanos / 2));
    }

    public static RankStatus of(int rank, FlightRecorder ring) {
        // In this order: an operation that completes in between is still reported as pending.
        long done = ring.completed();
        Operation next = ring.at(done + 1);
        Operation before = ring.at(done);
        long now = StatusPoller.epochNanos(System.nanoTime());
        String called = next == null ? null : next.site();
        return new RankStatus(
                rank,
                HostName.OWN + ":" + ProcessHandle.current().pid(),
                ring.lastOrder(),
                text(before),
                next == null && ring.last() > done
                        ? "operation " + (done + 1) + " of " + ring.last()
                        : text(next),
                next == null ? 0 : Math.max(0, now - next.enqueuedNanos()) / 1_000_000,
                called == null ? ring.site() : called);
    }

    private static String text(@Nullable Operation o) {
        return o == null
                ? ""
                : (o.sequence() > 0 ? "#" + o.sequence() + " " : "")
                        + o.describe()
                        + (o.grouped() ? GROUPED : "");
    }

    /** One line of text for a store, with a limited number of characters. */
    public String write(int room) {
        String line =
                String.join(
                        SEPARATOR,
                        Integer.toString(rank),
                        plain(process),
                        Long.toString(called),
                        plain(completed),
                        plain(pending),
                        Long.toString(waited),
                        plain(site));
        return line.length() <= room ? line : line.substring(0, room);
    }

    private static String plain(String s) {
        return s.replaceAll("\\s", " ");
    }

    /** Parses the line of {@link #write}; null if it is not one. */
    public static @Nullable RankStatus read(String line) {
        String[] f = line.split(SEPARATOR, -1);
        if (f.length != 7) {
            return null;
        }
        try {
            return new RankStatus(
                    Integer.parseInt(f[0]),
                    f[1],
                    Long.parseLong(f[2]),
                    f[3],
                    f[4],
                    Long.parseLong(f[5]),
                    f[6]);
        } catch (NumberFormatException e) {
            return null;
        }
    }

    /** The lowest rank that has answered; -1 if none has. */
    public static int lowest(List<@Nullable RankStatus> all) {
        for (int r = 0; r < all.size(); r++) {
            if (all.get(r) != null) {
                return r;
            }
        }
        return -1;
    }

    /** A table of all ranks, without further information about those that gave no answer. */
    public static String table(List<@Nullable RankStatus> all) {
        List<String> nothing = Collections.nCopies(all.size(), "");
        return table(all, nothing, nothing);
    }

    /**
     * A table of all ranks, preceded by a line that names those that are behind.
     *
     * @param all status of each rank; null if it gave no answer
     * @param names name of each rank, used if there is no answer
     * @param known further information about a rank without answer; may be empty
     */
    public static String table(
            List<@Nullable RankStatus> all, List<String> names, List<String> known) {
        List<String[]> rows = new ArrayList<>();
        rows.add(
                new String[] {
                    "rank", "process", "last completed", "pending", "for", "its thread is at"
                });
        for (int r = 0; r < all.size(); r++) {
            RankStatus s = all.get(r);
            rows.add(
                    s == null
                            ? new String[] {
                                Integer.toString(r), names.get(r), known.get(r), "no answer", "", ""
                            }
                            : new String[] {
                                Integer.toString(r),
                                s.process,
                                s.completed.isEmpty() ? "nothing" : s.completed,
                                s.pending.isEmpty() ? "nothing" : s.pending,
                                s.pending.isEmpty() ? "" : seconds(s.waited),
                                s.site
                            });
        }
        int[] width = new int[rows.getFirst().length];
        for (String[] row : rows) {
            for (int i = 0; i < row.length; i++) {
                width[i] = Math.max(width[i], row[i].length());
            }
        }
        StringBuilder b = new StringBuilder(behind(all));
        for (String[] row : rows) {
            b.append('\n');
            StringBuilder line = new StringBuilder(" ");
            for (int i = 0; i < row.length; i++) {
                line.append(' ').append(row[i]).repeat(' ', width[i] - row[i].length() + 1);
            }
            b.append(line.toString().stripTrailing());
        }
        return b.toString();
    }

    private static String seconds(long millis) {
        return millis < 10_000
                ? millis / 1000 + "." + millis % 1000 / 100 + " s"
                : millis / 1000 + " s";
    }

    /** The peer of the send outside a group in which a rank is waiting; -1 if none. */
    private static int sendsTo(@Nullable RankStatus s) {
        Matcher m = LONE_SEND.matcher(s == null ? "" : s.pending);
        return m.matches() ? Integer.parseInt(m.group(1)) : -1;
    }

    /** Describes the ranks that keep the others waiting, as far as known. */
    private static String behind(List<@Nullable RankStatus> all) {
        List<String> silent = new ArrayList<>();
        List<String> late = new ArrayList<>();
        long most = 0;
        for (RankStatus s : all) {
            most = s == null ? most : Math.max(most, s.called);
        }
        for (int r = 0; r < all.size(); r++) {
            RankStatus s = all.get(r);
            if (s == null) {
                silent.add("rank " + r);
            } else if (s.called < most) {
                late.add(
                        "rank %s (%s) has called %s, others #%s%s"
                                .formatted(
                                        r,
                                        s.process,
                                        s.called == 0 ? "no collective" : "#" + s.called,
                                        most,
                                        s.site.isEmpty() ? "" : ", and is at " + s.site));
            }
        }
        List<String> parts = new ArrayList<>();
        if (!silent.isEmpty()) {
            parts.add(
                    String.join(", ", silent)
                            + (silent.size() == 1 ? " gives" : " give")
                            + " no answer: the process or its machine is stopped or lost");
        }
        if (!late.isEmpty()) {
            parts.add("behind: " + String.join("; ", late));
        }
        List<String> sending = new ArrayList<>();
        for (int r = 0; r < all.size(); r++) {
            int peer = sendsTo(all.get(r));
            if (peer >= 0 && peer < all.size() && sendsTo(all.get(peer)) >= 0) {
                sending.add("rank " + r + " sends to rank " + peer);
            }
        }
        if (!sending.isEmpty()) {
            parts.add(
                    ("send waits for send: %s, and a large send ends only when its peer receives;"
                                    + " put the sends and recvs of a rank into one Group")
                            .formatted(String.join(", ", sending)));
        }
        if (parts.isEmpty()) {
            parts.add("every rank has called " + (most == 0 ? "no collective" : "#" + most));
        }
        return String.join("; ", parts);
    }
}
