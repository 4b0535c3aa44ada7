package io.jccl.cli.report;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Chart;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Mark;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Results of {@code train}. Documents of one set of techniques each share one chart; otherwise
 * every set has a small chart, in which the documents share the axes.
 */
final class Training {
    /** Smaller differences are drawn at this value, since 0 has no logarithm. */
    private static final double FLOOR = 1e-8;

    private static final Axis STEP = new Axis("step", Axis.Scale.LINEAR);
    private static final Axis LOSS = new Axis("loss, nats a token", Axis.Scale.LINEAR);
    private static final Axis EXPERT = new Axis("expert", Axis.Scale.LINEAR);
    private static final Axis LOAD = new Axis("load", Axis.Scale.LINEAR);
    private static final Axis SMALL_LOSS = new Axis("loss", Axis.Scale.LINEAR);
    private static final Axis DIFFERENCE = new Axis("difference", Axis.Scale.DECADES);

    /**
     * What one set of techniques did.
     *
     * @param document its document
     * @param colour number of the document
     * @param name the set
     * @param json its object
     * @param reference the single-rank run of the same model; null if it is this one, or unknown
     */
    private record Trained(
            Run document, int colour, String name, JsonNode json, @Nullable Trained reference) {
        double loss(int step) {
            return json.path("losses").path(step).asDouble(Double.NaN);
        }

        int steps() {
            return json.path("losses").size();
        }

        String title() {
            return document.named(name);
        }
    }

    private Training() {}

    static void add(Page page, List<Run> runs) {
        List<Trained> all = losses(page, runs);
        Bars.Chosen speeds = new Bars.Chosen(runs);
        List<List<String>> rows = new ArrayList<>();
        for (Trained t : all) {
            double speed = Run.optional(t.json, "samples_per_second");
            speeds.add(t.document, t.name, speed, "");
            double difference = Run.optional(t.json, "largest_difference");
            if (difference > Run.optional(t.json, "tolerance")) {
                page.warning(
                        t.title()
                                + ": the losses differ from the single-rank run's by up to "
                                + Axis.number(difference)
                                + ", more than the tolerance "
                                + Axis.number(Run.optional(t.json, "tolerance")));
            }
            double loss = t.loss(t.steps() - 1);
            rows.add(
                    List.of(
                            t.title(),
                            t.json.path("ranks").asText("-"),
                            Double.isNaN(loss) ? "-" : format("%.4f", loss),
                            Axis.number(difference),
                            Axis.number(speed),
                            percent(t, "communication_share"),
                            percent(t, "overlap")));
        }
        List<LineChart> loads = new ArrayList<>();
        all.forEach(t -> loads(t, loads));
        if (!loads.isEmpty()) {
            page.add(
                    new Figure(
                            "Load of the experts",
                            "Tokens of each expert, 1 for the mean of all; a line for each block; the mean"
                                    + " of the steps.",
                            LineChart.alike(loads)));
        }
        List<Chart> charts = new ArrayList<>();
        speeds.addTo(charts, "Samples a second");
        page.add(new Figure("Speed", "Of ranks that share the processors of one machine.", charts));
        page.add(
                new Table(
                        "Results",
                        List.of(
                                "techniques",
                                "ranks",
                                "last loss",
                                "difference",
                                "samples/s",
                                "communication",
                                "overlap"),
                        rows));
    }

    /** A chart of a run with experts: a line for each block. */
    private static void loads(Trained t, List<LineChart> charts) {
        List<Series> series = new ArrayList<>();
        for (JsonNode load : t.json.path("expert_loads")) {
            String block = "block " + load.path("block").asInt();
            List<Point> points = new ArrayList<>();
            for (JsonNode share : load.path("shares")) {
                String tip =
                        format(
                                "%s, %s, expert %d: %.3g times the mean",
                                t.title(), block, points.size(), share.asDouble());
                points.add(new Point(points.size(), share.asDouble(), tip));
            }
            series.add(new Series(block, series.size(), Line.SOLID, points));
        }
        if (!series.isEmpty()) {
            charts.add(LineChart.small(t.title(), EXPERT, LOAD, series, List.of()));
        }
    }

    private static String percent(Trained t, String key) {
        return percent(Run.optional(t.json, key));
    }

    private static String percent(double part) {
        return Double.isNaN(part) ? "-" : format("%.0f %%", 100 * part);
    }

