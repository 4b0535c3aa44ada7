package io.jccl.topology.read;

import io.jccl.topology.read.Header.Heading;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Sorts the cells after the codes under their headings. Cells can be empty, and the tool sets two
 * tabs before some, so that counting words is not enough.
 */
final class Affinity {
    /** Values in the order of {@link Heading}; null where the column is missing. */
    record Values(@Nullable String cpu, @Nullable String numa, @Nullable String gpuNuma) {
        static final Values NONE = new Values(null, null, null);

        @Nullable String of(Heading heading) {
            return switch (heading) {
                case CPU -> cpu;
                case NUMA -> numa;
                case GPU_NUMA -> gpuNuma;
            };
        }
    }

    /**
     * Cells as printed.
     *
     * @param fields the cells, without blanks around
     * @param visual where they start on a terminal; empty if tabs or bars part them
     * @param bars whether bars part them
     * @param last where the last code starts on a terminal; negative if the row was wrapped
     */
    record Tail(List<String> fields, List<Integer> visual, boolean bars, int last) {
        int filled() {
            int n = 0;
            for (String field : fields) {
                n += field.isEmpty() ? 0 : 1;
            }
            return n;
        }
    }

    private Affinity() {}

    /**
     * The ways to split what follows the codes: one, or two if a line was wrapped in it.
     *
     * @param span the row
     * @param reading its codes
     */
    static List<Tail> tails(Span span, Cells.Reading reading) {
        String text = span.text();
        int at = Math.min(reading.tail(), text.length());
        int[] codes = reading.at();
        int last = span.wrapped() ? -1 : span.visual(codes[codes.length - 1]);
        int wrap = text.indexOf(Span.WRAP, at);
        if (wrap < 0) {
            return List.of(tail(span, text, at, last));
        }
        Tail joined =
                tail(span, text.replace(String.valueOf(Span.WRAP), ""), removed(text, at), last);
        Tail split = tail(span, text.replace(Span.WRAP, separator(text, at)), at, last);
        return joined.fields.equals(split.fields) ? List.of(split) : List.of(joined, split);
    }

    private static int removed(String text, int at) {
        return at - (int) text.substring(0, at).chars().filter(c -> c == Span.WRAP).count();
    }

    private static char separator(String text, int at) {
        return text.indexOf('\t', at) >= 0 ? '\t' : ' ';
    }

    private static Tail tail(Span span, String text, int at, int last) {
        int end = text.length();
        while (end > at && text.charAt(end - 1) == ' ') {
            end--;
        }
        boolean bars = text.indexOf('|', at) >= 0;
        if (bars && text.charAt(end - 1) == '|') {
            end--;
        }
        boolean tabs = bars || text.indexOf('\t', at) >= 0;
        List<String> fields = new ArrayList<>();
        List<Integer> visual = new ArrayList<>();
        int i = at;
        while (i < end && text.charAt(i) == ' ') {
            i++;
        }
        if (i < end && (text.charAt(i) == '\t' || text.charAt(i) == '|')) {
            i++;
        }
        if (!tabs) {
            for (i = Cells.skip(text, i); i < end; i = Cells.skip(text, Cells.wordEnd(text, i))) {
                String word = text.substring(i, Cells.wordEnd(text, i));
                if (!Cells.isEllipsis(word)) {
                    fields.add(word);
                    visual.add(span.wrapped() ? -1 : span.visual(i));
                }
            }
            return new Tail(fields, visual, false, last);
        }
        boolean any = false;
        while (i <= end) {
            int next = i;
            while (next < end && text.charAt(next) != (bars ? '|' : '\t')) {
                next++;
            }
            String field = text.substring(i, next).strip();
            any |= !field.isEmpty();
            if (field.isEmpty()) {
                fields.add("");
            } else {
                for (String word : field.split("[ \\t]+", -1)) {
                    if (!Cells.isEllipsis(word)) {
                        fields.add(word);
                    }
                }
            }
            i = next + 1;
        }
        return new Tail(any ? fields : List.of(), List.of(), bars, last);
    }

    /** Whether a cell is a list of numbers and ranges, {@code N/A} or empty. */
    static boolean isList(String cell) {
        if (cell.isEmpty() || cell.equals("N/A")) {
            return true;
        }
        boolean digit = false;
        boolean range = false;
        for (int i = 0; i < cell.length(); i++) {
            char c = cell.charAt(i);
            if (Cells.isDigit(c)) {
                digit = true;
            } else if (c == ',' && digit) {
                digit = false;
                range = false;
            } else if (c == '-' && digit && !range) {
                digit = false;
                range = true;
            } else {
                return false;
            }
        }
        return digit;
    }

