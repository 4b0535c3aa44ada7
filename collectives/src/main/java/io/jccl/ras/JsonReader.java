package io.jccl.ras;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads JSON that may have been cut: what was complete by then is returned. There is no library for
 * this in {@code collectives}, which depends on none.
 */
final class JsonReader {
    private static final int DEPTH = 32;

    private final String text;
    private int at;
    private boolean cut;

    JsonReader(String text) {
        this.text = text;
    }

    /**
     * The object.
     *
     * @throws IllegalArgumentException if it is not JSON, with the place
     */
    Map<String, Object> object() {
        if (peek() != '{') {
            throw wrong("{");
        }
        return object(DEPTH);
    }

    /** Whether the text ended before the object did. */
    boolean cut() {
        return cut;
    }

    private Object value(int depth) {
        if (depth == 0) {
            throw wrong("less than " + DEPTH + " levels");
        }
        return switch (peek()) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            default -> literal();
        };
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        while (peek() != '}' && !cut) {
            if (peek() != '"') {
                throw wrong("a name");
            }
            String name = string();
            if (peek() != ':' && !cut) {
                throw wrong(":");
            }
            at++;
            Object value = peek() == 0 ? "" : value(depth - 1);
            if (!(cut && value instanceof String)) {
                map.put(name, value);
            }
            separator('}');
        }
        at++;
        return map;
    }

    private List<Object> array(int depth) {
        List<Object> list = new ArrayList<>();
        at++;
        while (peek() != ']' && !cut) {
            list.add(value(depth - 1));
            separator(']');
        }
        at++;
        return list;
    }

    private void separator(char end) {
        char c = peek();
        if (c == ',') {
            at++;
        } else if (c != end && !cut) {
            throw wrong(", or " + end);
        }
    }

    private String string() {
        StringBuilder s = new StringBuilder();
        for (at++; at < text.length() && text.charAt(at) != '"'; at++) {
            if (text.charAt(at) == '\\') {
                at++; // NCCL escapes nothing
            }
            if (at < text.length()) {
                s.append(text.charAt(at));
            }
        }
        cut |= at >= text.length();
        at++;
        return s.toString();
    }

    private Object literal() {
        int from = at;
        while (at < text.length() && ",]}\n\r\t ".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        cut |= at >= text.length();
        String word = text.substring(from, at);
        if (cut) {
            return ""; // half a number is none
        }
        if (word.equals("true") || word.equals("false")) {
            return Boolean.valueOf(word);
        }
        try {
            return word.equals("null") ? "" : (Object) Double.valueOf(word);
        } catch (NumberFormatException e) {
            at = from;
            throw wrong("a value");
        }
    }

    /** The next character that is not white space; 0 at the end. */
    private char peek() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        if (at >= text.length()) {
            cut = true;
            return 0;
        }
        return text.charAt(at);
    }

    private IllegalArgumentException wrong(String expected) {
        int end = Math.min(at + 40, text.length());
        return new IllegalArgumentException(
                "expected %s at character %s of NCCL's answer, found '%s'"
                        .formatted(
                                expected,
                                at,
                                text.substring(Math.min(at, end), end).replaceAll("\\s+", " ")));
    }
}
