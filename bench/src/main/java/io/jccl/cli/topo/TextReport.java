package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.count;
import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;
import static io.jccl.cli.topo.TextLines.pad;
import static io.jccl.cli.topo.TextLines.ranges;
import static io.jccl.cli.topo.TextLines.rate;
import static io.jccl.cli.topo.TextLines.sequence;

import io.jccl.cli.shell.Output;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.AlgorithmBound;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.List;

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
        AnswersText.best(findings, report.out);
        report.plan();
        if (explain) {
            report.reasons();
        }
        PredictionText.write(findings, report.out);
        AnswersText.rest(findings, report.out);
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
            if (plan.channels().stream().anyMatch(TextReport::branches)) {
                out.wrapped(
                        "NCCL cannot run trees that branch within a machine: it reaches at most"
                                + " what is predicted below, and --graph-xml writes rings.");
            }
        } else if (cluster != null) {
            out.line(
                    format(
                            "Plan for %s on each of %s machines: %s",
                            over, f.machines(), count(cluster.channels().size(), "rail")));
            List<String> rails = new ArrayList<>();
            for (ClusterPlan.Rail r : cluster.channels()) {
                rails.add(
                        format(
                                "  %s GB/s  %s over machines: in by %s, GPUs %s, out by %s",
                                pad(rate(r.gbps()), 7),
                                lower(r.shape()).replace('_', ' '),
                                Output.oneLine(f.nics().get(r.nicIn()).name()),
                                sequence(inside(r)),
                                Output.oneLine(f.nics().get(r.nicOut()).name())));
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

    private static boolean branches(Channel channel) {
        return channel instanceof Channel.Tree tree
                && tree.hops().stream().map(Hop::from).distinct().count() < tree.hops().size();
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
                format(
                        "  bus bandwidth %s GB/s, at most %s possible%s (ratio %s)",
                        rate(bandwidth),
                        rate(bound),
                        reducing() ? " where GPUs reduce" : "",
                        format("%.3f", bound == 0 ? 1 : bandwidth / bound)));
        out.line("  limited by " + Output.oneLine(what));
    }

    /** Whether switches may reduce, too, and exceed the bound of the plan. */
    private boolean reducing() {
        Tuning tuning = f.tuning();
        return tuning != null
                && tuning.bounds().stream()
                        .map(AlgorithmBound::algorithm)
                        .anyMatch(a -> a == Algorithm.NVLS || a == Algorithm.NVLS_TREE);
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

    private void simulation() {
        if (!f.simulation().isEmpty()) {
            out.line("");
            out.line("Simulation");
            f.simulation().forEach(s -> out.line("  " + s));
        }
    }
}
