package io.jccl.cli.flight;

import io.jccl.cli.flight.Findings.Call;
import io.jccl.cli.flight.Findings.Divergence;
import io.jccl.cli.flight.Findings.Lateness;
import io.jccl.cli.flight.Findings.Link;
import io.jccl.cli.flight.Findings.RankFindings;
import io.jccl.internal.Statistics;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Finds errors in the recordings of one communicator. */
final class Analysis {
    private static final int LINKS = 10;

    private final World world;
    private final List<Track> tracks;
    private final Clocks clocks;
    private final List<String> notes = new ArrayList<>();

    private final long[][] lateness;
    private final int[] late;
    private final int[] timesLast;
    private @Nullable Divergence divergence;

    private Analysis(World world, boolean align) {
        this.world = world;
        this.tracks = List.copyOf(world.tracks.values());
        this.clocks = align ? Clocks.of(world) : Clocks.none();
        this.lateness = new long[tracks.size()][];
        this.late = new int[tracks.size()];
        this.timesLast = new int[tracks.size()];
        int common = tracks.stream().mapToInt(t -> t.size).min().orElse(0);
        for (int k = 0; k < tracks.size(); k++) {
            lateness[k] = new long[common];
        }
    }

    /**
     * Runs the analysis.
     *
     * @param align whether to align clocks by the ends of collectives
     */
    static Findings of(World world, boolean align) {
        Analysis a = new Analysis(world, align);
        a.walk();
        return a.findings();
    }

    static Clocks clocks(World world, boolean align) {
        return align ? Clocks.of(world) : Clocks.none();
    }

    /** All ranks' collectives side by side, by their sequence. */
    private void walk() {
        int n = tracks.size();
        int[] at = new int[n];
        long from = tracks.stream().mapToLong(Track::firstSequence).max().orElse(0);
        long last = 0;
        for (Track t : tracks) {
            int i = t.lastCollective();
            last = Math.max(last, i < 0 ? 0 : t.sequence[i]);
        }
        boolean began = tracks.stream().allMatch(t -> t.firstSequence() <= 1);
        if (!began) {
            notes.add(
                    "recordings begin at #"
                            + from
                            + ": what ranks called before is not compared, since not all recorded"
                            + " it");
        }
        long gaps = 0;
        for (long s = Math.max(1, from); s <= last; s++) {
            boolean all = true;
            boolean missing = false;
            long next = last;
            for (int k = 0; k < n; k++) {
                Track t = tracks.get(k);
                while (at[k] < t.size && t.sequence[at[k]] < s) {
                    at[k]++;
                }
                boolean here = at[k] < t.size && t.sequence[at[k]] == s;
                all &= here;
                // A later operation shows that this one was called but not recorded.
                missing |= at[k] == t.size;
                next = at[k] < t.size ? Math.min(next, t.sequence[at[k]]) : next;
            }
            if (all) {
                if (divergence == null && differ(at)) {
                    divergence = divergence(s, at, "different");
                }
                if (divergence == null) {
                    measure(at);
                }
            } else if (missing && divergence == null) {
                divergence = divergence(s, at, "missing");
            } else if (!missing) {
                // Skips those that no recording has: a damaged file may contain any number.
                long lost = Math.max(1, next - s);
                gaps += lost;
                s += lost - 1;
            }
            if (divergence != null && missing) {
                break;
            }
        }
        if (gaps > 0) {
            notes.add(
                    gaps
                            + " collectives are missing in some recordings that have later ones:"
                            + " the flight recorder lost events");
        }
    }

    private boolean differ(int[] at) {
        Track a = tracks.getFirst();
        for (int k = 1; k < at.length; k++) {
            Track b = tracks.get(k);
            if (a.signature[at[0]] != b.signature[at[k]]
                    || (a.count[at[0]] != b.count[at[k]] && !world.signature(a, at[0]).vector())) {
                return true;
            }
        }
        return false;
    }

    private Divergence divergence(long sequence, int[] at, String kind) {
        List<Call> calls = new ArrayList<>();
        Map<String, Integer> votes = new HashMap<>();
        for (int k = 0; k < at.length; k++) {
            Track t = tracks.get(k);
            boolean here = at[k] < t.size && t.sequence[at[k]] == sequence;
            String call = here ? world.describe(t, at[k]) : null;
            int l = t.lastCollective();
            String last =
                    here || l < 0 || t.sequence[l] > sequence
                            ? null
                            : "#" + t.sequence[l] + " " + world.describe(t, l);
            calls.add(new Call(t.rank, call, last));
            votes.merge(call == null ? "" : call, 1, Integer::sum);
        }
        String most =
                votes.entrySet().stream()
                        .filter(e -> !e.getKey().isEmpty())
                        .max(Map.Entry.comparingByValue())
                        .map(Map.Entry::getKey)
                        .orElse("");
        boolean clear = votes.values().stream().filter(v -> v.equals(votes.get(most))).count() == 1;
        List<Integer> behind = new ArrayList<>();
        for (Call c : calls) {
            if (kind.equals("missing")
                    ? c.call() == null
                    : clear && !Objects.equals(c.call(), most)) {
                behind.add(c.rank());
            }
        }
        return new Divergence(sequence, kind, calls, behind);
    }

