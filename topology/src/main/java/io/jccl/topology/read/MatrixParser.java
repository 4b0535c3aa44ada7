package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.read.Affinity.Values;
import io.jccl.topology.read.Cells.Reading;
import io.jccl.topology.read.Header.Heading;
import io.jccl.topology.read.PathMatrix.GpuRow;
import io.jccl.topology.read.PathMatrix.NicRow;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Finds the matrices of {@code nvidia-smi topo} in a text and reads them. */
final class MatrixParser {
    /** Most devices of a matrix. */
    static final int MAX_DEVICES = 1024;

    /** Most lines over which a header or a row may be wrapped. */
    private static final int MAX_WRAPS = 200;

    private static final int MAX_WARNINGS = 50;
    private static final Pattern NIC_LEGEND =
            Pattern.compile("(?<![A-Za-z0-9_])(NIC\\d{1,4})\\s*[:=]\\s*([^\\s,;|]{1,64})");

    private final List<Text.Line> lines;
    private final boolean lenient;
    private final List<Warning> warnings = new ArrayList<>();

    private MatrixParser(List<Text.Line> lines, boolean lenient) {
        this.lines = lines;
        this.lenient = lenient;
    }

    /**
     * Reads the matrix of a text: if there are several, the first that shows NVLinks, else the
     * first that shows paths, else the first.
     *
     * @return the matrix; null if there is none
     */
    static @Nullable Dump parse(List<Text.Line> lines, boolean lenient) {
        List<Dump> dumps = new ArrayList<>();
        List<Integer> at = new ArrayList<>();
        List<TopologyFormatException> failures = new ArrayList<>();
        int i = 0;
        Text.@Nullable Line orphan = null;
        while (i < lines.size()) {
            int[] block = find(lines, i);
            if (block == null) {
                orphan = orphan == null ? orphan(lines, i) : orphan;
                break;
            }
            MatrixParser parser = new MatrixParser(lines, lenient);
            int[] end = {block[1] + 1};
            try {
                dumps.add(parser.matrix(block[0], block[1], end));
                at.add(lines.get(block[0]).number());
            } catch (TopologyFormatException e) {
                failures.add(e);
                if (failures.size() > 8) {
                    throw failures.getFirst();
                }
            }
            i = Math.max(end[0], block[1] + 1);
        }
        if (dumps.isEmpty()) {
            if (!failures.isEmpty()) {
                throw failures.getFirst();
            }
            if (orphan != null) {
                int start = Header.start(orphan);
                throw new TopologyFormatException(
                        orphan.number(),
                        orphan.column(Math.max(0, start)),
                        "this looks like the header of a matrix, but no row for "
                                + Header.firstName(orphan, start)
                                + " follows: paste the whole output of nvidia-smi topo -m");
            }
            return null;
        }
        int best = 0;
        for (int k = 1; k < dumps.size(); k++) {
            best = rank(dumps.get(k)) > rank(dumps.get(best)) ? k : best;
        }
        for (TopologyFormatException e : failures) {
            if (e.line() < at.get(best)) {
                throw e;
            }
        }
        Dump chosen = dumps.get(best);
        List<Warning> more = new ArrayList<>(chosen.warnings());
        if (dumps.size() > 1) {
            more.add(
                    new Warning(
                            at.get(best),
                            1,
                            "the text has "
                                    + dumps.size()
                                    + " matrices, at lines "
                                    + some(at.stream().map(String::valueOf).toList())
                                    + ": this one is read"));
        }
        for (TopologyFormatException e : failures) {
            more.add(
                    new Warning(
                            e.line(),
                            e.column(),
                            "a further matrix is left out: " + e.getMessage()));
        }
        return switch (chosen) {
            case PathMatrix m -> new PathMatrix(m.gpus(), m.nics(), m.codes(), more);
            case P2pMatrix m -> new P2pMatrix(m.gpus(), m.codes(), more);
            case NvlinkStatus s -> s;
        };
    }

    private static int rank(Dump dump) {
        if (!(dump instanceof PathMatrix m)) {
            return 0;
        }
        boolean nv =
                m.codes().stream()
                        .anyMatch(r -> r.stream().anyMatch(c -> c.kind() == PathCode.Kind.NV));
        return nv ? 2 : 1;
    }

    /** Header and first row of the next matrix; null if there is none. */
    private static int @Nullable [] find(List<Text.Line> lines, int from) {
        for (int h = from; h < lines.size(); h++) {
            int start = Header.start(lines.get(h));
            if (start < 0) {
                continue;
            }
            String first = Header.firstName(lines.get(h), start);
            for (int r = h + 1; r < Math.min(lines.size(), h + MAX_WRAPS); r++) {
                Text.Line line = lines.get(r);
                int s = line.start();
                if (!line.text().startsWith(first, s) || !ends(line.text(), s + first.length())) {
                    continue;
                }
                if (Header.start(line) < 0) {
                    return new int[] {h, r};
                }
                h = r; // a header nearer to the row
            }
        }
        return null;
    }

