package io.jccl.bootstrap;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bootstrap.RankInfo.Fact;
import io.jccl.error.JcclException;
import io.jccl.error.JcclTimeoutException;
import io.jccl.internal.Deadline;
import io.jccl.internal.Waits;
import io.jccl.rendezvous.Store;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The first phase of creating a communicator of processes, before any native library waits: checks
 * that all ranks are present, with the same size, versions and settings, and that each rank exists
 * once. The result is a single verdict; the first rank that knows it writes it to the store, and
 * all ranks read it, so one wrong rank fails all of them at once with the same message. Waiting
 * ranks write heartbeats, so a rank that ends in the meantime is noticed after 15 seconds.
 *
 * <p><b>Threads:</b> any.
 */
public final class StoreHandshake {
    /** How often a waiting rank checks whether another has died. */
    private static final Duration LOOK = Duration.ofMillis(200);

    /**
     * How long to wait for further ranks once a difference is known, so that the message names all.
     */
    private static final Duration REST = Duration.ofSeconds(2);

    /** Interval of heartbeats, and how long another rank's may be missing. */
    private static final Duration SIGNS = Duration.ofSeconds(2);

    private static final Duration SILENCE = Duration.ofSeconds(15);

    private static final int MOST_RANKS = 1 << 20;

    /** Most missing ranks looked for in a row: a size may be absurdly large by mistake. */
    private static final int MOST_LOOKS = 256;

    private final Store store;
    private final String name;
    private final int rank;
    private final int size;

    // Of the next present rank after this one.
    private long signs;
    private long nextSign = System.nanoTime();
    private int watched = -1;
    private @Nullable String lastSign;
    private long lastHeard;

    private boolean member;

    /**
     * The handshake of one communicator.
     *
     * @param store the same for all ranks
     * @param name names the communicator; once per store
     * @param rank this rank
     * @param size number of ranks
     */
    public StoreHandshake(Store store, String name, int rank, int size) {
        this.store = store;
        this.name = name;
        this.rank = rank;
        this.size = size;
    }

    /**
     * Outcome of a handshake; the letter precedes the message in the store, for {@link #ALL_HERE}
     * the number of ranks.
     */
    private enum Verdict {
        ALL_HERE('+'),
        MISSING('?'),
        DIFFERENT('!'),
        FAILED('x');

        private final char letter;

        Verdict(char letter) {
            this.letter = letter;
        }
    }

    /**
     * Publishes this rank's information and waits until all ranks are present and known to be
     * compatible, or not.
     *
     * @param facts facts that must be equal; the version of JCCL and the world size are added
     * @param timeout how long to wait for the others
     * @throws CollectiveTimeoutException on all ranks, if some did not come within the timeout of
     *     one; the message names them, and tells one that comes after that so
     * @throws JcclException on all ranks, if some differ or two claim the same rank; on this one
     *     alone, if the others were complete without it; the message names them with their hosts
     *     and process numbers
     * @throws RankFailedException on all ranks, if one failed in the meantime
     */
    public void answer(List<Fact> facts, Duration timeout) {
        answer(facts, timeout, null);
    }

    /**
     * The same, if a rank's death can be detected by other means than the store.
     *
     * @param facts facts that must be equal
     * @param timeout how long to wait for the others
     * @param broken returns why not all ranks can come any more, or null; called five times a
     *     second
     */
    public void answer(
            List<Fact> facts, Duration timeout, @Nullable Supplier<@Nullable String> broken) {
        long deadline = System.nanoTime() + Deadline.nanos(timeout);
        String mine = RankInfo.own(rank, size, facts).write();
        boolean late = read("verdict") != null;
        if (!store.compareAndSet(key("card-" + rank), null, bytes(mine))) {
            throw claimedTwice(mine);
        }
        member = true;
        // Counted before it can be the first, so that a rank that reads the first knows that.
        long here = store.add(key("here"), 1);
        boolean first = store.compareAndSet(key("first"), null, bytes(rank + "\n" + mine));
        String other = first ? null : read("first");
        if (here >= size
                || (other != null && differs(mine, other.substring(other.indexOf('\n') + 1)))) {
            judge(deadline);
        }
        String said = await(deadline, timeout, broken);
        throwUnlessAllHere(said, late);
        if (!said.equals(Verdict.ALL_HERE.letter + Integer.toString(size))) {
            member = false;
            throw new JcclException(
                    ("the ranks of communicator '%s' are complete without rank %s of %s: %s; if"
                                    + " those are of another run, give this one its own store")
                            .formatted(name, rank, size, differences(cards())));
        }
    }

