package io.jccl.topology;

import java.util.BitSet;
import java.util.StringJoiner;
import java.util.regex.Pattern;

/**
 * Sets of CPUs in Linux's list format, such as {@code 0-3,8}; see cpuset(7), FORMATS.
 *
 * <p><b>Threads:</b> any.
 */
public final class CpuList {
    /** More than any machine has; bounds what a damaged list can make of a few bytes. */
    private static final int MAX_CPUS = 1 << 16;

    private static final Pattern RANGE = Pattern.compile("[0-9]{1,5}(-[0-9]{1,5})?");

    private CpuList() {}

    /**
     * Parses a list.
     *
     * @param text numbers and ranges of numbers below 65536
     * @return the numbers; none if the text is blank
     * @throws NumberFormatException if it is something else
     */
    public static BitSet parse(String text) {
        BitSet set = new BitSet();
        for (String part : text.isBlank() ? new String[0] : text.split(",", -1)) {
            if (!add(part.strip(), set)) {
                throw new NumberFormatException(
                        "'" + text + "' is not a list of CPUs, expected one such as 0-3,8");
            }
        }
        return set;
    }

    private static boolean add(String part, BitSet to) {
        if (!RANGE.matcher(part).matches()) {
            return false;
        }
        String[] ends = part.split("-", -1);
        int first = Integer.parseInt(ends[0]);
        int last = Integer.parseInt(ends[ends.length - 1]);
        if (last < first || last >= MAX_CPUS) {
            return false;
        }
        to.set(first, last + 1);
        return true;
    }

    /**
     * Formats a set.
     *
     * @param cpus the numbers
     * @return such as {@code 0-3,8}; empty for none
     */
    public static String text(BitSet cpus) {
        StringJoiner all = new StringJoiner(",");
        for (int first = cpus.nextSetBit(0); first >= 0; ) {
            int end = cpus.nextClearBit(first);
            all.add(end == first + 1 ? "" + first : first + "-" + (end - 1));
            first = cpus.nextSetBit(end);
        }
        return all.toString();
    }
}
