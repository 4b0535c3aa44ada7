package io.jccl.bench.report;

import static io.jccl.bench.report.Markup.escape;
import static io.jccl.cli.shell.Text.format;
import static io.jccl.cli.shell.Text.lower;

import java.util.ArrayList;
import java.util.DoubleSummaryStatistics;
import java.util.List;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import java.util.stream.DoubleStream;
import java.util.stream.Stream;

/**
 * Curves over one axis. Values that an axis cannot show, such as 0 on a logarithmic one, are left
 * out.
 */
public final class LineChart implements Chart {
    /** How a curve is drawn. */
    public enum Line {
        /** Solid, with its points. */
        SOLID,
        /** Dashed, with its points. */
        DASHED,
        /** Dotted, with its points. */
        DOTTED,
        /** Points only. */
        NONE,
        /** Thin and grey, without points: a reference curve. */
        FAINT
    }

    /**
     * A point of a curve.
     *
     * @param x horizontal value
     * @param y vertical value
     * @param low lower edge of the band; NaN if there is none
     * @param high upper edge of the band; NaN if there is none
     * @param tip the text a page shows on hover
     */
    public record Point(double x, double y, double low, double high, String tip) {
        /** A point without a band. */
        public Point(double x, double y, String tip) {
            this(x, y, Double.NaN, Double.NaN, tip);
        }
    }

    /**
     * A curve.
     *
     * @param name in the legend
     * @param colour 0 or more; see {@link Chart#COLOURS}
     * @param line how it is drawn
     * @param points from left to right
     */
    public record Series(String name, int colour, Line line, List<Point> points) {
        /** Copies the list. */
        public Series {
            points = List.copyOf(points);
        }
    }

    /**
     * A horizontal line across the plot.
     *
     * @param name in the legend
     * @param y its height, in values of the vertical axis
     */
    public record Mark(String name, double y) {}

    /** Curves with more points draw markers for only some of them. */
    private static final int MOST_DOTS = 60;

    private static final int MOST_SMALL_DOTS = 20;

    private static final int FONT = 12;
    private static final int ROW = 18;
    private static final int LEFT = 54;

    private final String title;
    private final Axis across;
    private final Axis up;
    private final List<Series> series;
    private final List<Mark> marks;
    private final boolean small;
    private final List<String> heading;
    private final List<String> legend = new ArrayList<>();
    private final int legendHeight;
    private final int right;
    private int top;
    private int bottom;
    private double leastX;
    private double mostX;
    private double leastY;
    private double mostY;

    private LineChart(
            String title,
            Axis across,
            Axis up,
            List<Series> series,
            List<Mark> marks,
            boolean small) {
        this.title = title;
        this.across = across;
        this.up = up;
        this.series = series.stream().map(this::drawable).filter(s -> !s.points.isEmpty()).toList();
        this.marks = marks.stream().filter(m -> up.holds(m.y)).toList();
        this.small = small;
        heading = Markup.wrapped(title, width() - 16.0, Markup.BOLD * (small ? FONT : FONT + 2));
        right = width() - 14;
        place(heading.size());
        legendHeight = small ? 0 : legend();
        double[] x = bounds(List.of(this), across, Point::x, false);
        leastX = x[0];
        mostX = x[1];
        double[] y = bounds(List.of(this), up, Point::y, true);
        leastY = y[0];
        mostY = y[1];
    }

    /**
     * Creates a chart.
     *
     * @param title what it shows
     * @param across the horizontal axis
     * @param up the vertical axis
     * @param series the curves
     * @param marks lines across
     * @return the chart
     */
    public static LineChart of(
            String title, Axis across, Axis up, List<Series> series, List<Mark> marks) {
        return new LineChart(title, across, up, series, marks, false);
    }

    /**
     * Creates a small chart without a legend: its title names its curve.
     *
     * @param title what it shows
     * @param across the horizontal axis
     * @param up the vertical axis
     * @param series the curves
     * @param marks lines across
     * @return the chart
     */
    public static LineChart small(
            String title, Axis across, Axis up, List<Series> series, List<Mark> marks) {
        return new LineChart(title, across, up, series, marks, true);
    }

