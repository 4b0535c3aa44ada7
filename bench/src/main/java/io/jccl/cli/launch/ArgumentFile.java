package io.jccl.cli.launch;

import java.util.ArrayList;
import java.util.List;

/**
 * Words of an argument file of {@code java}: separated by white space; a {@code #} begins a
 * comment, and quotes join what is between them, in which a backslash escapes the next character.
 */
final class ArgumentFile {
    private final String text;
    private int at;

    private ArgumentFile(String text) {
        this.text = text;
    }

    static List<String> words(String text) {
        ArgumentFile file = new ArgumentFile(text);
        List<String> words = new ArrayList<>();
        while (file.skipToWord()) {
            words.add(file.word());
        }
        return words;
    }

    /** Skips white space and comments; false at the end. */
    private boolean skipToWord() {
        boolean comment = false;
        for (; at < text.length(); at++) {
            char c = text.charAt(at);
            if (isEnd(c)) {
                comment = false;
            } else if (c == '#') {
                comment = true;
            } else if (!comment && !isBlank(c)) {
                return true;
            }
        }
        return false;
    }

    private String word() {
        StringBuilder word = new StringBuilder();
        char quote = 0;
        for (; at < text.length(); at++) {
            char c = text.charAt(at);
            if (isEnd(c) || (quote == 0 && (isBlank(c) || c == '#'))) {
                break;
            }
            if (quote == 0 && (c == '"' || c == '\'')) {
                quote = c;
            } else if (c == quote) {
                quote = 0;
            } else if (quote != 0 && c == '\\') {
                escape(word);
            } else {
                word.append(c);
            }
        }
        return word.toString();
    }

    /** At a backslash: appends what it stands for, nothing for the end of a line. */
    private void escape(StringBuilder word) {
        if (++at == text.length()) {
            return;
        }
        char c = text.charAt(at);
        if (isEnd(c)) {
            while (at + 1 < text.length()
                    && (isBlank(text.charAt(at + 1)) || isEnd(text.charAt(at + 1)))) {
                at++;
            }
            return;
        }
        word.append(
                switch (c) {
                    case 'n' -> '\n';
                    case 't' -> '\t';
                    case 'r' -> '\r';
                    case 'f' -> '\f';
                    default -> c;
                });
    }

    private static boolean isEnd(char c) {
        return c == '\n' || c == '\r';
    }

    private static boolean isBlank(char c) {
        return c == ' ' || c == '\t' || c == '\f';
    }
}
