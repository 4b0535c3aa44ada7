package io.jccl.cli.report;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Axis;
import io.jccl.bench.report.BarChart;
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
import java.util.Comparator;
import java.util.DoubleSummaryStatistics;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;
import java.util.stream.DoubleStream;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Charts of collectives: bus bandwidth and time over size, with a plan's predictions. */
final class Sweeps {
    private static final Axis SIZE = new Axis("size", Axis.Scale.BYTES);
    private static final Axis TIME = new Axis("time, us", Axis.Scale.DECADES);
    private static final Axis BUS = new Axis("bus bandwidth, GB/s", Axis.Scale.DECADES);

    /**
     * One direction of a row, in microseconds.
     *
     * @param time the median, or the mean if there is none
     * @param low least of the spread; NaN if none was measured
     * @param high most of the spread; NaN if none was measured
     * @param work bus bandwidth times time, to convert times to bandwidths
     */
    private record Side(double time, double low, double high, double work) {
        double bus() {
            return bus(time);
        }

        double bus(double time) {
            return work / time;
        }
    }

    /**
     * A line of a run's table.
     *
     * @param size bytes
     * @param out out of place; null if it was not measured
     * @param in in place; null where that is undefined
     * @param predicted by a plan; null without one
     */
    private record Row(
            double size, @Nullable Side out, @Nullable Side in, @Nullable Side predicted) {}

    /**
     * Rows of one run, type, operation and root.
     *
     * @param name distinguishing name, may be empty
     * @param rows by size
     */
    private record Curve(String name, List<Row> rows) {}

    private Sweeps() {}

    static void add(Page page, List<Run> runs) {
        List<Curve> curves = new ArrayList<>();
        List<Mark> marks = new ArrayList<>();
        for (Run run : runs) {
            curves.addAll(curves(run, runs));
            marks.addAll(marks(run));
            warn(page, run);
        }
        boolean sizes = curves.stream().flatMap(c -> c.rows.stream()).anyMatch(r -> r.size > 0);
        if (sizes) {
            int parts = Math.ceilDiv(curves.size(), Chart.COLOURS);
            for (int i = 0; i < parts; i++) {
                List<Curve> some =
                        curves.subList(
                                i * Chart.COLOURS,
                                Math.min(curves.size(), (i + 1) * Chart.COLOURS));
                String part = parts == 1 ? "" : " (" + (i + 1) + " of " + parts + ")";
                page.add(figure(part, some, marks));
            }
        } else {
            page.add(bars(curves));
        }
        page.add(table(curves));
    }

    private static void warn(Page page, Run run) {
        double wrong = Run.optional(run.root().path("out_of_bounds"), "count");
        if (wrong > 0) {
            page.warning(
                    (run.name().isEmpty() ? "" : run.name() + ": ")
                            + Axis.number(wrong)
                            + " checks found wrong values: the times belong to a wrong result");
        }
        String warning = run.root().path("warning").asText("");
        if (!warning.isEmpty()) {
            page.warning(run.name().isEmpty() ? warning : run.name() + ": " + warning);
        }
    }

    // ---- reading

    private static List<Curve> curves(Run run, List<Run> all) {
        return run.kind() == Kind.TOPOLOGY ? predicted(run) : measured(run, all);
    }

    private static List<Curve> measured(Run run, List<Run> all) {
        String collective = collective(run);
        boolean several =
                all.stream().map(Sweeps::collective).filter(c -> !c.isEmpty()).distinct().count()
                        > 1;
        Map<List<String>, List<Row>> byVariant = new LinkedHashMap<>();
        for (JsonNode r : run.list(run.root(), "results")) {
            List<String> variant =
                    List.of(
                            r.path("type").asText(""),
                            r.path("redop").asText(""),
                            r.path("root").asText(""));
            byVariant
                    .computeIfAbsent(variant, v -> new ArrayList<>())
                    .add(
                            new Row(
                                    run.number(r, "size"),
                                    side(run, r, "out_of_place"),
                                    side(run, r, "in_place"),
                                    side(run, r, "predicted")));
        }
        if (byVariant.isEmpty()) {
            throw run.unfit("\"results\" is empty, so the run ended before its first size");
        }
        List<Curve> curves = new ArrayList<>();
        byVariant.forEach((variant, rows) -> {
            List<String> parts = new ArrayList<>();
            if (several) {
                parts.add(collective);
            }
            for (int i = 0; i < variant.size(); i++) {
                int k = i;
                String part = variant.get(i);
                if (byVariant.keySet().stream().map(v -> v.get(k)).distinct().count() > 1) {
                    parts.add(i == 2 ? "root " + part : part);
                }
            }
            curves.add(new Curve(run.named(String.join(", ", parts)), merged(rows)));
        });
        return curves;
    }