    private void measure(int[] at) {
        if (!world.signature(tracks.getFirst(), at[0]).synchronising()) {
            return;
        }
        long first = Long.MAX_VALUE;
        long lastAt = Long.MIN_VALUE;
        int last = 0;
        for (int k = 0; k < at.length; k++) {
            Track t = tracks.get(k);
            long start = clocks.aligned(t.rank, t.start[at[k]]);
            lateness[k][late[k]] = start;
            first = Math.min(first, start);
            if (start > lastAt) {
                lastAt = start;
                last = k;
            }
        }
        timesLast[last]++;
        for (int k = 0; k < at.length; k++) {
            lateness[k][late[k]++] -= first;
        }
    }

    private @Nullable Lateness lateness(int k) {
        int n = late[k];
        if (n == 0 || tracks.size() < 2) {
            return null;
        }
        double[] sorted =
                Arrays.stream(lateness[k], 0, n).mapToDouble(Analysis::micros).sorted().toArray();
        return new Lateness(
                n,
                Statistics.percentile(sorted, 50),
                Statistics.percentile(sorted, 90),
                Statistics.percentile(sorted, 99),
                sorted[n - 1],
                (double) timesLast[k] / n);
    }

    private static double micros(long nanos) {
        return nanos / 1000.0;
    }

    // ---- links

    private List<Link> links() {
        Map<Long, Link> sums = new HashMap<>();
        long unmatched = 0;
        for (Track sender : tracks) {
            Map<Integer, int[]> sends = messages(sender, true);
            for (Map.Entry<Integer, int[]> e : sends.entrySet()) {
                Track receiver = world.tracks.get(e.getKey());
                int[] recvs = receiver == null ? null : messages(receiver, false).get(sender.rank);
                int[] sent = e.getValue();
                boolean paired = recvs != null && recvs.length == sent.length;
                unmatched += receiver != null && !paired ? 1 : 0;
                sum(
                        sums,
                        sender,
                        sent,
                        paired ? receiver : null,
                        paired ? recvs : null,
                        e.getKey());
            }
        }
        if (unmatched > 0) {
            notes.add(
                    unmatched
                            + " links have as many sends as receives in no recording: their times"
                            + " are the senders' alone");
        }
        return sums.values().stream()
                .sorted(Comparator.comparingDouble(Link::gbPerSecond))
                .limit(LINKS)
                .toList();
    }

    private Map<Integer, int[]> messages(Track t, boolean sends) {
        Map<Integer, int[]> found = new HashMap<>();
        Map<Integer, Integer> counts = new HashMap<>();
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < t.size; i++) {
                Signature s = world.signature(t, i);
                if (sends ? !s.sends() : !s.receives()) {
                    continue;
                }
                int at = counts.merge(s.root(), 1, Integer::sum) - 1;
                int[] indices = found.get(s.root());
                if (indices != null) {
                    indices[at] = i;
                }
            }
            if (pass == 0) {
                counts.forEach((peer, n) -> found.put(peer, new int[n]));
                counts.clear();
            }
        }
        return found;
    }

    /** The shorter of both sides' times: the side that comes first also waits for the other. */
    private void sum(
            Map<Long, Link> sums,
            Track sender,
            int[] sent,
            @Nullable Track receiver,
            int @Nullable [] received,
            int to) {
        long bytes = 0;
        long nanos = 0;
        long messages = 0;
        for (int k = 0; k < sent.length; k++) {
            long time = duration(sender, sent[k]);
            if (receiver != null && received != null) {
                long other = duration(receiver, received[k]);
                time = time < 0 || (other >= 0 && other < time) ? other : time;
            }
            if (time >= 0) {
                messages++;
                bytes += sender.bytes[sent[k]];
                nanos += time;
            }
        }
        if (messages > 0 && bytes > 0) {
            sums.put(
                    (long) sender.rank << 32 | to,
                    new Link(
                            sender.rank,
                            to,
                            messages,
                            bytes,
                            micros(nanos),
                            (double) bytes / Math.max(1, nanos)));
        }
    }

    private static long duration(Track t, int i) {
        return t.end[i] == Track.UNKNOWN || t.state[i] != Track.COMPLETED
                ? -1
                : t.end[i] - t.start[i];
    }

    // ---- all of it

    private Findings findings() {
        List<Integer> missing = new ArrayList<>();
        for (int r = 0; r < world.ranks; r++) {
            if (!world.tracks.containsKey(r)) {
                missing.add(r);
            }
        }
        List<RankFindings> ranks = new ArrayList<>();
        for (int k = 0; k < tracks.size(); k++) {
            Track t = tracks.get(k);
            int last = t.lastCollective();
            int open = t.unfinished();
            ranks.add(
                    new RankFindings(
                            t.rank,
                            t.process,
                            t.size,
                            t.forgotten,
                            t.size == 0 ? 0 : micros(clocks.offset(t.rank, t.start[0])),
                            last < 0
                                    ? null
                                    : "#" + t.sequence[last] + " " + world.describe(t, last),
                            open < 0
                                    ? null
                                    : (t.sequence[open] > 0 ? "#" + t.sequence[open] + " " : "")
                                            + world.describe(t, open)
                                            + (t.state[open] == Track.FAILED
                                                    ? ", failed"
                                                    : ", pending"),
                            t.site.isEmpty() ? null : t.site,
                            lateness(k)));
        }
        List<Link> links = links();
        if (tracks.stream().anyMatch(t -> t.size > 0 && t.end[0] == Track.UNKNOWN)) {
            notes.add(
                    "ends of operations are not recorded (histories, and engines whose operations"
                            + " end outside the JVM): clocks are not adjusted, links have no"
                            + " times");
        }
        return new Findings(
                world.id,
                world.engine,
                world.ranks,
                world.operations(),
                missing,
                !clocks.isEmpty(),
                divergence,
                ranks,
                links,
                List.copyOf(notes));
    }
}
