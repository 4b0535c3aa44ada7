package io.jccl.topology.read;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What launchers and log collectors put before each line of a program's output. */
final class Labels {
    /**
     * {@code 0: } of srun -l, {@code [1,0]<stdout>:} of mpirun --tag-output, {@code
     * [pod/name/container] } of kubectl logs --prefix; a time stamp may come before any, or alone.
     */
    private static final Pattern LABEL =
            Pattern.compile(
                    "^(?:\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d[0-9.]*(?:Z|[+-]\\d\\d:?\\d\\d) ?)?"
                            + "(\\s*\\d+: ?|\\[\\d+,\\d+\\]<std(?:out|err)>: ?|\\[pod/[^\\]\\s]+\\] )?");

    private Labels() {}

    /**
     * Takes the labels off, if most lines have one.
     *
     * @param lines of a text
     * @return the lines without them; of several processes the lines of the first only
     */
    static List<Text.Line> strip(List<Text.Line> lines) {
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
            int at = m.end();
            String text = line.text().substring(at);
            int[] columns = new int[text.length()];
            for (int c = 0; c < columns.length; c++) {
                columns[c] = line.column(at + c);
            }
            if (!text.isBlank()) {
                plain.add(new Text.Line(line.number(), text, columns));
            }
        }
        return plain;
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
