package io.jccl.topology.draw;

import io.jccl.topology.internal.Xml;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Text from dumps, which may hold anything, made fit for XML, HTML and DOT. */
final class Text {
    /** Names longer than this are cut: they come from a file that anyone may have written. */
    private static final int LONGEST = 200;

    private static final int LONGEST_SENTENCE = 2000;

    private Text() {}

    /** A name, for element content and attribute values of XML and HTML. */
    static String xml(String text) {
        return xml(text, LONGEST);
    }

    /** Our own sentence, in which there may be names. */
    static String sentence(String text) {
        return xml(text, LONGEST_SENTENCE);
    }

    /** What was put together from names that were cut, whole. */
    static String whole(String text) {
        return xml(text, Integer.MAX_VALUE - 1);
    }

    /** Lines of at most the given number of characters, unless a word is longer. */
    static List<String> wrapped(String text, int length) {
        List<String> lines = new ArrayList<>();
        StringBuilder line = new StringBuilder();
        for (String word : text.split(" ", -1)) {
            if (!line.isEmpty() && line.length() + 1 + word.length() > length) {
                lines.add(line.toString());
                line.setLength(0);
            }
            line.append(line.isEmpty() ? "" : " ").append(word);
        }
        lines.add(line.toString());
        return lines;
    }

    private static String xml(String text, int longest) {
        return Xml.escape(plain(text, longest)).replace("'", "&#39;");
    }

    /** A quoted string of the DOT language. */
    static String dot(String text) {
        return '"' + plain(text).replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /**
     * Replaces what XML forbids (control characters, halves of surrogate pairs) and what would turn
     * the direction of the text round.
     */
    static String plain(String text) {
        return plain(text, LONGEST);
    }

    private static String plain(String text, int longest) {
        StringBuilder b = new StringBuilder(Math.min(text.length(), longest) + 1);
        int shown = 0;
        for (int i = 0; i < text.length(); ) {
            if (++shown > longest) {
                b.append('…');
                break;
            }
            int c = text.codePointAt(i);
            i += Character.charCount(c);
            boolean fit =
                    switch (Character.getType(c)) {
                        case Character.CONTROL,
                                Character.FORMAT,
                                Character.SURROGATE,
                                Character.LINE_SEPARATOR,
                                Character.PARAGRAPH_SEPARATOR,
                                Character.UNASSIGNED ->
                                false;
                        default -> true;
                    };
            b.appendCodePoint(fit ? c : 0xFFFD);
        }
        return b.toString();
    }

    /** The first characters, if there are more than fit. */
    static String cut(String text, int length) {
        String plain = plain(text);
        int points = plain.codePointCount(0, plain.length());
        return points <= length
                ? plain
                : plain.substring(0, plain.offsetByCodePoints(0, length - 1)) + "…";
    }

    /** A bandwidth: at most one decimal, none that is zero, none from 100 on. */
    static String gbps(double gbps) {
        return gbps >= 100 ? Long.toString(Math.round(gbps)) : number(Math.round(gbps * 10) / 10.0);
    }

    /** A coordinate, or anything else: without a decimal where there is none. */
    static String number(double value) {
        if (value == Math.rint(value) && Math.abs(value) < 1e15) {
            return Long.toString((long) value);
        }
        return String.format(Locale.ROOT, "%.1f", value);
    }
}
