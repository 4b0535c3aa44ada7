package io.jccl.train.fit;

import java.util.ArrayList;
import java.util.DoubleSummaryStatistics;
import java.util.List;
import java.util.Locale;
import java.util.stream.DoubleStream;

/**
 * Lines over one axis, one for each way of doing something. Java's chart libraries draw through
 * AWT, which would make the image that runs without Java a third larger; a plot of lines does not
 * need them.
 */
public final class Chart {
    /** Those of {@code jccl topo}'s channels, told apart on light and on dark. */
    private static final String[] COLOURS = {
        "#2f7fd0", "#d1495b", "#e08e0b", "#2a9d6f", "#8f5bd0", "#c94f9d", "#0f9bb0", "#8a7a12",
        "#5468d4", "#6b9b1e"
    };

    private static final int WIDTH = 1080;
    private static final int HEIGHT = 560;
    private static final int LEFT = 80;
    private static final int TOP = 70;
    private static final int RIGHT = 690;
    private static final int BOTTOM = 490;

    /** Names of curves that are longer are written smaller. */
    private static final int LONG_TITLE = 36;

    /** Curves with more points get no dots. */
    private static final int MOST_DOTS = 40;

    private static final String STYLE =
            "<style>text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px}"
                    + ".title{font-size:18px;font-weight:600}.grid{stroke:#8884;stroke-width:1}"
                    + ".bg{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#eee}"
                    + ".bg{fill:#1b1d21}}</style>\n";

    private final String title;
    private final String subtitle;
    private final Axis across;
    private final Axis up;
    private final List<Series> series;
    private final List<Mark> marks;
    private final double leastX;
    private final double mostX;
    private final double leastY;
    private final double mostY;

    /**
     * An axis.
     *
     * @param label what is along it
     * @param logarithmic whether decades are equally long
     */
    public record Axis(String label, boolean logarithmic) {
        double place(double value) {
            return logarithmic ? Math.log10(value) : value;
        }
    }

    /**
     * A point of a curve.
     *
     * @param x across
     * @param y up
     * @param tip what a page shows where the mouse is
     * @param large whether its dot is larger than the others
     */
    public record Point(double x, double y, String tip, boolean large) {}

    /**
     * A curve.
     *
     * @param title its name
     * @param points from left to right
     * @param dashed whether the line is dashed
     */
    public record Series(String title, List<Point> points, boolean dashed) {}

    /**
     * A line across the plot.
     *
     * @param label its name
     * @param y where
     */
    public record Mark(String label, double y) {}

    /**
     * Prepares it.
     *
     * @param title what it shows
     * @param subtitle how that was measured
     * @param across the horizontal axis
     * @param up the vertical axis
     * @param series at least one point in all
     * @param marks lines across
     */
    public Chart(
            String title,
            String subtitle,
            Axis across,
            Axis up,
            List<Series> series,
            List<Mark> marks) {
        this.title = title;
        this.subtitle = subtitle;
        this.across = across;
        this.up = up;
        this.series = List.copyOf(series);
        this.marks = List.copyOf(marks);
        double[] x =
                range(
                        series.stream().flatMap(s -> s.points.stream()).mapToDouble(Point::x),
                        across);
        double[] y =
                range(
                        DoubleStream.concat(
                                series.stream()
                                        .flatMap(s -> s.points.stream())
                                        .mapToDouble(Point::y),
                                marks.stream().mapToDouble(Mark::y)),
                        up);
        leastX = x[0];
        mostX = x[1];
        leastY = y[0];
        mostY = y[1];
    }

    /** With some room. */
    private static double[] range(DoubleStream values, Axis axis) {
        DoubleSummaryStatistics places = values.map(axis::place).summaryStatistics();
        double span = places.getMax() - places.getMin();
        double room = Math.max(axis.logarithmic ? 0.1 : span == 0 ? 1 : 0, span * 0.05);
        return new double[] {places.getMin() - room, places.getMax() + room};
    }