    /** Merges rows of the same size, of which a run with several cycles has more than one. */
    private static List<Row> merged(List<Row> rows) {
        Map<Double, List<Row>> bySize = new TreeMap<>();
        rows.forEach(r -> bySize.computeIfAbsent(r.size, s -> new ArrayList<>()).add(r));
        return bySize.values().stream()
                .map(same ->
                        new Row(
                                same.getFirst().size,
                                merged(same, Row::out),
                                merged(same, Row::in),
                                same.getFirst().predicted))
                .toList();
    }

    /** The median, with the widest spread. */
    private static @Nullable Side merged(List<Row> rows, Function<Row, @Nullable Side> of) {
        List<Side> sides =
                rows.stream()
                        .flatMap(r -> Stream.ofNullable(of.apply(r)))
                        .sorted(Comparator.comparingDouble(Side::time))
                        .toList();
        if (sides.size() < 2) {
            return sides.isEmpty() ? null : sides.getFirst();
        }
        Side middle = sides.get(sides.size() / 2);
        DoubleSummaryStatistics all =
                sides.stream()
                        .flatMapToDouble(s -> DoubleStream.of(s.low, s.high, s.time))
                        .filter(Double::isFinite)
                        .summaryStatistics();
        return new Side(middle.time, all.getMin(), all.getMax(), middle.work);
    }

    private static String collective(Run run) {
        return run.root().path("config").path("collective").asText("");
    }

    private static @Nullable Side side(Run run, JsonNode row, String key) {
        JsonNode n = row.path(key);
        if (n.isMissingNode() || n.isNull()) {
            return null;
        }
        double mean = run.number(n, "time");
        double work = run.number(n, "bus_bw") * mean;
        double median = Run.optional(n, "median");
        JsonNode single = row.path(key + "_per_iter");
        double low = Run.optional(n, "q1");
        double high = Run.optional(n, "q3");
        if (Double.isNaN(low) || Double.isNaN(high)) {
            low = Run.optional(single, "min_us");
            high = Run.optional(single, "p95_us");
        }
        return new Side(Double.isNaN(median) ? mean : median, low, high, work);
    }

    private static List<Curve> predicted(Run run) {
        Map<String, List<Row>> byOperation = new TreeMap<>();
        for (JsonNode p : run.list(run.root().path("plan"), "predictions")) {
            double time = run.number(p, "timeUs");
            Side side = new Side(time, Double.NaN, Double.NaN, run.number(p, "busbwGBps") * time);
            byOperation
                    .computeIfAbsent(p.path("op").asText(""), op -> new ArrayList<>())
                    .add(new Row(run.number(p, "bytes"), null, null, side));
        }
        List<Curve> curves = new ArrayList<>();
        byOperation.forEach((op, rows) -> curves.add(new Curve(run.named(op), rows)));
        return curves;
    }

    private static List<Mark> marks(Run run) {
        JsonNode plan = run.root().path("plan");
        boolean topology = run.kind() == Kind.TOPOLOGY;
        List<Mark> marks = new ArrayList<>();
        double bound = Run.optional(plan, topology ? "boundGBps" : "bound");
        double reached = Run.optional(plan, topology ? "bandwidthGBps" : "bus_bw");
        if (bound > 0) {
            marks.add(new Mark(run.named("ceiling of the links, " + gbps(bound)), bound));
        }
        if (reached > 0 && reached != bound) {
            marks.add(new Mark(run.named("what the plan uses of it, " + gbps(reached)), reached));
        }
        return marks;
    }

    private static String gbps(double value) {
        return Axis.number(value) + " GB/s";
    }

    // ---- drawing

    private static Figure figure(String part, List<Curve> curves, List<Mark> marks) {
        List<Series> bus = new ArrayList<>();
        List<Series> time = new ArrayList<>();
        for (int i = 0; i < curves.size(); i++) {
            bus.addAll(series(curves, i, true));
            time.addAll(series(curves, i, false));
        }
        boolean spread =
                curves.stream()
                        .flatMap(c -> c.rows.stream())
                        .map(Row::out)
                        .anyMatch(s -> s != null && s.low > 0);
        List<Chart> charts = new ArrayList<>();
        LineChart first = LineChart.of("Bus bandwidth by size", SIZE, BUS, bus, marks);
        // With one rank nothing travels, and the bus bandwidth is 0.
        if (first.hasPoints()) {
            charts.add(first);
        }
        charts.add(LineChart.of("Time by size", SIZE, TIME, time, List.of()));
        return new Figure(
                "Bus bandwidth and time" + part,
                "Solid: out of place; dashed: in place; dotted: predicted."
                        + (spread
                                ? " Bands are the spread: the middle half of the batches; without"
                                        + " batches, from the fastest iteration to the 95th"
                                        + " percentile."
                                : "")
                        + " Both axes are logarithmic. A click on a name hides its curve.",
                charts);
    }