    private static Text.@Nullable Line orphan(List<Text.Line> lines, int from) {
        for (int i = from; i < lines.size(); i++) {
            if (Header.start(lines.get(i)) >= 0) {
                return lines.get(i);
            }
        }
        return null;
    }

    /** Whether a label can end here: at a separator, or where a code starts without one. */
    private static boolean ends(String text, int at) {
        return at == text.length()
                || Cells.isSeparator(text.charAt(at))
                || (Cells.isUpper(text.charAt(at))
                        && Cells.startsWithCode(
                                text.substring(at, Math.min(Cells.wordEnd(text, at), at + 64))));
    }

    /** A row of the text. */
    private static final class Row {
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

    private Dump matrix(int h, int r, int[] end) {
        Span top = new Span(false, lines.get(h), Header.start(lines.get(h)));
        for (int i = h + 1; i < r; i++) {
            if (!isRule(lines.get(i).text())) {
                top.add(lines.get(i));
            }
        }
        Set<String> labels = new HashSet<>();
        boolean[] asked = {false};
        Header header =
                Header.parse(
                        top,
                        () -> {
                            if (!asked[0]) {
                                asked[0] = true;
                                labels.addAll(Header.labels(lines, r));
                            }
                            return labels;
                        },
                        lenient,
                        warnings);
        header = completed(header, top, r);
        @Nullable Row[] rows = rows(header, r, end);
        boolean[] elided = new boolean[header.names().size()];
        boolean left = false;
        for (int i = 0; i < elided.length; i++) {
            elided[i] = header.names().get(i).isEmpty();
            left |= elided[i];
        }
        if (left) {
            warn(top.warning(0, "the header has ... for columns that were left out"));
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
        return assemble(header, rows, top, end[0]);
    }

    /** A header that was cut: rows have more cells, as many as there are rows. */
    private Header completed(Header header, Span top, int r) {
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
        warn(
                top.warning(
                        0,
                        "the header has "
                                + names
                                + " devices, the rows have "
                                + whole.names().size()
                                + ": the names of the rows are taken for the columns"));
        return whole;
    }

    private @Nullable Row[] rows(Header header, int from, int[] end) {
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
                    problem(line, s, "a second row for " + name + ": expected one for each device");
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
                problem(
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
            warn(
                    new Warning(
                            line.number(),
                            line.column(s),
                            "a line between the rows is left out: " + NvlinkParser.quote(text)));
            last = null;
        }
        end[0] = i;
        return rows;
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
    private static boolean isRule(String text) {
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
            problem(
                    row.span,
                    Cells.skip(text, 0),
                    "row "
                            + row.name
                            + " has "
                            + found
                            + " cells: expected "
                            + count
                            + ", one for each device of the header, with X under "
                            + row.name);
            return;
        }
        int i = 0;
        for (int k = 0; k < count; k++) {
            int from = Cells.skip(text, i);
            i = Cells.wordEnd(text, from);
            String word = text.substring(from, i);
            boolean self = word.equals("X");
            if (self != (k == row.column) || !Cells.looksLikeCode(word)) {
                problem(
                        row.span,
                        from,
                        "row "
                                + row.name
                                + ", column "
                                + header.names().get(k)
                                + ": found "
                                + NvlinkParser.quote(word)
                                + ", expected "
                                + (k == row.column
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
                    problem(
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
                problem(
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

    private static boolean same(PathCode a, PathCode b) {
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
            problem(
                    last,
                    0,
                    "the matrix ends here without rows for "
                            + some(gpus)
                            + ": expected one for each device of the header");
        }
        if (!nics.isEmpty()) {
            warn(
                    new Warning(
                            last.number(),
                            1,
                            "there are no rows for " + some(nics) + ": taken from the columns"));
        }
    }

    private static String some(List<String> names) {
        return names.size() <= 6
                ? String.join(", ", names)
                : String.join(", ", names.subList(0, 6)) + " and " + (names.size() - 6) + " more";
    }

    private Dump assemble(Header header, @Nullable Row[] rows, Span top, int end) {
        List<Integer> order = new ArrayList<>();
        int gpus = 0;
        for (boolean gpu : new boolean[] {true, false}) {
            for (int i = 0; i < rows.length; i++) {
                String name = header.names().get(i);
                if (!name.isEmpty() && Header.isGpu(name) == gpu) {
                    order.add(i);
                }
            }
            gpus = gpu ? order.size() : gpus;
        }
        List<List<PathCode>> codes = codes(header, rows, order, top);
        boolean states = kind(codes, top);
        if (states) {
            if (order.size() > gpus) {
                problem(
                        top,
                        0,
                        "a matrix of -p2p has GPUs only, and this header has "
                                + header.names().get(order.get(gpus)));
            }
            List<String> names = new ArrayList<>();
            for (int i = 0; i < gpus; i++) {
                names.add(header.names().get(order.get(i)));
            }
            int n = gpus;
            return new P2pMatrix(
                    names,
                    codes.stream().limit(n).map(row -> row.subList(0, n)).toList(),
                    warnings);
        }
        List<Values> values = affinities(header, rows, order.subList(0, gpus));
        List<GpuRow> gpuRows = new ArrayList<>();
        for (int i = 0; i < gpus; i++) {
            String name = header.names().get(order.get(i));
            Values v = values.get(i);
            gpuRows.add(
                    new GpuRow(
                            name,
                            Integer.parseInt(name.substring(3)),
                            v.cpu(),
                            v.numa(),
                            v.gpuNuma()));
        }
        Map<String, String> legend = legend(end);
        List<NicRow> nicRows = new ArrayList<>();
        for (int i = gpus; i < order.size(); i++) {
            String name = header.names().get(order.get(i));
            nicRows.add(new NicRow(name, legend.get(name)));
        }
        return new PathMatrix(gpuRows, nicRows, codes, warnings);
    }

    private List<List<PathCode>> codes(
            Header header, @Nullable Row[] rows, List<Integer> order, Span top) {
        List<List<PathCode>> codes = new ArrayList<>();
        Map<String, Warning> unknown = new LinkedHashMap<>();
        for (int i : order) {
            List<PathCode> line = new ArrayList<>();
            for (int j : order) {
                line.add(i == j ? PathCode.SELF : cell(rows, i, j));
            }
            codes.add(line);
        }
        int missing = 0;
        for (int a = 0; a < codes.size(); a++) {
            for (int b = a + 1; b < codes.size(); b++) {
                PathCode x = codes.get(a).get(b);
                PathCode y = codes.get(b).get(a);
                if (PathMatrix.isMissing(x) || PathMatrix.isMissing(y)) {
                    PathCode known = PathMatrix.isMissing(x) ? y : x;
                    codes.get(a).set(b, known);
                    codes.get(b).set(a, known);
                    missing += PathMatrix.isMissing(known) ? 1 : 0;
                } else if (!same(x, y)) {
                    PathCode far = farness(x) >= farness(y) ? x : y;
                    asymmetric(header, rows, order.get(a), order.get(b), x, y, far);
                    codes.get(a).set(b, far);
                    codes.get(b).set(a, far);
                }
                PathCode code = codes.get(a).get(b);
                if (code.kind() == PathCode.Kind.UNKNOWN && !PathMatrix.isMissing(code)) {
                    Row row = rows[order.get(a)];
                    Row from = row != null && !row.readings.isEmpty() ? row : rows[order.get(b)];
                    int column = from == row ? order.get(b) : order.get(a);
                    if (from != null && !from.readings.isEmpty()) {
                        unknown.computeIfAbsent(
                                code.text(),
                                text ->
                                        from.span.warning(
                                                from.readings.getFirst().at()[column],
                                                "unknown code "
                                                        + text
                                                        + ": kept, and not used as a link"));
                    }
                }
            }
        }
        unknown.values().forEach(this::warn);
        if (missing > 0) {
            if (missing == codes.size() * (codes.size() - 1) / 2) {
                throw top.error(
                        0,
                        "none of the rows below this header has a code that can be read: expected"
                                + " codes such as NV4, PIX, PXB, PHB, NODE or SYS");
            }
            warn(Warning.of("no code for " + missing + " pairs of devices"));
        }
        return codes;
    }

    private static PathCode cell(@Nullable Row[] rows, int i, int j) {
        Row row = rows[i];
        return row == null || row.readings.isEmpty()
                ? PathMatrix.MISSING
                : row.readings.getFirst().codes()[j];
    }

    /** The larger, the farther apart. */
    private static int farness(PathCode code) {
        return code.kind() == PathCode.Kind.NV ? 1000 - code.count() : 1000 + code.kind().ordinal();
    }

    private void asymmetric(
            Header header,
            @Nullable Row[] rows,
            int a,
            int b,
            PathCode x,
            PathCode y,
            PathCode far) {
        Row first = rows[a];
        Row second = rows[b];
        if (first == null || second == null) {
            return;
        }
        String nameA = header.names().get(a);
        String nameB = header.names().get(b);
        Warning other = second.span.warning(second.readings.getFirst().at()[a], "");
        problem(
                first.span,
                first.readings.getFirst().at()[b],
                "row "
                        + nameA
                        + ", column "
                        + nameB
                        + " says "
                        + x
                        + ", but row "
                        + nameB
                        + ", column "
                        + nameA
                        + " (line "
                        + other.line()
                        + ", column "
                        + other.column()
                        + ") says "
                        + y
                        + ": a matrix is symmetric"
                        + (lenient ? "; " + far + " is taken" : ""));
    }

    /** Whether the cells are states of -p2p. */
    private boolean kind(List<List<PathCode>> codes, Span top) {
        PathCode state = null;
        PathCode path = null;
        for (List<PathCode> row : codes) {
            for (PathCode code : row) {
                switch (code.kind()) {
                    case P2P -> state = code;
                    case SELF, UNKNOWN -> {}
                    default -> path = code;
                }
            }
        }
        if (state != null && path != null) {
            throw top.error(
                    0,
                    "the matrix has "
                            + path
                            + " of topo -m and "
                            + state
                            + " of topo -p2p: expected one command's output");
        }
        return state != null;
    }

    private List<Values> affinities(Header header, @Nullable Row[] rows, List<Integer> gpus) {
        List<List<Affinity.Tail>> tails = new ArrayList<>();
        List<Row> known = new ArrayList<>();
        int most = 0;
        for (int i : gpus) {
            Row row = rows[i];
            if (row != null && !row.readings.isEmpty()) {
                List<Affinity.Tail> ways = Affinity.tails(row.span, row.readings.getFirst());
                known.add(row);
                tails.add(ways);
                most = Math.max(most, ways.getFirst().filled());
            }
        }
        List<Heading> headings = new ArrayList<>(header.headings());
        Heading[] all = Heading.values();
        if (most > headings.size() && !header.names().contains("")) {
            boolean standard = true;
            for (int i = 0; i < headings.size(); i++) {
                standard &= headings.get(i) == all[i];
            }
            if (standard && most <= all.length) {
                while (headings.size() < most) {
                    headings.add(all[headings.size()]);
                }
                warn(
                        known.getFirst()
                                .span
                                .warning(
                                        0,
                                        "rows have "
                                                + most
                                                + " cells behind the codes, and the header has "
                                                + header.headings().size()
                                                + " headings: taken for CPU affinity, NUMA"
                                                + " affinity and GPU NUMA ID in this order"));
            }
        }
        Map<Row, Values> byRow = new HashMap<>();
        List<Affinity.Sorted> sorted = Affinity.sort(tails, header, headings);
        for (int k = 0; k < known.size(); k++) {
            Values values = sorted.get(k).values();
            Row row = known.get(k);
            if (values != null) {
                byRow.put(row, values);
            } else {
                problem(
                        row.span,
                        Cells.skip(row.span.text(), end(row, row.readings.getFirst())),
                        "row " + row.name + ": " + sorted.get(k).problem());
            }
        }
        List<Values> result = new ArrayList<>();
        for (int i : gpus) {
            Row row = rows[i];
            result.add(row == null ? Values.NONE : byRow.getOrDefault(row, Values.NONE));
        }
        return result;
    }

    private static int end(Row row, Reading reading) {
        return Math.min(reading.tail(), row.span.text().length());
    }

    private Map<String, String> legend(int from) {
        Map<String, String> legend = new HashMap<>();
        for (int i = from; i < lines.size(); i++) {
            Text.Line line = lines.get(i);
            if (Header.start(line) >= 0) {
                break;
            }
            if (line.text().indexOf("NIC") < 0) {
                continue;
            }
            Matcher m = NIC_LEGEND.matcher(line.text());
            while (m.find()) {
                String before = legend.putIfAbsent(m.group(1), m.group(2));
                if (before != null && !before.equals(m.group(2))) {
                    problem(
                            line,
                            m.start(),
                            "the legend gives "
                                    + m.group(1)
                                    + " as "
                                    + before
                                    + " and as "
                                    + m.group(2));
                }
            }
        }
        return legend;
    }

    private void problem(Span span, int at, String message) {
        if (!lenient) {
            throw span.error(at, message);
        }
        warn(span.warning(at, message));
    }

    private void problem(Text.Line line, int at, String message) {
        if (!lenient) {
            throw new TopologyFormatException(line.number(), line.column(at), message);
        }
        warn(new Warning(line.number(), line.column(at), message));
    }

    private void warn(Warning warning) {
        if (warnings.size() < MAX_WARNINGS) {
            warnings.add(warning);
        } else if (warnings.size() == MAX_WARNINGS) {
            warnings.add(Warning.of("and more of the kind"));
        }
    }
}