    /** Result of {@link #sort}: values, or what is wrong. */
    record Sorted(@Nullable Values values, String problem) {
        static Sorted wrong(String problem) {
            return new Sorted(null, problem);
        }
    }

    /**
     * Sorts the cells of all GPU rows.
     *
     * @param rows for each row the ways to split it
     * @param header the header
     * @param headings the headings to sort under: the header's, or more if rows have more cells
     * @return for each row its values or the problem
     */
    static List<Sorted> sort(List<List<Tail>> rows, Header header, List<Heading> headings) {
        List<Sorted> result = new ArrayList<>();
        Set<Values> seen = new LinkedHashSet<>();
        for (List<Tail> ways : rows) {
            if (ways.size() == 1) {
                Sorted s = sort(ways.getFirst(), header, headings);
                if (s.values != null && !isShort(ways.getFirst(), headings)) {
                    seen.add(s.values);
                }
            }
        }
        for (List<Tail> ways : rows) {
            Set<Values> fits = new LinkedHashSet<>();
            String problem = "";
            for (Tail tail : ways) {
                Sorted s = sort(tail, header, headings);
                if (s.values == null) {
                    problem = s.problem;
                } else if (!isShort(tail, headings)) {
                    fits.add(s.values);
                } else {
                    fits.addAll(refit(tail, headings, seen));
                    problem =
                            ("found the cells %s for %s headings: a tab is lost, and it is unclear"
                                            + " which")
                                    .formatted(tail.fields, headings.size());
                }
            }
            if (fits.size() > 1) {
                Set<Values> common = new LinkedHashSet<>(fits);
                common.retainAll(seen);
                fits = common.size() == 1 ? common : fits;
            }
            if (fits.size() == 1) {
                result.add(new Sorted(fits.iterator().next(), ""));
            } else {
                result.add(
                        Sorted.wrong(
                                fits.isEmpty()
                                        ? problem
                                        : "the wrapped cells "
                                                + ways.getFirst().fields
                                                + " can be split in several ways"));
            }
        }
        return result;
    }

    /** How many cells a row has, without the pads that the tool sets before some. */
    private static int width(Tail tail, List<Heading> headings) {
        List<String> f = tail.fields;
        int width = f.size();
        boolean padded = !headings.isEmpty() && headings.getLast() == Heading.GPU_NUMA;
        for (int i = 1; i < f.size() && !tail.bars; i++) {
            boolean last = padded && i == f.size() - 1;
            width -= f.get(i - 1).isEmpty() && (last || f.get(i).equals("N/A")) ? 1 : 0;
        }
        return width;
    }

    /** Whether a row with tabs may have lost one, so that positions mean nothing. */
    private static boolean isShort(Tail tail, List<Heading> headings) {
        int k = headings.size();
        return tail.visual.isEmpty()
                && !tail.fields.isEmpty()
                && tail.filled() < k
                && width(tail, headings) < k;
    }

    /** Splits one field so that the row equals another one, which is the only proof there is. */
    private static Set<Values> refit(Tail tail, List<Heading> headings, Set<Values> seen) {
        Set<Values> fits = new LinkedHashSet<>();
        StringBuilder mine = new StringBuilder();
        tail.fields.forEach(mine::append);
        for (Values v : seen) {
            StringBuilder other = new StringBuilder();
            for (Heading h : headings) {
                String value = v.of(h);
                other.append(value == null ? "" : value);
            }
            if (other.toString().contentEquals(mine)) {
                fits.add(v);
            }
        }
        return fits;
    }

    private static Sorted sort(Tail tail, Header header, List<Heading> headings) {
        for (String field : tail.fields) {
            if (!isList(field)) {
                return Sorted.wrong(
                        "found "
                                + NvlinkParser.quote(field)
                                + " after the codes: expected a list such as 0-31,64-95, or N/A");
            }
        }
        int k = headings.size();
        if (tail.filled() == 0) {
            return new Sorted(values(headings, List.of()), "");
        }
        if (k == 0) {
            return new Sorted(Values.NONE, "");
        }
        return tail.visual.isEmpty()
                ? byTabs(tail.fields, headings)
                : byPlace(tail, header, headings);
    }