    /**
     * Whether the others count on this rank: it came, and not to ranks that are complete without
     * it, which its failure does not concern.
     */
    public boolean isMember() {
        return member;
    }

    private static boolean differs(String mine, String other) {
        return !RankInfo.read(0, mine).fits(RankInfo.read(0, other));
    }

    private JcclException claimedTwice(String mine) {
        String before = String.valueOf(read("card-" + rank));
        String story =
                ("two processes claim rank %s of communicator '%s': %s and %s; give each process"
                                + " its own rank, or, if the first is from an earlier run, give"
                                + " this run its own store")
                        .formatted(
                                rank,
                                name,
                                RankInfo.read(rank, before).process(),
                                RankInfo.read(rank, mine).process());
        String said = verdict(Verdict.DIFFERENT, story);
        // What is not this story may be the end of an earlier run.
        boolean failed = said.charAt(0) != Verdict.ALL_HERE.letter && !said.endsWith(story);
        return new JcclException(
                failed ? story + " (there ranks were told: " + said.substring(1) + ")" : story);
    }

    /** Waits for ranks that are still starting: they may differ too. */
    private void awaitRest(long deadline) {
        long until = Math.min(System.nanoTime() + REST.toNanos(), deadline);
        while (System.nanoTime() < until
                && read("verdict") == null
                && store.add(key("here"), 0) < largest(cards())) {
            Waits.sleep(Duration.ofMillis(20));
        }
    }

    private static int largest(List<RankInfo> cards) {
        return cards.stream().mapToInt(RankInfo::size).max().orElse(0);
    }

    /** Information of all present ranks, including ranks beyond this rank's size. */
    private List<RankInfo> cards() {
        List<RankInfo> cards = new ArrayList<>();
        long here = store.add(key("here"), 0);
        int until = size;
        // Not all numbers below an absurdly large size.
        for (int r = 0; r < Math.min(until, MOST_RANKS) && cards.size() < here; r++) {
            String text = read("card-" + r);
            if (text != null) {
                RankInfo card = RankInfo.read(r, text);
                cards.add(card);
                until = Math.max(until, card.size());
            }
        }
        return cards;
    }

    /** Writes the verdict if ranks differ, or if none is missing. */
    private void judge(long deadline) {
        List<RankInfo> cards = cards();
        if (differences(cards) != null) {
            awaitRest(deadline);
            String wrong = Objects.requireNonNull(differences(cards()));
            String unused = verdict(Verdict.DIFFERENT, wrong);
        } else if (cards.size() == size) {
            String unused = verdict(Verdict.ALL_HERE, Integer.toString(size));
        }
    }

    private @Nullable String differences(List<RankInfo> cards) {
        return RankInfo.differences("communicator '" + name + "'", cards);
    }

    private String await(
            long deadline, Duration timeout, @Nullable Supplier<@Nullable String> broken) {
        while (true) {
            String silent = silent();
            if (silent != null) {
                return verdict(Verdict.FAILED, silent);
            }
            Duration left = Duration.ofNanos(Math.max(deadline - System.nanoTime(), 0));
            try {
                byte[] said = store.await(key("verdict"), left.compareTo(LOOK) < 0 ? left : LOOK);
                return new String(said, StandardCharsets.UTF_8);
            } catch (JcclTimeoutException e) {
                String b = broken == null ? null : broken.get();
                if (b != null) {
                    return verdict(Verdict.FAILED, b);
                }
                if (System.nanoTime() - deadline >= 0) {
                    return verdict(Verdict.MISSING, missing(timeout));
                }
            }
        }
    }

