package io.jccl.rendezvous;

import io.jccl.CollectiveTimeoutException;
import io.jccl.RankFailedException;
import io.jccl.bindings.JcclException;
import java.lang.module.ModuleDescriptor;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The first phase of making a communicator of processes, before any native library waits for
 * anybody: are all here, with the same size, versions and settings, and each number once? The
 * answer is one verdict, which whoever knows it first puts into the store, and which all ranks
 * read: so one bad rank fails all of them at once, and all tell the same story.
 *
 * <p><b>Threads:</b> any.
 */
public final class RollCall {
    /** How often who waits looks whether a rank has died, where that can be seen. */
    private static final Duration LOOK = Duration.ofMillis(200);

    /**
     * How long others may still come, when it is known that ranks differ, so as to name them all.
     */
    private static final Duration REST = Duration.ofSeconds(2);

    /** A number of ranks that is still read one by one. */
    private static final int MANY = 8;

    private static final int MOST_RANKS = 1 << 20;

    private static final String NONE = "none";

    /**
     * What a rank says of itself that all ranks have to say alike.
     *
     * @param name in the plural, such as {@code "versions of NCCL"}
     * @param value this rank's
     * @param remedy what to do if others have another
     */
    public record Fact(String name, String value, String remedy) {}

    private final Store store;
    private final String name;
    private final int rank;
    private final int size;

    /**
     * The roll call of one communicator.
     *
     * @param store the same for all ranks
     * @param name names the communicator; once per store
     * @param rank this rank
     * @param size number of ranks
     */
    public RollCall(Store store, String name, int rank, int size) {
        this.store = store;
        this.name = name;
        this.rank = rank;
        this.size = size;
    }

    /** What becomes of a roll call; the letter stands before the story in the store. */
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

    private record Card(int rank, String process, int size, Map<String, Fact> facts) {
        private static final String BETWEEN = "\t";

        String write() {
            return process
                    + "\n"
                    + size
                    + facts.values().stream()
                            .map(f ->
                                    "\n"
                                            + flat(f.name)
                                            + BETWEEN
                                            + flat(f.value)
                                            + BETWEEN
                                            + flat(f.remedy))
                            .collect(Collectors.joining());
        }

        private static String flat(String text) {
            return text.replaceAll("[\t\n\r]", " ");
        }

        static Card read(int rank, String text) {
            List<String> lines = text.lines().toList();
            Map<String, Fact> facts = new LinkedHashMap<>();
            for (String line : lines.subList(2, lines.size())) {
                String[] f = line.split(BETWEEN, 3);
                facts.put(f[0], new Fact(f[0], f[1], f[2]));
            }
            return new Card(rank, lines.get(0), Integer.parseInt(lines.get(1)), facts);
        }
    }

    /**
     * Says that this rank is here, and waits until it is known whether all are and fit each other.
     *
     * @param facts what has to be alike; the version of JCCL and the world size are added
     * @param timeout how long to wait for the others
     * @throws CollectiveTimeoutException on all ranks, if some did not come within the timeout of
     *     one; the message names them
     * @throws JcclException on all ranks, if some differ or two claim one number; the message names
     *     them with their hosts and process numbers
     * @throws RankFailedException on all ranks, if one failed meanwhile
     */
    public void answer(List<Fact> facts, Duration timeout) {
        answer(facts, timeout, null);
    }

    /**
     * The same, where there are other ways to know of a rank's death than the store.
     *
     * @param facts what has to be alike
     * @param timeout how long to wait for the others
     * @param broken says why not all can come any more, or null; asked five times a second
     */
    public void answer(
            List<Fact> facts, Duration timeout, @Nullable Supplier<@Nullable String> broken) {
        long deadline = System.nanoTime() + Waiting.nanos(timeout);
        Map<String, Fact> all = new LinkedHashMap<>();
        all.put(
                "versions of JCCL",
                new Fact("versions of JCCL", version(), "give all ranks the same jars"));
        facts.forEach(f -> all.put(f.name, f));
        String mine = new Card(rank, process(), size, all).write();
        if (!store.compareAndSet(key("card-" + rank), null, bytes(mine))) {
            claimedTwice(mine);
            return;
        }
        // Counted before it can be the first: who reads the first knows that it was.
        long here = store.add(key("here"), 1);
        boolean first = store.compareAndSet(key("first"), null, bytes(rank + "\n" + mine));
        String other = first ? null : read("first");
        if (other != null && differs(mine, other.substring(other.indexOf('\n') + 1))) {
            awaitRest(deadline);
            judge();
        } else if (here >= size) {
            judge();
        }
        String said = await(deadline, timeout, broken);
        throwUnlessAllHere(said);
    }

