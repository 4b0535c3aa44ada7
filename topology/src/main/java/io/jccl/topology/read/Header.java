package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import io.jccl.topology.Warning;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The header of a matrix.
 *
 * @param names names of the columns; empty for omitted columns
 * @param places the column of each name
 * @param headings headings behind the devices, such as {@code CPU Affinity}
 * @param visual where each heading starts on a terminal; empty if the header was wrapped
 * @param last where the last device starts on a terminal; negative if the header was wrapped
 */
record Header(
        List<String> names,
        Map<String, Integer> places,
        List<Heading> headings,
        List<Integer> visual,
        int last) {
    /** What the columns behind the devices hold, in the order of the tool. */
    enum Heading {
        CPU(Pattern.compile("CPU[\\s_-]*Affinity", Pattern.CASE_INSENSITIVE)),
        NUMA(Pattern.compile("NUMA[\\s_-]*Affinity", Pattern.CASE_INSENSITIVE)),
        GPU_NUMA(Pattern.compile("GPU[\\s_-]*NUMA[\\s_-]*ID", Pattern.CASE_INSENSITIVE));

        private final Pattern pattern;

        Heading(Pattern pattern) {
            this.pattern = pattern;
        }
    }

    private static final Pattern GPU = Pattern.compile("GPU\\d{1,5}");

    /** Names of which it is known where they end. */
    private static final Pattern NIC =
            Pattern.compile("NIC\\d{1,4}|mlx\\d_(?:bond_?)?\\d{1,3}|hfi1_\\d{1,3}|bnxt_re\\d{1,3}");

    /** Blanks, and the bars of tables; a set without tabs would break real dumps. */
    private static final Pattern BLANKS = Pattern.compile("[ \\t|]+");

    static boolean isGpu(String name) {
        return name.startsWith("GPU");
    }

    /** Position of the first GPU if the line is a header or its first part; else negative. */
    static int start(Text.Line line) {
        String text = line.text();
        int from = text.indexOf("GPU");
        while (from >= 0 && gpuEnd(text, from) < 0) {
            from = text.indexOf("GPU", from + 3);
        }
        if (from < 0) {
            return -1;
        }
        int first = line.start();
        if (from != first) {
            // It may be preceded by the corner cell of a table, or a title with a colon.
            int bar = text.indexOf('|', first);
            boolean corner = bar > 0 && bar < from && text.substring(bar, from).trim().equals("|");
            int before = text.substring(0, from).stripTrailing().length();
            boolean title = before > 0 && before < from && text.charAt(before - 1) == ':';
            if (!corner && !title) {
                return -1;
            }
        }
        int next = Cells.skip(text, gpuEnd(text, from));
        if (next == text.length()) {
            return from;
        }
        if (gpuEnd(text, next) > 0
                || text.startsWith("..", next)
                || text.startsWith("\u2026", next)) {
            return from;
        }
        for (Heading h : Heading.values()) {
            if (matches(h.pattern, text, next) > 0) {
                return from;
            }
        }
        String word = text.substring(next, Math.min(Cells.wordEnd(text, next), next + 64));
        boolean broken = // a terminal wrapped the line within the second word
                next + word.length() == text.length()
                        && List.of("G", "GP", "GPU", "C", "CP", "CPU", "N", "NI", "NIC")
                                .contains(word);
        return broken || isNic(word) ? from : -1;
    }

    /** Linux gives RDMA devices lower-case names with digits; the legend's are NIC0 and so on. */
    private static boolean isNic(String word) {
        if (word.startsWith("NIC")) {
            return word.length() > 3 && Cells.isDigit(word.charAt(3));
        }
        return !word.isEmpty()
                && Character.isLowerCase(word.charAt(0))
                && (word.indexOf('_') > 0 || word.chars().anyMatch(Character::isDigit))
                && word.chars()
                        .allMatch(c -> Character.isLetterOrDigit(c) || "_.:-".indexOf(c) >= 0);
    }

    private static int gpuEnd(String text, int at) {
        if (!text.startsWith("GPU", at)) {
            return -1;
        }
        int i = at + 3;
        while (i < text.length() && Cells.isDigit(text.charAt(i)) && i < at + 8) {
            i++;
        }
        return i == at + 3 || (i < text.length() && text.charAt(i) == ':') ? -1 : i;
    }

    private static int matches(Pattern pattern, String text, int at) {
        Matcher m = pattern.matcher(text).region(at, Math.min(text.length(), at + 64));
        return m.lookingAt() ? m.end() : -1;
    }

    /** Name of the first GPU of a line that is a header. */
    static String firstName(Text.Line line, int start) {
        return line.text().substring(start, gpuEnd(line.text(), start));
    }

    /**
     * Reads the header.
     *
     * @param span from the first GPU on; wrapped lines are joined without a mark, as the ends of
     *     names and headings are evident
     * @param labels first words of the lines that follow
     */
    static Header parse(
            Span span, Supplier<Set<String>> labels, boolean lenient, List<Warning> warnings) {
        String text = span.text();
        List<String> names = new ArrayList<>();
        Map<String, Integer> places = new HashMap<>();
        List<Heading> headings = new ArrayList<>();
        List<Integer> visual = new ArrayList<>();
        int last = -1;
        int i = 0;
        while (true) {
            Matcher blanks = BLANKS.matcher(text).region(i, text.length());
            i = blanks.lookingAt() ? blanks.end() : i;
            if (i == text.length()) {
                break;
            }
            Heading heading = null;
            int end = -1;
            for (Heading h : Heading.values()) {
                int e = matches(h.pattern, text, i);
                if (e > 0) {
                    heading = h;
                    end = e;
                }
            }
            if (heading != null) {
                if (headings.contains(heading)) {
                    throw span.error(i, "a second heading " + text.substring(i, end));
                }
                headings.add(heading);
                visual.add(span.wrapped() ? -1 : span.visual(i));
                i = end;
                continue;
            }
            String word = text.substring(i, Cells.wordEnd(text, i));
            if (Cells.isEllipsis(word)) {
                if (headings.isEmpty()) {
                    names.add("");
                }
                i += word.length();
                continue;
            }
            int length = nameLength(text, i, word, labels);
            if (length == 0 || !headings.isEmpty()) {
                String message =
                        "found "
                                + NvlinkParser.quote(word)
                                + " in the header: expected GPU0, a NIC such as NIC0 or mlx5_0,"
                                + " CPU Affinity, NUMA Affinity or GPU NUMA ID";
                if (!lenient || headings.isEmpty()) {
                    throw span.error(i, message);
                }
                warnings.add(span.warning(i, message + "; left out"));
                i += word.length();
                continue;
            }
            String name = text.substring(i, i + length);
            if (places.put(name, names.size()) != null) {
                throw span.error(i, name + " appears in the header twice: names must be unique");
            }
            names.add(name);
            last = i;
            if (names.size() > MatrixParser.MAX_DEVICES) {
                throw span.error(
                        i, "more than " + MatrixParser.MAX_DEVICES + " devices in a matrix");
            }
            i += length;
        }
        return span.wrapped() || last < 0
                ? new Header(names, places, headings, List.of(), -1)
                : new Header(names, places, headings, visual, span.visual(last));
    }

    /**
     * The same with the names of rows that follow the header's.
     *
     * @return the header; null if the rows do not start with the header's names, or have no more
     */
    @Nullable Header completed(Set<String> labels) {
        List<String> all = List.copyOf(labels);
        if (all.size() <= names.size()
                || all.size() > MatrixParser.MAX_DEVICES
                || !all.subList(0, names.size()).equals(names)) {
            return null;
        }
        Map<String, Integer> at = new HashMap<>();
        all.forEach(name -> at.put(name, at.size()));
        return new Header(all, at, headings, List.of(), -1);
    }

    /** How long the name of a device is that starts here; 0 if none does. */
    private static int nameLength(String text, int at, String word, Supplier<Set<String>> labels) {
        int end = gpuEnd(text, at);
        if (end > 0) {
            return end - at;
        }
        int known = matches(NIC, text, at);
        if (known > 0 && known - at == word.length()) {
            return word.length();
        }
        if (word.length() <= 64 && labels.get().contains(word)) {
            return word.length();
        }
        // Fused with what follows: take the longest name that a row has, else one that is known.
        int longest = known > 0 ? known - at : 0;
        for (int n = 1; n <= Math.min(64, word.length()); n++) {
            if (n > longest && labels.get().contains(word.substring(0, n))) {
                longest = n;
            }
        }
        if (longest > 0) {
            return longest;
        }
        int gpu = word.indexOf("GPU", 1);
        int cpu = word.indexOf("CPU", 1);
        int cut = gpu < 0 ? cpu : cpu < 0 ? gpu : Math.min(gpu, cpu);
        String name = cut > 0 ? word.substring(0, cut) : word;
        return name.length() <= 64 && isNic(name) ? name.length() : 0;
    }

    /** First words of the lines of a matrix, as far as they can be names, in their order. */
    static Set<String> labels(List<Text.Line> lines, int from) {
        Set<String> labels = new LinkedHashSet<>();
        for (int i = from; i < Math.min(lines.size(), from + 4 * MatrixParser.MAX_DEVICES); i++) {
            Text.Line line = lines.get(i);
            int s = line.start();
            if (line.text().startsWith("Legend", s) || start(line) >= 0) {
                break;
            }
            String word = line.text().substring(s, Math.min(Cells.wordEnd(line.text(), s), s + 64));
            if (GPU.matcher(word).matches() || isNic(word)) {
                // A row has a code or nothing behind its name; the legend and prose do not.
                int next = Cells.skip(line.text(), s + word.length());
                String cell = line.text().substring(next, Cells.wordEnd(line.text(), next));
                if (PathCode.of(cell).kind() != PathCode.Kind.UNKNOWN
                        || Cells.looksLikeCode(cell)
                        || Cells.startsWithCode(cell)) {
                    labels.add(word);
                }
            }
        }
        return labels;
    }
}
