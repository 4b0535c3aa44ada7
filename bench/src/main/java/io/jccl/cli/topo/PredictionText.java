package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;
import static io.jccl.cli.topo.TextLines.pad;
import static io.jccl.cli.topo.TextLines.rate;

import io.jccl.cli.shell.Sizes;
import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.AlgorithmBound;
import io.jccl.topology.cost.CostModel;
import io.jccl.topology.cost.Crossover;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.Plan;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The part of the report about what NCCL's algorithms are expected to reach. */
final class PredictionText {
    private final Findings f;
    private final TextLines out;

    private PredictionText(Findings f, TextLines out) {
        this.f = f;
        this.out = out;
    }

    static void write(Findings f, TextLines out) {
        PredictionText text = new PredictionText(f, out);
        Tuning tuning = f.tuning();
        if (tuning != null) {
            text.algorithms(tuning);
        }
        text.predictions();
        if (tuning != null) {
            text.bySize(tuning);
        }
    }

    private void algorithms(Tuning tuning) {
        out.line("");
        out.line(
                "Algorithms (bus bandwidth for very large sizes; predicted, and at most possible)");
        List<List<String>> rows = new ArrayList<>();
        for (AlgorithmBound b : tuning.bounds()) {
            rows.add(
                    List.of(
                            "  " + lower(b.algorithm()),
                            rate(b.busbwGBps()) + " GB/s",
                            "of " + rate(b.boundGBps()),
                            b.why()));
        }
        out.table(rows, rows.size(), "", 1 << 1 | 1 << 2);
        List<Crossover> choices = f.crossovers();
        Algorithm large = choices.isEmpty() ? null : choices.getLast().algorithm();
        if (large != null && tuning.bounds().size() > 1) {
            Algorithm ours = ours();
            if (ours != null) {
                boolean direct = ours == Algorithm.DIRECT;
                Plan plan = f.plan();
                boolean planned =
                        plan != null
                                && plan.channels().stream()
                                        .allMatch(c ->
                                                direct
                                                        ? c instanceof Channel.Exchange
                                                        : c instanceof Channel.Tree);
                out.wrapped(
                        "Not all are NCCL's: "
                                + lower(ours)
                                + (planned ? " is the plan, which copies" : " copies")
                                + " from GPU to GPU; for "
                                + f.operation().command()
                                + " NCCL has "
                                + (direct ? "rings and NVLS" : "rings")
                                + " (--algo).");
                return;
            }
            boolean widest = tuning.bounds().getFirst().algorithm() == large;
            out.wrapped(
                    "NCCL chooses "
                            + lower(large)
                            + " for large sizes: "
                            + (widest
                                    ? "it has the highest bandwidth."
                                    : "its latency and the efficiency that NCCL assumes decide."));
        }
        ringOrTree(tuning);
        if (!tuning.assumptions().isEmpty()) {
            out.wrapped("Rests on: " + String.join("; ", tuning.assumptions()) + ".");
        }
        if (f.machines() > 1) {
            out.wrapped(
                    "CollNet is not predicted: it needs SHARP in the network and"
                            + " NCCL_COLLNET_ENABLE=1.");
        }
    }

    /**
     * The one of those predicted that NCCL does not have for the operation; null if there is none.
     */
    private @Nullable Algorithm ours() {
        Tuning tuning = f.tuning();
        Algorithm own =
                switch (f.operation()) {
                    case BROADCAST, REDUCE -> Algorithm.TREE;
                    case ALL_GATHER -> Algorithm.DIRECT;
                    default -> null;
                };
        return tuning != null && tuning.bounds().stream().anyMatch(b -> b.algorithm() == own)
                ? own
                : null;
    }

