package io.jccl.cli.plan;

import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import io.jccl.offload.memplan.Batch;
import io.jccl.offload.memplan.Job;
import io.jccl.offload.memplan.MemoryPlanner;
import io.jccl.offload.memplan.Plan;
import io.jccl.offload.memplan.Techniques;
import io.jccl.offload.timeplan.Hardware;
import io.jccl.offload.timeplan.StepTime;
import io.jccl.offload.timeplan.TimePlanner;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/** Ranks the combinations of techniques under which a model fits by predicted speed. */
final class SpeedSearch {
    private static final double GIGA = 1e9;

    /**
     * Combinations in documents, in addition to those of the front: a large machine has 100,000s.
     */
    private static final int MOST = 5000;

    private SpeedSearch() {}

    /**
     * All that fit, the fastest first. Ranks that split the model have no samples of their own, so
     * they accumulate as many more micro-batches: every combination trains the same samples a step.
     */
    static List<StepTime> search(
            Job job, MemoryPlanner.Space space, Hardware hardware, boolean overlap) {
        List<StepTime> found = new ArrayList<>();
        for (Techniques t : MemoryPlanner.combinations(job, space)) {
            long accumulation = job.batch().accumulation() * t.split().ways();
            if (accumulation > Batch.MOST_ACCUMULATION) {
                continue; // more than a step can have
            }
            Batch batch = new Batch(job.batch().micro(), Math.toIntExact(accumulation));
            Plan plan = MemoryPlanner.plan(job.with(batch), t);
            if (plan.fits()) {
                found.add(TimePlanner.predict(plan, hardware, overlap));
            }
        }
        // Stable: of equally fast ones the fewest techniques come first.
        found.sort(Comparator.comparingDouble(StepTime::seconds));
        return found;
    }

    /** Those that no other is both faster and smaller than, the fastest first. */
    static List<StepTime> front(List<StepTime> ranked) {
        List<StepTime> front = new ArrayList<>();
        long least = Long.MAX_VALUE;
        for (StepTime t : ranked) {
            long bytes = t.plan().device().total();
            if (bytes < least) {
                least = bytes;
                front.add(t);
            }
        }
        return front;
    }

    /** Those that documents have: the fastest ones and the front, the fastest first. */
    static List<StepTime> documented(List<StepTime> ranked) {
        List<StepTime> all = new ArrayList<>(ranked.subList(0, Math.min(MOST, ranked.size())));
        List<StepTime> front = front(ranked);
        // Of the front, the first ones are the front of these.
        all.addAll(front.subList(front(all).size(), front.size()));
        return all;
    }

    static String html(Job job, List<StepTime> ranked, Hardware hardware) {
        List<StepTime> front = front(ranked);
        List<Point> edge = front.stream().map(SpeedSearch::point).toList();
        List<StepTime> drawn = documented(ranked);
        List<Series> series = new ArrayList<>();
        series.add(new Series("Pareto front", 0, Line.SOLID, edge.reversed()));
        for (int stage = 0; stage <= 3; stage++) {
            int of = stage;
            List<Point> points =
                    drawn.stream()
                            .filter(t -> t.plan().techniques().stage() == of)
                            .map(SpeedSearch::point)
                            .sorted(Comparator.comparingDouble(Point::x))
                            .toList();
            if (!points.isEmpty()) {
                String name = stage == 0 ? "not sharded" : "ZeRO-" + stage;
                series.add(new Series(name, 1 + stage, Line.NONE, points));
            }
        }
        Page page =
                new Page("Memory against speed")
                        .fact("machine", hardware.name() + " x " + job.machine().machines())
                        .fact("combinations", Integer.toString(ranked.size()));
        hardware.notes().forEach(page::warning);
        page.add(
                new Figure(
                        "Memory against speed",
                        (drawn.size() < ranked.size()
                                        ? "One point for each of the fastest combinations that fit, "
                                                + MOST
                                                + " of "
                                                + ranked.size()
                                        : "One point for each combination that fits")
                                + ". On the line are those that no"
                                + " other one both outruns and undercuts.",
                        List.of(
                                LineChart.of(
                                        "Predicted speed",
                                        new Axis("GB of a GPU's memory", Axis.Scale.LINEAR),
                                        new Axis("tokens/s", Axis.Scale.DECADES),
                                        series,
                                        List.of()))));
        page.add(
                new Table(
                        "Pareto front",
                        List.of("techniques", "GB", "tokens/s", "MFU", "step"),
                        front.stream().map(SpeedSearch::row).toList()));
        return page.html();
    }

    private static Point point(StepTime t) {
        return new Point(
                t.plan().device().total() / GIGA, t.tokensPerSecond(), String.join(", ", row(t)));
    }

    private static List<String> row(StepTime t) {
        return List.of(
                t.plan().techniques().toString(),
                String.format(Locale.ROOT, "%.1f", t.plan().device().total() / GIGA),
                String.format(Locale.ROOT, "%,.0f", t.tokensPerSecond()),
                String.format(Locale.ROOT, "%.1f%%", 100 * t.mfu()),
                TimeText.time(t.seconds()));
    }
}
