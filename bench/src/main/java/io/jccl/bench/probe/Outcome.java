package io.jccl.bench.probe;

import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of a measurement.
 *
 * @param status status
 * @param note why there is no figure, or its limit; null if none
 * @param timing the times; null if there are none
 */
public record Outcome(Status status, @Nullable String note, @Nullable Timing timing) {
    /** Status of a measurement. */
    public enum Status {
        /** Measured, and the result is correct. */
        MEASURED,
        /** Skipped: exceeds memory or the time budget. */
        SKIPPED,
        /** Not supported by the engine or the device. */
        LACKING,
        /** The result is wrong. */
        WRONG,
        /** An error occurred. */
        FAILED;

        /** The name in JSON. */
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

    /** Whether the probe must report failure. */
    boolean isBad() {
        return status == Status.WRONG || status == Status.FAILED;
    }

    /** Units per second, given the units per operation; null without a time. */
    @Nullable Double rate(double perOperation) {
        return timing == null ? null : Double.valueOf(perOperation / timing.medianSeconds());
    }
}
