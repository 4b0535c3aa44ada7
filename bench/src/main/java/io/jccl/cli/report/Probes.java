package io.jccl.cli.report;

import static io.jccl.cli.shell.Text.format;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.probe.ProbeJson;
import io.jccl.bench.probe.ProbeReport;
import io.jccl.bench.probe.ProbeResult;
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
import java.util.TreeSet;
import java.util.stream.DoubleStream;

/** Results of {@code probe}: a roofline for each run, then one chart per part for all of them. */
final class Probes {
    private static final double GIGA_IN_TERA = 1e-3;

    /** The overlaid lines of several runs; the colour shows the quantity. */
    private static final Line[] LINES = {Line.SOLID, Line.DASHED, Line.DOTTED};

    private Probes() {}

    static void add(Page page, List<Run> runs) {
        List<Chart> rooflines = new ArrayList<>();
        Map<String, Map<Run, ProbeReport.Chart>> charts = new LinkedHashMap<>();
        for (Run run : runs) {
            ProbeResult result = read(run);
            result.warnings()
                    .forEach(w -> page.warning(run.name().isEmpty() ? w : run.name() + ": " + w));
            ProbeReport report = ProbeReport.of(result);
            if (!report.roofline().points().isEmpty()) {
                rooflines.add(roofline(run, report.roofline()));
            }
            for (ProbeReport.Chart c : report.charts()) {
                charts.computeIfAbsent(c.title(), t -> new LinkedHashMap<>()).put(run, c);
            }
        }
        page.add(
                new Figure(
                        "Roofline",
                        "An operation can reach what its operations per byte allow at the bandwidth"
                                + " of the level where its data lies (lines), and at most the best"
                                + " product of its type (marks).",
                        rooflines));
        page.add(
                new Figure(
                        "By size",
                        "Bands run from the slowest to the fastest batch."
                                + (runs.size() > 1 ? " Runs differ in their dashes." : ""),
                        charts.entrySet().stream()
                                .map(e -> chart(e.getKey(), e.getValue(), runs))
                                .toList()));
        charts.forEach((title, some) -> page.add(table(title, some)));
    }

    private static ProbeResult read(Run run) {
        JsonNode root = run.root();
        if (run.number(root, "schema") != ProbeResult.SCHEMA) {
            throw run.unfit(
                    "\"schema\" is " + root.get("schema") + ", expected " + ProbeResult.SCHEMA);
        }
        run.list(root, "warnings");
        for (String part : List.of("matmul", "memory", "elementwise", "all_reduce", "layers")) {
            for (JsonNode n : run.list(root, part)) {
                for (String key :
                        part.equals("layers")
                                ? List.of("forward", "backward")
                                : List.of("outcome")) {
                    if (!n.path(key).isObject()) {
                        throw run.unfit("\"" + key + "\" of an entry of " + part + " is missing");
                    }
                }
            }
        }
        for (String part : List.of("compute", "bandwidth", "points")) {
            run.list(root.path("roofline"), part);
        }
        try {
            return ProbeJson.result(root);
        } catch (IllegalArgumentException e) {
            throw run.unfit(String.valueOf(e.getMessage()).replaceAll("(?s)\n.*", ""));
        }
    }

    private static Chart chart(String title, Map<Run, ProbeReport.Chart> charts, List<Run> runs) {
        ProbeReport.Chart any = charts.values().iterator().next();
        List<String> colours =
                charts.values().stream()
                        .flatMap(c -> c.lines().keySet().stream())
                        .distinct()
                        .toList();
        List<Series> series = new ArrayList<>();
        charts.forEach((run, c) ->
                c.lines()
                        .forEach((name, points) ->
                                series.add(
                                        new Series(
                                                run.named(name),
                                                colours.indexOf(name),
                                                LINES[runs.indexOf(run) % LINES.length],
                                                points.stream()
                                                        .map(p -> point(run.named(name), p, c))
                                                        .toList()))));
        return LineChart.of(
                title,
                new Axis(any.x(), scale(any)),
                new Axis(any.y(), Axis.Scale.DECADES),
                series,
                List.of());
    }

