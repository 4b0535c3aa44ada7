package io.jccl.ras;

import io.jccl.ras.RasReport.Finding;
import io.jccl.ras.RasReport.Group;
import io.jccl.ras.RasReport.Kind;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The answer of any NCCL from 2.24 on, as text for people. Lines that are not known are passed
 * over: newer versions add some, and a text may be cut anywhere.
 */
final class RasText {
    private static final Pattern VERSION = Pattern.compile("NCCL version (\\S+) compiled with.*");
    private static final Pattern ROW =
            Pattern.compile(
                    " *(\\d+) +(\\d+) +(\\d+) +([\\d-]+) +(\\d+) +(\\d+) +([A-Z]+) +([A-Z,]+)");
    private static final Pattern HEAD =
            Pattern.compile("#\\d+-\\d+ \\(([0-9a-fx]+)\\) (INCOMPLETE|ERROR|MISMATCH)");
    private static final Pattern PROCESS =
            Pattern.compile(" +(Process \\d+ on node \\S+ managing GPUs? .*)");
    private static final Pattern RANK = Pattern.compile(" +Rank (\\d+) -- (.*)");
    private static final Pattern RANK_IS =
            Pattern.compile(" +Rank (\\d+) ((?:has status|reported) .*)");
    private static final Pattern RANKS_ARE =
            Pattern.compile(" +(\\d+ ranks (?:have status|reported) .*)");
    private static final Pattern MISSING_RANKS =
            Pattern.compile(" +The (?:missing|unknown) ranks?: ([\\d,]+)");
    private static final Pattern DIFFERENT =
            Pattern.compile(" +Communicator ranks have different (\\S+) operation counts");
    private static final Pattern RANK_COUNT =
            Pattern.compile(
                    " +Rank (\\d+) has (?:launched up to operation (\\d+)|not launched any"
                            + " operations)(?: -- (.*))?");
    private static final Pattern RANKS_COUNT =
            Pattern.compile(
                    " +(\\d+) ranks have (?:launched up to operation (\\d+)|not launched any"
                            + " operations)");
    private static final Pattern DEAD = Pattern.compile(" +(\\d+ job process.* considered dead.*)");
    private static final Pattern SILENT =
            Pattern.compile(" +(Missing communicator data from \\d+ .*)");
    private static final Pattern TIMEOUTS =
            Pattern.compile(" +Encountered (\\d+) communication timeouts? while .*");

    private final List<Group> groups = new ArrayList<>();
    private final List<Finding> findings = new ArrayList<>();

    /** Ranks that have launched a number of operations, in the section that is being read. */
    private record Launched(int rank, long count, String who) {}

    private final List<Launched> launched = new ArrayList<>();
    private String operation = "";

    private String version = "?";
    private String hash = "";
    private Kind kind = Kind.MISSING;

    /** What the ranks that are listed below have in common. */
    private String common = "";

    private long commonCount = -1;
    private boolean whole;

    private RasText() {}

    static RasReport parse(String text) {
        RasText parsed = new RasText();
        for (String line : text.split("\r?\n", -1)) {
            parsed.line(line);
        }
        parsed.endOfCounts();
        return new RasReport(
                parsed.version, parsed.groups, parsed.findings, Set.of(), parsed.whole);
    }