    private static boolean differs(String mine, String other) {
        Card a = Card.read(0, mine);
        Card b = Card.read(0, other);
        return a.size != b.size || !a.facts.equals(b.facts);
    }

    private void claimedTwice(String mine) {
        String before = String.valueOf(read("card-" + rank));
        String story =
                "two processes claim rank "
                        + rank
                        + " of communicator '"
                        + name
                        + "': "
                        + Card.read(rank, before).process
                        + " and "
                        + Card.read(rank, mine).process
                        + "; give each process a rank of its own, or, if the first is of an"
                        + " earlier run, this run a store of its own";
        String said = verdict(Verdict.DIFFERENT, story);
        throwUnlessAllHere(said);
        // The others were complete without this one.
        throw new JcclException(story);
    }

    /** Lets those come who are on their way: they may be of those that differ. */
    private void awaitRest(long deadline) {
        long until = Math.min(System.nanoTime() + REST.toNanos(), deadline);
        while (System.nanoTime() < until
                && read("verdict") == null
                && store.add(key("here"), 0) < largest(cards())) {
            Waiting.sleep(Duration.ofMillis(20));
        }
    }

    private static int largest(List<Card> cards) {
        return cards.stream().mapToInt(Card::size).max().orElse(0);
    }

    /** The cards of all ranks that are here, also of those that this rank's size does not have. */
    private List<Card> cards() {
        List<Card> cards = new ArrayList<>();
        long here = store.add(key("here"), 0);
        int until = size;
        // Not all numbers below a size that nobody can mean.
        for (int r = 0; r < Math.min(until, MOST_RANKS) && cards.size() < here; r++) {
            String text = read("card-" + r);
            if (text != null) {
                Card card = Card.read(r, text);
                cards.add(card);
                until = Math.max(until, card.size);
            }
        }
        return cards;
    }

    /** Looks at all that are here; says what is wrong, or that nothing is if none is missing. */
    private void judge() {
        List<Card> cards = cards();
        List<String> wrong = new ArrayList<>();
        Map<String, List<Card>> sizes = new TreeMap<>();
        cards.forEach(c ->
                sizes.computeIfAbsent(Integer.toString(c.size), s -> new ArrayList<>()).add(c));
        if (sizes.size() > 1) {
            wrong.add(
                    different("world sizes", sizes)
                            + "; start all with one size (WORLD_SIZE, or the launcher's -n)");
        }
        TreeSet<String> names = new TreeSet<>();
        cards.forEach(c -> names.addAll(c.facts.keySet()));
        for (String n : names) {
            Map<String, List<Card>> values = new TreeMap<>();
            String remedy = "";
            for (Card c : cards) {
                Fact f = c.facts.get(n);
                remedy = f == null ? remedy : f.remedy;
                values.computeIfAbsent(f == null ? NONE : f.value, v -> new ArrayList<>()).add(c);
            }
            if (values.size() > 1) {
                wrong.add(different(n, values) + (remedy.isEmpty() ? "" : "; " + remedy));
            }
        }
        if (!wrong.isEmpty()) {
            String unused =
                    verdict(
                            Verdict.DIFFERENT,
                            "the ranks of communicator '"
                                    + name
                                    + "' have "
                                    + String.join(". They also have ", wrong));
        } else if (cards.size() == size) {
            String unused = verdict(Verdict.ALL_HERE, "");
        }
    }

