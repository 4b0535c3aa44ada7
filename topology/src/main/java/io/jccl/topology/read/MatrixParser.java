package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.TopologyFormatException;
import io.jccl.topology.Warning;
import io.jccl.topology.read.MatrixRows.Row;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Finds the matrices of {@code nvidia-smi topo} in a text and reads them. */
final class MatrixParser {
    /** Most devices of a matrix. */
    static final int MAX_DEVICES = 1024;

    private MatrixParser() {}

    /** Whether a text has a matrix, readable or not. */
    static boolean isIn(List<Text.Line> lines) {
        return find(lines, 0) != null;
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
            int[] end = {block[1] + 1};
            try {
                dumps.add(matrix(lines, lenient, block[0], block[1], end));
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
            for (int r = h + 1; r < Math.min(lines.size(), h + MatrixRows.MAX_WRAPS); r++) {
                Text.Line line = lines.get(r);
                int s = line.start();
                if (!line.text().startsWith(first, s)
                        || !MatrixRows.ends(line.text(), s + first.length())) {
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

    private static Dump matrix(List<Text.Line> lines, boolean lenient, int h, int r, int[] end) {
        Problems problems = new Problems(lenient);
        Span top = new Span(false, lines.get(h), Header.start(lines.get(h)));
        for (int i = h + 1; i < r; i++) {
            if (!MatrixRows.isRule(lines.get(i).text())) {
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
                        problems.warnings());
        MatrixRows reader = new MatrixRows(lines, problems);
        header = reader.completed(header, top, r);
        @Nullable Row[] rows;
        try {
            rows = reader.read(header, top, r);
        } finally {
            end[0] = Math.max(end[0], reader.end()); // also of rows that cannot be read
        }
        return new MatrixAssembler(lines, problems, header, rows).assemble(top, reader.end());
    }

    static String some(List<String> names) {
        return names.size() <= 6
                ? String.join(", ", names)
                : String.join(", ", names.subList(0, 6)) + " and " + (names.size() - 6) + " more";
    }
}