    /**
     * Pictures, one below the other.
     *
     * @param charts at least one
     * @return an SVG document that needs nothing from outside
     */
    public static String svg(List<Chart> charts) {
        StringBuilder out = new StringBuilder();
        out.append(
                String.format(
                        Locale.ROOT,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\""
                                + " height=\"%d\" role=\"img\">%n",
                        WIDTH,
                        HEIGHT * charts.size(),
                        WIDTH,
                        HEIGHT * charts.size()));
        text(out.append("<title>"), charts.getFirst().title).append("</title>\n").append(STYLE);
        out.append("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n");
        for (int i = 0; i < charts.size(); i++) {
            out.append("<g transform=\"translate(0,").append(i * HEIGHT).append(")\">\n");
            charts.get(i).draw(out);
            out.append("</g>\n");
        }
        return out.append("</svg>\n").toString();
    }

    private static StringBuilder text(StringBuilder out, String value) {
        return out.append(xml(value));
    }

    private void draw(StringBuilder out) {
        text(out, LEFT, 28, "title", "start", title);
        List<String> lines = wrapped(subtitle);
        for (int i = 0; i < lines.size(); i++) {
            text(out, LEFT, 46 + 14 * i, "small", "start", lines.get(i));
        }
        grid(out);
        text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 44, "", "middle", across.label);
        out.append(
                String.format(
                        Locale.ROOT,
                        "<text transform=\"translate(22,%d) rotate(-90)\""
                                + " text-anchor=\"middle\">%s</text>%n",
                        (TOP + BOTTOM) / 2,
                        xml(up.label)));
        for (Mark mark : marks) {
            double at = y(up.place(mark.y));
            out.append(
                    String.format(
                            Locale.ROOT,
                            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d1495b\""
                                    + " stroke-dasharray=\"6 4\"/>%n",
                            LEFT,
                            RIGHT,
                            at,
                            at));
            text(out, RIGHT - 4, at - 5, "small", "end", mark.label);
        }
        for (int i = 0; i < series.size(); i++) {
            curve(out, i);
        }
    }

    /**
     * The picture.
     *
     * @return an SVG document that needs nothing from outside
     */
    public String svg() {
        return svg(List.of(this));
    }

    private static List<String> wrapped(String text) {
        List<String> lines = new ArrayList<>();
        String rest = text;
        while (rest.length() > 130) {
            int cut = rest.lastIndexOf(' ', 130);
            cut = cut <= 0 ? 130 : cut;
            lines.add(rest.substring(0, cut));
            rest = rest.substring(cut).strip();
        }
        lines.add(rest);
        return lines;
    }

    private void grid(StringBuilder out) {
        for (double v : lines(across, leastX, mostX)) {
            double at = x(across.place(v));
            line(out, at, TOP, at, BOTTOM);
            text(out, at, BOTTOM + 20, "small", "middle", number(v));
        }
        for (double v : lines(up, leastY, mostY)) {
            double at = y(up.place(v));
            line(out, LEFT, at, RIGHT, at);
            text(out, LEFT - 8, at + 4, "small", "end", number(v));
        }
    }

    private static void line(StringBuilder out, double x1, double y1, double x2, double y2) {
        out.append(
                String.format(
                        Locale.ROOT,
                        "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>%n",
                        x1,
                        y1,
                        x2,
                        y2));
    }

    /** Round values between two places. */
    private static List<Double> lines(Axis axis, double least, double most) {
        List<Double> all = new ArrayList<>();
        if (!axis.logarithmic) {
            double rough = Math.max((most - least) / 8, Double.MIN_NORMAL);
            double decade = Math.pow(10, Math.floor(Math.log10(rough)));
            double step = decade * (rough > 5 * decade ? 10 : rough > 2 * decade ? 5 : 2);
            for (long i = (long) Math.ceil(least / step); i * step <= most; i++) {
                all.add(i * step);
            }
            return all;
        }
        // Within a decade the lines between are labelled too, if there are few.
        int[] digits = most - least < 2.5 ? new int[] {1, 2, 5} : new int[] {1};
        for (int e = (int) Math.floor(least); e <= most; e++) {
            for (int d : digits) {
                double v = e + Math.log10(d);
                if (v >= least && v <= most) {
                    all.add(d * Math.pow(10, e));
                }
            }
        }
        return all;
    }

    private static String number(double v) {
        if (v == 0 || (Math.abs(v) < 1 && Math.abs(v) >= 0.01)) {
            return String.format(Locale.ROOT, "%.2f", v).replaceAll("\\.?0+$", "");
        }
        if (Math.abs(v) < 1000 && (v != Math.rint(v) || v < 1)) {
            return String.format(Locale.ROOT, Math.abs(v) < 0.01 ? "%.0e" : "%.3g", v);
        }
        String[] units = {"", "K", "M", "B", "T"};
        int u = 0;
        double rest = v;
        while (rest >= 999.5 && u < units.length - 1) {
            rest /= 1000;
            u++;
        }
        return String.format(Locale.ROOT, rest < 9.95 && u > 0 ? "%.3g" : "%.0f", rest)
                        .replaceAll("\\.?0+$", rest < 9.95 && u > 0 ? "" : "$0")
                + units[u];
    }

    private double x(double log) {
        return LEFT + (log - leastX) / (mostX - leastX) * (RIGHT - LEFT);
    }

    private double y(double log) {
        return BOTTOM - (log - leastY) / (mostY - leastY) * (BOTTOM - TOP);
    }

    private void curve(StringBuilder out, int index) {
        Series curve = series.get(index);
        String colour = COLOURS[index % COLOURS.length];
        StringBuilder points = new StringBuilder();
        StringBuilder dots = new StringBuilder();
        for (Point p : curve.points) {
            double px = x(across.place(p.x));
            double py = y(up.place(p.y));
            points.append(String.format(Locale.ROOT, "%.1f,%.1f ", px, py));
            if (curve.points.size() <= MOST_DOTS) {
                dots.append(
                        String.format(
                                Locale.ROOT,
                                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\""
                                        + " fill=\"%s\"><title>%s</title></circle>%n",
                                px,
                                py,
                                p.large ? 6 : 3,
                                colour,
                                xml(p.tip)));
            }
        }
        out.append("<g class=\"curve\">\n<polyline fill=\"none\" stroke=\"").append(colour);
        out.append(curve.dashed ? "\" stroke-dasharray=\"5 3" : "");
        out.append("\" stroke-width=\"2\" points=\"").append(points.toString().strip());
        out.append("\"/>\n").append(dots);
        int legend = TOP + 10 + Math.min(24, (BOTTOM - TOP) / series.size()) * index;
        out.append(
                String.format(
                        Locale.ROOT,
                        "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>%n",
                        RIGHT + 20,
                        legend,
                        colour));
        String size = curve.title.length() > LONG_TITLE ? "small" : "";
        text(out, RIGHT + 40, legend + 12, size, "start", curve.title);
        out.append("</g>\n");
    }

    private static void text(
            StringBuilder out, double x, double y, String style, String anchor, String value) {
        out.append(
                String.format(
                        Locale.ROOT,
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>%n",
                        x,
                        y,
                        style,
                        anchor,
                        xml(value)));
    }

    private static String xml(String text) {
        return text.replace("&", "&amp;")
                .replace("<", "&lt;")
                .replace(">", "&gt;")
                .replace("\"", "&quot;");
    }

    /**
     * Pictures and table as a page.
     *
     * @param title the page's
     * @param charts at least one
     * @param table the report
     * @return an HTML document that needs nothing from outside; values show where the mouse is
     */
    public static String html(String title, List<Chart> charts, String table) {
        return """
        <!DOCTYPE html>
        <html lang="en"><head><meta charset="utf-8"><title>%s</title>
        <style>body{font:14px system-ui,sans-serif;margin:24px;color-scheme:light dark}
        svg{max-width:100%%;height:auto}pre{overflow-x:auto}
        .curve{transition:opacity .15s}svg:has(.curve:hover) .curve:not(:hover){opacity:.2}
        #tip{position:fixed;display:none;padding:4px 8px;border-radius:4px;background:#222;color:#fff;pointer-events:none}
        </style></head><body>
        %s<div id="tip"></div>
        <pre>%s</pre>
        <script>
        const tip = document.getElementById('tip');
        for (const c of document.querySelectorAll('circle')) {
          const text = c.querySelector('title').textContent;
          c.addEventListener('mousemove', e => {
            tip.textContent = text;
            tip.style.display = 'block';
            tip.style.left = e.clientX + 12 + 'px';
            tip.style.top = e.clientY + 12 + 'px';
          });
          c.addEventListener('mouseleave', () => { tip.style.display = 'none'; });
        }
        </script></body></html>
        """
                .formatted(xml(title), svg(charts), xml(table));
    }
}
