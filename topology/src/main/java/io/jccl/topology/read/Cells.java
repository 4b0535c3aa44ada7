package io.jccl.topology.read;

import io.jccl.topology.PathCode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Splits a row of a matrix into codes, also where separators were lost. */
final class Cells {
    /** Readings beyond this number are not looked for: two are already one too many. */
    private static final int MAX_READINGS = 16;

    private static final String[] PATHS = {"X", "NODE", "PIX", "PXB", "PHB", "SYS", "SOC"};
    private static final String[] STATES = {"X", "OK", "CNS", "GNS", "TNS", "NS", "DR", "U"};

    private final String text;
    private final int count;
    private final int diagonal;
    private final boolean[] elided;
    private final List<Reading> readings = new ArrayList<>(1);
    private Set<Long> failed = Set.of();
    private String[] known = PATHS;

    /**
     * A way to read a row.
     *
     * @param codes a code for each column; {@link PathMatrix#MISSING} for one that was left out
     * @param at where each code starts
     * @param tail where the cells after the codes start
     */
    record Reading(PathCode[] codes, int[] at, int tail) {}

    private Cells(String text, int diagonal, boolean[] elided) {
        this.text = text;
        this.count = elided.length;
        this.diagonal = diagonal;
        this.elided = elided;
    }

    /**
     * All ways to read a row.
     *
     * @param text what follows the label
     * @param diagonal the only column where X may be, and must be
     * @param elided for each column whether it represents omitted columns
     * @return the readings; none if the row is damaged
     */
    static List<Reading> read(String text, int diagonal, boolean[] elided) {
        Cells cells = new Cells(text, diagonal, elided);
        if (cells.plain()) {
            return cells.readings;
        }
        for (String[] codes : new String[][] {PATHS, STATES}) {
            if (cells.readings.isEmpty()) {
                cells.known = codes;
                cells.failed = new HashSet<>();
                cells.search(0, 0, new PathCode[cells.count], new int[cells.count]);
            }
        }
        return cells.readings;
    }

    static boolean isSeparator(char c) {
        return c == ' ' || c == '\t' || c == '|' || c == Span.WRAP;
    }

    static int skip(String text, int at) {
        int i = at;
        while (i < text.length() && isSeparator(text.charAt(i))) {
            i++;
        }
        return i;
    }

    static int wordEnd(String text, int at) {
        int i = at;
        while (i < text.length() && !isSeparator(text.charAt(i))) {
            i++;
        }
        return i;
    }

    static boolean isEllipsis(String word) {
        return word.equals("...") || word.equals("\u2026") || word.equals("..");
    }

    /** A code by its looks, if not one that is known. */
    static boolean looksLikeCode(String word) {
        if (word.isEmpty() || word.length() > 8 || !isUpper(word.charAt(0))) {
            return false;
        }
        for (int i = 1; i < word.length(); i++) {
            if (!isUpper(word.charAt(i)) && !isDigit(word.charAt(i))) {
                return false;
            }
        }
        return true;
    }

    static boolean isUpper(char c) {
        return c >= 'A' && c <= 'Z';
    }

    static boolean isDigit(char c) {
        return c >= '0' && c <= '9';
    }

    /** Whether a text starts with codes that are known, and holds nothing else but digits. */
    static boolean startsWithCode(String word) {
        int i = 0;
        while (i < word.length() && !isDigit(word.charAt(i))) {
            int end = -1;
            for (String code : PATHS) {
                end = word.startsWith(code, i) ? i + code.length() : end;
            }
            if (end < 0 && word.startsWith("NV", i)) {
                end = i + 2;
                while (end < word.length() && isDigit(word.charAt(end))) {
                    end++;
                }
                end = end == i + 2 ? -1 : end;
            }
            if (end < 0) {
                return false;
            }
            i = end;
        }
        return i > 0;
    }

    /** The ordinary case: words with separators between them, as many as there should be. */
    private boolean plain() {
        if (text.indexOf(Span.WRAP) >= 0) {
            return false;
        }
        PathCode[] codes = new PathCode[count];
        int[] at = new int[count];
        int i = 0;
        for (int k = 0; k < count; k++) {
            int from = skip(text, i);
            i = wordEnd(text, from);
            String word = text.substring(from, i);
            at[k] = from;
            if (elided[k]) {
                if (!isEllipsis(word)) {
                    return false;
                }
                codes[k] = PathMatrix.MISSING;
                continue;
            }
            PathCode code = PathCode.of(word);
            if (code.kind() == PathCode.Kind.UNKNOWN
                    && (!looksLikeCode(word) || startsWithCode(word) || isStates(word))) {
                return false;
            }
            if ((code.kind() == PathCode.Kind.SELF) != (k == diagonal)) {
                return false;
            }
            codes[k] = code;
        }
        if (!isTail(i)) {
            return false;
        }
        readings.add(new Reading(codes, at, i));
        return true;
    }