    /** Why a ring or a tree, if NCCL can use both. */
    private void ringOrTree(Tuning tuning) {
        Set<Algorithm> both = EnumSet.of(Algorithm.RING, Algorithm.TREE);
        if (!tuning.bounds().stream().map(AlgorithmBound::algorithm).toList().containsAll(both)) {
            return;
        }
        List<Crossover> choices =
                tuning.only(both, EnumSet.allOf(Protocol.class))
                        .crossovers(CostModel.MIN_BYTES, CostModel.MAX_BYTES);
        StringBuilder b = new StringBuilder("Ring or tree: ");
        b.append(figures(tuning, Algorithm.RING)).append(", ");
        b.append(figures(tuning, Algorithm.TREE)).append(", so of the two NCCL chooses");
        Algorithm now = null;
        for (Crossover c : choices) {
            if (c.algorithm() != now) {
                b.append(now == null ? " " : ", from " + approximate(c.fromBytes()) + " ");
                b.append(lower(c.algorithm()));
                now = c.algorithm();
            }
        }
        boolean one = choices.stream().map(Crossover::algorithm).distinct().count() == 1;
        out.wrapped(b.append(one ? " at every size." : ".").toString());
    }

    private static String figures(Tuning tuning, Algorithm a) {
        double latency = Double.POSITIVE_INFINITY;
        for (Tuning.Way w : tuning.ways()) {
            latency = w.algorithm() == a ? Math.min(latency, w.latencyUs()) : latency;
        }
        double busbw = 0;
        for (AlgorithmBound b : tuning.bounds()) {
            busbw = b.algorithm() == a ? b.busbwGBps() : busbw;
        }
        return format(
                "a %s takes at least %s us and reaches %s GB/s",
                lower(a), format("%.1f", latency), rate(busbw));
    }

    private void predictions() {
        if (f.predictions().isEmpty()) {
            return;
        }
        out.line("");
        out.line(
                "Prediction for "
                        + f.operation().command()
                        + " (by NCCL's constants; not measured)");
        List<List<String>> rows = new ArrayList<>();
        for (List<String> row : predictions(f)) {
            List<String> indented = new ArrayList<>(row);
            indented.set(0, "  " + pad(row.getFirst(), 8));
            rows.add(indented);
        }
        out.table(rows, rows.size(), "", 1 << 3 | 1 << 4 | 1 << 5);
        if (f.crossovers().size() > 1) {
            StringBuilder b = new StringBuilder(ours() != null ? "  Fastest:" : "  NCCL chooses:");
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
     * @return rows, the headings first; none if there are no predictions
     */
    static List<List<String>> predictions(Findings f) {
        List<List<String>> rows = new ArrayList<>();
        if (f.predictions().isEmpty()) {
            return rows;
        }
        rows.add(List.of("size", "algorithm", "protocol", "time us", "busbw GB/s", "spread"));
        for (Prediction p : f.predictions()) {
            rows.add(
                    List.of(
                            Sizes.format(p.bytes()),
                            lower(p.algorithm()),
                            lower(p.protocol()),
                            format("%.1f", p.timeUs()),
                            busbw(p),
                            format("+-%.0f%%", 100 * p.spread())));
        }
        return rows;
    }

    /** Each algorithm with its best protocol, if there are several. */
    private void bySize(Tuning tuning) {
        if (tuning.bounds().size() < 2) {
            return;
        }
        out.line("");
        out.line(
                "By algorithm, with the protocol that is the fastest by NCCL's model (busbw GB/s)");
        List<List<String>> rows = new ArrayList<>();
        List<String> head = new ArrayList<>(List.of("  " + pad("size", 8)));
        tuning.bounds().forEach(b -> head.add(pad(lower(b.algorithm()), 9)));
        rows.add(head);
        int right = 0;
        for (Prediction chosen : f.predictions()) {
            List<String> row =
                    new ArrayList<>(List.of("  " + pad(Sizes.format(chosen.bytes()), 8)));
            List<Prediction> all = tuning.predict(chosen.bytes());
            for (AlgorithmBound b : tuning.bounds()) {
                row.add(
                        all.stream()
                                .filter(p -> p.algorithm() == b.algorithm())
                                .findFirst()
                                .map(PredictionText::busbw)
                                .orElse(""));
                right |= 1 << (row.size() - 1);
            }
            rows.add(row);
        }
        out.table(rows, rows.size(), "", right);
    }

    private static String busbw(Prediction p) {
        return format(p.busbwGBps() < 0.1 ? "%.3f" : "%.1f", p.busbwGBps());
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
