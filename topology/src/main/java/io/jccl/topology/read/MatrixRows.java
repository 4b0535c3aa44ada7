package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Warning;
import io.jccl.topology.read.Cells.Reading;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Reads the rows of one matrix, which may be wrapped, cut, or without some separators. */
final class MatrixRows {
    /** Most lines over which a header or a row may be wrapped. */
    static final int MAX_WRAPS = 200;

    private final List<Text.Line> lines;
    private final Problems problems;

    /** The line after the rows. */
    private int end;

    /** A row of the text. */
    static final class Row {
        final Span span;
        final int column;
        final String name;
        List<Reading> readings = List.of();

        Row(Span span, int column, String name) {
            this.span = span;
            this.column = column;
            this.name = name;
        }
    }

    MatrixRows(List<Text.Line> lines, Problems problems) {
        this.lines = lines;
        this.problems = problems;
    }

    /**
     * Finds the rows of a header's devices from a line on, and reads their cells; null if missing.
     */
    @Nullable Row[] read(Header header, Span top, int from) {
        @Nullable Row[] rows = rows(header, from);
        boolean[] elided = new boolean[header.names().size()];
        boolean left = false;
        for (int i = 0; i < elided.length; i++) {
            elided[i] = header.names().get(i).isEmpty();
            left |= elided[i];
        }
        if (left) {
            problems.warn(top.warning(0, "the header has ... for columns that were left out"));
        }
        for (Row row : rows) {
            if (row != null) {
                row.readings = Cells.read(row.span.text(), row.column, elided);
                if (row.readings.isEmpty()) {
                    unreadable(row, header);
                }
            }
        }
        settle(rows);
        requireRows(rows, header);
        return rows;
    }

    /** The line after the rows that were read. */
    int end() {
        return end;
    }

    private @Nullable Row[] rows(Header header, int from) {
        @Nullable Row[] rows = new @Nullable Row[header.names().size()];
        int missing = header.places().size();
        Row last = null;
        int i = from;
        for (; i < lines.size(); i++) {
            Text.Line line = lines.get(i);
            String text = line.text();
            int s = line.start();
            if (isRule(text)) {
                continue;
            }
            if (text.startsWith("```", s) || isLegend(text, s)) {
                break;
            }
            String name = label(text, s, header);
            if (name != null) {
                int column = header.places().getOrDefault(name, 0);
                if (rows[column] == null) {
                    last = new Row(new Span(true, line, s + name.length()), column, name);
                    rows[column] = last;
                    missing--;
                } else if (missing == 0 || Header.start(line) >= 0) {
                    break;
                } else {
                    problems.add(
                            line, s, "a second row for " + name + ": expected one for each device");
                    last = null;
                }
                continue;
            }
            String word = text.substring(s, Math.min(Cells.wordEnd(text, s), s + 64));
            if (Cells.isEllipsis(word) || word.equals(":") || word.equals("\u22ee")) {
                last = null;
                continue;
            }
            if (Header.start(line) >= 0) {
                break;
            }
            if (missing > 0 && isStranger(text, s, word)) {
                problems.add(
                        line,
                        s,
                        "found a row for "
                                + NvlinkParser.quote(word)
                                + ", which the header does not have");
                last = null;
                continue;
            }
            // The rest of a wrapped row follows at once; it may be the end of its last cell.
            boolean next = i > 0 && lines.get(i - 1).number() + 1 == line.number();
            if (last != null
                    && last.span.size() < MAX_WRAPS
                    && isFragment(text, s)
                    && (next || !isFull(last, header))) {
                last.span.add(line);
                continue;
            }
            if (missing == 0) {
                break;
            }
            if (!resumes(header, rows, i + 1)) {
                break;
            }
            problems.warn(
                    new Warning(
                            line.number(),
                            line.column(s),
                            "a line between the rows is left out: " + NvlinkParser.quote(text)));
            last = null;
        }
        end = i;
        return rows;
    }

