package io.jccl.cli.shell;

import java.util.ArrayList;
import java.util.List;

/** The sequences of sizes that a run goes through, and sizes as text. */
public final class Sizes {
    /** More lines than anyone reads: a step that was meant to be larger. */
    private static final int MAX_LINES = 100_000;

    private static final String UNITS = "KMGT";

    private Sizes() {}

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
