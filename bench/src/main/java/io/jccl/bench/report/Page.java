package io.jccl.bench.report;

import static io.jccl.bench.report.Markup.escape;
import static io.jccl.cli.shell.Text.format;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A report: facts about the runs, figures and tables, in the style of all of JCCL's reports. It
 * loads nothing, and follows the reader's light or dark mode. Filled and written by one thread.
 */
public final class Page {
    private static final int COLUMNS_WIDTH = 1160;
    private static final int GAP = 16;

    private final String title;
    private final Map<String, String> facts = new LinkedHashMap<>();
    private final List<String> warnings = new ArrayList<>();
    private final List<Object> parts = new ArrayList<>();

    /**
     * Creates an empty page.
     *
     * @param title of the page
     */
    public Page(String title) {
        this.title = title;
    }

    /**
     * Adds a line to the head of the page.
     *
     * @param name such as command or machine
     * @param value left out if it is empty
     * @return this
     */
    public Page fact(String name, String value) {
        if (!value.isBlank()) {
            facts.put(name, value);
        }
        return this;
    }

    /**
     * Adds a prominent warning.
     *
     * @param text what not to trust, and what to do
     * @return this
     */
    public Page warning(String text) {
        warnings.add(text);
        return this;
    }

    /**
     * Adds a figure.
     *
     * @param figure what to draw; left out if it has no charts
     * @return this
     */
    public Page add(Figure figure) {
        if (!figure.charts().isEmpty()) {
            parts.add(figure);
        }
        return this;
    }

    /**
     * Adds a table.
     *
     * @param table left out if it has no rows
     * @return this
     */
    public Page add(Table table) {
        if (!table.rows().isEmpty()) {
            parts.add(table);
        }
        return this;
    }

    /**
     * Adds preformatted text.
     *
     * @param text with line feeds
     * @return this
     */
    public Page add(String text) {
        parts.add(text);
        return this;
    }

    /**
     * The style sheet of all pages, for a page that builds its own document.
     *
     * @return CSS rules without a style element
     */
    public static String style() {
        return Markup.resource("page.css");
    }

    /**
     * The page.
     *
     * @return a self-contained HTML document, well-formed as XML after its first line
     */
    public String html() {
        StringBuilder out = new StringBuilder();
        String head =
                """
                <!DOCTYPE html>
                <html lang="en"><head><meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1"/>
                <meta http-equiv="Content-Security-Policy"
                 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"/>
                <title>%s</title>
                <style>
                %s%s</style></head><body>
                <h1>%s</h1>
                """;
        String css = Markup.resource("chart.css");
        out.append(format(head, escape(title), css, style(), escape(title)));
        if (!facts.isEmpty()) {
            out.append("<dl>\n");
            facts.forEach((name, value) ->
                    out.append(format("<dt>%s</dt><dd>%s</dd>%n", escape(name), escape(value))));
            out.append("</dl>\n");
        }
        warnings.forEach(w -> out.append(format("<p class=\"warning\">%s</p>%n", escape(w))));
        for (Object part : parts) {
            switch (part) {
                case Figure f -> html(out, f);
                case Table t -> t.html(out);
                default -> out.append(format("<pre>%s</pre>%n", escape(part.toString())));
            }
        }
        out.append(format("<div id=\"tip\" role=\"status\"></div>%n<script>%n"));
        return out.append(Markup.resource("page.js"))
                .append("</script></body></html>\n")
                .toString();
    }

    private static void html(StringBuilder out, Figure f) {
        boolean small = f.charts().getFirst().width() < 300;
        out.append(format("<section><h2>%s</h2>%n", escape(f.title())));
        if (!f.caption().isEmpty()) {
            out.append(format("<p>%s</p>%n", escape(f.caption())));
        }
        out.append(format("<div class=\"%s\">%n", small ? "charts small" : "charts"));
        for (Chart c : f.charts()) {
            svg(out, c, "");
        }
        out.append("</div></section>\n");
    }

    private static void svg(StringBuilder out, Chart c, String place) {
        out.append(
                format(
                        "<svg class=\"chart\" %sviewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">%n",
                        place, c.width(), c.height(), escape(c.title())));
        c.draw(out);
        out.append("</svg>\n");
    }

    /**
     * The figures as one picture.
     *
     * @return a self-contained SVG document
     */
    public String svg() {
        StringBuilder out = new StringBuilder();
        int y = 40;
        Markup.text(out, GAP, 30, "title", "start", title);
        for (Map.Entry<String, String> fact : facts.entrySet()) {
            for (String line :
                    Markup.wrapped(fact.getKey() + ": " + fact.getValue(), COLUMNS_WIDTH, 12)) {
                Markup.text(out, GAP, y + 12, "label", "start", line);
                y += 16;
            }
        }
        for (Object part : parts) {
            if (part instanceof Figure f) {
                y = svg(out, f, y);
            }
        }
        int width = COLUMNS_WIDTH + 2 * GAP;
        StringBuilder whole = new StringBuilder();
        whole.append(
                format(
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">%n<title>%s</title>%n<style>%n%s</style>%n<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>%n",
                        width,
                        y + GAP,
                        width,
                        y + GAP,
                        escape(title),
                        Markup.resource("chart.css")));
        return whole.append(out).append("</svg>\n").toString();
    }

    /** Draws a figure below y; returns what is below it. */
    private static int svg(StringBuilder out, Figure f, int top) {
        int y = top + 30;
        Markup.text(out, GAP, y, "heading", "start", f.title());
        y += 8;
        for (String line : Markup.wrapped(f.caption(), COLUMNS_WIDTH, 12)) {
            Markup.text(out, GAP, y + 12, "label", "start", line);
            y += 16;
        }
        int x = GAP;
        int high = 0;
        for (Chart c : f.charts()) {
            if (x > GAP && x + c.width() > COLUMNS_WIDTH + GAP) {
                x = GAP;
                y += high + GAP;
                high = 0;
            }
            svg(
                    out,
                    c,
                    "x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" "
                            .formatted(x, y, c.width(), c.height()));
            x += c.width() + GAP;
            high = Math.max(high, c.height());
        }
        return y + high;
    }

    /**
     * The tables for a terminal.
     *
     * @return lines, each with a line feed
     */
    public String text() {
        StringBuilder out = new StringBuilder();
        facts.forEach((name, value) -> out.append(format("# %s: %s%n", name, value)));
        warnings.forEach(w -> out.append(format("# WARNING: %s%n", w)));
        for (Object part : parts) {
            if (part instanceof Table t) {
                out.append("#\n").append(t.text());
            }
        }
        return out.toString();
    }
}
