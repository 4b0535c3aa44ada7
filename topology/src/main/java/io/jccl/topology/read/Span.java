package io.jccl.topology.read;

import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import java.util.ArrayList;
import java.util.List;

/** A logical line: one line of the text, or several that a terminal wrapped. */
final class Span {
    /** Marks where a line was wrapped: there may have been a separator, or not. */
    static final char WRAP = '\n';

    private final boolean marked;
    private final List<Text.Line> lines = new ArrayList<>(1);
    private final List<Integer> starts = new ArrayList<>(1);
    private final List<Integer> from = new ArrayList<>(1);
    private String text = "";

    /**
     * Starts with a line.
     *
     * @param marked whether a {@link #WRAP} is between lines
     */
    Span(boolean marked, Text.Line line, int from) {
        this.marked = marked;
        append(line, from, "");
    }

    void add(Text.Line line) {
        int start = 0;
        // Indents of a continuation count as a separator; marks of comments and mails do not.
        while (start < line.text().length() && "#>".indexOf(line.text().charAt(start)) >= 0) {
            start++;
        }
        append(line, start, marked ? String.valueOf(WRAP) : "");
    }

    private void append(Text.Line line, int start, String join) {
        lines.add(line);
        starts.add(text.length() + join.length());
        from.add(start);
        text = text + join + line.text().substring(start);
    }

    String text() {
        return text;
    }

    boolean wrapped() {
        return lines.size() > 1;
    }

    int size() {
        return lines.size();
    }

    Text.Line line() {
        return lines.getFirst();
    }

    /** Place on a terminal that sets tabs every 8 columns, from 0; only for a single line. */
    int visual(int at) {
        String line = lines.getFirst().text();
        int column = 0;
        for (int i = 0; i < from.getFirst() + at && i < line.length(); i++) {
            column = line.charAt(i) == '\t' ? (column / 8 + 1) * 8 : column + 1;
        }
        return column;
    }

    Warning warning(int at, String message) {
        int k = lines.size() - 1;
        while (k > 0 && starts.get(k) > at) {
            k--;
        }
        Text.Line line = lines.get(k);
        return new Warning(
                line.number(), line.column(from.get(k) + Math.max(0, at - starts.get(k))), message);
    }

    TopologyFormatException error(int at, String message) {
        Warning w = warning(at, message);
        return new TopologyFormatException(w.line(), w.column(), message);
    }
}
