package io.jccl.cli.report;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.BarChart.Bar;
import io.jccl.bench.report.Chart;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import io.jccl.cli.shell.Amounts;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Results of {@code fit-demo}: the largest model of each set of techniques, and its speed. */
final class Fits {
    private static final Axis PARAMETERS = new Axis("parameters", Axis.Scale.DECADES);
    private static final Axis SPEED = new Axis("samples/s", Axis.Scale.DECADES);

    private Fits() {}

    static void add(Page page, List<Run> runs) {
        if (runs.size() == 1) {
            page.fact("setting", runs.getFirst().root().at("/jccl_fit_demo/setting").asText(""));
        }
        Bars.Chosen largest = new Bars.Chosen(runs);
        Map<String, List<Series>> speeds = new LinkedHashMap<>();
        List<List<String>> rows = new ArrayList<>();
        for (Run run : runs) {
            for (JsonNode set : run.list(run.root().path("jccl_fit_demo"), "sets")) {
                String title = set.path("title").asText();
                String size = Amounts.parameters((long) run.number(set, "largest_parameters"));
                double times = Run.optional(set, "times_plain");
                String factor = Double.isNaN(times) ? "" : format(", %.1f x plain", times);
                largest.add(
                        title,
                        new Bar(
                                runs.indexOf(run),
                                run.number(set, "largest_parameters"),
                                size + factor,
                                format(
                                        "%s: %,.0f parameters%s; the next size: %s",
                                        run.named(title),
                                        run.number(set, "largest_parameters"),
                                        factor,
                                        stop(set))));
                List<Point> points = new ArrayList<>();
                double last = Double.NaN;
                for (JsonNode trained : run.list(set, "runs")) {
                    last = run.number(trained, "samples_per_second");
                    double parameters = run.number(trained, "parameters");
                    points.add(
                            new Point(
                                    parameters,
                                    last,
                                    format(
                                            "%s: %,.0f parameters, %.0f samples/s%s",
                                            run.named(title),
                                            parameters,
                                            last,
                                            parameters == run.number(set, "largest_parameters")
                                                    ? " (the largest)"
                                                    : "")));
                }
                speeds.computeIfAbsent(title, t -> new ArrayList<>())
                        .add(new Series(run.named(title), runs.indexOf(run), Line.SOLID, points));
                rows.add(
                        List.of(
                                run.named(title),
                                size,
                                Axis.number(times),
                                Axis.number(last),
                                stop(set)));
            }
        }
        List<Chart> bars = new ArrayList<>();
        largest.addTo(bars, "Parameters of the largest model");
        page.add(new Figure("Largest model that trains", "", bars));
        page.add(speed(speeds, runs));
        page.add(
                new Table(
                        "Results",
                        List.of(
                                "techniques",
                                "largest",
                                "x plain",
                                "samples/s",
                                "what stopped the next size"),
                        rows));
    }

    /** One small chart per set; with one document, next to the set of all techniques. */
    private static Figure speed(Map<String, List<Series>> speeds, List<Run> runs) {
        String all = runs.size() > 1 ? "" : all(runs.getFirst());
        List<LineChart> charts = new ArrayList<>();
        speeds.forEach((title, own) -> {
            List<Series> series = new ArrayList<>(own);
            if (!title.equals(all) && speeds.containsKey(all)) {
                series.addFirst(
                        new Series(all, 0, Line.FAINT, speeds.get(all).getFirst().points()));
            }
            charts.add(LineChart.small(title, PARAMETERS, SPEED, series, List.of()));
        });
        return new Figure(
                "Speed by size",
                "Samples a second over parameters, up to the largest model that trains."
                        + (all.isEmpty()
                                ? " Colours are those of the bars."
                                : " Grey: " + all + ".")
                        + " All axes are the same.",
                LineChart.alike(charts));
    }

    /** The title of the set with all techniques; of the last one if that was not tried. */
    private static String all(Run run) {
        String title = "";
        for (JsonNode set : run.root().path("jccl_fit_demo").path("sets")) {
            title = set.path("title").asText();
            if (set.path("name").asText().equals("all")) {
                return title;
            }
        }
        return title;
    }

    private static String stop(JsonNode set) {
        JsonNode s = set.path("stopped_by");
        return s.isObject()
                ? format(
                        "%s: %,d bytes requested, %,d free",
                        s.path("tier").asText().toLowerCase(Locale.ROOT),
                        s.path("asked_bytes").asLong(),
                        s.path("free_bytes").asLong())
                : "--max-blocks";
    }
}