    /** Those with the same value together; of most of them, one as an example. */
    private static String different(String what, Map<String, List<Card>> values) {
        StringBuilder text = new StringBuilder("different ").append(what).append(": ");
        int most = values.values().stream().mapToInt(List::size).max().orElse(0);
        int all = values.values().stream().mapToInt(List::size).sum();
        List<String> parts = new ArrayList<>();
        values.forEach((value, cards) -> {
            int named = all > MANY && cards.size() == most ? 1 : Math.min(cards.size(), 2 * MANY);
            for (Card c : cards.subList(0, named)) {
                parts.add("rank " + c.rank + " " + value + " (" + c.process + ")");
            }
            if (named < cards.size()) {
                parts.add(cards.size() - named + " more ranks " + value);
            }
        });
        return text.append(String.join(", ", parts)).toString();
    }

    private String await(
            long deadline, Duration timeout, @Nullable Supplier<@Nullable String> broken) {
        while (true) {
            Duration left = Duration.ofNanos(Math.max(deadline - System.nanoTime(), 0));
            try {
                boolean all = broken == null || left.compareTo(LOOK) < 0;
                byte[] said = store.await(key("verdict"), all ? left : LOOK);
                return new String(said, StandardCharsets.UTF_8);
            } catch (CollectiveTimeoutException e) {
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

    private String missing(Duration timeout) {
        List<Card> cards = cards();
        String missing = missing(cards);
        if (missing.isEmpty()) {
            return "all ranks of communicator '"
                    + name
                    + "' came within "
                    + timeout
                    + ", but none could say so: the store is slow; raise the timeout";
        }
        String here =
                cards.stream()
                        .limit(2 * MANY)
                        .map(c -> "rank " + c.rank + " (" + c.process + ")")
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
                + (cards.size() > 2 * MANY ? " and " + (cards.size() - 2 * MANY) + " more" : "");
    }

    /** The numbers between those of cards in order, such as {@code 0, 3-7, 9}. */
    private String missing(List<Card> cards) {
        List<String> parts = new ArrayList<>();
        int next = 0;
        for (Card c : cards) {
            if (c.rank > next) {
                parts.add(range(next, c.rank - 1));
            }
            next = c.rank + 1;
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
     * Says that this rank, or another that cannot say so itself, failed before all were here: those
     * who wait learn of it at once. After a verdict it changes nothing.
     *
     * @param story which rank, and why
     */
    public void fail(String story) {
        String unused = verdict(Verdict.FAILED, story);
    }

    /** The verdict: this one, or that which came before it. */
    private String verdict(Verdict verdict, String story) {
        String said = verdict.letter + story;
        byte[] b = bytes(said);
        if (b.length > Limits.VALUE_BYTES) {
            said = said.substring(0, Limits.VALUE_BYTES / 4);
            b = bytes(said);
        }
        if (store.compareAndSet(key("verdict"), null, b)) {
            return said;
        }
        return String.valueOf(read("verdict"));
    }

    private void throwUnlessAllHere(String said) {
        String story = said.substring(1);
        for (Verdict v : Verdict.values()) {
            if (v.letter == said.charAt(0)) {
                switch (v) {
                    case ALL_HERE -> {
                        return;
                    }
                    case MISSING -> throw new CollectiveTimeoutException(story);
                    case DIFFERENT -> throw new JcclException(story);
                    case FAILED ->
                            throw new RankFailedException(
                                    "communicator '"
                                            + name
                                            + "' cannot be made: "
                                            + story.replace('\n', ' '));
                }
            }
        }
        throw new JcclException(
                "the store says '"
                        + said
                        + "' of communicator '"
                        + name
                        + "': another program"
                        + " writes to it, or another version of JCCL");
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

    /** This process as the operator of a cluster knows it: {@code host:pid}. */
    static String process() {
        String host = System.getenv("HOSTNAME");
        if (host == null || host.isBlank()) {
            try {
                host = InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException e) {
                host = "unknown-host";
            }
        }
        return host + ":" + ProcessHandle.current().pid();
    }

    private static String version() {
        ModuleDescriptor d = RollCall.class.getModule().getDescriptor();
        return d == null ? "unknown" : d.rawVersion().orElse("unknown");
    }
}