    /** A header that was cut: rows have more cells, as many as there are rows. */
    Header completed(Header header, Span top, int r) {
        Text.Line line = lines.get(r);
        String name = header.names().getFirst();
        int s = line.start();
        if (!line.text().startsWith(name, s) || header.names().contains("")) {
            return header;
        }
        String cells = line.text().substring(s + name.length());
        int names = header.names().size();
        if (!Cells.read(cells, 0, new boolean[names]).isEmpty()) {
            return header;
        }
        Header whole = header.completed(Header.labels(lines, r));
        if (whole == null || Cells.read(cells, 0, new boolean[whole.names().size()]).isEmpty()) {
            return header;
        }
        problems.warn(
                top.warning(
                        0,
                        ("the header has %s devices, the rows have %s: the names of the rows are"
                                        + " taken for the columns")
                                .formatted(names, whole.names().size())));
        return whole;
    }

    /** The device whose row this is; null if it is none. */
    private static @Nullable String label(String text, int s, Header header) {
        int end = Cells.wordEnd(text, s);
        if (end - s <= 64) {
            String word = text.substring(s, end);
            if (header.places().containsKey(word)) {
                return word;
            }
        }
        for (int e = Math.min(end, s + 64) - 1; e > s; e--) {
            if (Cells.isUpper(text.charAt(e))
                    && header.places().containsKey(text.substring(s, e))
                    && ends(text, e)) {
                return text.substring(s, e);
            }
        }
        return null;
    }

    /** Whether a label can end here: at a separator, or where a code starts without one. */
    static boolean ends(String text, int at) {
        return at == text.length()
                || Cells.isSeparator(text.charAt(at))
                || (Cells.isUpper(text.charAt(at))
                        && Cells.startsWithCode(
                                text.substring(at, Math.min(Cells.wordEnd(text, at), at + 64))));
    }

    /** A row of a device that the header lacks. */
    private static boolean isStranger(String text, int s, String word) {
        boolean device =
                (word.startsWith("GPU") || word.startsWith("NIC"))
                        && word.length() > 3
                        && word.substring(3).chars().allMatch(c -> c >= '0' && c <= '9');
        int next = Cells.skip(text, Math.min(text.length(), s + word.length()));
        String cell = text.substring(next, Math.min(Cells.wordEnd(text, next), next + 64));
        return device && PathCode.of(cell).kind() != PathCode.Kind.UNKNOWN;
    }

