package io.jccl.bench.fit;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Speed over model size, both logarithmic, one curve a set of techniques. Java's chart libraries
 * draw through AWT, which would make the image that runs without Java a third larger; one plot of
 * lines does not need them.
 */
public final class Chart {
    /** Those of {@code jccl topo}'s channels, told apart on light and on dark. */
    private static final String[] COLOURS = {
        "#2f7fd0", "#d1495b", "#e08e0b", "#2a9d6f", "#8f5bd0", "#c94f9d", "#0f9bb0", "#8a7a12",
        "#5468d4", "#6b9b1e"
    };

    private static final int WIDTH = 960;
    private static final int HEIGHT = 560;
    private static final int LEFT = 80;
    private static final int TOP = 70;
    private static final int RIGHT = 690;
    private static final int BOTTOM = 490;

    private static final String STYLE =
            "<style>text{font:13px system-ui,sans-serif;fill:#222}.small{font-size:11px}"
                    + ".title{font-size:18px;font-weight:600}.grid{stroke:#8884;stroke-width:1}"
                    + ".bg{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#eee}"
                    + ".bg{fill:#1b1d21}}</style>\n";

    private final String subtitle;
    private final List<Experiment.Row> rows;
    private final double leastX;
    private final double mostX;
    private final double leastY;
    private final double mostY;

    /**
     * Prepares it.
     *
     * @param subtitle what was measured
     * @param rows at least one
     */
    public Chart(String subtitle, List<Experiment.Row> rows) {
        this.subtitle = subtitle;
        this.rows = rows;
        double[] x = range(rows, true);
        double[] y = range(rows, false);
        leastX = x[0];
        mostX = x[1];
        leastY = y[0];
        mostY = y[1];
    }

    /** Logarithms, with some room. */
    private static double[] range(List<Experiment.Row> rows, boolean across) {
        double least = Double.POSITIVE_INFINITY;
        double most = Double.NEGATIVE_INFINITY;
        for (Experiment.Row row : rows) {
            for (Attempt.Trained t : row.runs()) {
                double v = Math.log10(across ? t.parameters() : t.samplesPerSecond());
                least = Math.min(least, v);
                most = Math.max(most, v);
            }
        }
        double room = Math.max(0.1, (most - least) * 0.05);
        return new double[] {least - room, most + room};
    }

    /**
     * The picture.
     *
     * @return an SVG document that needs nothing from outside
     */
    public String svg() {
        StringBuilder out = new StringBuilder();
        out.append(
                String.format(
                        Locale.ROOT,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\""
                                + " height=\"%d\" role=\"img\">%n",
                        WIDTH,
                        HEIGHT,
                        WIDTH,
                        HEIGHT));
        out.append("<title>Samples per second by model size</title>\n").append(STYLE);
        out.append("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n");
        text(out, LEFT, 28, "title", "start", "What trains within the same memory, and how fast");
        List<String> lines = wrapped(subtitle);
        for (int i = 0; i < lines.size(); i++) {
            text(out, LEFT, 46 + 14 * i, "small", "start", lines.get(i));
        }
        grid(out);
        text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 44, "", "middle", "parameters of the model");
        out.append(
                String.format(
                        Locale.ROOT,
                        "<text transform=\"translate(22,%d) rotate(-90)\""
                                + " text-anchor=\"middle\">samples/s</text>%n",
                        (TOP + BOTTOM) / 2));
        for (int i = 0; i < rows.size(); i++) {
            curve(out, i);
        }
        return out.append("</svg>\n").toString();
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
        for (boolean across : new boolean[] {true, false}) {
            double least = across ? leastX : leastY;
            double most = across ? mostX : mostY;
            // Within a decade the lines between are labelled too, if there are few.
            int[] digits = most - least < 2.5 ? new int[] {1, 2, 5} : new int[] {1};
            for (int e = (int) Math.floor(least); e <= most; e++) {
                for (int d : digits) {
                    double v = e + Math.log10(d);
                    if (v < least || v > most) {
                        continue;
                    }
                    double at = across ? x(v) : y(v);
                    out.append(
                            String.format(
                                    Locale.ROOT,
                                    "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\""
                                            + " y2=\"%.1f\"/>%n",
                                    across ? at : LEFT,
                                    across ? TOP : at,
                                    across ? at : RIGHT,
                                    across ? BOTTOM : at));
                    String label = number(d * Math.pow(10, e));
                    if (across) {
                        text(out, at, BOTTOM + 20, "small", "middle", label);
                    } else {
                        text(out, LEFT - 8, at + 4, "small", "end", label);
                    }
                }
            }
        }
    }

    private static String number(double v) {
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
        Experiment.Row row = rows.get(index);
        String colour = COLOURS[index % COLOURS.length];
        StringBuilder points = new StringBuilder();
        StringBuilder dots = new StringBuilder();
        for (Attempt.Trained t : row.runs()) {
            double px = x(Math.log10((double) t.parameters()));
            double py = y(Math.log10(t.samplesPerSecond()));
            points.append(String.format(Locale.ROOT, "%.1f,%.1f ", px, py));
            boolean largest = t.equals(row.largest());
            dots.append(
                    String.format(
                            Locale.ROOT,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"><title>%s: %,d"
                                    + " parameters, %.0f samples/s%s</title></circle>%n",
                            px,
                            py,
                            largest ? 6 : 3,
                            colour,
                            xml(row.set().title()),
                            t.parameters(),
                            t.samplesPerSecond(),
                            largest ? " (the largest)" : ""));
        }
        out.append("<g class=\"curve\">\n<polyline fill=\"none\" stroke=\"").append(colour);
        out.append("\" stroke-width=\"2\" points=\"").append(points.toString().strip());
        out.append("\"/>\n").append(dots);
        int legend = TOP + 10 + 24 * index;
        out.append(
                String.format(
                        Locale.ROOT,
                        "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>%n",
                        RIGHT + 20,
                        legend,
                        colour));
        text(out, RIGHT + 40, legend + 12, "", "start", row.set().title());
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
     * Picture and table as a page.
     *
     * @param table the report
     * @return an HTML document that needs nothing from outside; values show where the mouse is
     */
    public String html(String table) {
        return """
        <!DOCTYPE html>
        <html lang="en"><head><meta charset="utf-8"><title>jccl fit-demo</title>
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
                .formatted(svg(), xml(table));
    }
}
