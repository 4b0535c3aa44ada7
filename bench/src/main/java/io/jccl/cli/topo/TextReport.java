package io.jccl.cli.topo;

import io.jccl.cli.shell.Output;
import io.jccl.topology.cost.Crossover;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The findings as text, in at most {@value #WIDTH} columns. */
public final class TextReport {
    private static final int WIDTH = 118;

    /** Further channels are only counted. */
    private static final int CHANNELS = 12;

    /** Further lines about devices are only counted. */
    private static final int DEVICES = 24;

    /** Most lines of an explanation. */
    private static final int REASONS = 5;

    private final Findings f;
    private final StringBuilder out = new StringBuilder();

    private TextReport(Findings f) {
        this.f = f;
    }

    /**
     * Writes a report.
     *
     * @param findings the findings
     * @param explain whether to explain the plan
     * @return lines
     */
    public static String of(Findings findings, boolean explain) {
        TextReport report = new TextReport(findings);
        report.machine();
        report.links();
        report.plan();
        if (explain) {
            report.reasons();
        }
        report.predictions();
        report.simulation();
        return report.out.toString();
    }

    private void machine() {
        line(
                f.name()
                        + ": "
                        + count(f.gpus().size(), "GPU")
                        + (f.nics().isEmpty() ? "" : ", " + count(f.nics().size(), "NIC")));
        Map<String, List<Integer>> alike = new LinkedHashMap<>();
        for (int i = 0; i < f.gpus().size(); i++) {
            alike.computeIfAbsent(about(i), k -> new ArrayList<>()).add(f.index(i));
        }
        List<List<String>> rows = new ArrayList<>();
        alike.forEach((about, indices) -> {
            List<String> row = new ArrayList<>(List.of("  GPU" + ranges(indices)));
            row.addAll(List.of(about.split("\t", -1)));
            rows.add(row);
        });
        table(rows, DEVICES, "more kinds of GPUs", 0);
        StringBuilder b = new StringBuilder();
        for (Findings.NicRow nic : f.nics()) {
            Double gbps = nic.gbps();
            String device = nic.name().equals(nic.device()) ? null : nic.device();
            if (device == null && gbps == null) {
                continue;
            }
            String text =
                    Output.oneLine(nic.name())
                            + (device == null ? "" : " " + Output.oneLine(device))
                            + (gbps == null ? "" : " " + rate(gbps) + " GB/s");
            if (!b.isEmpty() && b.length() + text.length() + 2 > WIDTH) {
                line(b.append(',').toString());
                b.setLength(0);
            }
            b.append(b.isEmpty() ? "  " : ", ").append(text);
        }
        if (!b.isEmpty()) {
            line(b.toString());
        }
    }

    /** Properties that the GPUs of one line have in common, in columns. */
    private String about(int place) {
        Findings.GpuRow gpu = f.gpus().get(place);
        List<String> columns = new ArrayList<>();
        columns.add(gpu.model() == null ? "" : Output.oneLine(gpu.model()));
        String cc = gpu.computeCapability();
        columns.add(cc == null ? "" : "compute " + cc);
        Integer links = gpu.nvlinks();
        Double rate = gpu.nvlinkGbps();
        columns.add(
                links == null
                        ? ""
                        : links + " NVLinks up" + (rate == null ? "" : ", " + rate + " GB/s raw"));
        columns.add(known("NUMA ", gpu.numaAffinity()));
        columns.add(known("CPUs ", gpu.cpuAffinity()));
        String near = near(gpu.name());
        columns.add(near.isEmpty() ? "" : "near " + near);
        return String.join("\t", columns);
    }

    private static String known(String label, @Nullable String value) {
        return value == null || value.isEmpty() || value.equals("N/A")
                ? ""
                : label + cut(Output.oneLine(value), 30);
    }

    /** The NICs that a GPU reaches by the shortest kind of path. */
    private String near(String gpu) {
        List<String> order = List.of("PIX", "PXB", "PHB", "NODE");
        int best = order.size();
        for (Findings.Pair p : f.links()) {
            if (p.toNic() && p.a().equals(gpu) && order.contains(p.code())) {
                best = Math.min(best, order.indexOf(p.code()));
            }
        }
        if (best == order.size()) {
            return "";
        }
        String code = order.get(best);
        List<String> names = new ArrayList<>();
        for (Findings.Pair p : f.links()) {
            if (p.toNic() && p.a().equals(gpu) && p.code().equals(code)) {
                names.add(Output.oneLine(p.b()));
            }
        }
        return cut(String.join(" ", names), 40) + " (" + code + ")";
    }

    private void links() {
        // By code and bandwidth, in order of first occurrence.
        record Sort(String code, String kind, @Nullable Double gbps) {}
        Map<Sort, List<Findings.Pair>> sorts = new LinkedHashMap<>();
        for (Findings.Pair p : f.links()) {
            if (!p.toNic()) {
                sorts.computeIfAbsent(
                                new Sort(p.code(), p.kind(), p.gbps()), k -> new ArrayList<>())
                        .add(p);
            }
        }
        if (sorts.isEmpty()) {
            return;
        }
        line("");
        line("Between GPUs (GB/s per direction, for a pair that has the path to itself)");
        List<List<String>> rows = new ArrayList<>();
        sorts.forEach((sort, pairs) -> {
            List<String> which = new ArrayList<>();
            for (Findings.Pair p : pairs) {
                which.add(number(p.a()) + "-" + number(p.b()));
            }
            rows.add(
                    List.of(
                            "  " + Output.oneLine(sort.code),
                            count(pairs.size(), "pair"),
                            sort.gbps == null ? "" : rate(sort.gbps) + " GB/s",
                            sort.kind.replace('_', ' '),
                            pairs.size() == total() ? "every pair" : String.join(" ", which)));
        });
        table(rows, DEVICES, "more kinds of paths", 1 << 1 | 1 << 2);
    }

    private long total() {
        return f.links().stream().filter(p -> !p.toNic()).count();
    }

    private static String number(String name) {
        return Output.oneLine(name.startsWith("GPU") ? name.substring(3) : name);
    }

    private void plan() {
        Plan plan = f.plan();
        ClusterPlan cluster = f.clusterPlan();
        if (plan == null && cluster == null) {
            return;
        }
        List<Integer> indices = f.selected().stream().map(f::index).toList();
        line("");
        String over = f.operation().command() + " over " + count(indices.size(), "GPU");
        if (indices.size() < f.gpus().size()) {
            over += " (" + ranges(indices) + ")";
        }
        if (plan != null) {
            line("Plan for " + over + ": " + kinds(plan));
            List<String> channels = new ArrayList<>();
            for (Channel c : plan.channels()) {
                channels.add("  " + pad(rate(c.gbps()), 7) + " GB/s  " + path(c));
            }
            many(channels, "channel");
            figures(plan.bandwidthGBps(), plan.boundGBps(), plan.bound());
        } else if (cluster != null) {
            line(
                    "Plan for "
                            + over
                            + " on each of "
                            + f.machines()
                            + " machines: "
                            + count(cluster.channels().size(), "rail"));
            List<String> rails = new ArrayList<>();
            for (ClusterPlan.Rail r : cluster.channels()) {
                rails.add(
                        "  "
                                + pad(rate(r.gbps()), 7)
                                + " GB/s  "
                                + lower(r.shape()).replace('_', ' ')
                                + " over machines: in by "
                                + Output.oneLine(f.nics().get(r.nicIn()).name())
                                + ", GPUs "
                                + sequence(inside(r))
                                + ", out by "
                                + Output.oneLine(f.nics().get(r.nicOut()).name()));
            }
            many(rails, "rail");
            figures(cluster.bandwidthGBps(), cluster.boundGBps(), cluster.bound());
        }
    }

    private List<Integer> inside(ClusterPlan.Rail rail) {
        List<Integer> inside = new ArrayList<>(List.of(f.index(rail.entry())));
        rail.hops().forEach(h -> inside.add(f.index(h.to())));
        return inside;
    }

    private static String kinds(Plan plan) {
        int rings = 0;
        int trees = 0;
        int exchanges = 0;
        for (Channel c : plan.channels()) {
            switch (c) {
                case Channel.Ring ring -> rings++;
                case Channel.Tree tree -> trees++;
                case Channel.Exchange exchange -> exchanges++;
            }
        }
        List<String> kinds = new ArrayList<>();
        if (rings > 0) {
            kinds.add(count(rings, "ring"));
        }
        if (trees > 0) {
            kinds.add(count(trees, "tree"));
        }
        if (exchanges > 0) {
            kinds.add("direct exchange");
        }
        return kinds.isEmpty() ? "nothing to move" : String.join(", ", kinds);
    }

    private String path(Channel channel) {
        return switch (channel) {
            case Channel.Ring ring ->
                    "ring " + sequence(ring.order().stream().map(f::index).toList());
            case Channel.Tree tree -> "tree " + edges(tree);
            case Channel.Exchange e -> "for each of " + count(e.hops().size(), "directed pair");
        };
    }

    /** {@code 0: 1 2, 1: 3}: each parent with its children. */
    private String edges(Channel.Tree tree) {
        StringBuilder b = new StringBuilder();
        int parent = -1;
        for (Hop hop : tree.hops()) {
            if (hop.from() != parent) {
                b.append(b.isEmpty() ? "" : ", ").append(f.index(hop.from())).append(':');
                parent = hop.from();
            }
            b.append(' ').append(f.index(hop.to()));
        }
        return b.toString();
    }

    private void many(List<String> lines, String what) {
        int most = lines.size() <= CHANNELS ? CHANNELS : CHANNELS - 1;
        lines.stream().limit(most).forEach(this::line);
        if (lines.size() > most) {
            line("  and " + count(lines.size() - most, "more " + what) + ", see --json");
        }
    }

    private void figures(double bandwidth, double bound, String what) {
        line(
                "  bus bandwidth "
                        + rate(bandwidth)
                        + " GB/s, at most "
                        + rate(bound)
                        + " possible (ratio "
                        + format("%.3f", bound == 0 ? 1 : bandwidth / bound)
                        + ")");
        line("  limited by " + Output.oneLine(what));
    }

    private void reasons() {
        Plan plan = f.plan();
        ClusterPlan cluster = f.clusterPlan();
        List<String> why =
                plan != null ? plan.why() : cluster != null ? cluster.why() : List.<String>of();
        if (why.isEmpty()) {
            return;
        }
        line("");
        line("Why");
        why.stream().limit(REASONS).forEach(w -> wrapped(Output.oneLine(w)));
    }

    /** Further lines are indented more. */
    private void wrapped(String text) {
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

    private void predictions() {
        if (f.predictions().isEmpty()) {
            return;
        }
        line("");
        line("Prediction for " + f.operation().command() + " (by NCCL's constants; not measured)");
        List<List<String>> rows = new ArrayList<>();
        for (List<String> row : predictions(f)) {
            List<String> indented = new ArrayList<>(row);
            indented.set(0, "  " + pad(row.getFirst(), 8));
            rows.add(indented);
        }
        table(rows, rows.size(), "", 1 << 3 | 1 << 4);
        if (f.crossovers().size() > 1) {
            StringBuilder b = new StringBuilder("  Fastest:");
            for (int i = 0; i < f.crossovers().size(); i++) {
                Crossover c = f.crossovers().get(i);
                if (b.length() > WIDTH - 40 && i < f.crossovers().size() - 1) {
                    b.append("; and so on");
                    break;
                }
                b.append(i == 0 ? " " : "; from " + approximate(c.fromBytes()) + " ");
                b.append(lower(c.algorithm())).append(' ').append(lower(c.protocol()));
            }
            line(b.toString());
        }
    }

    /**
     * The predictions as a table.
     *
     * @param f the findings
     * @return rows, the headings first; none if there are no predictions
     */
    public static List<List<String>> predictions(Findings f) {
        List<List<String>> rows = new ArrayList<>();
        if (f.predictions().isEmpty()) {
            return rows;
        }
        rows.add(List.of("size", "algorithm", "protocol", "time us", "busbw GB/s"));
        for (Prediction p : f.predictions()) {
            rows.add(
                    List.of(
                            size(p.bytes()),
                            lower(p.algorithm()),
                            lower(p.protocol()),
                            format("%.1f", p.timeUs()),
                            format(p.busbwGBps() < 0.1 ? "%.3f" : "%.1f", p.busbwGBps())));
        }
        return rows;
    }

    private void simulation() {
        if (!f.simulation().isEmpty()) {
            line("");
            line("Simulation");
            f.simulation().forEach(s -> line("  " + s));
        }
    }

    /** Columns as wide as their widest cell, those of {@code right} aligned to the right. */
    private void table(List<List<String>> rows, int most, String more, int right) {
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

    private void line(String text) {
        out.append(cut(text.stripTrailing(), WIDTH)).append('\n');
    }

    /** GPU numbers in order; runs of three or more in long lists as ranges. */
    private static String sequence(List<Integer> indices) {
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

    /** Exact, with K, M, G for powers of 1024. */
    private static String size(long bytes) {
        int unit = 0;
        long number = bytes;
        while (unit < 4 && number != 0 && number % 1024 == 0) {
            number /= 1024;
            unit++;
        }
        return number + (unit == 0 ? "" : "KMGT".substring(unit - 1, unit));
    }

    /** Approximate: a crossover is not exact. */
    private static String approximate(long bytes) {
        int unit = 0;
        double number = bytes;
        while (unit < 4 && number >= 1000) {
            number /= 1024;
            unit++;
        }
        return format(number < 10 && unit > 0 ? "%.1f" : "%.0f", number)
                + (unit == 0 ? "" : "KMGT".substring(unit - 1, unit));
    }

    private static String rate(double gbps) {
        return format("%.1f", gbps);
    }

    private static String lower(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT);
    }

    static String count(int number, String noun) {
        return number + " " + noun + (number == 1 ? "" : "s");
    }

    private static String pad(String text, int width) {
        return " ".repeat(Math.max(0, width - text.length())) + text;
    }

    private static String cut(String text, int width) {
        return text.length() <= width ? text : text.substring(0, width - 3) + "...";
    }

    @SuppressWarnings("AnnotateFormatMethod") // the annotation would add a dependency
    private static String format(String pattern, Object... values) {
        return String.format(Locale.ROOT, pattern, values);
    }
}