    /** Adds the charts that are the same on every machine. */
    static List<Trained> losses(Page page, List<Run> runs) {
        List<Trained> all = new ArrayList<>();
        for (Run run : runs) {
            all.addAll(read(run, runs.indexOf(run)));
        }
        if (runs.size() == 1) {
            page.fact("setting", runs.getFirst().root().at("/jccl_train/setting").asText(""));
        }
        if (all.size() == runs.size()) {
            page.add(together(all, runs));
            return all;
        }
        String colours = runs.size() > 1 ? " Colours are those of the speeds below." : "";
        page.add(
                new Figure(
                        "Loss by step",
                        "Nats a token; grey: the single-rank run of the same model. All axes"
                                + " are the same."
                                + colours,
                        LineChart.alike(multiples(all, false))));
        page.add(
                new Figure(
                        "Difference from the single-rank run",
                        "Of the loss at each step, nats a token; less than 1e-8 is drawn there."
                                + " Below the dashed line is within tolerance."
                                + colours,
                        LineChart.alike(multiples(all, true))));
        return all;
    }

    private static List<Trained> read(Run run, int colour) {
        Map<String, Trained> byName = new LinkedHashMap<>();
        List<Trained> all = new ArrayList<>();
        for (JsonNode r : run.list(run.root().path("jccl_train"), "runs")) {
            for (JsonNode loss : run.list(r, "losses")) {
                if (!loss.isNumber()) {
                    throw run.unfit("\"losses\" has " + loss + ", expected numbers");
                }
            }
            String name = r.path("name").asText("");
            Trained t =
                    new Trained(run, colour, name, r, byName.get(r.path("reference").asText("")));
            byName.put(name, t);
            all.add(t);
        }
        if (all.isEmpty()) {
            throw run.unfit("\"runs\" is empty");
        }
        return all;
    }

    /** All curves in one chart. */
    private static Figure together(List<Trained> all, List<Run> runs) {
        List<Series> series = new ArrayList<>();
        for (Trained t : all) {
            series.add(new Series(t.title(), t.colour, Line.SOLID, curve(t)));
            List<Point> held = heldOut(t);
            if (!held.isEmpty()) {
                series.add(new Series(t.title() + ", held-out text", t.colour, Line.DASHED, held));
            }
        }
        List<Mark> marks = new ArrayList<>();
        for (Run run : runs) {
            double entropy = Run.optional(run.root().path("jccl_train"), "unigram_entropy");
            if (marks.stream().noneMatch(m -> m.y() == entropy)) {
                marks.add(new Mark("unigram entropy of the text", entropy));
            }
        }
        LineChart chart = LineChart.of("Loss by step", STEP, LOSS, series, marks);
        return new Figure("Loss", "", chart.hasPoints() ? List.of(chart) : List.of());
    }

    /** One small chart for each set of techniques. */
    private static List<LineChart> multiples(List<Trained> all, boolean differences) {
        Map<String, List<Trained>> byName = new LinkedHashMap<>();
        all.forEach(t -> byName.computeIfAbsent(t.name, n -> new ArrayList<>()).add(t));
        List<LineChart> charts = new ArrayList<>();
        byName.forEach((name, same) -> {
            List<Series> series = new ArrayList<>();
            List<Mark> marks = new ArrayList<>();
            for (Trained t : same) {
                Trained reference = t.reference;
                if (differences) {
                    double tolerance = Run.optional(t.json, "tolerance");
                    if (reference != null && marks.stream().noneMatch(m -> m.y() == tolerance)) {
                        marks.add(new Mark("tolerance " + Axis.number(tolerance), tolerance));
                    }
                } else if (reference != null) {
                    series.add(
                            new Series(reference.title(), t.colour, Line.FAINT, curve(reference)));
                }
            }
            for (Trained t : same) {
                series.add(
                        new Series(
                                t.title(),
                                t.colour,
                                Line.SOLID,
                                differences ? difference(t) : curve(t)));
            }
            charts.add(
                    LineChart.small(
                            name, STEP, differences ? DIFFERENCE : SMALL_LOSS, series, marks));
        });
        return charts;
    }

    private static List<Point> curve(Trained t) {
        List<Point> points = new ArrayList<>();
        for (int i = 0; i < t.steps(); i++) {
            points.add(point(t, i, t.loss(i), t.loss(i)));
        }
        return points;
    }

    /** Empty if no text was held out. */
    private static List<Point> heldOut(Trained t) {
        List<Point> points = new ArrayList<>();
        for (JsonNode v : t.json.path("validation")) {
            double loss = v.path("loss").asDouble(Double.NaN);
            int index = v.path("step").asInt() - t.json.path("first_step").asInt() - 1;
            points.add(point(t, index, loss, loss));
        }
        return points;
    }

    /** Empty without a single-rank run. */
    private static List<Point> difference(Trained t) {
        List<Point> points = new ArrayList<>();
        Trained reference = t.reference;
        for (int i = 0; reference != null && i < t.steps(); i++) {
            double d = Math.abs(t.loss(i) - reference.loss(i));
            points.add(point(t, i, d, Math.max(d, FLOOR)));
        }
        return points;
    }

    private static Point point(Trained t, int index, double value, double drawn) {
        int step = t.json.path("first_step").asInt() + index + 1;
        return new Point(step, drawn, format("%s, step %d: %.6g", t.title(), step, value));
    }
}
