package io.jccl.bench.report;

import static io.jccl.cli.shell.Text.format;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Helpers of charts and pages for writing SVG and HTML. */
final class Markup {
    /** Width of a character as a fraction of the font's size, for the widest of the usual fonts. */
    private static final double CHARACTER = 0.58;

    /** Width of a bold character relative to a normal one. */
    static final double BOLD = 1.15;

    private Markup() {}

    /** Text for content and attributes; names come from files and command lines. */
    static String escape(String text) {
        StringBuilder b = new StringBuilder(text.length() + 16);
        text.codePoints()
                .forEach(c -> {
                    switch (c) {
                        case '&' -> b.append("&amp;");
                        case '<' -> b.append("&lt;");
                        case '>' -> b.append("&gt;");
                        case '"' -> b.append("&quot;");
                        case '\'' -> b.append("&#39;");
                        case '\n', '\t' -> b.append((char) c);
                        default -> b.appendCodePoint(isFit(c) ? c : 0xFFFD);
                    }
                });
        return b.toString();
    }

    /** Neither what XML forbids nor what reverses the direction of the text. */
    private static boolean isFit(int c) {
        return switch (Character.getType(c)) {
            case Character.CONTROL, Character.FORMAT, Character.SURROGATE, Character.UNASSIGNED ->
                    false;
            default -> true;
        };
    }

    /** A line of text; the style is one of the classes in chart.css. */
    static void text(
            StringBuilder out, double x, double y, String style, String anchor, String value) {
        out.append(
                format(
                        "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">%s</text>%n",
                        x, y, style, anchor, escape(value)));
    }

    /** The approximate width of a text, in the unit of the font's size. */
    static double width(String text, double font) {
        return text.codePoints().mapToDouble(c -> c >= 0x1100 ? 2 : 1).sum() * CHARACTER * font;
    }

    /** Lines no wider than the given width, broken at spaces where possible. */
    static List<String> wrapped(String text, double width, double font) {
        List<String> lines = new ArrayList<>();
        StringBuilder line = new StringBuilder();
        for (String word : text.strip().split("(?<= )", -1)) {
            if (!line.isEmpty() && width(line + word.stripTrailing(), font) > width) {
                lines.add(line.toString().stripTrailing());
                line.setLength(0);
            }
            word.codePoints()
                    .forEach(c -> {
                        if (c != ' ' && width(line + Character.toString(c), font) > width) {
                            lines.add(line.toString());
                            line.setLength(0);
                        }
                        line.appendCodePoint(c);
                    });
        }
        lines.add(line.toString().stripTrailing());
        return lines;
    }

    /** A file next to this class. */
    static String resource(String name) {
        try (InputStream in = Markup.class.getResourceAsStream(name)) {
            if (in == null) {
                throw new IllegalStateException(name + " is missing in the jar");
            }
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
