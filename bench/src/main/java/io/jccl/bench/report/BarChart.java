package io.jccl.bench.report;

import static io.jccl.bench.report.Markup.escape;
import static io.jccl.cli.shell.Text.format;

import java.util.List;

/** Horizontal bars from zero, in groups; the name of each group is above its bars. */
public final class BarChart implements Chart {
    /**
     * A bar.
     *
     * @param colour 0 or more; see {@link Chart#COLOURS}
     * @param value its length
     * @param low the least measured value; NaN if there is only one
     * @param high the greatest measured value; NaN if there is only one
     * @param text the text at its end
     * @param tip the text a page shows on hover
     */
    public record Bar(int colour, double value, double low, double high, String text, String tip) {
        /** A bar without a spread. */
        public Bar(int colour, double value, String text, String tip) {
            this(colour, value, Double.NaN, Double.NaN, text, tip);
        }
    }

    /**
     * Bars under one name.
     *
     * @param name the subject
     * @param bars one or more
     */
    public record Group(String name, List<Bar> bars) {
        /** Copies the list. */
        public Group {
            bars = List.copyOf(bars);
        }
    }

    private static final int WIDTH = 560;
    private static final int FONT = 12;
    private static final int ROW = 18;
    private static final int THICK = 12;

    private final String title;
    private final List<String> names;
    private final List<Group> groups;
    private final List<String> heading;
    private final double most;
    private final double room;

    /**
     * Creates a chart.
     *
     * @param title what it shows, with its unit
     * @param names of the colours, from 0; empty if there is one kind of bar
     * @param groups from top to bottom; bars that are not finite or below 0 are left out
     */
    public BarChart(String title, List<String> names, List<Group> groups) {
        this.title = title;
        this.names = List.copyOf(names);
        this.groups =
                groups.stream()
                        .map(g ->
                                new Group(
                                        g.name,
                                        g.bars.stream()
                                                .filter(b ->
                                                        Double.isFinite(b.value) && b.value >= 0)
                                                .toList()))
                        .filter(g -> !g.bars.isEmpty())
                        .toList();
        heading = Markup.wrapped(title, WIDTH - 16.0, Markup.BOLD * (FONT + 2));
        double largest = 0;
        double widest = 0;
        for (Group g : this.groups) {
            for (Bar b : g.bars) {
                largest = Math.max(largest, Double.isFinite(b.high) ? b.high : 0);
                largest = Math.max(largest, b.value);
                widest = Math.max(widest, Markup.width(b.text, FONT));
            }
        }
        most = largest == 0 ? 1 : largest;
        room = Math.max(120, WIDTH - 8 - 14 - widest);
    }

    /** Whether there is anything to draw. */
    public boolean hasBars() {
        return !groups.isEmpty();
    }

    @Override
    public String title() {
        return title;
    }

    @Override
    public int width() {
        return WIDTH;
    }

    @Override
    public int height() {
        int y = 12 + ROW * heading.size();
        for (Group g : groups) {
            y += high(g);
        }
        for (String name : names) {
            y += ROW * lines(name).size();
        }
        return y + 8;
    }

    private static int high(Group g) {
        return ROW * lines(g).size() + g.bars.size() * (THICK + 3) + 5;
    }

    private static List<String> lines(Group g) {
        return Markup.wrapped(g.name, WIDTH - 16.0, Markup.BOLD * FONT);
    }

    private static List<String> lines(String name) {
        return Markup.wrapped(name, WIDTH - 40.0, FONT);
    }

    @Override
    public void draw(StringBuilder out) {
        for (int i = 0; i < heading.size(); i++) {
            Markup.text(out, 8, 16 + ROW * i, "heading", "start", heading.get(i));
        }
        int y = 10 + ROW * heading.size();
        for (Group g : groups) {
            group(out, g, y);
            y += high(g);
        }
        for (int i = 0; i < names.size(); i++) {
            List<String> lines = lines(names.get(i));
            out.append(
                    format(
                            "<g class=\"entry key c%d\" data-k=\"c%d\"><rect class=\"fill\""
                                    + " x=\"8\" y=\"%d\" width=\"14\" height=\"12\"/>",
                            i % COLOURS, i % COLOURS, y + 4));
            for (String line : lines) {
                Markup.text(out, 28, y + 14, "entry-name", "start", line);
                y += ROW;
            }
            out.append("</g>\n");
        }
    }

    private void group(StringBuilder out, Group g, int top) {
        int y = top;
        for (String line : lines(g)) {
            Markup.text(out, 8, y + 13, "name", "start", line);
            y += ROW;
        }
        for (Bar b : g.bars) {
            double end = 8 + length(b.value);
            out.append(
                    format(
                            "<g class=\"curve c%d\"><rect class=\"fill bar\" x=\"8\" y=\"%d\""
                                    + " width=\"%.1f\" height=\"%d\"><title>%s</title></rect>",
                            b.colour % COLOURS,
                            y,
                            Math.max(1, length(b.value)),
                            THICK,
                            escape(b.tip)));
            if (Double.isFinite(b.low) && Double.isFinite(b.high)) {
                out.append(
                        format(
                                "<path class=\"whisker\" d=\"M%.1f,%d v6 m0,-3 H%.1f m0,-3 v6\"/>",
                                8 + length(Math.max(0, b.low)),
                                y + THICK / 2 - 3,
                                8 + length(b.high)));
                end = Math.max(end, 8 + length(b.high));
            }
            Markup.text(out, end + 6, y + 10, "tick", "start", b.text);
            out.append("</g>\n");
            y += THICK + 3;
        }
    }

    private double length(double value) {
        return value / most * (room - 8);
    }
}
