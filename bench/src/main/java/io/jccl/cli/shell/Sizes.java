package io.jccl.cli.shell;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Sizes in bytes as the command line takes them, and the sequences that a run goes through. */
public final class Sizes {
    /** More lines than anyone reads: a step that was meant to be larger. */
    private static final int MAX_LINES = 100_000;

    private static final String UNITS = "KMGT";

    private Sizes() {}

    /** Turns an option's value into bytes. */
    public static final class Converter implements ITypeConverter<Long> {
        @Override
        public Long convert(String value) {
            return parse(value);
        }
    }

    /**
     * Parses a size.
     *
     * @param text a whole number, with K, M, G or T for powers of 1024
     * @return bytes
     * @throws TypeConversionException if it is none
     */
    static long parse(String text) {
        String t = text.trim().toUpperCase(Locale.ROOT);
        int unit = t.isEmpty() ? -1 : UNITS.indexOf(t.charAt(t.length() - 1));
        String digits = unit < 0 ? t : t.substring(0, t.length() - 1);
        int shift = 10 * (unit + 1);
        try {
            long number = Long.parseLong(digits);
            if (number >= 0 && number <= Long.MAX_VALUE >> shift) {
                return number << shift;
            }
        } catch (NumberFormatException e) {
            // Reported below, with the other ways to be wrong.
        }
        throw new TypeConversionException(
                "'"
                        + text
                        + "' is not a size; give a whole number of bytes, or one with K, M, G or"
                        + " T after it (powers of 1024), such as 8, 64K or 1G");
    }

    /**
     * The sizes of a run, smallest first.
     *
     * @param min first
     * @param max none is larger
     * @param stepBytes what is added each time, used if factor is 1
     * @param factor what is multiplied with each time
     * @return at least one size
     * @throws IllegalArgumentException if the sequence is empty, endless or absurdly long
     */
    public static List<Long> sequence(long min, long max, long stepBytes, int factor) {
        if (min > max) {
            throw new IllegalArgumentException(
                    "-b is "
                            + min
                            + " and -e "
                            + max
                            + " bytes; the smallest size must not exceed the largest: raise -e or"
                            + " lower -b");
        }
        if (factor > 1 && min == 0 && max > 0) {
            throw new IllegalArgumentException(
                    "-b 0 never grows by the factor "
                            + factor
                            + "; start with -b 1 or larger, or use steps: -i SIZE without -f");
        }
        if (factor <= 1 && (max - min) / stepBytes >= MAX_LINES) {
            throw new IllegalArgumentException(
                    "from "
                            + min
                            + " to "
                            + max
                            + " bytes in steps of "
                            + stepBytes
                            + " makes more than "
                            + MAX_LINES
                            + " lines; give a larger -i, or a factor such as -f 2");
        }
        List<Long> sizes = new ArrayList<>();
        for (long size = min; size <= max; ) {
            sizes.add(size);
            if (factor > 1) {
                if (size == 0 || size > Long.MAX_VALUE / factor) {
                    break;
                }
                size *= factor;
            } else {
                if (size > Long.MAX_VALUE - stepBytes) {
                    break;
                }
                size += stepBytes;
            }
        }
        return List.copyOf(sizes);
    }

    /**
     * A size for people.
     *
     * @param bytes how many
     * @return such as {@code 64K}; exact numbers only
     */
    public static String format(long bytes) {
        int unit = 0;
        long number = bytes;
        while (unit < UNITS.length() && number != 0 && number % 1024 == 0) {
            number /= 1024;
            unit++;
        }
        return number + (unit == 0 ? "" : UNITS.substring(unit - 1, unit));
    }
}