    private static Axis.Scale scale(ProbeReport.Chart c) {
        return c.x().equals("bytes") ? Axis.Scale.BYTES : Axis.Scale.DECADES;
    }

    private static Point point(String name, ProbeReport.Point p, ProbeReport.Chart c) {
        String tip = name + ": " + x(c, p.x()) + ", " + Axis.number(p.y()) + " " + c.y();
        return new Point(p.x(), p.y(), p.low(), p.high(), tip);
    }

    private static String x(ProbeReport.Chart c, double value) {
        return scale(c) == Axis.Scale.BYTES
                ? Axis.bytes(value)
                : c.x() + " " + format("%,.0f", value);
    }

    /** A row for each size, a column for each line. */
    private static Table table(String title, Map<Run, ProbeReport.Chart> charts) {
        ProbeReport.Chart any = charts.values().iterator().next();
        List<String> header = new ArrayList<>(List.of(any.x()));
        List<List<ProbeReport.Point>> columns = new ArrayList<>();
        TreeSet<Double> sizes = new TreeSet<>();
        charts.forEach((run, c) ->
                c.lines()
                        .forEach((name, points) -> {
                            header.add(run.named(name));
                            columns.add(points);
                            points.forEach(p -> sizes.add(p.x()));
                        }));
        List<List<String>> rows = new ArrayList<>();
        for (double size : sizes) {
            List<String> row = new ArrayList<>();
            row.add(scale(any) == Axis.Scale.BYTES ? Axis.bytes(size) : format("%,.0f", size));
            for (List<ProbeReport.Point> column : columns) {
                row.add(
                        column.stream()
                                .filter(p -> p.x() == size)
                                .map(p -> Axis.number(p.y()))
                                .findFirst()
                                .orElse("-"));
            }
            rows.add(row);
        }
        return new Table(title + ", " + any.y(), header, rows);
    }

    private static LineChart roofline(Run run, ProbeResult.Roofline r) {
        double peak = r.compute().stream().mapToDouble(c -> c.teraflops()).max().orElse(0);
        double[] ridges =
                r.bandwidth().stream()
                        .mapToDouble(b -> peak / (b.gigabytesPerSecond() * GIGA_IN_TERA))
                        .toArray();
        double least =
                DoubleStream.concat(
                                        DoubleStream.of(ridges),
                                        r.points().stream().mapToDouble(p -> p.flopsPerByte()))
                                .filter(x -> x > 0 && Double.isFinite(x))
                                .min()
                                .orElse(1)
                        / 2;
        List<Series> series = new ArrayList<>();
        for (int i = 0; i < ridges.length; i++) {
            ProbeResult.Roofline.Bandwidth b = r.bandwidth().get(i);
            double slope = b.gigabytesPerSecond() * GIGA_IN_TERA;
            String name = b.level() + ", " + Axis.number(b.gigabytesPerSecond()) + " GB/s";
            series.add(
                    new Series(
                            name,
                            series.size(),
                            Line.DASHED,
                            List.of(
                                    new Point(least, least * slope, name),
                                    new Point(ridges[i], peak, name))));
        }
        Map<String, List<Point>> operations = new LinkedHashMap<>();
        for (ProbeResult.Roofline.Point p : r.points()) {
            String tip =
                    format(
                            "%s: %.4g operations a byte, %.4g TFLOP/s",
                            p.name(), p.flopsPerByte(), p.teraflops());
            // Sizes of one operation are one entry of the legend.
            operations
                    .computeIfAbsent(p.name().replaceFirst(" \\d+$", ""), n -> new ArrayList<>())
                    .add(new Point(p.flopsPerByte(), p.teraflops(), tip));
        }
        operations.forEach(
                (name, points) -> series.add(new Series(name, series.size(), Line.NONE, points)));
        List<Mark> marks =
                r.compute().stream().map(c -> new Mark(c.type(), c.teraflops())).toList();
        return LineChart.of(
                run.named("Roofline"),
                new Axis("operations per byte", Axis.Scale.DECADES),
                new Axis("TFLOP/s", Axis.Scale.DECADES),
                series,
                marks);
    }
}
