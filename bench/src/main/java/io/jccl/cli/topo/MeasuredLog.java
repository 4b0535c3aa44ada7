package io.jccl.cli.topo;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * What nccl-tests or {@code jccl} measured.
 *
 * @param command such as all_reduce; null if the log does not show it
 * @param ranks how many; 0 if the log does not show it
 * @param lines out-of-place measurements, by size
 */
record MeasuredLog(@Nullable String command, int ranks, List<Line> lines) {
    /**
     * A size.
     *
     * @param bytes the size
     * @param timeUs microseconds
     * @param busbwGBps bus bandwidth
     */
    record Line(long bytes, double timeUs, double busbwGBps) {}

    /** A row of the table, whatever a launcher put before it, of all versions of nccl-tests. */
    private static final Pattern ROW =
            Pattern.compile(
                    "(?:^|[\\s:>\\]])(\\d+)\\s+\\d+\\s+[a-z][a-z0-9_]*\\s+(?:[a-z]+\\s+)?(?:-?\\d+\\s+)?"
                            + "(\\d+(?:\\.\\d+)?)\\s+(\\d+(?:\\.\\d+)?)\\s+(\\d+(?:\\.\\d+)?)\\s+"
                            + "(?:N/A|[0-9.e+-]+)(?:\\s|$)");

    private static final Pattern COMMAND = Pattern.compile("\\b([a-z]+(?:_[a-z]+)*)_perf\\b");
    private static final Pattern RANK = Pattern.compile("#\\s+Rank\\s+(\\d+)\\b");

    /**
     * Reads a log.
     *
     * @param name of the file, for messages
     * @throws IllegalArgumentException if it has no measurement
     */
    static MeasuredLog of(String name, String text) {
        MeasuredLog log = text.stripLeading().startsWith("{") ? json(name, text) : table(text);
        if (log.lines.isEmpty()) {
            throw new IllegalArgumentException(
                    "--measured "
                            + name
                            + " has no measurement, expected the table or the JSON of nccl-tests,"
                            + " or the JSON of a benchmark of jccl");
        }
        return log;
    }

    private static MeasuredLog table(String text) {
        Map<Long, Line> lines = new TreeMap<>();
        String command = null;
        int ranks = 0;
        for (String line : text.split("\\R", -1)) {
            Matcher rank = RANK.matcher(line);
            Matcher test = COMMAND.matcher(line);
            Matcher row = ROW.matcher(line);
            if (rank.find()) {
                ranks = Math.max(ranks, Integer.parseInt(rank.group(1)) + 1);
            } else if (!line.contains("#") && row.find() && !row.group(1).equals("0")) {
                add(
                        lines,
                        Long.parseLong(row.group(1)),
                        Double.parseDouble(row.group(2)),
                        Double.parseDouble(row.group(4)));
            } else if (command == null && test.find()) {
                command = test.group(1);
            }
        }
        return new MeasuredLog(command, ranks, List.copyOf(lines.values()));
    }

    private static MeasuredLog json(String name, String text) {
        JsonNode root;
        try {
            root = new ObjectMapper().readTree(text);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(
                    "--measured " + name + " is not JSON: " + e.getOriginalMessage(), e);
        }
        Map<Long, Line> lines = new TreeMap<>();
        for (JsonNode each : root.path("results")) {
            JsonNode side = each.path("out_of_place");
            if (side.isObject() && each.path("size").asLong() > 0) {
                add(
                        lines,
                        each.path("size").asLong(),
                        side.path("time").asDouble(),
                        side.path("bus_bw").asDouble());
            }
        }
        String command = root.path("config").path("collective").asText("");
        List<String> args = new ArrayList<>();
        root.path("args").forEach(a -> args.add(a.asText()));
        Matcher test = COMMAND.matcher(String.join(" ", args));
        return new MeasuredLog(
                !command.isEmpty() ? command : test.find() ? test.group(1) : null,
                root.path("config").path("nranks").asInt(root.path("devices").size()),
                List.copyOf(lines.values()));
    }

    /** Of several cycles the fastest counts. */
    private static void add(Map<Long, Line> lines, long bytes, double timeUs, double busbw) {
        if (timeUs > 0) {
            Line line = new Line(bytes, timeUs, busbw);
            lines.merge(bytes, line, (a, b) -> a.timeUs <= b.timeUs ? a : b);
        }
    }
}
