package io.jccl.cli.topo;

import static io.jccl.cli.topo.TextLines.count;
import static io.jccl.cli.topo.TextLines.format;
import static io.jccl.cli.topo.TextLines.lower;
import static io.jccl.cli.topo.TextLines.pad;
import static io.jccl.cli.topo.TextLines.ranges;
import static io.jccl.cli.topo.TextLines.rate;
import static io.jccl.cli.topo.TextLines.sequence;

import io.jccl.cli.shell.Output;
import io.jccl.topology.cost.Crossover;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The findings as text. */
public final class TextReport {
    /** Further channels are only counted. */
    private static final int CHANNELS = 12;

    /** Most lines of an explanation. */
    private static final int REASONS = 5;

    private final Findings f;
    private final TextLines out = new TextLines();

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
        DeviceText.write(findings, report.out);
        report.plan();
        if (explain) {
            report.reasons();
        }
        report.predictions();
        report.simulation();
        return report.out.toString();
    }

    private void plan() {
        Plan plan = f.plan();
        ClusterPlan cluster = f.clusterPlan();
        if (plan == null && cluster == null) {
            return;
        }
        List<Integer> indices = f.selected().stream().map(f::index).toList();
        out.line("");
        String over = f.operation().command() + " over " + count(indices.size(), "GPU");
        if (indices.size() < f.gpus().size()) {
            over += " (" + ranges(indices) + ")";
        }
        if (plan != null) {
            out.line("Plan for " + over + ": " + kinds(plan));
            List<String> channels = new ArrayList<>();
            for (Channel c : plan.channels()) {
                channels.add("  " + pad(rate(c.gbps()), 7) + " GB/s  " + path(c));
            }
            many(channels, "channel");
            figures(plan.bandwidthGBps(), plan.boundGBps(), plan.bound());
        } else if (cluster != null) {
            out.line(
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
        lines.stream().limit(most).forEach(out::line);
        if (lines.size() > most) {
            out.line("  and " + count(lines.size() - most, "more " + what) + ", see --json");
        }
    }

    private void figures(double bandwidth, double bound, String what) {
        out.line(
                "  bus bandwidth "
                        + rate(bandwidth)
                        + " GB/s, at most "
                        + rate(bound)
                        + " possible (ratio "
                        + format("%.3f", bound == 0 ? 1 : bandwidth / bound)
                        + ")");
        out.line("  limited by " + Output.oneLine(what));
    }

    private void reasons() {
        Plan plan = f.plan();
        ClusterPlan cluster = f.clusterPlan();
        List<String> why =
                plan != null ? plan.why() : cluster != null ? cluster.why() : List.<String>of();
        if (why.isEmpty()) {
            return;
        }
        out.line("");
        out.line("Why");
        why.stream().limit(REASONS).forEach(w -> out.wrapped(Output.oneLine(w)));
    }

    private void predictions() {
        if (f.predictions().isEmpty()) {
            return;
        }
        out.line("");
        out.line("Prediction for " + f.operation().command() + " (by NCCL's constants; not measured)");
        List<List<String>> rows = new ArrayList<>();
        for (List<String> row : predictions(f)) {
            List<String> indented = new ArrayList<>(row);
            indented.set(0, "  " + pad(row.getFirst(), 8));
            rows.add(indented);
        }
        out.table(rows, rows.size(), "", 1 << 3 | 1 << 4);
        if (f.crossovers().size() > 1) {
            StringBuilder b = new StringBuilder("  Fastest:");
            for (int i = 0; i < f.crossovers().size(); i++) {
                Crossover c = f.crossovers().get(i);
                if (b.length() > TextLines.WIDTH - 40 && i < f.crossovers().size() - 1) {
                    b.append("; and so on");
                    break;
                }
                b.append(i == 0 ? " " : "; from " + approximate(c.fromBytes()) + " ");
                b.append(lower(c.algorithm())).append(' ').append(lower(c.protocol()));
            }
            out.line(b.toString());
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
            out.line("");
            out.line("Simulation");
            f.simulation().forEach(s -> out.line("  " + s));
        }
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
}
