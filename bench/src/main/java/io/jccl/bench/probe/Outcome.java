package io.jccl.bench.probe;

import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * How a measurement ended.
 *
 * @param status how
 * @param note why there is no figure, or what limits it; null if there is nothing to say
 * @param timing the times; null if there are none
 */
public record Outcome(Status status, @Nullable String note, @Nullable Timing timing) {
    /** How a measurement ended. */
    public enum Status {
        /** There is a figure, and what was computed is right. */
        MEASURED,
        /** It does not fit memory or the time budget. */
        SKIPPED,
        /** The engine or the device has no such operation. */
        LACKING,
        /** What was computed is wrong. */
        WRONG,
        /** It ended with an error. */
        FAILED;

        /** As in JSON. */
        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    static Outcome measured(Timing timing) {
        return new Outcome(Status.MEASURED, null, timing);
    }

    static Outcome skipped(String note) {
        return new Outcome(Status.SKIPPED, note, null);
    }

    static Outcome lacking(String note) {
        return new Outcome(Status.LACKING, note, null);
    }

    static Outcome wrong(String note) {
        return new Outcome(Status.WRONG, note, null);
    }

    static Outcome lacking(Throwable cause) {
        return lacking(oneLine(cause));
    }

    static Outcome failed(Throwable cause) {
        return new Outcome(Status.FAILED, oneLine(cause), null);
    }

    private static String oneLine(Throwable cause) {
        String message = cause.getMessage();
        return (message == null ? cause.toString() : message).replaceAll("\\s*\\R\\s*", " ");
    }

    Outcome withNote(String text) {
        return new Outcome(status, text, timing);
    }

    /** Whether the probe has to end with a failure. */
    boolean isBad() {
        return status == Status.WRONG || status == Status.FAILED;
    }

    /** Some unit per second, for so many of them in an operation; null without a time. */
    @Nullable Double rate(double perOperation) {
        return timing == null ? null : Double.valueOf(perOperation / timing.medianSeconds());
    }
}
