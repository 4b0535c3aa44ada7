package io.jccl.cli.shell;

import static io.jccl.cli.shell.Text.format;

import java.io.Console;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/**
 * One line on a terminal's standard error that shows the progress of a long run. It is erased
 * before anything else is printed. To a pipe or a file nothing is written, unless JCCL_PROGRESS is
 * 1: then a line every few seconds. If it is 0 nothing is written at all.
 */
public final class Progress {
    private static final long PATIENCE_NANOS = 1_000_000_000L;
    private static final long PACE_NANOS = 100_000_000L;
    private static final long LINE_NANOS = 5_000_000_000L;
    private static final String VARIABLE = "JCCL_PROGRESS";
    private static final Path ERROR = Path.of("/proc/self/fd/2");
    private static final int PARTS = 1_000_000;
    private static final String ERASE = "\r\033[K";

    private final PrintWriter err;
    private final BooleanSupplier terminal;
    private final String asked;
    private final LongSupplier clock;
    private final long start;
    private State state = State.QUIET;

    // What rate and time left are taken from: when this total was first heard of.
    private long total = -1;
    private long base;
    private long baseNanos;
    private long shownNanos;
    private long lineNanos;

    private enum State {
        /** Not shown yet: the run is still short. */
        QUIET,
        /** There is a terminal. */
        ON,
        /** There is none. */
        OFF,
        /** There is none, and lines are wanted nevertheless. */
        LINES,
        /** The line is on the screen. */
        SHOWN
    }

    /**
     * Progress for tests; programs call {@link #to}.
     *
     * @param err where the line goes
     * @param terminal whether that is a terminal
     * @param asked value of JCCL_PROGRESS
     * @param clock in nanoseconds
     */
    public Progress(PrintWriter err, BooleanSupplier terminal, String asked, LongSupplier clock) {
        this.err = err;
        this.terminal = terminal;
        this.asked = asked;
        this.clock = clock;
        this.start = clock.getAsLong();
    }

    public static Progress to(PrintWriter err) {
        String asked = Objects.requireNonNullElse(System.getenv(VARIABLE), "");
        return new Progress(err, Progress::isTerminal, asked, System::nanoTime);
    }

    public static Progress none() {
        return new Progress(new PrintWriter(Writer.nullWriter()), () -> false, "0", () -> 0);
    }

    /** Whether standard error can erase a line; off Linux, whether there is a console. */
    @SuppressWarnings("SystemConsoleNull") // since Java 25 it may be null again
    private static boolean isTerminal() {
        if ("dumb".equals(System.getenv("TERM"))) {
            return false;
        }
        try {
            return isTerminal(Files.readSymbolicLink(ERROR).toString());
        } catch (IOException | UnsupportedOperationException e) {
            // Not Linux.
        }
        Console console = System.console();
        return console != null && console.isTerminal();
    }

    static boolean isTerminal(String file) {
        return file.matches("/dev/(pts/.*|tty.*|console)");
    }

    /** Shows a line, if the run has lasted a second. */
    public void show(String text) {
        long now = clock.getAsLong();
        if (state == State.QUIET && now - start > PATIENCE_NANOS) {
            // Not asked before: it may load the console's classes.
            state =
                    asked.equals("0")
                            ? State.OFF
                            : terminal.getAsBoolean()
                                    ? State.ON
                                    : asked.equals("1") ? State.LINES : State.OFF;
            lineNanos = now - LINE_NANOS;
        }
        if (state == State.LINES && now - lineNanos >= LINE_NANOS) {
            lineNanos = now;
            err.println(text);
            err.flush();
        }
        if (state == State.ON || state == State.SHOWN) {
            err.print(ERASE + text);
            err.flush();
            state = State.SHOWN;
        }
    }

    /**
     * Shows how much of a run is done, at what rate, and when the rest will be; not more than ten
     * times a second.
     *
     * @param what the run, or the part of it that is under way
     * @param done how many are done
     * @param all how many there are
     * @param unit what they are, in the plural
     */
    public void at(String what, long done, long all, String unit) {
        at(what + ": " + done + " of " + all + " " + unit, done, all, true);
    }

    /**
     * The same where what is done cannot be counted.
     *
     * @param what the run, or the part of it that is under way
     * @param share how much of the time it takes is over, from 0 to 1
     */
    public void at(String what, double share) {
        double s = Math.clamp(share, 0, 1);
        at(what + ": " + Math.round(100 * s) + " %", Math.round(PARTS * s), PARTS, false);
    }

    private void at(String said, long done, long all, boolean counted) {
        long now = clock.getAsLong();
        if (all != total || done < base) {
            total = all;
            base = done;
            baseNanos = now;
        } else if (now - shownNanos < PACE_NANOS) {
            return;
        }
        shownNanos = now;
        String text = said;
        if (done > base && now > baseNanos) {
            double perSecond = (done - base) * 1e9 / (now - baseNanos);
            if (counted) {
                text += format(perSecond < 10 ? ", %.2f/s" : ", %.0f/s", perSecond);
            }
            text += ", " + time(Math.round((all - done) / perSecond)) + " left";
        }
        show(text);
    }

    private static String time(long seconds) {
        return seconds < 3600
                ? format("%d:%02d", seconds / 60, seconds % 60)
                : format("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }

    /** Erases the line. */
    public void erase() {
        if (state == State.SHOWN) {
            err.print(ERASE);
            err.flush();
            state = State.ON;
        }
    }
}
