package io.jccl.bootstrap;

import io.jccl.internal.HostName;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Information about a rank before a communicator is created, and the comparison of all ranks'.
 *
 * @param rank the rank
 * @param process its machine and process
 * @param size number of ranks that it expects
 * @param facts facts that must be equal on all ranks
 */
public record RankInfo(int rank, String process, int size, Map<String, Fact> facts) {
    /**
     * A fact about a rank that must be equal on all ranks.
     *
     * @param name in the plural, such as {@code "versions of NCCL"}
     * @param value this rank's
     * @param remedy what to do if other ranks have another value
     */
    public record Fact(String name, String value, String remedy) {}

    private static final String BETWEEN = "\t";
    private static final String NONE = "none";

    /** Largest number of ranks that a message lists individually. */
    public static final int MANY = 8;

    /** Information about this process; the version of JCCL is added to the facts. */
    public static RankInfo own(int rank, int size, Collection<Fact> facts) {
        Map<String, Fact> all = new LinkedHashMap<>();
        String versions = "versions of JCCL";
        all.put(versions, new Fact(versions, Release.version(), "give all ranks the same jars"));
        facts.forEach(f -> all.put(f.name(), f));
        return new RankInfo(rank, here(), size, all);
    }

    /** This process as the operator of a cluster knows it: {@code host:pid}. */
    public static String here() {
        return HostName.OWN + ":" + ProcessHandle.current().pid();
    }

    /** Text that {@link #read} parses. */
    public String write() {
        return process + "\n" + size + says();
    }

    /** The facts alone, as text. */
    public String says() {
        return facts.values().stream()
                .map(f ->
                        "\n"
                                + flat(f.name())
                                + BETWEEN
                                + flat(f.value())
                                + BETWEEN
                                + flat(f.remedy()))
                .collect(Collectors.joining());
    }

    private static String flat(String text) {
        return text.replaceAll("[\t\n\r]", " ");
    }

    /** Parses the text of {@link #write}. */
    public static RankInfo read(int rank, String text) {
        List<String> lines = text.lines().toList();
        Map<String, Fact> facts = new LinkedHashMap<>();
        for (String line : lines.subList(2, lines.size())) {
            String[] f = line.split(BETWEEN, 3);
            facts.put(f[0], new Fact(f[0], f[1], f[2]));
        }
        return new RankInfo(rank, lines.get(0), Integer.parseInt(lines.get(1)), facts);
    }

    /** Whether two ranks are compatible. */
    public boolean fits(RankInfo other) {
        return size == other.size && says().equals(other.says());
    }

    /**
     * Describes the differences between ranks, which rank has which value, and what to do.
     *
     * @param where what the ranks belong to, such as {@code "communicator 'world'"}
     * @param cards information of all present ranks, by rank
     * @return a sentence; null if they are compatible
     */
    public static @Nullable String differences(String where, List<RankInfo> cards) {
        List<String> wrong = new ArrayList<>();
        Map<String, List<RankInfo>> sizes = new TreeMap<>();
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
            Map<String, List<RankInfo>> values = new TreeMap<>();
            String remedy = "";
            for (RankInfo c : cards) {
                Fact f = c.facts.get(n);
                remedy = f == null ? remedy : f.remedy();
                values.computeIfAbsent(f == null ? NONE : f.value(), v -> new ArrayList<>()).add(c);
            }
            if (values.size() > 1) {
                wrong.add(different(n, values) + (remedy.isEmpty() ? "" : "; " + remedy));
            }
        }
        return wrong.isEmpty()
                ? null
                : "the ranks of " + where + " have " + String.join(". They also have ", wrong);
    }

    /** Ranks grouped by value; of a large group, one rank as an example. */
    private static String different(String what, Map<String, List<RankInfo>> values) {
        StringBuilder text = new StringBuilder("different ").append(what).append(": ");
        int most = values.values().stream().mapToInt(List::size).max().orElse(0);
        int all = values.values().stream().mapToInt(List::size).sum();
        List<String> parts = new ArrayList<>();
        values.forEach((value, cards) -> {
            int named = all > MANY && cards.size() == most ? 1 : Math.min(cards.size(), 2 * MANY);
            for (RankInfo c : cards.subList(0, named)) {
                parts.add("rank " + c.rank + " " + value + " (" + c.process + ")");
            }
            if (named < cards.size()) {
                parts.add(cards.size() - named + " more ranks " + value);
            }
        });
        return text.append(String.join(", ", parts)).toString();
    }
}