    private static List<Series> series(List<Curve> curves, int index, boolean bus) {
        Curve c = curves.get(index);
        // A single run also has one colour per direction.
        int more = curves.size() == 1 ? 1 : 0;
        List<Series> all = new ArrayList<>();
        add(all, c, "out of place", index, Line.SOLID, bus, Row::out);
        add(all, c, "in place", index + more, Line.DASHED, bus, Row::in);
        add(all, c, "predicted", index + 2 * more, Line.DOTTED, bus, Row::predicted);
        return all;
    }

    private static void add(
            List<Series> all,
            Curve curve,
            String way,
            int colour,
            Line line,
            boolean bus,
            Function<Row, @Nullable Side> of) {
        String name = curve.name.isEmpty() ? way : curve.name + ", " + way;
        List<Point> points = new ArrayList<>();
        for (Row row : curve.rows) {
            Side s = of.apply(row);
            if (s != null) {
                String tip = name + ", " + Axis.bytes(row.size) + ": " + text(s);
                points.add(
                        bus
                                ? new Point(row.size, s.bus(), s.bus(s.high), s.bus(s.low), tip)
                                : new Point(row.size, s.time, s.low, s.high, tip));
            }
        }
        if (!points.isEmpty()) {
            all.add(new Series(name, colour, line, points));
        }
    }

    private static String text(Side s) {
        return Axis.number(s.time)
                + " us"
                + (Double.isNaN(s.low)
                        ? ""
                        : " (" + Axis.number(s.low) + " to " + Axis.number(s.high) + ")")
                + ", "
                + gbps(s.bus());
    }

    /** Without sizes, as for a barrier. */
    private static Figure bars(List<Curve> curves) {
        List<BarChart.Group> groups = new ArrayList<>();
        for (Curve c : curves) {
            List<BarChart.Bar> bars = new ArrayList<>();
            for (Row row : c.rows) {
                Side s = row.out;
                if (s != null) {
                    String text = Axis.number(s.time) + " us";
                    bars.add(new BarChart.Bar(0, s.time, s.low, s.high, text, text));
                }
            }
            groups.add(new BarChart.Group(c.name.isEmpty() ? "time" : c.name, bars));
        }
        return new Figure("Time", "", List.of(new BarChart("Time, us", List.of(), groups)));
    }

    private static Table table(List<Curve> curves) {
        List<String> header = new ArrayList<>(List.of("size"));
        List<ToDoubleFunction<Row>> columns = new ArrayList<>();
        List<Curve> owners = new ArrayList<>();
        for (Curve c : curves) {
            String before = c.name.isEmpty() ? "" : c.name + ": ";
            for (String way : List.of("out of place", "in place", "predicted")) {
                if (c.rows.stream().anyMatch(r -> side(r, way) != null)) {
                    header.add(before + way + ", us");
                    columns.add(r -> value(side(r, way), Side::time));
                    header.add("GB/s");
                    columns.add(r -> value(side(r, way), Side::bus));
                    owners.add(c);
                    owners.add(c);
                }
            }
        }
        TreeSet<Double> sizes = new TreeSet<>();
        curves.forEach(c -> c.rows.forEach(r -> sizes.add(r.size)));
        List<List<String>> rows = new ArrayList<>();
        for (double size : sizes) {
            List<String> row = new ArrayList<>(List.of(Axis.bytes(size)));
            for (int i = 0; i < columns.size(); i++) {
                ToDoubleFunction<Row> column = columns.get(i);
                row.add(
                        owners.get(i).rows.stream()
                                .filter(r -> r.size == size)
                                .mapToDouble(column)
                                .mapToObj(Axis::number)
                                .findFirst()
                                .orElse("-"));
            }
            rows.add(row);
        }
        return new Table("Time and bus bandwidth by size", header, rows);
    }

    private static @Nullable Side side(Row row, String way) {
        return switch (way) {
            case "out of place" -> row.out;
            case "in place" -> row.in;
            default -> row.predicted;
        };
    }

    private static double value(@Nullable Side side, ToDoubleFunction<Side> of) {
        return side == null ? Double.NaN : of.applyAsDouble(Objects.requireNonNull(side));
    }
}