    private static boolean isStates(String word) {
        int i = 0;
        while (i < word.length()) {
            int end = -1;
            for (String code : STATES) {
                if (word.startsWith(code, i)) {
                    end = i + code.length();
                    break;
                }
            }
            if (end < 0) {
                return false;
            }
            i = end;
        }
        return true;
    }

    /** Whether no more codes follow: nothing, a list of numbers, or N/A. */
    private boolean isTail(int at) {
        int i = skip(text, at);
        if (i == text.length()) {
            return true;
        }
        char c = text.charAt(i);
        return isDigit(c) || match("N/A", i) > 0 || isEllipsis(text.substring(i, wordEnd(text, i)));
    }

    /** Depth first over the possible cells at a position; dead ends are visited only once. */
    private boolean search(int at, int cell, PathCode[] codes, int[] places) {
        if (readings.size() >= MAX_READINGS) {
            return true;
        }
        if (cell == count) {
            if (isTail(at)) {
                readings.add(new Reading(codes.clone(), places.clone(), at));
                return true;
            }
            return false;
        }
        long key = (long) at << 12 | cell;
        if (failed.contains(key)) {
            return false;
        }
        int from = skip(text, at);
        places[cell] = from;
        boolean found = false;
        int end = wordEnd(text, from);
        String word = text.substring(from, Math.min(end, from + 64));
        if (elided[cell]) {
            codes[cell] = PathMatrix.MISSING;
            found = isEllipsis(word) && search(end, cell + 1, codes, places);
        } else if (from < text.length()) {
            boolean any = false;
            for (String code : known) {
                int next = match(code, from);
                if (next > 0) {
                    any = true;
                    found |= step(PathCode.of(code), next, cell, codes, places);
                }
            }
            int next = known == PATHS ? match("NV", from) : -1;
            StringBuilder number = new StringBuilder("NV");
            while (next > 0 && number.length() < 5) {
                next = match("", next);
                if (next >= text.length() || !isDigit(text.charAt(next))) {
                    break;
                }
                number.append(text.charAt(next));
                next++;
                PathCode code = PathCode.of(number.toString());
                if (code.kind() == PathCode.Kind.NV) {
                    any = true;
                    found |= step(code, next, cell, codes, places);
                }
            }
            if (!any && looksLikeCode(word)) {
                PathCode code = PathCode.of(word);
                if (code.kind() == PathCode.Kind.UNKNOWN) {
                    found = step(code, end, cell, codes, places);
                }
            }
        }
        if (!found) {
            failed.add(key);
        }
        return found;
    }

    private boolean step(PathCode code, int next, int cell, PathCode[] codes, int[] places) {
        if ((code.kind() == PathCode.Kind.SELF) != (cell == diagonal)) {
            return false;
        }
        int i = next;
        while (i < text.length() && text.charAt(i) == Span.WRAP) {
            i++;
        }
        // A number right behind a code can only be the first cell behind all codes.
        if (i < text.length() && isDigit(text.charAt(i)) && i == next && cell + 1 < count) {
            return false;
        }
        codes[cell] = code;
        return search(next, cell + 1, codes, places);
    }

    /** Where a word ends that starts here, wraps not counted; negative if it does not. */
    private int match(String word, int from) {
        int i = from;
        for (int k = 0; k < word.length(); k++) {
            while (k > 0 && i < text.length() && text.charAt(i) == Span.WRAP) {
                i++;
            }
            if (i >= text.length() || text.charAt(i) != word.charAt(k)) {
                return -1;
            }
            i++;
        }
        if (word.isEmpty()) {
            while (i < text.length() && text.charAt(i) == Span.WRAP) {
                i++;
            }
        }
        return i;
    }

    /** Codes that can be made out at all, for a message. */
    static int codes(String text) {
        int n = 0;
        for (int i = skip(text, 0); i < text.length(); i = skip(text, wordEnd(text, i))) {
            String word = text.substring(i, Math.min(wordEnd(text, i), i + 64));
            if (isDigit(word.charAt(0)) || word.equals("N/A")) {
                break;
            }
            n++;
        }
        return n;
    }

    /**
     * What can be kept of a damaged row, if it has the right number of words and X where it should
     * be.
     *
     * @return a reading with {@link PathMatrix#MISSING} for words that are not codes, or none
     */
    static List<Reading> salvage(String text, int diagonal, int count) {
        PathCode[] codes = new PathCode[count];
        Arrays.fill(codes, PathMatrix.MISSING);
        int[] at = new int[count];
        if (codes(text) != count) {
            return List.of();
        }
        int i = 0;
        for (int k = 0; k < count; k++) {
            at[k] = skip(text, i);
            i = wordEnd(text, at[k]);
            PathCode code = PathCode.of(text.substring(at[k], i));
            boolean self = code.kind() == PathCode.Kind.SELF;
            if (self != (k == diagonal)) {
                return List.of();
            }
            if (code.kind() != PathCode.Kind.UNKNOWN) {
                codes[k] = code;
            }
        }
        return List.of(new Reading(codes, at, i));
    }
}