    /**
     * Gives small charts the same axes and heights, so that they can be compared.
     *
     * @param charts with the same kinds of axes
     * @return the charts that have something to draw
     */
    public static List<Chart> alike(List<LineChart> charts) {
        List<LineChart> drawn = charts.stream().filter(LineChart::hasPoints).toList();
        if (!drawn.isEmpty()) {
            double[] x = bounds(drawn, drawn.getFirst().across, Point::x, false);
            double[] y = bounds(drawn, drawn.getFirst().up, Point::y, true);
            int lines = drawn.stream().mapToInt(c -> c.heading.size()).max().getAsInt();
            for (LineChart c : drawn) {
                c.place(lines);
                c.leastX = x[0];
                c.mostX = x[1];
                c.leastY = y[0];
                c.mostY = y[1];
            }
        }
        return List.copyOf(drawn);
    }

    /** Places the plot below a title of the given number of lines. */
    private void place(int lines) {
        top = 4 + ROW * lines + (small ? 10 : 26);
        bottom = top + (small ? 130 : 280);
    }

    /** Whether there is anything to draw. */
    public boolean hasPoints() {
        return !series.isEmpty();
    }

    private Series drawable(Series s) {
        return new Series(
                s.name,
                s.colour,
                s.line,
                s.points.stream().filter(p -> across.holds(p.x) && up.holds(p.y)).toList());
    }

    /** The common range of several charts, with a margin. */
    private static double[] bounds(
            List<LineChart> charts, Axis axis, ToDoubleFunction<Point> value, boolean vertical) {
        DoubleStream points =
                charts.stream()
                        .flatMap(c -> c.series.stream())
                        .flatMap(s -> s.points.stream())
                        .flatMapToDouble(p ->
                                vertical
                                        ? DoubleStream.of(value.applyAsDouble(p), p.low, p.high)
                                        : DoubleStream.of(value.applyAsDouble(p)));
        Stream<Mark> across =
                vertical ? charts.stream().flatMap(c -> c.marks.stream()) : Stream.empty();
        DoubleSummaryStatistics places =
                DoubleStream.concat(points, across.mapToDouble(Mark::y))
                        .filter(axis::holds)
                        .map(axis::place)
                        .summaryStatistics();
        if (places.getCount() == 0) {
            return new double[] {0, 1};
        }
        double span = places.getMax() - places.getMin();
        double least = axis.isLogarithmic() ? 0.08 : span == 0 ? 1 : 0;
        double room = Math.max(least, span * 0.04);
        return new double[] {places.getMin() - room, places.getMax() + room};
    }

    @Override
    public String title() {
        return title;
    }

    @Override
    public int width() {
        return small ? 270 : 560;
    }

    @Override
    public int height() {
        return bottom + (small ? 34 : 42) + legendHeight;
    }

    private double x(double value) {
        return LEFT + (across.place(value) - leastX) / (mostX - leastX) * (right - LEFT);
    }

    private double y(double value) {
        return bottom - (up.place(value) - leastY) / (mostY - leastY) * (bottom - top);
    }

    @Override
    public void draw(StringBuilder out) {
        for (int i = 0; i < heading.size(); i++) {
            Markup.text(out, 8, 16 + ROW * i, small ? "name" : "heading", "start", heading.get(i));
        }
        out.append(
                format(
                        "<rect class=\"plot\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>%n",
                        LEFT, top, right - LEFT, bottom - top));
        if (!small) {
            Markup.text(out, 8, top - 9, "label", "start", up.label());
        }
        Markup.text(
                out,
                (LEFT + right) / 2.0,
                bottom + (small ? 28 : 36),
                "label",
                "middle",
                across.label());
        grid(out);
        for (Mark mark : marks) {
            out.append(
                    format(
                            "<line class=\"mark m%d\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\""
                                    + " y2=\"%.1f\"><title>%s</title></line>%n",
                            marks.indexOf(mark) % 3,
                            LEFT,
                            right,
                            y(mark.y),
                            y(mark.y),
                            escape(mark.name)));
        }
        for (int i = 0; i < series.size(); i++) {
            curve(out, i);
        }
        legend.forEach(out::append);
    }

    private void grid(StringBuilder out) {
        double end = -1e9;
        for (double v : across.ticks(leastX, mostX, small ? 5 : 9)) {
            double at = x(v);
            String text = across.text(v);
            double half = Markup.width(text, FONT - 1) / 2;
            out.append(
                    format(
                            "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>%n",
                            at, at, top, bottom));
            if (at - half > end && at + half <= width()) {
                Markup.text(out, at, bottom + 15, "tick", "middle", text);
                end = at + half + 4;
            }
        }
        double below = 1e9;
        for (double v : up.ticks(leastY, mostY, small ? 4 : 8)) {
            double at = y(v);
            out.append(
                    format(
                            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>%n",
                            LEFT, right, at, at));
            if (below - at >= FONT) {
                Markup.text(out, LEFT - 6, at + 4, "tick", "end", up.text(v));
                below = at;
            }
        }
    }

