package io.jccl.topology.read;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What launchers, log collectors and editors put before each line of a program's output. */
final class Labels {
    /**
     * {@code 0: } of srun -l, {@code [1,0]<stdout>:} of mpirun --tag-output, {@code
     * [pod/name/container] } of kubectl logs --prefix, {@code name-1 | } of docker compose, {@code
     * (name pid=7, ip=10.0.0.1) } of Ray; a time stamp may come before any, or alone.
     */
    private static final Pattern LABEL =
            Pattern.compile(
                    "^(?:\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d[0-9.]*(?:Z|[+-]\\d\\d:?\\d\\d) ?)?"
                            + "(\\s*\\d+: ?|\\[\\d+,\\d+\\]<std(?:out|err)>: ?|\\[pod/[^\\]\\s]+\\] "
                            + "|(?!GPU\\d|NIC\\d|mlx)[\\w.-]+ +\\| |\\((?:\\S+ )?pid=\\d+[^()]*\\) )?");

    /** Of cat -n, grep -n and editors. */
    private static final Pattern NUMBER =
            Pattern.compile("^\\s*(\\d{1,6})(?::|\\t| ?\\| ?| {1,2}|$)");

    private Labels() {}

    /**
     * Takes the labels off, if most lines have one.
     *
     * @param text its lines
     * @return the lines without them; of several processes the lines of the first only
     */
    static List<Text.Line> strip(List<Text.Line> text) {
        List<Text.Line> lines = withoutNumbers(text);
        List<String> labels = new ArrayList<>();
        int labelled = 0;
        String first = null;
        for (Text.Line line : lines) {
            String label = label(line.text());
            labels.add(label == null ? "" : label);
            labelled += label == null ? 0 : 1;
            first = first == null ? label : first;
        }
        if (first == null || labelled < 2 || labelled < 0.8 * lines.size()) {
            return lines;
        }
        List<Text.Line> plain = new ArrayList<>();
        for (int i = 0; i < lines.size(); i++) {
            Text.Line line = lines.get(i);
            Matcher m = LABEL.matcher(line.text());
            if (!labels.get(i).equals(first) || !m.find()) {
                continue;
            }
            add(plain, line, m.end());
        }
        return plain;
    }

    /** Without the numbers of lines, if all have one, each greater than the one before it. */
    private static List<Text.Line> withoutNumbers(List<Text.Line> lines) {
        List<Text.Line> plain = new ArrayList<>();
        int last = -1;
        for (Text.Line line : lines) {
            Matcher m = NUMBER.matcher(line.text());
            int number = m.find() ? Integer.parseInt(m.group(1)) : -1;
            if (number <= last) {
                return lines;
            }
            last = number;
            add(plain, line, m.end());
        }
        return plain;
    }

    /** What is left of a line, if that is anything. */
    private static void add(List<Text.Line> plain, Text.Line line, int from) {
        String text = line.text().substring(from);
        int[] columns = new int[text.length()];
        for (int c = 0; c < columns.length; c++) {
            columns[c] = line.column(from + c);
        }
        if (!text.isBlank()) {
            plain.add(new Text.Line(line.number(), text, columns));
        }
    }

    /** Who wrote a line; null if it has no label. */
    private static @Nullable String label(String text) {
        Matcher m = LABEL.matcher(text);
        if (!m.find() || m.end() == 0) {
            return null;
        }
        String process = m.group(1);
        return process == null ? "time" : process.strip();
    }
}
