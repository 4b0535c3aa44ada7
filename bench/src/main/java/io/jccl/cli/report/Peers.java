package io.jccl.cli.report;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Chart;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.bench.report.Table;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Results of {@code bench/peers/run}: one chart per operation and number of ranks. */
final class Peers {
    private static final Axis SIZE = new Axis("size", Axis.Scale.BYTES);
    private static final Axis TIME = new Axis("time, us", Axis.Scale.DECADES);

    private Peers() {}

    static void add(Page page, List<Run> runs) {
        Map<String, Map<String, List<Point>>> charts = new LinkedHashMap<>();
        List<List<String>> rows = new ArrayList<>();
        for (Run run : runs) {
            for (JsonNode r : run.list(run.root(), "results")) {
                double size = run.number(r, "bytes");
                String title =
                        r.path("operation").asText()
                                + ", "
                                + Axis.number(run.number(r, "ranks"))
                                + " ranks";
                r.path("micros")
                        .properties()
                        .forEach(e -> {
                            String name = run.named(e.getKey());
                            double time = e.getValue().asDouble(Double.NaN);
                            String text = Axis.number(time);
                            String tip = name + ", " + Axis.bytes(size) + ": " + text + " us";
                            charts.computeIfAbsent(title, t -> new LinkedHashMap<>())
                                    .computeIfAbsent(name, n -> new ArrayList<>())
                                    .add(new Point(size, time, tip));
                            rows.add(List.of(title, Axis.bytes(size), name, text));
                        });
            }
            double load = Run.optional(run.root(), "load_after");
            if (load > Run.optional(run.root(), "cores") + 1) {
                page.warning(
                        (run.name().isEmpty() ? "" : run.name() + ": ")
                                + "the load average was "
                                + Axis.number(load)
                                + " afterwards: other programs were running; measure again on an"
                                + " idle machine");
            }
        }
        List<Chart> drawn = new ArrayList<>();
        charts.forEach((title, curves) -> {
            List<Series> series = new ArrayList<>();
            curves.forEach((name, points) -> {
                Line line = name.contains("JCCL") ? Line.SOLID : Line.DASHED;
                series.add(new Series(name, series.size(), line, points));
            });
            LineChart chart = LineChart.of(title, SIZE, TIME, series, List.of());
            if (chart.hasPoints()) {
                drawn.add(chart);
            }
        });
        page.add(
                new Figure(
                        "Time by size, compared with the peers",
                        "Medians of the rounds. Solid: JCCL; dashed: others. Lower is faster.",
                        drawn));
        page.add(new Table("Times", List.of("operation", "size", "library", "us"), rows));
    }
}
