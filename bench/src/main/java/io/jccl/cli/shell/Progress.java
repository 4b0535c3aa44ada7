package io.jccl.cli.shell;

import java.io.Console;
import java.io.PrintWriter;
import java.io.Writer;
import java.util.Locale;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;

/**
 * One line on a terminal's standard error that says what a long run is at. It is erased before
 * anything else is printed, and never written to a pipe or a file.
 */
public final class Progress {
    private static final long PATIENCE_NANOS = 1_000_000_000L;
    private static final long PACE_NANOS = 100_000_000L;
    private static final String ERASE = "\r\033[K";

    private final PrintWriter err;
    private final BooleanSupplier terminal;
    private final LongSupplier clock;
    private final long start;
    private State state = State.QUIET;

    // What rate and time left are taken from: when this total was first heard of.
    private long total = -1;
    private long base;
    private long baseNanos;
    private long shownNanos;

    private enum State {
        /** Nobody has waited long enough to be told. */
        QUIET,
        /** There is a terminal. */
        ON,
        /** There is none. */
        OFF,
        /** The line is on the screen. */
        SHOWN
    }

    Progress(PrintWriter err, BooleanSupplier terminal, LongSupplier clock) {
        this.err = err;
        this.terminal = terminal;
        this.clock = clock;
        this.start = clock.getAsLong();
    }

    public static Progress to(PrintWriter err) {
        return new Progress(err, Progress::isTerminal, System::nanoTime);
    }

    public static Progress none() {
        return new Progress(new PrintWriter(Writer.nullWriter()), () -> false, () -> 0);
    }

    @SuppressWarnings("SystemConsoleNull") // since Java 25 it may be null again
    private static boolean isTerminal() {
        Console console = System.console();
        return console != null && console.isTerminal();
    }

    /** Shows a line, if the run has lasted a second. */
    public void show(String text) {
        if (state == State.QUIET && clock.getAsLong() - start > PATIENCE_NANOS) {
            // Not asked before: it loads the console's classes.
            state = terminal.getAsBoolean() ? State.ON : State.OFF;
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
        long now = clock.getAsLong();
        if (all != total || done < base) {
            total = all;
            base = done;
            baseNanos = now;
        } else if (now - shownNanos < PACE_NANOS) {
            return;
        }
        shownNanos = now;
        String text = what + ": " + done + " of " + all + " " + unit;
        if (done > base && now > baseNanos) {
            double perSecond = (done - base) * 1e9 / (now - baseNanos);
            text +=
                    String.format(
                            Locale.ROOT,
                            perSecond < 10 ? ", %.2f/s, %s left" : ", %.0f/s, %s left",
                            perSecond,
                            time(Math.round((all - done) / perSecond)));
        }
        show(text);
    }

    private static String time(long seconds) {
        return seconds < 3600
                ? String.format(Locale.ROOT, "%d:%02d", seconds / 60, seconds % 60)
                : String.format(
                        Locale.ROOT,
                        "%d:%02d:%02d",
                        seconds / 3600,
                        seconds / 60 % 60,
                        seconds % 60);
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
