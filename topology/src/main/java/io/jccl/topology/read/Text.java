package io.jccl.topology.read;

import io.jccl.topology.TopologyFormatException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Splits a text into lines without what terminals and mail programs add. */
final class Text {
    /** Longest text that is read, in characters: 4 Mi. */
    static final int MAX_CHARS = 4 << 20;

    /** Most lines that are not blank. */
    static final int MAX_LINES = 100_000;

    /** What may precede the first word of a line: indents, comment and quotation marks. */
    private static final String NOISE = " \t|#>*/;\"'";

    private Text() {}

    /**
     * A line that is not blank.
     *
     * @param number from 1
     * @param text what is left of it
     * @param columns the original column of each character; null if nothing was taken out
     */
    record Line(int number, String text, int @Nullable [] columns) {
        int column(int index) {
            if (columns == null || columns.length == 0) {
                return index + 1;
            }
            return index < columns.length
                    ? columns[index]
                    : columns[columns.length - 1] + 1 + index - columns.length;
        }

        /** Where the first word starts; the length if there is none. */
        int start() {
            int i = 0;
            while (i < text.length() && NOISE.indexOf(text.charAt(i)) >= 0) {
                i++;
            }
            return i;
        }
    }

    static List<Line> lines(String text) {
        if (text.length() > MAX_CHARS) {
            throw new TopologyFormatException(
                    0,
                    0,
                    ("the text has %s characters, and at most %s are read: cut it down to the"
                                    + " output of nvidia-smi")
                            .formatted(text.length(), MAX_CHARS));
        }
        List<Line> lines = new ArrayList<>();
        int number = 0;
        int start = 0;
        for (int i = 0; i <= text.length(); i++) {
            char c = i < text.length() ? text.charAt(i) : '\n';
            if (c != '\n' && c != '\r') {
                continue;
            }
            number++;
            Line line = clean(number, text.substring(start, i));
            if (!line.text.isBlank()) {
                if (lines.size() == MAX_LINES) {
                    throw new TopologyFormatException(
                            number,
                            1,
                            "more than "
                                    + MAX_LINES
                                    + " lines: cut the text down to the output of nvidia-smi");
                }
                lines.add(line);
            }
            if (c == '\r' && i + 1 < text.length() && text.charAt(i + 1) == '\n') {
                i++;
            }
            start = i + 1;
        }
        return Labels.strip(lines);
    }

    private static Line clean(int number, String raw) {
        if (isPlain(raw)) {
            return new Line(number, raw, null);
        }
        boolean table = raw.indexOf('|') >= 0 || raw.indexOf('\u2502') >= 0;
        boolean tabs = raw.indexOf('\t') >= 0;
        StringBuilder out = new StringBuilder(raw.length());
        int[] columns = new int[raw.length()];
        int i = 0;
        while (i < raw.length()) {
            int escape = escape(raw, i);
            if (escape > i) {
                i = escape;
                continue;
            }
            char c = raw.charAt(i);
            int width = 1;
            if (c == '\\' && !tabs && raw.startsWith("\\t", i)) {
                c = '\t'; // a string literal of a program
                width = 2;
            } else if (c == '\u2502') {
                c = '|';
            } else if (c != '\t' && (Character.isSpaceChar(c) || Character.isWhitespace(c))) {
                c = ' ';
            } else if (table && (c == '*' || c == '`')) {
                c = ' '; // bold or code in a Markdown table
            }
            if (Character.getType(c) != Character.FORMAT
                    && (c == '\t' || !Character.isISOControl(c))) {
                columns[out.length()] = i + 1;
                out.append(c);
            }
            i += width;
        }
        return new Line(number, out.toString(), Arrays.copyOf(columns, out.length()));
    }

    private static boolean isPlain(String raw) {
        for (int i = 0; i < raw.length(); i++) {
            char c = raw.charAt(i);
            if ((c < ' ' && c != '\t')
                    || c > '~'
                    || c == '['
                    || c == '\\'
                    || c == '*'
                    || c == '`') {
                return false;
            }
        }
        return true;
    }

    /** Where the escape sequence ends that starts here; here if none does. */
    private static int escape(String s, int at) {
        int i = at;
        boolean marked = true;
        if (s.charAt(i) == '\u001b') {
            i++;
        } else if (s.startsWith("^[", i)) {
            i += 2;
        } else if (s.startsWith("\\033", i)
                || s.startsWith("\\x1b", i)
                || s.startsWith("\\x1B", i)) {
            i += 4;
        } else if (s.startsWith("\\e", i)) {
            i += 2;
        } else if (s.startsWith("\\u001b", i)) {
            i += 6;
        } else {
            marked = false; // what is left where the ESC itself was lost: [4m
        }
        if (i >= s.length() || s.charAt(i) != '[') {
            return marked && s.charAt(at) == '\u001b' ? i : at;
        }
        i++;
        while (i < s.length() && "0123456789;?".indexOf(s.charAt(i)) >= 0) {
            i++;
        }
        if (i >= s.length() || !Character.isLetter(s.charAt(i))) {
            return marked ? i : at;
        }
        return marked || s.charAt(i) == 'm' ? i + 1 : at;
    }
}