    private void curve(StringBuilder out, int index) {
        Series s = series.get(index);
        String style = lower(s.line);
        out.append(format("<g class=\"curve k%d c%d %s\">%n", index, s.colour % COLOURS, style));
        band(out, s);
        String points =
                s.points.stream().map(p -> place(p.x, p.y)).collect(Collectors.joining(" "));
        if (s.line == Line.FAINT) {
            // A path, so that the polylines of the document are the curves alone.
            out.append(format("<path class=\"line\" d=\"M%s\"/>%n", points.replace(" ", " L")));
        } else if (s.line != Line.NONE) {
            out.append(format("<polyline class=\"line\" points=\"%s\"/>%n", points));
        }
        if (s.line != Line.FAINT) {
            int most = small ? MOST_SMALL_DOTS : MOST_DOTS;
            // Without a line nothing else shows a point.
            int stride = s.line == Line.NONE ? 1 : Math.ceilDiv(s.points.size(), most);
            for (int i = 0; i < s.points.size(); i += stride) {
                Point p = s.points.get(i);
                out.append(
                        format(
                                "<circle cx=\"%.1f\" cy=\"%.1f\""
                                        + " r=\"%s\"><title>%s</title></circle>%n",
                                x(p.x),
                                y(p.y),
                                small || s.points.size() > MOST_DOTS / 2 ? "2" : "3",
                                escape(p.tip)));
            }
        }
        out.append("</g>\n");
    }

    private String place(double x, double y) {
        return format("%.1f,%.1f", x(x), y(y));
    }

    private void band(StringBuilder out, Series s) {
        List<Point> with =
                s.points.stream().filter(p -> up.holds(p.low) && up.holds(p.high)).toList();
        if (with.isEmpty()) {
            return;
        }
        Stream<String> there = with.stream().map(p -> place(p.x, p.high));
        Stream<String> back = with.reversed().stream().map(p -> place(p.x, p.low));
        out.append(
                format(
                        "<polygon class=\"band\" points=\"%s\"/>%n",
                        Stream.concat(there, back).collect(Collectors.joining(" "))));
    }

    /** Lays out the entries, as many in a row as fit. */
    private int legend() {
        if (series.size() + marks.size() < 2) {
            return 0;
        }
        double x = 8;
        int y = bottom + 42;
        for (int i = 0; i < series.size() + marks.size(); i++) {
            boolean mark = i >= series.size();
            String name = mark ? marks.get(i - series.size()).name : series.get(i).name;
            List<String> lines = Markup.wrapped(name, width() - 54.0, FONT);
            double wide = 34 + Markup.width(lines.getFirst(), FONT) + 14;
            if (x > 8 && (lines.size() > 1 || x + wide > width())) {
                x = 8;
                y += ROW;
            }
            legend.add(entry(i, x, y, lines));
            x += wide;
            if (lines.size() > 1) {
                x = 8;
                y += ROW * lines.size();
            }
        }
        return y + (x > 8 ? ROW : 0) - bottom - 42 + 8;
    }

    private String entry(int index, double x, int y, List<String> lines) {
        StringBuilder out = new StringBuilder();
        boolean mark = index >= series.size();
        if (mark) {
            out.append(format("<g class=\"entry\">"));
            out.append(
                    format(
                            "<line class=\"mark m%d\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\""
                                    + " y2=\"%d\"/>",
                            (index - series.size()) % 3, x, x + 26, y + 9, y + 9));
        } else {
            Series s = series.get(index);
            out.append(
                    format(
                            "<g class=\"entry key c%d %s\" data-k=\"k%d\">",
                            s.colour % COLOURS, lower(s.line), index));
            if (s.line != Line.NONE) {
                out.append(
                        format(
                                "<line class=\"line\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\""
                                        + " y2=\"%d\"/>",
                                x, x + 26, y + 9, y + 9));
            }
            if (s.line != Line.FAINT) {
                out.append(
                        format(
                                "<rect class=\"dot\" x=\"%.1f\" y=\"%d\" width=\"6\" height=\"6\""
                                        + " rx=\"3\"/>",
                                x + 10, y + 6));
            }
        }
        for (int i = 0; i < lines.size(); i++) {
            Markup.text(out, x + 32, y + 13 + ROW * i, "entry-name", "start", lines.get(i));
        }
        return out.append("</g>\n").toString();
    }
}