    private void line(String line) {
        MatchResult m;
        if (line.isBlank()) {
            endOfCounts();
        } else if (line.equals("Warnings")) {
            whole = true; // the last part, sent at once
        } else if (line.equals("INCOMPLETE") || line.equals("DEAD")) {
            hash = "";
            common = "";
            kind = line.equals("DEAD") ? Kind.DEAD : Kind.MISSING;
        } else if ((m = match(VERSION, line)) != null) {
            version = m.group(1);
        } else if ((m = match(ROW, line)) != null) {
            groups.add(
                    new Group(
                            "#" + m.group(1),
                            number(m.group(2)),
                            number(m.group(5)),
                            number(m.group(6)),
                            m.group(7),
                            m.group(8)));
        } else if ((m = match(HEAD, line)) != null) {
            endOfCounts();
            hash = "0x" + m.group(1).replaceFirst("^(0x)?0*(?=.)", "");
            common = "";
            kind =
                    switch (m.group(2)) {
                        case "INCOMPLETE" -> Kind.MISSING;
                        case "ERROR" -> Kind.ERROR;
                        default -> Kind.STATUS;
                    };
        } else if ((m = match(DIFFERENT, line)) != null) {
            endOfCounts();
            operation = m.group(1);
            commonCount = -1;
        } else if ((m = match(TIMEOUTS, line)) != null) {
            add(Kind.TIMEOUT, "", -1, RasJson.timeouts(number(m.group(1))));
        } else {
            person(line);
        }
    }

    /** A line about ranks or processes. */
    private void person(String line) {
        MatchResult m;
        if ((m = match(RANK_COUNT, line)) != null) {
            launched.add(new Launched(number(m.group(1)), count(m.group(2)), who(m.group(3))));
        } else if ((m = match(RANKS_COUNT, line)) != null) {
            commonCount = count(m.group(2));
            launched.add(new Launched(-1, commonCount, m.group(1) + " ranks"));
        } else if ((m = match(RANK, line)) != null) {
            int rank = number(m.group(1));
            if (!operation.isEmpty() && commonCount >= 0) {
                launched.add(new Launched(rank, commonCount, who(m.group(2))));
            } else {
                add(
                        kind,
                        hash,
                        rank,
                        (common.isEmpty() ? "gave no data" : common) + who(m.group(2)));
            }
        } else if ((m = match(RANK_IS, line)) != null) {
            String[] parts = m.group(2).split(" -- ", 2);
            add(kind, hash, number(m.group(1)), parts[0] + who(parts.length > 1 ? parts[1] : null));
        } else if ((m = match(RANKS_ARE, line)) != null) {
            common = m.group(1).replaceFirst("\\d+ ranks (have status|reported)", "$1");
            common = common.replaceFirst("^have", "has");
            add(kind, hash, -1, m.group(1));
        } else if ((m = match(MISSING_RANKS, line)) != null) {
            for (String rank : m.group(1).split(",", -1)) {
                if (!rank.isEmpty()) {
                    add(kind, hash, number(rank), "gave no data");
                }
            }
        } else if ((m = match(DEAD, line)) != null
                || (m = match(SILENT, line)) != null
                || (m = match(PROCESS, line)) != null) {
            add(kind, hash, -1, m.group(1));
        }
    }

    /** Who of a section of counts is behind. */
    private void endOfCounts() {
        long max = launched.stream().mapToLong(Launched::count).max().orElse(0);
        for (Launched l : launched) {
            if (l.count < max) {
                String what = RasJson.launched(l.count, max, operation);
                add(
                        Kind.BEHIND,
                        hash,
                        l.rank,
                        l.rank < 0
                                ? l.who + " have launched " + what
                                : "has launched " + what + l.who);
            }
        }
        launched.clear();
        operation = "";
        commonCount = -1;
    }

    private void add(Kind what, String communicator, int rank, String detail) {
        findings.add(new Finding(what, communicator, rank, detail));
    }

    private static String who(@Nullable String text) {
        return text == null || text.startsWith("[")
                ? ""
                : " (" + text.replace(" managed by process", " of process") + ")";
    }

    private static @Nullable MatchResult match(Pattern p, String line) {
        Matcher m = p.matcher(line);
        return m.matches() ? m.toMatchResult() : null;
    }

    private static long count(@Nullable String digits) {
        return digits == null ? 0 : digits.length() > 18 ? Long.MAX_VALUE : Long.parseLong(digits);
    }

    private static int number(String digits) {
        return (int) Math.min(count(digits), Integer.MAX_VALUE);
    }
}
