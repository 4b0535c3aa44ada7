package io.jccl.bench.report;

import static io.jccl.cli.shell.Text.format;

import java.util.List;

/**
 * A table of formatted values.
 *
 * @param title the title; may be empty
 * @param header a name for each column
 * @param rows each with as many cells as the header; the first one names the row
 * @param words whether cells are text to read rather than numbers to compare
 */
public record Table(String title, List<String> header, List<List<String>> rows, boolean words) {
    /** A table of numbers. */
    public Table(String title, List<String> header, List<List<String>> rows) {
        this(title, header, rows, false);
    }

    /** Copies the lists. */
    public Table {
        header = List.copyOf(header);
        rows = rows.stream().map(List::copyOf).toList();
    }

    /**
     * The table for a terminal.
     *
     * @return lines, each with a line feed
     */
    public String text() {
        int[] widths = header.stream().mapToInt(String::length).toArray();
        for (List<String> row : rows) {
            for (int i = 0; i < widths.length; i++) {
                widths[i] = Math.max(widths[i], row.get(i).length());
            }
        }
        StringBuilder out = new StringBuilder();
        if (!title.isEmpty()) {
            out.append("# ").append(title).append('\n');
        }
        line(out, "# ", header, widths);
        rows.forEach(row -> line(out, "  ", row, widths));
        return out.toString();
    }

    private void line(StringBuilder out, String mark, List<String> cells, int[] widths) {
        StringBuilder line = new StringBuilder(mark);
        for (int i = 0; i < widths.length; i++) {
            String space = " ".repeat(widths[i] - cells.get(i).length());
            line.append(i == 0 ? "" : "  ");
            line.append(i == 0 || words ? cells.get(i) + space : space + cells.get(i));
        }
        out.append(line.toString().stripTrailing()).append('\n');
    }

    void html(StringBuilder out) {
        out.append(format("<div class=\"wide\"><table%s>", words ? " class=\"words\"" : ""));
        if (!title.isEmpty()) {
            out.append(format("<caption>%s</caption>", Markup.escape(title)));
        }
        out.append("<thead>");
        row(out, "th", header);
        out.append("</thead><tbody>\n");
        rows.forEach(r -> row(out, "td", r));
        out.append("</tbody></table></div>\n");
    }

    private static void row(StringBuilder out, String cell, List<String> cells) {
        out.append("<tr>");
        for (String text : cells) {
            out.append(format("<%s>%s</%s>", cell, Markup.escape(text), cell));
        }
        out.append("</tr>\n");
    }
}