    /**
     * Writes a heartbeat now and then, and reads those of the next present rank: every rank is
     * watched by one other, and none reads all heartbeats.
     *
     * @return the rank whose heartbeats stopped; null if none is known
     */
    private @Nullable String silent() {
        long now = System.nanoTime();
        if (now - nextSign < 0) {
            return null;
        }
        // If this rank itself was stopped, the others may have been stopped too.
        boolean late = now - nextSign > SIGNS.toNanos();
        nextSign = now + SIGNS.toNanos();
        store.set(key("sign-" + rank), bytes(Long.toString(++signs)));
        String card = null;
        int next = rank;
        for (int i = 1; i < size && i <= MOST_LOOKS && card == null; i++) {
            next = (int) (((long) rank + i) % size);
            card = read("card-" + next);
        }
        String sign = card == null ? null : read("sign-" + next);
        if (card == null || late || next != watched || !Objects.equals(sign, lastSign)) {
            watched = next;
            lastSign = sign;
            lastHeard = now;
            return null;
        }
        return now - lastHeard < SILENCE.toNanos()
                ? null
                : "rank "
                        + next
                        + " ("
                        + RankInfo.read(next, card).process()
                        + ") came and then gave no sign of life for "
                        + SILENCE.toSeconds()
                        + " s: its process ended, is stopped, or has lost the store";
    }

    private String missing(Duration timeout) {
        List<RankInfo> cards = cards();
        String missing = missing(cards);
        if (missing.isEmpty()) {
            return "all ranks of communicator '"
                    + name
                    + "' came within "
                    + timeout
                    + ", but none could report it: the store is slow; raise the timeout";
        }
        String here =
                cards.stream()
                        .limit(2 * RankInfo.MANY)
                        .map(c -> "rank " + c.rank() + " (" + c.process() + ")")
                        .collect(Collectors.joining(", "));
        return "rank(s) "
                + missing
                + " of "
                + size
                + " did not come to communicator '"
                + name
                + "' within "
                + timeout
                + ": look at their output, or raise the timeout; here are "
                + here
                + (cards.size() > 2 * RankInfo.MANY
                        ? " and " + (cards.size() - 2 * RankInfo.MANY) + " more"
                        : "");
    }

    /** The numbers between those of cards in order, such as {@code 0, 3-7, 9}. */
    private String missing(List<RankInfo> cards) {
        List<String> parts = new ArrayList<>();
        int next = 0;
        for (RankInfo c : cards) {
            if (c.rank() > next) {
                parts.add(range(next, c.rank() - 1));
            }
            next = c.rank() + 1;
        }
        if (next < size) {
            parts.add(range(next, size - 1));
        }
        return String.join(", ", parts);
    }

    private static String range(int from, int to) {
        return from == to ? Integer.toString(from) : from + (to == from + 1 ? ", " : "-") + to;
    }

    /**
     * Reports that this rank, or another that cannot report it, failed before all were present:
     * waiting ranks are notified at once. After a verdict it has no effect.
     *
     * @param story the rank and the reason
     */
    public void fail(String story) {
        String unused = verdict(Verdict.FAILED, story);
    }

    /** The verdict: this one, or an earlier one. */
    private String verdict(Verdict verdict, String story) {
        String said = verdict.letter + story;
        byte[] b = bytes(said);
        if (b.length > Store.MAX_VALUE_BYTES) {
            said = said.substring(0, Store.MAX_VALUE_BYTES / 4);
            b = bytes(said);
        }
        if (store.compareAndSet(key("verdict"), null, b)) {
            return said;
        }
        return String.valueOf(read("verdict"));
    }

    private void throwUnlessAllHere(String said, boolean late) {
        String story = said.substring(1);
        for (Verdict v : Verdict.values()) {
            if (v.letter == said.charAt(0)) {
                switch (v) {
                    case ALL_HERE -> {
                        return;
                    }
                    case MISSING ->
                            throw new CollectiveTimeoutException(
                                    late
                                            ? story
                                                    + "; rank "
                                                    + rank
                                                    + " has come only after that: raise the"
                                                    + " timeout, or, if that was an earlier run,"
                                                    + " give this run its own store"
                                            : story);
                    case DIFFERENT -> throw new JcclException(story);
                    case FAILED ->
                            throw new RankFailedException(
                                    "communicator '%s' cannot be made: %s"
                                            .formatted(name, story.replace('\n', ' ')));
                }
            }
        }
        throw new JcclException(
                ("the store contains '%s' for communicator '%s': another program writes to it, or"
                                + " another version of JCCL")
                        .formatted(said, name));
    }

    private String key(String what) {
        return name + "/" + what;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private @Nullable String read(String what) {
        byte[] value = store.get(key(what));
        return value == null ? null : new String(value, StandardCharsets.UTF_8);
    }
}
