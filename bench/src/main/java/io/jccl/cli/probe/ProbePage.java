package io.jccl.cli.probe;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.jccl.bench.probe.ProbeReport;
import io.jccl.bench.probe.ProbeResult;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import io.jccl.cli.report.Reports;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.DoubleStream;
import picocli.CommandLine;

/** A probe's result as a page: the roofline, then one chart per part. */
final class ProbePage {
    private static final double GIGA_IN_TERA = 1e-3;

    private ProbePage() {}

    /**
     * Draws the page.
     *
     * @param result the result
     * @param line the command line
     * @return HTML
     */
    static String of(ProbeResult result, CommandLine line) {
        ObjectNode document = new ObjectMapper().createObjectNode();
        Reports.sign(document, line);
        Page page = Reports.begin("jccl probe", document);
        result.warnings().forEach(page::warning);
        ProbeReport report = ProbeReport.of(result);
        if (!report.roofline().points().isEmpty()) {
            page.add(
                    new Figure(
                            "Roofline",
                            "An operation can reach what its operations per byte allow at the"
                                    + " bandwidth of the level where its data lies (lines), and at"
                                    + " most the best product of its type (marks).",
                            List.of(roofline(report.roofline()))));
        }
        for (ProbeReport.Chart c : report.charts()) {
            page.add(
                    new Figure(
                            c.title(),
                            "Bands run from the slowest to the fastest batch.",
                            List.of(chart(c))));
        }
        return page.html();
    }

    private static LineChart chart(ProbeReport.Chart c) {
        List<Series> series = new ArrayList<>();
        c.lines()
                .forEach((name, points) ->
                        series.add(
                                new Series(
                                        name,
                                        series.size(),
                                        Line.SOLID,
                                        points.stream().map(p -> point(name, p, c)).toList())));
        Axis.Scale across = c.x().equals("bytes") ? Axis.Scale.BYTES : Axis.Scale.DECADES;
        return LineChart.of(
                c.title(),
                new Axis(c.x(), across),
                new Axis(c.y(), Axis.Scale.DECADES),
                series,
                List.of());
    }

    private static Point point(String name, ProbeReport.Point p, ProbeReport.Chart c) {
        String tip =
                String.format(
                        Locale.ROOT, "%s: %s %.6g, %.4g %s", name, c.x(), p.x(), p.y(), c.y());
        return new Point(p.x(), p.y(), p.low(), p.high(), tip);
    }

    private static LineChart roofline(ProbeResult.Roofline r) {
        double peak = r.compute().stream().mapToDouble(c -> c.teraflops()).max().orElse(0);
        double[] ridges =
                r.bandwidth().stream()
                        .mapToDouble(b -> peak / (b.gigabytesPerSecond() * GIGA_IN_TERA))
                        .toArray();
        double[] intensities =
                DoubleStream.concat(
                                DoubleStream.of(ridges),
                                r.points().stream().mapToDouble(p -> p.flopsPerByte()))
                        .filter(x -> x > 0 && Double.isFinite(x))
                        .toArray();
        double least = DoubleStream.of(intensities).min().orElse(1) / 2;
        List<Series> series = new ArrayList<>();
        for (int i = 0; i < ridges.length; i++) {
            ProbeResult.Roofline.Bandwidth b = r.bandwidth().get(i);
            double slope = b.gigabytesPerSecond() * GIGA_IN_TERA;
            String name =
                    String.format(Locale.ROOT, "%s, %.4g GB/s", b.level(), b.gigabytesPerSecond());
            series.add(
                    new Series(
                            name,
                            series.size(),
                            Line.DASHED,
                            List.of(
                                    new Point(least, least * slope, name),
                                    new Point(ridges[i], peak, name))));
        }
        for (ProbeResult.Roofline.Point p : r.points()) {
            String tip =
                    String.format(
                            Locale.ROOT,
                            "%s: %.4g operations a byte, %.4g TFLOP/s",
                            p.name(),
                            p.flopsPerByte(),
                            p.teraflops());
            series.add(
                    new Series(
                            p.name(),
                            series.size(),
                            Line.NONE,
                            List.of(new Point(p.flopsPerByte(), p.teraflops(), tip))));
        }
        List<LineChart.Mark> marks =
                r.compute().stream().map(c -> new LineChart.Mark(c.type(), c.teraflops())).toList();
        return LineChart.of(
                "Roofline",
                new Axis("operations per byte", Axis.Scale.DECADES),
                new Axis("TFLOP/s", Axis.Scale.DECADES),
                series,
                marks);
    }
}
