package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;

import java.util.List;

/** Lines of a report as they grow, in at most {@value #WIDTH} columns, and how figures look. */
final class TextLines {
    static final int WIDTH = 118;

    private final StringBuilder out = new StringBuilder();

    @Override
    public String toString() {
        return out.toString();
    }

    /** Further lines are indented more. */
    void wrapped(String text) {
        StringBuilder b = new StringBuilder(" ");
        for (String word : text.split(" ", -1)) {
            if (b.length() + 1 + word.length() > WIDTH && !b.toString().isBlank()) {
                line(b.toString());
                b.setLength(0);
                b.append("   ");
            }
            b.append(' ').append(word);
        }
        line(b.toString());
    }

    /** Columns as wide as their widest cell, those of {@code right} aligned to the right. */
    void table(List<List<String>> rows, int most, String more, int right) {
        if (rows.isEmpty()) {
            return;
        }
        int[] width = new int[rows.getFirst().size()];
        for (List<String> row : rows) {
            for (int i = 0; i < width.length; i++) {
                width[i] = Math.max(width[i], row.get(i).length());
            }
        }
        for (List<String> row : rows.subList(0, Math.min(most, rows.size()))) {
            StringBuilder b = new StringBuilder();
            for (int i = 0; i < width.length; i++) {
                if (width[i] == 0) {
                    continue;
                }
                int pad = i == width.length - 1 ? 0 : width[i] - row.get(i).length();
                if (i == width.length - 1 && (right >> i & 1) != 0) {
                    pad = width[i] - row.get(i).length();
                }
                b.append(b.isEmpty() ? "" : "  ");
                if ((right >> i & 1) != 0) {
                    b.repeat(' ', pad).append(row.get(i));
                } else {
                    b.append(row.get(i)).repeat(' ', pad);
                }
            }
            line(b.toString());
        }
        if (rows.size() > most) {
            line("  and " + (rows.size() - most) + " " + more);
        }
    }

    void line(String text) {
        out.append(cut(text.stripTrailing(), WIDTH)).append('\n');
    }

    /** GPU numbers in order; runs of three or more in long lists as ranges. */
    static String sequence(List<Integer> indices) {
        if (indices.size() > 16) {
            return ranges(indices).replace(',', ' ');
        }
        return String.join(" ", indices.stream().map(String::valueOf).toList());
    }

    /** {@code 0-3,5}: in the order given. */
    static String ranges(List<Integer> indices) {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < indices.size(); ) {
            int end = i;
            while (end + 1 < indices.size() && indices.get(end + 1) == indices.get(end) + 1) {
                end++;
            }
            b.append(b.isEmpty() ? "" : ",").append(indices.get(i));
            if (end > i) {
                b.append('-').append(indices.get(end));
            }
            i = end + 1;
        }
        return b.toString();
    }

    static String rate(double gbps) {
        return format("%.1f", gbps);
    }

    static String pad(String text, int width) {
        return " ".repeat(Math.max(0, width - text.length())) + text;
    }

    static String cut(String text, int width) {
        return text.length() <= width ? text : text.substring(0, width - 3) + "...";
    }
}
