package io.jccl.cli.doctor;

import io.jccl.cli.shell.Output;
import java.util.Locale;

/** Formats values for the report. */
final class Texts {
    private static final int EXCERPT = 60;
    private static final String[] UNITS = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

    private Texts() {}

    /** A size; -1 means no limit. */
    static String bytes(long bytes) {
        if (bytes < 0) {
            return "unlimited";
        }
        double value = bytes;
        int unit = 0;
        while (value >= 1024 && unit < UNITS.length - 1) {
            value /= 1024;
            unit++;
        }
        return unit == 0 ? bytes + " B" : String.format(Locale.ROOT, "%.1f %s", value, UNITS[unit]);
    }

    /** A number; -1 means no limit. */
    static String limit(long number) {
        return number < 0 ? "unlimited" : Long.toString(number);
    }

    /** The value, or {@code unknown (reason)}. */
    static String text(Reading<?> reading) {
        return switch (reading) {
            case Reading.Known<?>(Object value) -> value.toString();
            case Reading.Unknown<?>(String reason) -> "unknown (" + reason + ")";
        };
    }

    /** One line of a text that may be long and contain control characters. */
    static String excerpt(String text) {
        String line = Output.oneLine(text);
        return line.length() <= EXCERPT ? line : line.substring(0, EXCERPT) + "...";
    }
}