    private static Sorted byTabs(List<String> fields, List<Heading> headings) {
        int k = headings.size();
        List<String> f = new ArrayList<>(fields);
        while (f.size() > k && f.getLast().isEmpty()) {
            f.removeLast();
        }
        // The tool sets two tabs before N/A, and before the last column.
        for (int i = f.size() - 1; i > 0 && f.size() > k; i--) {
            boolean last = i == f.size() - 1 && headings.getLast() == Heading.GPU_NUMA;
            if (f.get(i - 1).isEmpty() && (last || f.get(i).equals("N/A"))) {
                f.remove(i - 1);
            }
        }
        int extra = f.size() - k;
        long empty = f.stream().filter(String::isEmpty).count();
        if (extra > 0 && empty == extra) {
            f.removeIf(String::isEmpty);
        } else if (extra > 0) {
            return Sorted.wrong(
                    ("found the cells %s after the codes, and %s headings: it is unclear which is"
                                    + " which")
                            .formatted(fields, k));
        }
        if (f.size() < k && headings.getLast() == Heading.GPU_NUMA) {
            return Sorted.wrong(tooFew(fields, headings));
        }
        return new Sorted(values(headings, f), "");
    }

    /** In a text without tabs a cell starts where its heading does, or where a tab led. */
    private static Sorted byPlace(Tail tail, Header header, List<Heading> headings) {
        Sorted sorted = byHeading(tail, header, headings);
        if (sorted.values != null || tail.fields.size() >= headings.size() || tail.last < 0) {
            return sorted;
        }
        List<String> stops = byStops(tail, headings);
        return stops.isEmpty() ? sorted : new Sorted(values(headings, stops), "");
    }

    /**
     * The only way to leave cells empty with which every cell falls on its column, if tabs of 8
     * columns were made blanks; none if there is no such way, or several.
     */
    private static List<String> byStops(Tail tail, List<Heading> headings) {
        List<String> only = List.of();
        for (int filled = 0; filled < 1 << headings.size(); filled++) {
            if (Integer.bitCount(filled) != tail.fields.size()) {
                continue;
            }
            List<String> f = new ArrayList<>();
            boolean fits = true;
            int column = tail.last / 8 * 8;
            int next = 0;
            for (int h = 0; h < headings.size(); h++) {
                String value = (filled >> h & 1) == 1 ? tail.fields.get(next) : "";
                // One tab behind a cell; the tool sets another before N/A and the last column.
                column = (column / 8 + 1) * 8;
                column += headings.get(h) == Heading.GPU_NUMA || value.equals("N/A") ? 8 : 0;
                if (!value.isEmpty()) {
                    fits &= tail.visual.get(next++) == column;
                    column += value.length();
                }
                f.add(value);
            }
            if (fits && !only.isEmpty()) {
                return List.of();
            }
            only = fits ? f : only;
        }
        return only;
    }

    private static Sorted byHeading(Tail tail, Header header, List<Heading> headings) {
        int k = headings.size();
        if (tail.fields.size() == k) {
            return new Sorted(values(headings, tail.fields), "");
        }
        if (tail.fields.size() > k) {
            return Sorted.wrong(
                    "found the cells " + tail.fields + " after the codes, and " + k + " headings");
        }
        // Positions mean nothing unless the codes are below their names, too.
        if (tail.last < 0 || header.last() < 0 || Math.abs(tail.last - header.last()) > 1) {
            return Sorted.wrong(tooFew(tail.fields, headings));
        }
        List<String> f = new ArrayList<>();
        headings.forEach(h -> f.add(""));
        int before = -1;
        for (int i = 0; i < tail.fields.size(); i++) {
            int best = -1;
            for (int h = 0; h < Math.min(k, header.visual().size()); h++) {
                if (Math.abs(header.visual().get(h) - tail.visual.get(i)) <= 1) {
                    best = best < 0 ? h : k; // two headings are near: none is sure
                }
            }
            if (best <= before || best >= k) {
                return Sorted.wrong(tooFew(tail.fields, headings));
            }
            f.set(best, tail.fields.get(i));
            before = best;
        }
        if (headings.getLast() == Heading.GPU_NUMA && f.getLast().isEmpty()) {
            return Sorted.wrong(tooFew(tail.fields, headings));
        }
        return new Sorted(values(headings, f), "");
    }

    private static String tooFew(List<String> fields, List<Heading> headings) {
        return "found the cells %s after the codes for %s headings: it is unclear which are empty"
                .formatted(fields, headings.size());
    }

    private static Values values(List<Heading> headings, List<String> fields) {
        @Nullable String[] v = new @Nullable String[Heading.values().length];
        for (int i = 0; i < headings.size(); i++) {
            v[headings.get(i).ordinal()] = i < fields.size() ? fields.get(i) : "";
        }
        return new Values(v[0], v[1], v[2]);
    }
}