    /** Lines that only draw: of Markdown tables and boxes. */
    static boolean isRule(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (" \t|-+=:".indexOf(text.charAt(i)) < 0) {
                return false;
            }
        }
        return true;
    }

    private static boolean isLegend(String text, int s) {
        return text.startsWith("Legend", s)
                || text.startsWith("NIC Legend", s)
                || text.indexOf(" = ", s) >= 0;
    }

    /** Whether a line can be the rest of a wrapped row: codes, lists, and parts of them. */
    private static boolean isFragment(String text, int s) {
        for (int i = s; i < text.length(); i++) {
            char c = text.charAt(i);
            if (!Cells.isDigit(c) && "XNVPIBHODESYCKUGTAR,-/. \t|".indexOf(c) < 0) {
                return false;
            }
        }
        return true;
    }

    private static boolean isFull(Row row, Header header) {
        String text = row.span.text();
        int words = 0;
        for (int i = Cells.skip(text, 0);
                i < text.length();
                i = Cells.skip(text, Cells.wordEnd(text, i))) {
            words++;
        }
        return words >= header.names().size() + header.headings().size();
    }

    /** Whether one of the next lines is a row that is still missing. */
    private boolean resumes(Header header, @Nullable Row[] rows, int from) {
        for (int i = from; i < Math.min(lines.size(), from + 5); i++) {
            Text.Line line = lines.get(i);
            int s = line.start();
            String name = label(line.text(), s, header);
            if (isLegend(line.text(), s) || Header.start(line) >= 0) {
                return false;
            }
            if (name != null) {
                return rows[header.places().getOrDefault(name, 0)] == null;
            }
        }
        return false;
    }

    private void unreadable(Row row, Header header) {
        int count = header.names().size();
        String text = row.span.text();
        int found = Cells.codes(text);
        if (found != count) {
            problems.add(
                    row.span,
                    Cells.skip(text, 0),
                    ("row %s has %s cells: expected %s, one for each device of the header, with X"
                                    + " under %s")
                            .formatted(row.name, found, count, row.name));
            return;
        }
        int i = 0;
        for (int k = 0; k < count; k++) {
            int from = Cells.skip(text, i);
            i = Cells.wordEnd(text, from);
            String word = text.substring(from, i);
            boolean self = word.equals("X");
            if (self != (k == row.column) || !Cells.looksLikeCode(word)) {
                problems.add(
                        row.span,
                        from,
                        String.format(
                                "row %s, column %s: found %s, expected %s",
                                row.name,
                                header.names().get(k),
                                NvlinkParser.quote(word),
                                k == row.column
                                        ? "X"
                                        : "a code such as NV4, PIX, PXB, PHB, NODE or SYS"));
                break;
            }
        }
        row.readings = Cells.salvage(text, row.column, count);
    }

    /** Where a row can be read in several ways, the other half of the matrix decides. */
    private void settle(@Nullable Row[] rows) {
        boolean progress = true;
        boolean open = true;
        while (progress && open) {
            progress = false;
            open = false;
            for (Row row : rows) {
                if (row == null || row.readings.size() < 2) {
                    continue;
                }
                List<Reading> fits = new ArrayList<>();
                for (Reading reading : row.readings) {
                    if (agrees(row, reading, rows)) {
                        fits.add(reading);
                    }
                }
                progress |= fits.size() < row.readings.size();
                row.readings = fits;
                if (fits.isEmpty()) {
                    problems.add(
                            row.span,
                            0,
                            "row "
                                    + row.name
                                    + " lost separators, and no way to read it agrees with the"
                                    + " other rows");
                }
                open |= fits.size() > 1;
            }
        }
        for (Row row : rows) {
            if (row != null && row.readings.size() > 1) {
                problems.add(
                        row.span,
                        0,
                        "row "
                                + row.name
                                + " lost separators and can be read in several ways: paste it"
                                + " again without wrapped lines");
                row.readings = List.of();
            }
        }
    }

    private static boolean agrees(Row row, Reading reading, @Nullable Row[] rows) {
        for (Row other : rows) {
            if (other != null && other != row && other.readings.size() == 1) {
                PathCode mirror = other.readings.getFirst().codes()[row.column];
                PathCode mine = reading.codes()[other.column];
                if (!same(mine, mirror) && !PathMatrix.isMissing(mirror)) {
                    return false;
                }
            }
        }
        return true;
    }

    static boolean same(PathCode a, PathCode b) {
        return a.equals(b) || (a.kind() == PathCode.Kind.SYS && b.kind() == PathCode.Kind.SYS);
    }

    private void requireRows(@Nullable Row[] rows, Header header) {
        Text.Line last = lines.getFirst();
        for (Row row : rows) {
            last = row != null && row.span.line().number() > last.number() ? row.span.line() : last;
        }
        List<String> gpus = new ArrayList<>();
        List<String> nics = new ArrayList<>();
        for (int i = 0; i < rows.length; i++) {
            String name = header.names().get(i);
            if (!name.isEmpty() && rows[i] == null) {
                (Header.isGpu(name) ? gpus : nics).add(name);
            }
        }
        if (!gpus.isEmpty()) {
            problems.add(
                    last,
                    0,
                    "the matrix ends here without rows for "
                            + MatrixParser.some(gpus)
                            + ": expected one for each device of the header");
        }
        if (!nics.isEmpty()) {
            problems.warn(
                    new Warning(
                            last.number(),
                            1,
                            "there are no rows for "
                                    + MatrixParser.some(nics)
                                    + ": taken from the columns"));
        }
    }
}
