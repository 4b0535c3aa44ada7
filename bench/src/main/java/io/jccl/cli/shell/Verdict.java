package io.jccl.cli.shell;

import picocli.CommandLine.Help.Ansi;

/**
 * Results in colour, for people: only where standard output is a terminal, and NO_COLOR is not set.
 */
public final class Verdict {
    private static final int RED = 31;
    private static final int GREEN = 32;
    private static final int YELLOW = 33;

    private Verdict() {}

    public static String good(String text) {
        return painted(text, GREEN, Ansi.AUTO.enabled());
    }

    public static String bad(String text) {
        return painted(text, RED, Ansi.AUTO.enabled());
    }

    public static String doubtful(String text) {
        return painted(text, YELLOW, Ansi.AUTO.enabled());
    }

    /** The word for good or bad. */
    public static String of(boolean good, String yes, String no) {
        return good ? good(yes) : bad(no);
    }

    static String painted(String text, int colour, boolean terminal) {
        return terminal ? "\033[" + colour + "m" + text + "\033[0m" : text;
    }
}
