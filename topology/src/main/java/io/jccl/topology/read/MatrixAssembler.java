package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Warning;
import io.jccl.topology.read.Affinity.Values;
import io.jccl.topology.read.Cells.Reading;
import io.jccl.topology.read.Header.Heading;
import io.jccl.topology.read.MatrixRows.Row;
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

/**
 * Makes a matrix of the rows that were read: both halves compared, affinities and names assigned.
 */
final class MatrixAssembler {
    private static final Pattern NIC_LEGEND =
            Pattern.compile("(?<![A-Za-z0-9_])(NIC\\d{1,4})\\s*[:=]\\s*([^\\s,;|]{1,64})");

    private final List<Text.Line> lines;
    private final Problems problems;
    private final Header header;
    private final @Nullable Row[] rows;

    MatrixAssembler(List<Text.Line> lines, Problems problems, Header header, @Nullable Row[] rows) {
        this.lines = lines;
        this.problems = problems;
        this.header = header;
        this.rows = rows;
    }

    /**
     * The matrix.
     *
     * @param top the header in the text
     * @param end the line after the rows: a legend may follow
     */
    Dump assemble(Span top, int end) {
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
        List<List<PathCode>> codes = codes(order, top);
        boolean states = kind(codes, top);
        if (states) {
            if (order.size() > gpus) {
                problems.add(
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
                    problems.warnings());
        }
        List<Values> values = affinities(order.subList(0, gpus), needed(codes, gpus));
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
        return new PathMatrix(gpuRows, nicRows, codes, problems.warnings());
    }

    private List<List<PathCode>> codes(List<Integer> order, Span top) {
        List<List<PathCode>> codes = new ArrayList<>();
        Map<String, Warning> unknown = new LinkedHashMap<>();
        for (int i : order) {
            List<PathCode> line = new ArrayList<>();
            for (int j : order) {
                line.add(i == j ? PathCode.SELF : cell(i, j));
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
                } else if (!MatrixRows.same(x, y)) {
                    PathCode far = farness(x) >= farness(y) ? x : y;
                    asymmetric(order.get(a), order.get(b), x, y, far);
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
        unknown.values().forEach(problems::warn);
        if (missing > 0) {
            if (missing == codes.size() * (codes.size() - 1) / 2) {
                throw top.error(
                        0,
                        "none of the rows below this header has a code that can be read: expected"
                                + " codes such as NV4, PIX, PXB, PHB, NODE or SYS");
            }
            problems.warn(Warning.of("no code for " + missing + " pairs of devices"));
        }
        return codes;
    }

    private PathCode cell(int i, int j) {
        Row row = rows[i];
        return row == null || row.readings.isEmpty()
                ? PathMatrix.MISSING
                : row.readings.getFirst().codes()[j];
    }

    /** The larger, the farther apart. */
    private static int farness(PathCode code) {
        return code.kind() == PathCode.Kind.NV
                ? 1000 - code.count()
                : code.text().equals("OK") ? 1000 : 1000 + code.kind().ordinal();
    }

    private void asymmetric(int a, int b, PathCode x, PathCode y, PathCode far) {
        Row first = rows[a];
        Row second = rows[b];
        if (first == null || second == null) {
            return;
        }
        String nameA = header.names().get(a);
        String nameB = header.names().get(b);
        Warning other = second.span.warning(second.readings.getFirst().at()[a], "");
        problems.add(
                first.span,
                first.readings.getFirst().at()[b],
                ("row %s, column %s is %s, but row %s, column %s (line %s, column %s) is %s: a"
                                + " matrix is symmetric%s")
                        .formatted(
                                nameA,
                                nameB,
                                x,
                                nameB,
                                nameA,
                                other.line(),
                                other.column(),
                                y,
                                problems.lenient ? "; " + far + " is taken" : ""));
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
                    ("the matrix has %s of topo -m and %s of topo -p2p: expected one command's"
                                    + " output")
                            .formatted(path, state));
        }
        return state != null;
    }

    /**
     * Whether affinities matter: they place GPUs on NUMA nodes where codes do not. No path between
     * GPUs that are all joined by NVLink depends on that, and SYS or a path of PCIe decides it.
     */
    private static boolean needed(List<List<PathCode>> codes, int gpus) {
        int size = codes.size();
        DisjointSets node = new DisjointSets(size);
        boolean linked = true;
        for (int i = 0; i < size; i++) {
            for (int j = i + 1; j < size; j++) {
                PathCode.Kind kind = codes.get(i).get(j).kind();
                linked &= j >= gpus || kind == PathCode.Kind.NV;
                switch (kind) {
                    case PIX, PXB, PHB, NODE -> node.unite(i, j);
                    default -> {}
                }
            }
        }
        if (linked) {
            return gpus == 1 && size > 1;
        }
        Set<List<Integer>> apart = new HashSet<>();
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < size; j++) {
                if (codes.get(i).get(j).kind() == PathCode.Kind.SYS) {
                    apart.add(List.of(node.find(i), node.find(j)));
                }
            }
        }
        for (int i = 0; i < gpus; i++) {
            for (int j = 0; j < i; j++) {
                List<Integer> pair = List.of(node.find(i), node.find(j));
                if (node.find(i) != node.find(j) && !apart.contains(pair)) {
                    return true;
                }
            }
        }
        return false;
    }

    private List<Values> affinities(List<Integer> gpus, boolean needed) {
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
                problems.warn(
                        known.getFirst()
                                .span
                                .warning(
                                        0,
                                        "rows have "
                                                + most
                                                + " cells after the codes, and the header has "
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
                int at = Cells.skip(row.span.text(), end(row, row.readings.getFirst()));
                String problem = "row " + row.name + ": " + sorted.get(k).problem();
                if (needed) {
                    problems.add(row.span, at, problem);
                } else {
                    problems.warn(row.span.warning(at, problem + "; its affinities are left out"));
                }
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
                    problems.add(
                            line,
                            m.start(),
                            "the legend gives %s as %s and as %s"
                                    .formatted(m.group(1), before, m.group(2)));
                }
            }
        }
        return legend;
    }
}
